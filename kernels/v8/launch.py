"""What the launches of the V8 cores share."""

from __future__ import annotations

from typing import Any

from ..constants import OPT_IN_SHARED_LIMIT, require, require_shared
from ..device.rows import reciprocal_of
from ..version import Kernel, Launch, Problem
from .embedding import Embedding

MOST_STRIDE = 2**32 - 1  # in elements
MOST_ROW_STRIDE = 2**26 - 1  # offsets within a tile of 64 rows then fit 32 bits
MAX_THREADS, SM_THREADS = 1024, 2048  # of a block, and of all blocks on an SM


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def require_field(shape: Any, name: str, holds: bool, allowed: str) -> None:
    """Raise ValueError, with the field's value and what is allowed, unless `holds`."""
    if not holds:
        raise ValueError(f"{name} is {getattr(shape, name)}; it must be {allowed}")


def require_threads(shape: Any) -> None:
    """Raise ValueError for more threads than a block can have, or more blocks than fit an SM."""
    require_field(shape, "threads", 32 <= shape.threads <= MAX_THREADS, f"32 to {MAX_THREADS}")
    most = SM_THREADS // shape.threads
    require_field(shape, "blocks", 1 <= shape.blocks <= most, f"1 to {most}")


def require_stride(elements: int) -> None:
    """Raise Unsupported where a stride does not fit 32 bits."""
    template = "a stride is {needed:,} elements; the kernels take {allowed:,}"
    require(elements <= MOST_STRIDE, "batch", elements, MOST_STRIDE, template)


def strides(problem: Problem, name: str) -> tuple[int, int, int]:
    """Strides of batch, head and row of a contiguous tensor, in elements: of the queries or of the keys.

    Raises: Unsupported where they do not fit 32 bits.
    """
    heads, seq = (problem.heads, problem.seq_q) if name[0] in "qo" else (problem.kv_heads, problem.seq_k)
    between = heads * seq * problem.hdim if problem.batch > 1 else 0, seq * problem.hdim if heads > 1 else 0
    require_stride(max(between))
    return *between, problem.hdim


def numbers(problem: Problem, embedded_dim: int) -> tuple[int | float, ...]:
    """The last arguments, which all cores take."""
    return (
        problem.seq_q,
        problem.seq_k,
        problem.hdim,
        embedded_dim,
        problem.q_offset,
        int(problem.causal),
        problem.softmax_scale,
    )


def listed(table: str | tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The arguments that a table consists of."""
    return (table,) if isinstance(table, str) else table


def tensors(problem: Problem, names: tuple[str, ...]) -> tuple[str | int, ...]:
    """The arguments for contiguous tensors: the name of each buffer, and its strides."""
    return tuple(part for name in names for part in (name, *strides(problem, name)))


def launch(
    kernel: Kernel,
    shape: Any,
    embedding: Embedding,
    problem: Problem,
    rows: tuple[str, ...],
    others: tuple[str | int, ...],
    embedded_dim: int,
    heads_last: bool = False,
) -> Launch:
    """One cluster for each tile of queries of each head; `rows` are the buffers q, k, v and out, `others` the rest.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or do not fit shared memory.
    """
    held = shape.most_dims
    template = "hdim is {needed}; a cluster of this shape holds {allowed} dims"
    require(held >= problem.hdim, "hdim", problem.hdim, held, template)
    require_shared(shape.layout, problem, OPT_IN_SHARED_LIMIT)
    tiles, heads = -(-problem.seq_q // shape.queries), problem.batch * problem.kv_heads
    first, last = (tiles, heads) if heads_last else (heads, tiles)
    return Launch(
        kernel,
        grid=(first * shape.cluster, problem.heads // problem.kv_heads, last),
        block=(shape.threads,),
        args=(
            *tensors(problem, rows),
            *others,
            problem.kv_heads,
            reciprocal_of(problem.kv_heads),
            *numbers(problem, embedded_dim),
        ),
        shared=shape.layout,
        cluster=shape.cluster,
        shape=shape,
        embedding=embedding,
    )
