"""When a process is off its siblings: it is measured again, and which of its times stand.

The siblings of a time are those of the other processes of its run, by the same timer, of the same version, problem and
code. The rule was set on 2026-11-27, with the first runs of the H100 known and before anything was repeated; it is the
same for every card. It asks the device timers alone: `launched` moves with the host by 10 % and more in one row of
seven, together with what is timed beside it in turns, so that a time taken again alone would be of another moment.
"""

import numpy as np
import pandas as pd

from kernels.version import PROBLEM_COLUMNS

from ..record.timers import timer_of

TIMERS = ("device_warm", "device_cold")
OFF = 1.10  # times the median p20 of its siblings, or a part of it: measured again
AGREE = 1.03  # times their median, or a part of it: such siblings agree
LEAST = 2  # siblings that can tell which of them is off
OF_ONE = ["run", "study", "version", *PROBLEM_COLUMNS, "timer", "source_hash"]


def _factor(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many times the larger of two is the smaller."""
    return np.maximum(a / b, b / a)


def _compared(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Of each row, by its p20: whether it is off its siblings, and whether these agree."""
    at, place = rows.groupby(OF_ONE, sort=False).ngroup().to_numpy(), rows.groupby(OF_ONE, sort=False).cumcount()
    times = np.full((at.max() + 1, place.max() + 1), np.nan)
    times[at, place] = rows["p20_us"].astype(float)
    others = np.where(np.eye(times.shape[1], dtype=bool), np.nan, times[:, np.newaxis])  # of each, its siblings
    told = (~np.isnan(others)).sum(2) >= LEAST
    siblings = others[told]
    median = np.nanmedian(siblings, axis=1)
    off, agree = np.zeros((2, *told.shape), dtype=bool)
    off[told] = _factor(times[told], median) > OFF
    agree[told] = np.nanmax(_factor(siblings, median[:, np.newaxis]), axis=1) <= AGREE
    return off[at, place], agree[at, place]


def _timed(timings: pd.DataFrame) -> pd.DataFrame:
    of_device = timings["timer"].map(lambda name: isinstance(name, str) and timer_of(name).base in TIMERS).astype(bool)
    return timings[of_device & timings["median_us"].notna()]


def _again(timings: pd.DataFrame) -> pd.Series:
    return timings["repeated"].eq(True)


def _processes(timings: pd.DataFrame) -> pd.MultiIndex:
    return pd.MultiIndex.from_frame(timings[[*OF_ONE, "process"]])


def off_siblings(timings: pd.DataFrame) -> pd.DataFrame:
    """The first rows of processes that are off and were not measured again."""
    rows = _timed(timings)
    first = rows[~_again(rows)]
    found = first[_compared(first)[0]] if len(first) else first
    return found[~_processes(found).isin(_processes(timings[_again(timings)]))]


def standing(timings: pd.DataFrame) -> pd.DataFrame:
    """The rows that count: those of a process that was measured again are replaced by the second.

    One that is off and was not measured again is left out where all of its siblings, two or more, agree; where these
    differ too, or two processes are off, the kernel has no one time, and all stand.
    """
    rows = _timed(timings)
    if rows.empty:
        return timings
    replaced = _processes(rows).isin(_processes(rows[_again(rows)])) & ~_again(rows).to_numpy()
    left = rows[~replaced]
    off, agree = _compared(left)
    alone = left.index[off & agree & ~_again(left).to_numpy()]
    return timings.drop(index=[*rows.index[replaced], *alone])
