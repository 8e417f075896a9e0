"""Identity of the GPU at hand, its state, and its measured ceilings.

NVML is asked for each thing on its own: WSL 2, MIG and virtual GPUs answer only some of it.
"""

import functools
import os
import platform
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from kernels.runtime import probes
from kernels.runtime.compile import compile_ptx
from kernels.runtime.gpu import device_target, load_ptx, prepare_launch, require_gpu
from kernels.version import Kernel, Launch

from ..errors import Refused
from .provenance import commit
from .timing import elapsed_us

# Why clocks are below what was asked, by NVML's bits (nvmlClocksEventReason*).
REASONS = {
    0x4: "power_cap",
    0x8: "hardware_slowdown",
    0x20: "thermal_slowdown",
    0x40: "hardware_thermal_slowdown",
    0x80: "power_brake",
}

GB = 1e9
REPEATS = 8
CALLS = 1000
TILE = (32, 64, 64)  # rows, columns and depth of the matrix product that the log measured alone


# ---------------------------------------------------------------- what NVML says


def uuid() -> str:
    """The UUID of torch's current GPU as NVIDIA's tools write it, "GPU-..." or "MIG-..."."""
    found = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return found if found.startswith(("GPU-", "MIG-")) else f"GPU-{found}"


@functools.cache
def opened(card: str | None = None) -> tuple[Any, Any] | None:
    """NVML and its handle of a GPU, by default torch's current one; None where NVML does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(card or uuid())
    except Exception:  # of NVML, of torch, or there is no such library
        return None


def ask(name: str, *arguments: Any, card: str | None = None) -> Any:
    """The value of an entry of NVML for a GPU, or None where this card or this NVML has none."""
    if (found := opened(card)) is None:
        return None
    nvml, handle = found
    try:
        return getattr(nvml, name)(handle, *arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def sm_mhz() -> int | None:
    """The SM clock now, MHz."""
    return ask("nvmlDeviceGetClockInfo", 1)  # NVML_CLOCK_SM


def driver(card: str | None = None) -> str | None:
    found = opened(card)
    return None if found is None else found[0].nvmlSystemGetDriverVersion()


def throttle() -> frozenset[str] | None:
    """Why the clocks are below what was asked now; empty where they are not."""
    mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if mask is None:  # a driver that has only the older name
        mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return None if mask is None else frozenset(reason for bit, reason in REASONS.items() if mask & bit)


# ---------------------------------------------------------------- the card and the software


def slug(name: str) -> str:
    """`"NVIDIA H200"` to `"nvidia-h200"`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def identity() -> dict[str, Any]:
    """Name, UUID, compute capability, SMs, memory and L2 of the current GPU, and the dtype of its tensor cores."""
    properties = torch.cuda.get_device_properties(require_gpu())
    return {
        "name": properties.name,
        "slug": slug(properties.name),
        "uuid": uuid(),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "tensor_dtype": "bfloat16" if properties.major >= 8 else "float16",
    }


def environment() -> dict[str, Any]:
    """The fields of run.json that describe machine and software; None what NVML does not say."""
    milliwatts = ask("nvmlDeviceGetEnforcedPowerLimit")
    return {
        "node": platform.node(),
        "driver": driver() or "unknown",
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        "numba": version("numba"),
        "numba_cuda": version("numba-cuda"),
        "torch": torch.__version__,
        "sm_mhz_max": ask("nvmlDeviceGetMaxClockInfo", 1),
        "power_limit_w": None if milliwatts is None else milliwatts // 1000,
        "commit": commit(),
    }


def now() -> str:
    """This moment, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def toolkit(program: str) -> str:
    """The path of a program of the CUDA toolkit."""
    folders = [os.path.join(root, "bin") for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    path = shutil.which(program) or shutil.which(program, path=os.pathsep.join(folders))
    if not path:
        raise Refused(
            f"{program} is neither on the PATH nor in {' or '.join(folders)}; "
            "it comes with the CUDA toolkit: set CUDA_HOME to where that is"
        )
    return path


# ---------------------------------------------------------------- what it reaches at most


def _median_us(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    work()
    torch.cuda.synchronize()
    return float(np.median([elapsed_us(work) for _ in range(repeats)]))


def warm_up(seconds: float = 0.5) -> None:
    """Keep the GPU busy until its clocks are up."""
    a = torch.randn(4096, 4096, device="cuda")
    elapsed_us = 0.0
    while elapsed_us < seconds * 1e6:
        elapsed_us += _median_us(lambda: a @ a, repeats=1)


def _launch(kernel: Kernel, grid: int, block: int, *values: Any) -> Callable[[], None]:
    function = load_ptx(compile_ptx(kernel, device_target()))
    return prepare_launch(function, Launch(kernel, (grid,), (block,), values), values)


def _read_gb_s(nbytes: int, passes: int, sms: int, most: float) -> float:
    """The best of the two largest grids that read at most `most` bytes at a time, in whole rounds of about `nbytes`."""
    rounds = {blocks * sms: blocks * sms * 256 * 4 * probes.READ_UNROLL for blocks in (1, 2, 4, 8)}  # floats
    grids = [grid for grid, floats in rounds.items() if 4 * floats <= most][-2:] or [sms]
    rates = []
    for grid in grids:
        x = torch.rand(max(nbytes // 4 // rounds[grid], 1) * rounds[grid], device="cuda")
        out = torch.zeros(1, device="cuda")
        read = _launch(probes.READ, grid, 256, x.data_ptr(), out.data_ptr(), x.numel(), passes)
        rates.append(4 * x.numel() * passes / GB / (_median_us(read) * 1e-6))
    return max(rates)


def _call_us(call: Callable[[], Any]) -> tuple[float, float]:
    """One of many calls: in a CUDA graph, and from the host back to back."""

    def loop() -> None:
        for _ in range(CALLS):
            call()

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loop()
    return _median_us(graph.replay) / CALLS, _median_us(loop) / CALLS


def tile_product(device: str) -> Callable[[], torch.Tensor]:
    """One call of PyTorch for the product A B / 8 of the log's shape, in half precision, B by columns."""
    rows, columns, depth = TILE
    a = torch.randn(rows, depth, device=device).half()
    b = torch.randn(columns, depth, device=device).half().t()
    out = a.new_empty(rows, columns)
    return lambda: out.addmm_(a, b, beta=0, alpha=1 / 8)


def ceilings() -> dict[str, float]:
    """Rates this GPU reaches on work made for them; medians of repeated runs."""
    card = identity()
    sms, free = card["sms"], torch.cuda.mem_get_info()[0]
    nbytes = max(1, min(4 << 30, free // 4) >> 20) << 20
    read = _read_gb_s(nbytes, 1, sms, nbytes)
    l2_read = _read_gb_s(card["l2_bytes"] // 2, 64, sms, 0.75 * card["l2_bytes"])

    rounds, blocks, threads = 4096, 8 * sms, 256
    out = torch.zeros(1, device="cuda")
    fma = _launch(probes.MULTIPLY_ADD, blocks, threads, out.data_ptr(), rounds, 0.5)
    operations = 2 * blocks * threads * rounds * probes.FMA_STEPS * probes.FMA_CHAINS

    side = next((side for side in (8192, 4096) if 6 * side**2 <= free // 2), 2048)  # three matrices of 2 bytes
    a, b = (torch.randn(side, side, device="cuda", dtype=getattr(torch, card["tensor_dtype"])) for _ in range(2))
    tensor_us = _median_us(lambda: a @ b)

    empty_us, empty_launch_us = _call_us(_launch(probes.EMPTY, 1, 32))
    tile_us, tile_launch_us = _call_us(tile_product("cuda"))
    return {
        "read_gb_s": round(read, 1),
        "l2_read_gb_s": round(l2_read, 1),
        "fp32_tflops": round(operations / (_median_us(fma) * 1e-6) / 1e12, 2),
        "tensor_tflops": round(2 * side**3 / (tensor_us * 1e-6) / 1e12, 1),
        "empty_kernel_us": round(empty_us, 3),
        "empty_launch_us": round(empty_launch_us, 3),
        "one_tile_gemm_us": round(tile_us, 3),
        "one_tile_gemm_launch_us": round(tile_launch_us, 3),
    }
