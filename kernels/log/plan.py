"""Refusals, shared memory, launches and hazards that the planners of the log's kernels share."""

import math
from collections.abc import Callable, Mapping

from ..constants import (
    BLOCK_K,
    FLOAT,
    FLOATS,
    MOST_ELEMENTS,
    MUST_BE,
    MUST_EQUAL_HEADS,
    SHARED_LIMIT,
    THREADS,
    attention_buffers,
    require,
    require_shared,
)
from ..device.cint import CINT
from ..version import Buffer, Hazard, Kernel, Launch, Plan, Problem, SharedLayout, Sync

NO_MASK = "causal is 1; this version has no mask"
MUST_BE_EQUAL = "seq_q is {needed} and seq_k {allowed}; they must be equal"


def online_layout(**extra: int) -> SharedLayout:
    """The scores of one key tile, the reduction buffer, and after them the arrays in `extra`."""
    return SharedLayout(scores=BLOCK_K, reduction=32, **extra)


def require_log_problem(problem: Problem, family: str, multiple: int = 4, all_dims: bool = False) -> None:
    """Raise Unsupported unless the log's fp32 kernels take it: fp32, no mask, as many queries as keys.

    With `all_dims`, RoPE rotates all of them, as in the log's first RoPE kernels.
    """
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32")
    require(not problem.causal, "causal", True, False, NO_MASK)
    require_one_sequence(problem)
    require(problem.hdim % multiple == 0, "hdim", problem.hdim, f"a multiple of {multiple}", MUST_BE)
    if family == "rope":
        whole = problem.rotary_dim > 0 and problem.rotary_dim % multiple == 0
        require(whole, "rotary_dim", problem.rotary_dim, f"a multiple of {multiple} above 0", MUST_BE)
    template = "rotary_dim is {needed} and hdim {allowed}; this version rotates all dims"
    fits = not all_dims or problem.rotary_dim == problem.hdim
    require(fits, "rotary_dim", problem.rotary_dim, problem.hdim, template)


def require_one_sequence(problem: Problem) -> None:
    """Raise Unsupported unless seq_q equals seq_k, the first query is at the first key, and heads share no keys.

    The log's kernels index a tensor by an int, so its number of elements is limited, too.
    """
    require(problem.seq_q == problem.seq_k, "seq_q", problem.seq_q, problem.seq_k, MUST_BE_EQUAL)
    require(problem.q_offset == 0, "q_offset", problem.q_offset, 0, MUST_BE)
    require(problem.kv_heads == problem.heads, "kv_heads", problem.kv_heads, problem.heads, MUST_EQUAL_HEADS)
    elements, template = math.prod(problem.q_shape), "a tensor has {needed:,} elements; an int counts {allowed:,}"
    require(elements <= MOST_ELEMENTS, "batch", elements, MOST_ELEMENTS, template)


def block_per_query(
    function: Callable[..., None],
    problem: Problem,
    buffers: str,
    layout: SharedLayout,
    *integers: int,
    queries: int = 1,
    flat: bool = False,
    max_threads: int | None = None,
    limit: int = SHARED_LIMIT,
) -> Launch:
    """A block of THREADS threads for each query of a head, or for each `queries` of them.

    The grid is queries by heads of all sequences, or `flat`, their product. The function's arguments are `buffers`,
    float32; seq_q, seq_k and hdim; `integers`; and the scale of the softmax.

    Raises: Unsupported where the layout takes more than `limit` bytes.
    """
    require_shared(layout, problem, limit)
    names, sizes = buffers.split(), (problem.seq_q, problem.seq_k, problem.hdim, *integers)
    blocks, heads = math.ceil(problem.seq_q / queries), problem.batch * problem.heads
    signature = (FLOATS,) * len(names) + (CINT,) * len(sizes) + (FLOAT,)
    return Launch(
        Kernel(function, signature, max_threads=max_threads),
        grid=(blocks * heads,) if flat else (blocks, heads),
        block=(THREADS,),
        args=(*names, *sizes, problem.softmax_scale),
        shared=layout,
    )


def block_per_token(function: Callable[..., None], problem: Problem, buffers: str, *integers: int) -> Launch:
    """A block of THREADS threads for each token of all heads; the function's arguments are `buffers` and `integers`."""
    names = buffers.split()
    return Launch(
        Kernel(function, (FLOATS,) * len(names) + (CINT,) * len(integers)),
        grid=(problem.batch * problem.heads * problem.seq_q,),
        block=(THREADS,),
        args=(*names, *integers),
    )


def log_plan(
    problem: Problem,
    *steps: Launch | Sync,
    defect: str = "",
    hazards: tuple[Hazard, ...] = (),
    buffers: Mapping[str, Buffer] = {},
) -> Plan:
    """The plan of `steps` on q, k, v, out and further `buffers`."""
    return Plan(problem, attention_buffers(problem, **buffers), steps, defect=defect, hazards=hazards)


REDUCTION_RACE = Hazard(  # that remains in the log's corrected block reduction
    "race",
    "attention",
    "reduction",
    "no barrier separates the last read of one block reduction from the first store of the next",
)
UNSHARED_DEFECT = (
    "warps beyond the first keep their own partial maximum and sum: twice the value where a warp holds keys, "
    "NaN where it holds none"
)
