"""What an embedding does inside the V8 cores, and which problems they take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..log import require
from ..version import Problem

MOST_ELEMENTS = 2**32 - 1  # that kernels count in 32 bits


@dataclass(frozen=True)
class Embedding:
    """What happens to rows of Q and K before they are multiplied, and to their scores after, by device functions.

    begin(table, dim) -> (a, b): what all positions share, for dims `dim` .. + 3
    prepare(table, position, dim, a, b, hdim) -> (s, t, u, v): what one position adds to that
    embed(x, s, t, u, v) -> Float4: the embedded dims
    bias(table, head, distance) -> float32: what is added to a scaled score; the query's position less the key's,
    and heads counted through the batch
    """

    name: str
    begin: Any = None
    prepare: Any = None
    embed: Any = None
    bias: Any = None
    query: bool = True
    keys: bool = True


PLAIN = Embedding("plain", query=False, keys=False)


def require_problem(problem: Problem, family: str) -> None:
    """Raises: Unsupported unless it is a float32 problem of that family, with dims and positions that fit."""
    require(problem.family == family, f"family is {problem.family}; this version takes {family}")
    require(problem.dtype == "float32", f"dtype is {problem.dtype}; this version takes float32")
    require(problem.hdim % 4 == 0, f"hdim is {problem.hdim}; it must be a multiple of 4")
    require(problem.q_offset >= 0, f"q_offset is {problem.q_offset}; it must be 0 or more")
    require(problem.cache == "none", f"cache is {problem.cache}; this version takes none")
    elements = max(math.prod(problem.q_shape), math.prod(problem.kv_shape))
    require(elements <= MOST_ELEMENTS, f"a tensor has {elements:,} elements; this version takes {MOST_ELEMENTS:,}")
