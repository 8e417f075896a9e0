"""Fused attention in Triton with RoPE inside the kernel, which is in triton_kernels.py.

`triton.autotune` chooses the fastest of a few tile sizes on the first call with a problem and caches the choice on
disk.
"""

import functools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ..constants import require
from ..version import Problem, Refusal, Unsupported
from .pytorch import PEER_TAKES, Attention, Tables, peer, require_positions, rope_tables
from .triton_kernels import attend, triton

# BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_V, num_warps, num_stages.
TILES = (
    (16, 16, 64, 64, 4, 2), (16, 64, 64, 128, 4, 2), (16, 32, 128, 256, 4, 2), (16, 32, 128, 512, 8, 2),
    (32, 64, 64, 128, 4, 2), (64, 64, 64, 64, 4, 2), (64, 64, 64, 128, 8, 2), (64, 32, 64, 256, 8, 2),
)  # fmt: skip
SLICE = 64  # dims; the head dim is a multiple
MOST_KEYS = 64  # the largest BLOCK_N
TUNED_BY = ("pairs", "programs", "seq_q", "seq_k", "q_offset", "HDIM", "CAUSAL", "MASKED")
TUNING_MS = 2


def arguments(
    problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tables: Tables
) -> tuple[tuple[Any, ...], dict[str, Any], torch.Tensor]:
    """Positional arguments and constants of `attend`, and the output tensor."""
    out, of = torch.empty_like(q), problem
    counts = of.rotary_dim // 2, of.heads // of.kv_heads, of.batch * of.heads, of.seq_q, of.seq_k, of.q_offset
    arrays, numbers = (q, k, v, out, *tables), (*counts, of.softmax_scale * math.log2(math.e))
    constants = {
        "HDIM": problem.hdim,
        "CAUSAL": problem.causal,
        "MASKED": problem.causal or problem.seq_k % MOST_KEYS != 0,
    }
    return (*arrays, *numbers), constants, out


@functools.cache
def _tuned(hdim: int) -> Any:
    """The autotuned kernel for a head dim. Raises: Unsupported without Triton."""
    missing = "{needed} is not installed; {allowed} bring it"
    require(triton is not None, "library", "Triton", "PyTorch's builds for CUDA", missing)
    from triton.testing import do_bench_cudagraph

    return triton.autotune(
        [
            triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_D": d, "BLOCK_V": v}, num_warps=warps, num_stages=stages)
            for m, n, d, v, warps, stages in TILES
            if hdim % d == hdim % v == 0
        ],
        key=TUNED_BY,
        do_bench=functools.partial(do_bench_cudagraph, rep=TUNING_MS),
        cache_results=True,
    )(attend)


def _attention(problem: Problem) -> Attention:
    """Attention that loops over keys, and over the head dim. Raises: Unsupported."""
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32", PEER_TAKES)
    takes = "hdim is {needed}; slices of a head dim take {allowed}"
    require(problem.hdim % SLICE == 0, "hdim", problem.hdim, f"a multiple of {SLICE}", takes)
    require_positions(problem)
    tables, warm = rope_tables(problem), set[torch.device]()

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        tuned = _tuned(problem.hdim)
        values, constants, out = arguments(problem, q, k, v, tables(q))

        def grid(tile: dict[str, int]) -> tuple[int, int, int]:
            rows = triton.cdiv(problem.seq_q, tile["BLOCK_M"])
            return rows, problem.batch * problem.heads, problem.hdim // tile["BLOCK_V"]

        try:
            if q.device not in warm:  # compile all tiles in parallel
                with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
                    tuned.warmup(*values, grid=grid, **constants)
                warm.add(q.device)
            tuned[grid](*values, **constants)
        except triton.OutOfResources as error:
            template = f"Triton: a block needs {{needed:,}} of {error.name}, this GPU has {{allowed:,}}"
            kind: Refusal = "shared_memory" if error.name == "shared memory" else "library"
            raise Unsupported(kind, error.required, error.limit, template) from error
        except triton.TritonError as error:
            raise Unsupported("library", "Triton", str(error).splitlines()[0], "{needed}: {allowed}") from error
        return out

    return call


_TITLE = "Triton fused attention with RoPE inside, by slices of the head dim, 3xTF32"
peer("triton_rope_sliced", "rope", _TITLE, _attention, source="Triton", beyond=True)
