"""Constants of the log's kernels, and the checks that their planners share."""

from typing import Any

from numba import types

from .version import Refusal, Unsupported

THREADS = 256
BLOCK_K = 64
SHARED_LIMIT = 49_152  # bytes of shared memory that a launch gets without opting in to more
OPT_IN_SHARED_LIMIT = 232_448  # bytes that a block may opt in to on compute capability 9.0 and 10.0
FREQUENCY_BASE = 10_000.0
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
