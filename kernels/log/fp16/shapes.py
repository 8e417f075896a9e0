"""Helpers of the half-precision kernels: fixed sizes, the problems that they take, buffers and launch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...constants import FLOAT, MUST_BE, THREADS, require
from ...device import CINT, HALVES
from ...version import Buffer, Kernel, Launch, Problem
from ..plan import require_one_sequence

HDIM = 64
BLOCK_M = 32  # query rows of a block, except in fp16_minimal
WARP = 32
VECTOR = 8  # halves in 16 bytes
MASKED = np.float32(-np.finfo(np.float32).max)  # the score of a masked key


def require_fp16_problem(problem: Problem, causal: bool) -> None:
    """Raise Unsupported unless hdim is 64, keys come in whole tiles of 64, and the problem has a mask exactly if
    `causal`.
    """
    require(problem.dtype == "float16", "dtype", problem.dtype, "float16")
    mask = "always applies the causal mask" if causal else "has no mask"
    require(problem.causal == causal, "causal", problem.causal, causal, f"causal is {{needed:d}}; this version {mask}")
    require_one_sequence(problem)
    require(problem.hdim == HDIM, "hdim", problem.hdim, HDIM)
    require(problem.seq_k % 64 == 0, "seq_k", problem.seq_k, "a multiple of 64, the keys of a tile", MUST_BE)


def fp16_buffers(problem: Problem) -> dict[str, Buffer]:
    """q, k, v and out in half precision."""
    shapes = {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape, "out": problem.q_shape}
    return {name: Buffer(shape, "float16") for name, shape in shapes.items()}


def fp16_launch(
    problem: Problem,
    function: Callable[..., None],
    rows: int,
    threads: int,
    fast_math: bool = True,
    min_blocks: int | None = None,
    **memory: Any,
) -> Launch:
    """A block of `threads` for `rows` queries of a head, `min_blocks` on an SM, for which registers are bounded.

    The function's arguments are q, k, v, out, seq_k and the scale of the softmax; `memory` is `static` or `shared`.
    """
    max_threads = THREADS if min_blocks else None
    kernel = Kernel(function, (HALVES,) * 4 + (CINT, FLOAT), max_threads, fast_math, min_blocks)
    grid = (problem.seq_q // rows, problem.heads, problem.batch)
    return Launch(kernel, grid, (threads,), ("q", "k", "v", "out", problem.seq_k, problem.softmax_scale), **memory)
