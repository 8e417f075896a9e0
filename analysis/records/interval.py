"""Ratios with their intervals, as the callers of `Measured` know them: on its way out, see analysis/evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..evidence.interval import Pool, half_width


class Ratio(NamedTuple):
    """A geometric mean over the processes and its 95 % interval; without bounds (NaN) from a single process."""

    value: float
    low: float
    high: float
    runs: int = 1  # that the interval takes in, by its pool; of 1 it says nothing about another run

    @property
    def known(self) -> bool:
        """Whether it has an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))


def geometric_mean(values: Sequence[float] | np.ndarray, pool: Pool | None = None) -> Ratio:
    """Geometric mean of positive values with the t interval of their logarithms."""
    logs = np.log(np.asarray(values, dtype=float))
    centre, n = float(logs.mean()), len(logs)
    half = float(half_width(logs.var(ddof=1), n, pool, 1.0)) if n > 1 else math.nan
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), pool.runs if pool else 1)
