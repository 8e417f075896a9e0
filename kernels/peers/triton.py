"""Fused attention in Triton, in the style of Triton's own tutorial, with RoPE inside the kernel.

The kernels are in triton_kernels.py. `triton.autotune` chooses the fastest of a few tile sizes on the first call with a
problem and caches the choice on disk. Float32 products are three TF32 products each ("tf32x3") or FFMA instructions
("ieee"); never one TF32 product, Triton's default.
"""

import functools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ..constants import require
from ..version import Problem, Refusal, Unsupported
from .pytorch import PEER_TAKES, Attention, Tables, peer, require_positions, require_tile, rope_tables
from .triton_kernels import attend, attend_by_slices, triton

# For head dims up to the key: BLOCK_M, BLOCK_N, num_warps, num_stages. Larger ones do not fit, or spill.
TILES = {
    128: (
        (16, 32, 4, 2), (16, 32, 8, 1), (32, 32, 8, 1), (32, 32, 8, 2), (64, 32, 4, 2), (64, 32, 8, 2), (128, 32, 8, 2)
    ),
    256: ((16, 16, 4, 2), (16, 16, 8, 1), (16, 32, 8, 1), (16, 32, 8, 2), (32, 32, 8, 1), (64, 16, 8, 2)),
    512: ((16, 16, 4, 2), (16, 16, 8, 1), (16, 16, 8, 2), (16, 16, 16, 1), (32, 16, 16, 1)),
    1024: ((16, 16, 8, 1), (16, 16, 16, 1)),
}  # fmt: skip
# With slices of the head dim: BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_V, num_warps, num_stages.
SLICES = (
    (16, 16, 64, 64, 4, 2), (16, 64, 64, 128, 4, 2), (16, 32, 128, 256, 4, 2), (16, 32, 128, 512, 8, 2),
    (32, 64, 64, 128, 4, 2), (64, 64, 64, 64, 4, 2), (64, 64, 64, 128, 8, 2), (64, 32, 64, 256, 8, 2),
)  # fmt: skip
SLICE = 64  # dims; the head dim is a multiple
MOST_KEYS = 64  # the largest BLOCK_N
TUNED_BY = ("pairs", "programs", "seq_q", "seq_k", "q_offset", "HDIM", "CAUSAL", "MASKED", "PRECISION")
TUNING_MS = 2


def arguments(
    problem: Problem, precision: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tables: Tables
) -> tuple[tuple[Any, ...], dict[str, Any], torch.Tensor]:
    """Positional arguments and constants of `attend`, and the output tensor."""
    out, of = torch.empty_like(q), problem
    counts = of.rotary_dim // 2, of.heads // of.kv_heads, of.batch * of.heads, of.seq_q, of.seq_k, of.q_offset
    arrays, numbers = (q, k, v, out, *tables), (*counts, of.softmax_scale * math.log2(math.e))
    constants = {
        "HDIM": problem.hdim,
        "CAUSAL": problem.causal,
        "MASKED": problem.causal or problem.seq_k % MOST_KEYS != 0,
        "PRECISION": precision,
    }
    return (*arrays, *numbers), constants, out


def _tiles(hdim: int, sliced: bool) -> list[tuple[dict[str, int], int, int]]:
    """Blocks, warps and stages to try for a head dim."""
    if not sliced:
        whole = TILES[min(size for size in TILES if size >= hdim)]
        return [({"BLOCK_M": m, "BLOCK_N": n}, warps, stages) for m, n, warps, stages in whole]
    return [
        ({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_D": d, "BLOCK_V": v}, warps, stages)
        for m, n, d, v, warps, stages in SLICES
        if hdim % d == hdim % v == 0
    ]


@functools.cache
def _tuned(hdim: int, sliced: bool) -> Any:
    """The autotuned kernel for a head dim. Raises: Unsupported without Triton."""
    missing = "{needed} is not installed; {allowed} bring it"
    require(triton is not None, "library", "Triton", "PyTorch's builds for CUDA", missing)
    from triton.testing import do_bench_cudagraph

    return triton.autotune(
        [triton.Config(blocks, num_warps=warps, num_stages=stages) for blocks, warps, stages in _tiles(hdim, sliced)],
        key=TUNED_BY,
        do_bench=functools.partial(do_bench_cudagraph, rep=TUNING_MS),
        cache_results=True,
    )(attend_by_slices if sliced else attend)


def _attention(problem: Problem, precision: str, sliced: bool = False) -> Attention:
    """Attention that loops over keys, and with `sliced` over the head dim as well. Raises: Unsupported."""
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32", PEER_TAKES)
    if sliced:
        takes = "hdim is {needed}; slices of a head dim take {allowed}"
        require(problem.hdim % SLICE == 0, "hdim", problem.hdim, f"a multiple of {SLICE}", takes)
    else:
        whole = problem.hdim >= 16 and problem.hdim & (problem.hdim - 1) == 0
        takes = "hdim is {needed}; a Triton tile takes {allowed}"
        require(whole, "hdim", problem.hdim, "a power of two, 16 or more", takes)
        require_tile(problem)
    require_positions(problem)
    tables, ready = rope_tables(problem), False

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        nonlocal ready
        tuned = _tuned(problem.hdim, sliced)
        values, constants, out = arguments(problem, precision, q, k, v, tables(q))

        def grid(tile: dict[str, int]) -> tuple[int, int, int]:
            parts = problem.hdim // tile.get("BLOCK_V", problem.hdim)
            return triton.cdiv(problem.seq_q, tile["BLOCK_M"]), problem.batch * problem.heads, parts

        try:
            if not ready:  # compile all tiles in parallel
                with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
                    tuned.warmup(*values, grid=grid, **constants)
                ready = True
            tuned[grid](*values, **constants)
        except triton.OutOfResources as error:
            template = f"Triton: a block needs {{needed:,}} of {error.name}, this GPU has {{allowed:,}}"
            kind: Refusal = "shared_memory" if error.name == "shared memory" else "library"
            raise Unsupported(kind, error.required, error.limit, template) from error
        except triton.TritonError as error:
            raise Unsupported("library", "Triton", str(error).splitlines()[0], "{needed}: {allowed}") from error
        return out

    return call


_fused = functools.partial(peer, family="rope", make=_attention, source="Triton", beyond=True)
_TITLE = "Triton fused attention with RoPE inside"
_fused("triton_rope", title=f"{_TITLE}, 3xTF32", precision="tf32x3")
_fused("triton_rope_ieee", title=f"{_TITLE}, FFMA", precision="ieee")
_fused("triton_rope_sliced", title=f"{_TITLE}, by slices of the head dim, 3xTF32", precision="tf32x3", sliced=True)
