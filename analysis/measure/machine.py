"""What the GPU at hand is, how it stands, and what it can do at most, measured."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from kernels.runtime import probes
from kernels.runtime.compile import compile_ptx
from kernels.runtime.gpu import device_target, load_ptx, prepare_launch, require_gpu
from kernels.version import Kernel

from . import nvml
from .provenance import commit
from .timing import US_PER_MS

GB = 1e9
STREAM_BYTES = 4 << 30
L2_SHARE = 0.5
MOST_OF_L2 = 0.75  # that the least a grid can read may take
BLOCKS_PER_SM = (1, 2, 4, 8)  # of the grids that read; the best of the two largest that fit
REPEATS = 8
CALLS = 1000
TILE = (32, 64, 64)  # rows, columns and depth of the matrix product that the log measured alone
TILES = 1024  # of that size in the scores of its fp16 problem: 8 heads of 16 by 8


def slug(name: str) -> str:
    """`"NVIDIA H200"` to `"nvidia-h200"`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def identity() -> dict[str, Any]:
    """Name, UUID, compute capability, SMs, memory and L2 of the current GPU."""
    properties = torch.cuda.get_device_properties(require_gpu())
    return {
        "name": properties.name,
        "slug": slug(properties.name),
        "uuid": nvml.uuid(),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
    }


def _median_us(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * US_PER_MS)
    return float(np.median(times))


def _launch(kernel: Kernel, grid: int, block: int, values: Sequence[Any], types: Sequence[Any]) -> Callable[[], None]:
    function = load_ptx(compile_ptx(kernel, device_target()))
    return prepare_launch(function, (grid,), (block,), values, types)


def _rounds(sms: int, most: float) -> list[tuple[int, int]]:
    """Blocks of the two largest grids whose round is of at most `most` bytes, with the floats of a round."""
    rounds = [(blocks * sms, blocks * sms * 256 * 4 * probes.READ_UNROLL) for blocks in BLOCKS_PER_SM]
    return [each for each in rounds if 4 * each[1] <= most][-2:] or rounds[:1]


def _read_gb_s(nbytes: int, passes: int, sms: int, most: float) -> float:
    """The best of two grids, over about `nbytes`: a whole number of rounds, the kernel reads nothing less."""
    types = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
    rates = []
    for blocks, one_round in _rounds(sms, most):
        x = torch.rand(max(nbytes // 4 // one_round, 1) * one_round, device="cuda")
        out = torch.zeros(1, device="cuda")
        values = (x.data_ptr(), out.data_ptr(), x.numel(), passes)
        us = _median_us(_launch(probes.READ, blocks, 256, values, types))
        rates.append(4 * x.numel() * passes / GB / (us * 1e-6))
    return max(rates)


def _write_and_copy_gb_s(nbytes: int) -> tuple[float, float]:
    source = torch.rand(nbytes // 4, device="cuda")
    target = torch.empty_like(source)
    copy_us = _median_us(lambda: target.copy_(source))
    write_us = _median_us(lambda: target.fill_(1.0))
    return nbytes / GB / (write_us * 1e-6), 2 * nbytes / GB / (copy_us * 1e-6)


def _call_us(call: Callable[[], Any]) -> tuple[float, float]:
    """One of many calls: in a CUDA graph, and from the host back to back."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()

    def loop() -> None:
        for _ in range(CALLS):
            call()

    return _median_us(graph.replay) / CALLS, _median_us(loop) / CALLS


def tile_product(tiles: int, device: str) -> Callable[[], torch.Tensor]:
    """One call of PyTorch for `tiles` products A B / 8 of the log's shape, in half precision, B by columns."""
    rows, columns, depth = TILE
    batch = (tiles,) if tiles > 1 else ()
    a = torch.randn(*batch, rows, depth, device=device).half()
    b = torch.randn(*batch, columns, depth, device=device).half().transpose(-1, -2)
    out = a.new_empty(*batch, rows, columns)
    multiply = out.baddbmm_ if batch else out.addmm_
    return lambda: multiply(a, b, beta=0, alpha=1 / 8)


def stream_bytes(free: int) -> int:
    """Bytes of a stream, of which two must fit: a quarter of what is free, in whole MiB."""
    return max(1, min(STREAM_BYTES, free // 4) >> 20) << 20


def matrix_side(free: int) -> int:
    """The largest of three that leaves room: a product has three matrices of 2 bytes an element."""
    return next((side for side in (8192, 4096) if 6 * side**2 <= free // 2), 2048)


def tensor_dtype(major: int) -> torch.dtype:
    """bfloat16, which tensor cores have since compute capability 8.0; float16 before."""
    return torch.bfloat16 if major >= 8 else torch.float16


def ceilings() -> dict[str, float]:
    """Rates this GPU reaches on work made for them; medians of repeated runs."""
    properties = torch.cuda.get_device_properties(require_gpu())
    sms = properties.multi_processor_count
    free, _ = torch.cuda.mem_get_info()
    nbytes = stream_bytes(free)
    write, copy = _write_and_copy_gb_s(nbytes)
    read = _read_gb_s(nbytes, 1, sms, nbytes)
    # Without an L2 of known size the smallest round is read.
    l2 = properties.L2_cache_size
    l2_read = _read_gb_s(int(l2 * L2_SHARE) // 4096 * 4096, 64, sms, MOST_OF_L2 * l2)

    rounds, blocks, threads = 4096, 8 * sms, 256
    out = torch.zeros(1, device="cuda")
    types = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_float)
    fma = _launch(probes.MULTIPLY_ADD, blocks, threads, (out.data_ptr(), rounds, 0.5), types)
    operations = 2 * blocks * threads * rounds * probes.FMA_STEPS * probes.FMA_CHAINS

    side, dtype = matrix_side(free), tensor_dtype(properties.major)
    a = torch.randn(side, side, device="cuda", dtype=dtype)
    b = torch.randn(side, side, device="cuda", dtype=dtype)
    tensor_us = _median_us(lambda: a @ b)

    empty_us, empty_launch_us = _call_us(_launch(probes.EMPTY, 1, 32, (), ()))
    tile_us, tile_launch_us = _call_us(tile_product(1, "cuda"))
    tiles_us, _ = _call_us(tile_product(TILES, "cuda"))

    return {
        "read_gb_s": round(read, 1),
        "write_gb_s": round(write, 1),
        "copy_gb_s": round(copy, 1),
        "l2_read_gb_s": round(l2_read, 1),
        "fp32_tflops": round(operations / (_median_us(fma) * 1e-6) / 1e12, 2),
        "tensor_tflops": round(2 * side**3 / (tensor_us * 1e-6) / 1e12, 1),
        "empty_kernel_us": round(empty_us, 3),
        "empty_launch_us": round(empty_launch_us, 3),
        "one_tile_gemm_us": round(tile_us, 3),
        "one_tile_gemm_launch_us": round(tile_launch_us, 3),
        "all_tiles_gemm_us": round(tiles_us, 3),
    }


def environment() -> dict[str, Any]:
    """The columns of runs.csv that describe machine and software; None what NVML does not say."""
    return {
        "node": platform.node(),
        "driver": nvml.driver() or "unknown",
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        "numba": version("numba"),
        "numba_cuda": version("numba-cuda"),
        "torch": torch.__version__,
        "sm_mhz_max": nvml.sm_mhz_max(),
        "power_limit_w": nvml.power_limit_w(),
        "commit": commit(),
    }


def now() -> str:
    """This moment, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def warm_up(seconds: float = 0.5) -> None:
    """Keep the GPU busy until its clocks are up."""
    a = torch.randn(4096, 4096, device="cuda")
    elapsed_us = 0.0
    while elapsed_us < seconds * 1e6:
        elapsed_us += _median_us(lambda: a @ a, repeats=1)
