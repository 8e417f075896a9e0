"""The interface of an embedding in the V8 cores, and which problems the cores take."""

from dataclasses import dataclass
from typing import Any

from numba import cuda, float32

from ...constants import MOST_POSITIONS, MUST_BE, require, require_raw_keys
from ...device import advance, cuint, ld2, ld4, make_float4
from ...version import Problem


@dataclass(frozen=True)
class Embedding:
    """An embedding as device functions, which change rows of Q and K before the product, and scores after it.

        per_dim(table, dim) -> Float4: what all positions share, for dims `dim` to `dim` + 3
        per_position(table, position, dim, dim_values, hdim) -> (s, t, u, v): the values for one position
        apply(x, s, t, u, v) -> Float4: the embedded dims
        bias(table, head, distance) -> float32: the bias of a scaled score; `distance` is the position of the query
            minus that of the key, also past the last row or key; `head` counts through the batch
        table_of_batch(table, batch) -> table: the table of one sequence of the batch; None if all sequences share it

    Pairs are dims (2 j, 2 j + 1) or, with `half_split`, (j, j + half of the embedded dims). Half-split dims come to
    `apply` as (x[j], x[j + half], x[j + 1], x[j + 1 + half]); the number of pairs and hdim are then multiples of 8.
    """

    name: str
    per_dim: Any = None
    per_position: Any = None
    apply: Any = None
    bias: Any = None
    table_of_batch: Any = None
    query: bool = True
    keys: bool = True
    half_split: bool = False

    @property
    def stored(self) -> bool:
        """Whether a launch before has embedded K, in memory of its own, half-split pairs side by side."""
        return self.query and not self.keys

    @property
    def halves(self) -> bool:
        """Whether the halves of pairs are apart in the copies of Q and K."""
        return self.half_split and not self.stored


PLAIN = Embedding("plain", query=False, keys=False)


@cuda.jit(device=True)
def no_values(table, dim):
    """`per_dim` of embeddings without values that all positions share."""
    return make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))


@cuda.jit(device=True)
def halves_of(dim, more, embedded_dim, hdim):
    """(low, high) of half-split pairs: the dims `dim` + `more` to `dim` + `more` + 3 in paired order are loaded from
    low, low + 1, high and high + 1 of a row.

    Dims that are not embedded are paired with each other: those of the two halves of 32 (or 8) consecutive dims.
    `more`, a multiple of 32, is a separate argument so that the groups of a thread share the rest of the computation.
    """
    together = cuint(32) if (embedded_dim | hdim) % 32 == 0 else cuint(8)
    inside = dim & together - 1
    embedded = dim + more < embedded_dim
    low = dim // 2 + more // 2
    if not embedded:
        low = dim - inside + inside // 2 + more
    return low, low + (embedded_dim if embedded else together) // 2


def loader_of(half_split: bool) -> Any:
    """A device function load(row, dim, more, inside, embedded_dim, hdim) -> Float4: four dims in paired order.

    They are a row's dims at `dim` + `more`; 0 where `inside` is false, and past the last dim.
    """

    @cuda.jit(device=True)
    def load(row, dim, more, inside, embedded_dim, hdim):
        x = make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))
        if inside and dim + more < hdim:
            if half_split:
                low, high = halves_of(dim, more, embedded_dim, hdim)
                (x0, x1), (y0, y1) = ld2(row, low), ld2(row, high)
                x = make_float4(x0, y0, x1, y1)
            else:
                x = ld4(advance(row, dim), more)
        return x

    return load


def require_problem(problem: Problem, family: str) -> None:
    """Raise Unsupported unless it is a float32 problem of that family with dims and positions in range."""
    require(problem.family == family, "family", problem.family, family)
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32")
    require(problem.hdim % 4 == 0, "hdim", problem.hdim, "a multiple of 4", MUST_BE)
    require_raw_keys(problem)
    if family in ("rope", "sinusoidal"):
        positions = max(problem.seq_k, problem.q_offset + problem.seq_q)
        template = "positions go up to {needed:,}; angles are exact up to {allowed:,}"
        require(positions <= MOST_POSITIONS, "positions", positions, MOST_POSITIONS, template)
