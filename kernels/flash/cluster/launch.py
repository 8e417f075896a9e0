"""Parts that the launches of the cluster kernels share."""

from dataclasses import dataclass
from typing import Any

from ...constants import FLOATS, OPT_IN_SHARED_LIMIT, require, require_shared
from ...device.rows import reciprocal_of
from ...version import Kernel, Launch, Problem
from .embedding import PLAIN, Embedding

TENSORS = ("q", "k", "v", "out")  # of a call of the op
MOST_STRIDE = 2**32 - 1  # in elements
MOST_ROW_STRIDE = 2**26 - 1  # offsets within a tile of 64 rows then fit 32 bits


def require_stride(elements: int) -> None:
    """Raise Unsupported where a stride does not fit 32 bits."""
    template = "a stride is {needed:,} elements; the kernels take {allowed:,}"
    require(elements <= MOST_STRIDE, "batch", elements, MOST_STRIDE, template)


def strides(problem: Problem, name: str) -> tuple[int, int, int]:
    """Strides of batch, head and row of a contiguous tensor, in elements: of the queries or of the keys.

    Raises: Unsupported where they do not fit 32 bits.
    """
    heads, seq = (problem.heads, problem.seq_q) if name[0] in "qop" else (problem.kv_heads, problem.seq_k)
    between = heads * seq * problem.hdim if problem.batch > 1 else 0, seq * problem.hdim if heads > 1 else 0
    require_stride(max(between))
    return *between, problem.hdim


@dataclass(frozen=True)
class Operands:
    """Attention to the buffers `q` and `k`, whose first `embedded_dim` dims are embedded.

    `table` is the buffer that the embedding reads, or the arguments that its `table_type` consists of. by_name: strides
    of the op's tensors, and what varies between its calls, are names of `args` instead of the problem's numbers.
    """

    problem: Problem
    embedding: Embedding = PLAIN
    table: str | tuple[str | int, ...] = "q"
    embedded_dim: int = 0
    q: str = "q"
    k: str = "k"
    out: str = "out"
    table_type: Any = FLOATS
    by_name: bool = False

    @property
    def tensors(self) -> tuple[str | int, ...]:
        """The first arguments: the name of each buffer and its strides, contiguous, and the table."""
        rows = (part for name in (self.q, self.k, "v", self.out) for part in (name, *self.strides(name)))
        return *rows, *((self.table,) if isinstance(self.table, str) else self.table)

    def strides(self, name: str) -> tuple[str | int, ...]:
        """Strides of batch, head and row of a buffer. Raises: Unsupported where they do not fit 32 bits."""
        contiguous = strides(self.problem, name)
        named = tuple(f"{name}_{axis}" for axis in ("batch", "head", "row"))
        return named if self.by_name and name in TENSORS else contiguous

    @property
    def numbers(self) -> tuple[str | int | float, ...]:
        """seq_q, seq_k, hdim, embedded dims, q_offset, causal and scale, with which all cores end."""
        p = self.problem
        varying = (p.seq_k, p.q_offset, p.softmax_scale)
        seq_k, q_offset, scale = ("seq_k", "q_offset", "scale") if self.by_name else varying
        return p.seq_q, seq_k, p.hdim, self.embedded_dim, q_offset, int(p.causal), scale


def launch(kernel: Kernel, shape: Any, call: Operands, heads_last: bool = False, split_keys: int = 0) -> Launch:
    """A cluster for each tile of queries of each head, and for each part of the keys where these are split.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or do not fit shared memory.
    """
    problem, held, splits = call.problem, shape.most_dims, -(-call.problem.seq_k // split_keys) if split_keys else 1
    template = "hdim is {needed}; a cluster of this shape holds {allowed} dims"
    require(held >= problem.hdim, "hdim", problem.hdim, held, template)
    require_shared(shape.layout, problem, OPT_IN_SHARED_LIMIT)
    tiles, heads = splits * -(-problem.seq_q // shape.queries), problem.batch * problem.kv_heads
    first, last = (tiles, heads) if heads_last else (heads, tiles)
    parts = ("totals" if split_keys else call.k, split_keys, problem.batch * problem.heads * problem.seq_q)
    return Launch(
        kernel,
        grid=(first * shape.cluster, problem.heads // problem.kv_heads, last),
        block=(shape.threads,),
        args=(*call.tensors, *parts, problem.kv_heads, reciprocal_of(problem.kv_heads), *call.numbers),
        shared=shape.layout,
        cluster=shape.cluster,
        shape=shape,
    )
