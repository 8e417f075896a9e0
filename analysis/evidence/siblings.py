"""When a process is off its siblings: it is measured again, and which of its times stand.

The siblings of a time are those of the other processes of its run, by the same timer, of the same version, problem and
code. The rule was set on 2026-11-27, with the first runs of the H100 known and before anything was repeated; it is the
same for every card. It asks the device timers alone: `launched` moves with the host by 10 % and more in one row of
seven, together with what is timed beside it in turns, so that a time taken again alone would be of another moment.
"""

import numpy as np
import pandas as pd

from kernels.version import PROBLEM_COLUMNS

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
    off, agree = np.zeros_like(times, dtype=bool), np.zeros_like(times, dtype=bool)
    for column in range(times.shape[1]):
        others = np.delete(times, column, axis=1)
        told = (~np.isnan(others)).sum(1) >= LEAST
        if not told.any():
            continue
        siblings = others[told]
        median = np.nanmedian(siblings, axis=1)
        off[told, column] = _factor(times[told, column], median) > OFF
        agree[told, column] = np.nanmax(_factor(siblings, median[:, None]), axis=1) <= AGREE
    return off[at, place], agree[at, place]


def _timed(timings: pd.DataFrame) -> pd.DataFrame:
    return timings[timings["timer"].isin(TIMERS) & timings["median_us"].notna()]


def off_siblings(timings: pd.DataFrame) -> pd.DataFrame:
    """The first rows of processes that are off and were not measured again."""
    rows = _timed(timings)
    first = rows[~_again(rows)]
    repeated = timings[_again(timings)]
    done = pd.MultiIndex.from_frame(repeated[[*OF_ONE, "process"]])
    found = first[_compared(first)[0]] if len(first) else first
    return found[~pd.MultiIndex.from_frame(found[[*OF_ONE, "process"]]).isin(done)]


def _again(timings: pd.DataFrame) -> pd.Series:
    return timings["repeated"].eq(True)


def standing(timings: pd.DataFrame) -> pd.DataFrame:
    """The rows that count: those of a process that was measured again are replaced by the second.

    One that is off and was not measured again is left out where all of its siblings, two or more, agree; where these
    differ too, or two processes are off, the kernel has no one time, and all stand.
    """
    rows = _timed(timings)
    if rows.empty:
        return timings
    key = [*OF_ONE, "process"]
    second = pd.MultiIndex.from_frame(rows.loc[_again(rows), key])
    replaced = pd.MultiIndex.from_frame(rows[key]).isin(second) & ~_again(rows).to_numpy()
    left = rows[~replaced]
    off, agree = _compared(left)
    alone = left.index[off & agree & ~_again(left).to_numpy()]
    return timings.drop(index=[*rows.index[replaced], *alone])
