"""Ratios with their intervals, as the callers of `Measured` know them: on its way out, see analysis/evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..evidence.interval import SIZES_US, TIE, Pool, covers, fit, half_width, pool_of, sized

__all__ = ["SIZES_US", "TIE", "Pool", "covers", "fit", "half_width", "pool_of", "sized"]


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

    @property
    def point(self) -> Ratio:
        """The value as if it were certain."""
        return self._replace(low=self.value, high=self.value)


def mean(values: Sequence[float] | np.ndarray, pool: Pool | None = None, gain: float = 1.0) -> Ratio:
    """Arithmetic mean of one value or more with its t interval.

    `gain` is the variance between runs in units of the pool's: 1 of the logarithm of a ratio.
    """
    values = np.asarray(values, dtype=float)
    centre, n = float(values.mean()), len(values)
    half = float(half_width(values.var(ddof=1), n, pool, gain)) if n > 1 else math.nan
    return Ratio(centre, centre - half, centre + half, pool.runs if pool else 1)


def geometric_mean(values: Sequence[float] | np.ndarray, pool: Pool | None = None, gain: float = 1.0) -> Ratio:
    """Geometric mean of positive values with the t interval of their logarithms."""
    value, low, high, runs = mean(np.log(np.asarray(values, dtype=float)), pool, gain)
    return Ratio(math.exp(value), math.exp(low), math.exp(high), runs)


def share_closed(slow: np.ndarray, middle: np.ndarray, fast: np.ndarray, pool: Pool | None = None) -> Ratio:
    """The share of the gap from `slow` to `fast` that goes in `middle`, of times by process, with its interval.

    Its `gain` of the variance between runs follows from how it moves with each of the three times.
    """
    gap = slow - fast
    shares = (slow - middle) / gap
    moves = slow * (middle - fast) / gap**2, -middle / gap, fast * (slow - middle) / gap**2
    return mean(shares, pool, sum(float(move.mean()) ** 2 for move in moves) / 2)
