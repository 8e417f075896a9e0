"""Constants of the log's kernels, and the checks that their plans share."""

from __future__ import annotations

import numpy as np
from numba import types

from .version import Buffer, Hazard, Problem, SharedLayout, Unsupported

THREADS = np.uint32(256)
BLOCK_K = np.uint32(64)
SHARED_LIMIT = 49_152  # what a launch of the log could get
OPT_IN_SHARED_LIMIT = 232_448  # what a block may ask for on compute capability 9.0 and 10.0
FREQUENCY_BASE = 10_000.0

# Offsets, in float32 elements, of what every online-softmax kernel of the log keeps in shared memory.
SCORES = np.uint32(0)
REDUCTION = np.uint32(64)
EXTRA = np.uint32(96)

FLOATS = types.CPointer(types.float32)
INTS = types.CPointer(types.int32)
INT = types.int32
UINT = types.uint32
FLOAT = types.float32


def online_layout(**extra: int) -> SharedLayout:
    """Scores of one key tile, the reduction buffer, and what a version adds behind them."""
    return SharedLayout(scores=BLOCK_K, reduction=32, **extra)


def attention_buffers(problem: Problem, **extra: Buffer) -> dict[str, Buffer]:
    """q, k, v and out of `problem`, and what a version adds."""
    return {
        "q": Buffer(problem.q_shape),
        "k": Buffer(problem.kv_shape),
        "v": Buffer(problem.kv_shape),
        "out": Buffer(problem.q_shape),
        **extra,
    }


def require(condition: bool, message: str) -> None:
    """Raises: Unsupported with `message`, unless `condition` holds."""
    if not condition:
        raise Unsupported(message)


def require_log_problem(problem: Problem, family: str, multiple: int = 4) -> None:
    """The log's fp32 kernels take one family, fp32, no mask, and as many queries as keys."""
    require(problem.family == family, f"family is {problem.family}; this version takes {family}")
    require(problem.dtype == "float32", f"dtype is {problem.dtype}; this version takes float32")
    require(not problem.causal, "causal is 1; this version has no mask")
    require(problem.seq_q == problem.seq_k, f"seq_q is {problem.seq_q} and seq_k {problem.seq_k}; they must be equal")
    require(problem.q_offset == 0, f"q_offset is {problem.q_offset}; it must be 0")
    require(problem.kv_heads == problem.heads, f"kv_heads is {problem.kv_heads}; it must equal heads, {problem.heads}")
    require(problem.hdim % multiple == 0, f"hdim is {problem.hdim}; it must be a multiple of {multiple}")
    if family == "rope":
        require(
            problem.rotary_dim > 0 and problem.rotary_dim % multiple == 0,
            f"rotary_dim is {problem.rotary_dim}; it must be a multiple of {multiple} above 0",
        )


def require_full_rotation(problem: Problem) -> None:
    """The log's first RoPE kernels rotate every dim."""
    require(
        problem.rotary_dim == problem.hdim,
        f"rotary_dim is {problem.rotary_dim} and hdim {problem.hdim}; this version rotates all dims",
    )


def require_shared(layout: SharedLayout, problem: Problem, limit: int = SHARED_LIMIT) -> None:
    """Raises: Unsupported if a block asks for more than `limit` bytes of shared memory."""
    whose = "the log's limit" if limit == SHARED_LIMIT else "a block's limit"
    require(
        layout.nbytes <= limit,
        f"hdim {problem.hdim} needs {layout.nbytes:,} B of shared memory, {whose} is {limit:,} B",
    )


def reduction_race(kernel: str) -> Hazard:
    """The hazard that the log's corrected block reduction still has."""
    return Hazard(
        "race",
        kernel,
        "reduction",
        "no barrier separates the last read of one block reduction from the first store of the next",
    )


UNSHARED_DEFECT = (
    "warps beyond the first keep their own partial maximum and sum: twice the value where a warp holds keys, "
    "NaN where it holds none"
)
