"""What an embedding does inside the V8 cores, and which problems they take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..constants import MUST_BE, require
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
    require(problem.family == family, "family", problem.family, family)
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32")
    require(problem.hdim % 4 == 0, "hdim", problem.hdim, "a multiple of 4", MUST_BE)
    require(problem.q_offset >= 0, "q_offset", problem.q_offset, "0 or more", MUST_BE)
    require(problem.cache == "none", "cache", problem.cache, "none")
    elements = max(math.prod(problem.q_shape), math.prod(problem.kv_shape))
    template = "a tensor has {needed:,} elements; this version takes {allowed:,}"
    require(elements <= MOST_ELEMENTS, "elements", elements, MOST_ELEMENTS, template)
