"""The interval of a mean over the processes of a run: the one place where statistics are computed.

Processes of one run agree better than runs do. A `Pool` says how far runs are apart, over all ratios of a timer that
several runs measured. With it the interval is where another run of the same code is expected; without, of this run
alone.
"""

import bisect
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from ..record.timers import timer_of

CONFIDENCE = 0.95
SIZES_US = (10.0, 30.0, 100.0, 300.0)  # of a call: between them runs differ alike


class Pool(NamedTuple):
    """How far runs of the same code are apart: the variance of the logarithm of a timer's ratios between runs."""

    between: float
    runs: int


def sized(timer: str, us: float) -> str:
    """The name of the pool of a timer's ratios whose calls take about so long."""
    return f"{timer} {bisect.bisect(SIZES_US, us)}"


def pool_of(pools: Mapping[str, Pool], timer: str, us: float) -> Pool | None:
    """The pool of ratios whose calls take about `us` microseconds, the geometric mean of all that are compared.

    Where too few ratios of that size were measured again, that of all ratios of the timer.
    """
    name = timer_of(timer).pool if timer else timer
    return pools.get(sized(name, us), pools.get(name))


def half_width(
    variance: Any, n: Any, pool: Pool | None = None, gain: float = 1.0, runs: Any = 1, seen: Any = 0.0
) -> Any:
    """Half an interval, from the variance between the processes of a run, `n` in all `runs`: floats, or arrays.

    With a pool, of the difference between the mean of these runs and another run: both vary within and between runs.
    `gain` is the variance between runs in units of the pool's: 1 of the logarithm of a ratio. Where these runs differ
    by more among themselves, their variance `seen` counts. Ratios differ in how much they do, so the pool counts for
    no more degrees of freedom than the processes.
    """
    within = variance * runs / n
    of_run = np.maximum(within + (0.0 if pool is None else gain * pool.between), seen)
    of_mean = of_run / runs if pool is None else of_run * (1 + 1 / runs)
    return special.stdtrit(n - runs, (1 + CONFIDENCE) / 2) * np.sqrt(of_mean)  # Student's t: scipy.stats checks more


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
