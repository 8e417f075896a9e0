"""How much the ratios of a card differ from run to run: pooled over complete runs of the same code.

By timer and by how long the calls take: short calls differ by what comes with a launch, long ones by what the card
gives. One pool for all was too narrow for long calls, and for launched too wide for them. Of pools for all, by study,
by the wider of these two, and by the time of a call, this one missed the fewest of its worst study in every second run
of 21 to 25 November 2026; `coverage` counts how it does in the others.
"""

import numpy as np
import pandas as pd

from kernels import VERSIONS
from kernels.version import PROBLEM_COLUMNS

from ..record.timers import timer_of
from .current import assembled_by, called_today
from .interval import Pool, fit, half_width, pool_of, sized
from .siblings import standing

RUNS = 2  # of the same code, at least, that a ratio was measured in to tell how runs differ
RATIOS = 20  # of one size, at least, that make a pool of their own
RATIO = ["study", "problem", "timer", "version", "code", "baseline", "baseline_code"]


def by_run(runs: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """Every version over its baseline in each complete run, both of one code: a row a run.

    Columns: RATIO, run, and of the logarithms by process, of two or more, mean, var and size; `us` of both, the same
    in all runs.
    """
    complete = runs.loc[runs["complete"].astype(bool), ["run", "study"]]
    rows = standing(timings[timings["median_us"].notna()]).merge(complete, on=["run", "study"])
    at = ["run", "process", "study", "problem", "timer"]
    rows = pd.DataFrame(
        {
            **{name: rows[name] for name in ("run", "process", "study", "timer", "version")},
            "problem": rows.groupby(list(PROBLEM_COLUMNS), sort=False).ngroup(),
            "baseline": rows["version"].map({name: version.baseline for name, version in VERSIONS.items()}),
            "code": rows["source_hash"].map(called_today) + rows["version"].combine(rows["assembler"], assembled_by),
            "log": np.log(rows["median_us"].astype(float)),
        }
    )
    over = rows[[*at, "version", "code", "log"]].set_axis([*at, "baseline", "baseline_code", "baseline_log"], axis=1)
    pairs = rows.merge(over, on=[*at, "baseline"])
    pairs["ratio"] = pairs["baseline_log"] - pairs["log"]
    pairs["us"] = (pairs["baseline_log"] + pairs["log"]) / 2
    both = pairs.groupby([*RATIO, "run"])
    found = both["ratio"].agg(["mean", "var", "size"]).assign(us=both["us"].mean()).reset_index()
    found["us"] = np.exp(found.groupby(RATIO)["us"].transform("mean"))
    return found[found["size"] > 1]


def pooled(ratios: pd.DataFrame) -> dict[str, Pool]:
    """The pools of the ratios of `by_run`: by timer, and by timer and size as `sized` names them.

    Without those of which no ratio, or of a size fewer than `RATIOS`, was measured in `RUNS` complete runs of one code.
    """
    repeated = ratios[ratios.groupby(RATIO)["run"].transform("size") >= RUNS]
    timers = repeated["timer"].map(lambda name: timer_of(name).pool)
    sizes = [sized(*each) for each in zip(timers, repeated["us"])]
    found = {}
    for least, names in ((1, timers), (RATIOS, pd.Series(sizes, index=repeated.index, dtype=object))):
        for name, mine in repeated.groupby(names):
            which = mine.groupby(RATIO).ngroup().to_numpy()
            if which.max() + 1 >= least:
                found[str(name)] = fit(which, *(mine[column].to_numpy() for column in ("mean", "var", "size")))
    return found


def coverage(ratios: pd.DataFrame) -> pd.DataFrame:
    """Of each run, study and timer, how many of its ratios lie outside the intervals that the other runs give.

    The interval is of the latest other run of the same code; the run that is left out is not in its pool. Columns:
    timer, study, run, chose (whether the way of pooling was chosen by this run), ratios, outside, half (the median half
    width, as a factor).
    """
    found = []
    for place, run in enumerate(sorted(ratios["run"].unique())):
        others = ratios[ratios["run"] != run]
        latest = others.sort_values("run").groupby(RATIO).tail(1)
        both = ratios[ratios["run"] == run].merge(latest, on=RATIO, suffixes=("_left", ""))
        known = pooled(others)
        pools = both["timer"].map(lambda name: timer_of(name).pool)
        both = both[pools.isin(list(known))]
        pools_of = [pool_of(known, timer, us) for timer, us in zip(both["timer"], both["us"])]
        half = [half_width(*each) for each in zip(both["var"], both["size"], pools_of)]
        off = (both["mean_left"] - both["mean"]).abs()
        both = both.assign(outside=off > half, half=half)
        for (timer, study), mine in both.groupby(["timer", "study"]):
            counted = len(mine), int(mine["outside"].sum())
            found.append((timer, study, run, place % 2 == 0, *counted, float(np.exp(mine["half"].median()))))
    names = ["timer", "study", "run", "chose", "ratios", "outside", "half"]
    return pd.DataFrame(found, columns=names)
