"""Constants of kernels, and the checks and buffers that their planners share."""

from typing import Any

from numba import types

from .version import Buffer, Problem, Refusal, SharedLayout, Unsupported

THREADS = 256
BLOCK_K = 64
SHARED_LIMIT = 49_152  # bytes of shared memory that a launch gets without opting in to more
OPT_IN_SHARED_LIMIT = 232_448  # bytes that a block may opt in to on compute capability 9.0 and 10.0
FREQUENCY_BASE = 10_000.0
MOST_POSITIONS = 2**20  # up to here computed angles are as exact as float32 arithmetic with exact tables
MOST_ELEMENTS = 2**31 - 1  # elements of a tensor that is indexed by an int

# Offsets in shared memory, in float32 elements, that all online-softmax kernels of the log use.
SCORES = 0
REDUCTION = 64
EXTRA = 96

FLOATS = types.CPointer(types.float32)
INTS = types.CPointer(types.int32)
UINT = types.uint32
FLOAT = types.float32

# Templates of the messages of `Unsupported`.
TAKES = "{kind} is {needed}; this version takes {allowed}"
MUST_BE = "{kind} is {needed}; it must be {allowed}"
MUST_EQUAL_HEADS = "kv_heads is {needed}; it must equal heads, {allowed}"


def require(condition: bool, kind: Refusal, needed: Any, allowed: Any, template: str = TAKES) -> None:
    """Raise Unsupported unless `condition` holds."""
    if not condition:
        raise Unsupported(kind, needed, allowed, template)


def attention_buffers(problem: Problem, **extra: Buffer) -> dict[str, Buffer]:
    """Buffers for q, k, v and out of `problem`, and those in `extra`."""
    return {
        "q": Buffer(problem.q_shape),
        "k": Buffer(problem.kv_shape),
        "v": Buffer(problem.kv_shape),
        "out": Buffer(problem.q_shape),
        **extra,
    }


def require_raw_keys(problem: Problem) -> None:
    """Raise Unsupported for queries before the first key."""
    require(problem.q_offset >= 0, "q_offset", problem.q_offset, "0 or more", MUST_BE)


def require_shared(layout: SharedLayout, problem: Problem, limit: int = SHARED_LIMIT) -> None:
    """Raise Unsupported if a block needs more than `limit` bytes of shared memory."""
    whose = "the log's limit" if limit == SHARED_LIMIT else "a block's limit"
    template = f"hdim {problem.hdim} needs {{needed:,}} B of shared memory, {whose} is {{allowed:,}} B"
    require(layout.nbytes <= limit, "shared_memory", layout.nbytes, limit, template)
