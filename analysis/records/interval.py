"""A mean over the processes of a run with its interval: the one place where statistics are computed.

Processes of one run agree better than runs do. A `Pool` says how far runs are apart, over all ratios of a timer that
several runs measured. With it the interval is where another run of the same code is expected; without, of this run
alone.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats

CONFIDENCE = 0.95
TIE = 1.03  # ratios this near to 1 are no difference


class Likely:
    """Of a condition, in place of True: the values say so, but an interval does not. Another run may say otherwise."""

    def __bool__(self) -> bool:
        return False


LIKELY = Likely()
Condition = bool | None | Likely  # None: what it asks about was not measured


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


class Pool(NamedTuple):
    """How far runs of the same code are apart: the variance of the logarithm of a timer's ratios between runs."""

    between: float
    runs: int


SIZES_US = (10.0, 30.0, 100.0, 300.0)  # of a call: between them runs differ alike


def sized(timer: str, us: float) -> str:
    """The name of the pool of a timer's ratios whose calls take about so long."""
    return f"{timer} {bisect.bisect(SIZES_US, us)}"


def pool_of(pools: Mapping[str, Pool], timer: str, us: float | None = None) -> Pool | None:
    """The pool of ratios whose calls take about `us` microseconds, the geometric mean of all that are compared.

    Where too few ratios of that size were measured again, or no size is known, that of all ratios of the timer.
    """
    return pools.get(timer) if us is None else pools.get(sized(timer, us), pools.get(timer))


def covers(runs: int) -> str:
    """What an interval covers, for captions: "95 % interval ..."."""
    return "for another run" if runs > 1 else "within one run"


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


def half_width(variance: Any, n: Any, pool: Pool | None = None, gain: float = 1.0) -> Any:
    """Half an interval, from the variance between `n` processes, two or more: floats, or arrays of one shape.

    With a pool, of the difference from another run: both vary within and between runs. Ratios differ in how much they
    do, so the pool counts for no more degrees of freedom than the processes.
    """
    of_mean = variance / n if pool is None else 2 * (gain * pool.between + variance / n)
    quantile = _quantile(n) if isinstance(n, int) else stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)
    return quantile * np.sqrt(of_mean)


@functools.cache
def _quantile(n: int) -> float:
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1))


def fit(ratio: np.ndarray, mean: np.ndarray, variance: np.ndarray, size: np.ndarray) -> Pool:
    """The pool of ratios that were measured in two runs or more each, after R. C. Paule and J. Mandel (1982).

    Arrays with an entry for each ratio and run: which ratio, from 0, and of its logarithms in two processes or more the
    mean, the variance and the number. With the variance between runs, a run is on average as far off as it should be.
    """
    runs = np.bincount(ratio)
    off = (mean - (np.bincount(ratio, mean) / runs)[ratio]) ** 2 * (runs / (runs - 1))[ratio]
    within = variance / size

    def excess(between: float) -> float:
        return float((off / (between + within)).mean()) - 1

    most, least = off.max() + 1e-12, 1e-12  # a millionth, squared: less is none
    between = optimize.brentq(excess, least, most) if excess(least) > 0 else 0.0
    return Pool(float(f"{between:.4g}"), int(runs.max()))
