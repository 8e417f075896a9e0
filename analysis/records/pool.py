"""How much the ratios of a card differ from run to run: pooled over complete runs of the same code, by timer."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from kernels import VERSIONS
from kernels.version import PROBLEM_COLUMNS

from .archive import history_of, whole
from .current import called_today
from .files import REFERENCE, DataError, gpu_folder, written
from .interval import Pool, fit, half_width
from .siblings import standing

RUNS = 2  # of the same code, at least, that a ratio was measured in to tell how runs differ
RATIO = ["study", "problem", "timer", "version", "code", "baseline", "baseline_code"]


def pools(folder: Path) -> Mapping[str, Pool]:
    """By timer; without a timer of which no ratio was measured in `RUNS` complete runs of the same code."""
    paths = [folder / f"{name}.csv" for name in ("runs", "timings")]
    if not all(map(Path.exists, paths)):
        return {}
    paths += filter(Path.exists, [history_of(folder, name) for name in ("runs", "timings")])
    return _pools(folder, *map(written, paths))


@functools.cache
def _pools(folder: Path, *states: tuple[int, ...]) -> Mapping[str, Pool]:
    return pooled(ratios_of(folder))


def ratios_of(folder: Path) -> pd.DataFrame:
    """`by_run` of all that was measured on a card, archived runs too. Raises: DataError."""
    return by_run(whole(folder, "runs"), whole(folder, "timings"))


def by_run(runs: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """Every version over its baseline in each complete run, both of one code: a row a run.

    Columns: RATIO, run, and of the logarithms by process, of two or more, mean, var and size.
    """
    complete = runs.loc[runs["complete"].astype(bool), ["run", "study"]]
    rows = standing(timings[timings["median_us"].notna()]).merge(complete, on=["run", "study"])
    at = ["run", "process", "study", "problem", "timer"]
    rows = pd.DataFrame(
        {
            **{name: rows[name] for name in ("run", "process", "study", "timer", "version")},
            "problem": rows.groupby(list(PROBLEM_COLUMNS), sort=False).ngroup(),
            "baseline": rows["version"].map({name: version.baseline for name, version in VERSIONS.items()}),
            "code": rows["source_hash"].map(called_today),
            "log": np.log(rows["median_us"].astype(float)),
        }
    )
    over = rows[[*at, "version", "code", "log"]].set_axis([*at, "baseline", "baseline_code", "baseline_log"], axis=1)
    pairs = rows.merge(over, on=[*at, "baseline"])
    pairs["ratio"] = pairs["baseline_log"] - pairs["log"]
    found = pairs.groupby([*RATIO, "run"])["ratio"].agg(["mean", "var", "size"]).reset_index()
    return found[found["size"] > 1]


def pooled(ratios: pd.DataFrame) -> dict[str, Pool]:
    """The pool of each timer, from the ratios of `by_run` that were measured in `RUNS` runs or more."""
    repeated = ratios[ratios.groupby(RATIO)["run"].transform("size") >= RUNS]
    found = {}
    for timer, mine in repeated.groupby("timer"):
        columns = (mine[name].to_numpy() for name in ("mean", "var", "size"))
        found[str(timer)] = fit(mine.groupby(RATIO).ngroup().to_numpy(), *columns)
    return found


def coverage(ratios: pd.DataFrame) -> pd.DataFrame:
    """Of each run and timer, how many of its ratios lie outside the intervals that the other runs give.

    The interval is of the latest other run of the same code; the run that is left out is not in its pool. Columns:
    timer, run, ratios, outside, alone (outside the interval within one run), half (the median half width, as a factor).
    """
    found = []
    for run in sorted(ratios["run"].unique()):
        others = ratios[ratios["run"] != run]
        latest = others.sort_values("run").groupby(RATIO).tail(1)
        both = ratios[ratios["run"] == run].merge(latest, on=RATIO, suffixes=("_left", ""))
        known = pooled(others)
        for timer, mine in both.groupby("timer"):
            if timer not in known:
                continue
            off = (mine["mean_left"] - mine["mean"]).abs()
            half = half_width(mine["var"], mine["size"], known[str(timer)])
            alone = half_width(mine["var"], mine["size"])
            counted = len(mine), int((off > half).sum()), int((off > alone).sum()), float(np.exp(np.median(half)))
            found.append((timer, run, *counted))
    return pd.DataFrame(found, columns=["timer", "run", "ratios", "outside", "alone", "half"])


def covered(folder: Path) -> pd.DataFrame:
    """`coverage` of what was measured on a card."""
    return coverage(ratios_of(folder))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis coverage", description="Say whether intervals hold")
    parser.add_argument("--gpu", default=REFERENCE, help="a folder of data/measured/")
    gpu = parser.parse_args(arguments).gpu
    try:
        found = covered(gpu_folder(gpu))
    except DataError as error:
        print(f"coverage: {error}", file=sys.stderr)
        return 1
    if found.empty:
        print(f"[coverage] no ratio of {gpu} has {RUNS} runs of the same code to pool and another to leave out")
    for timer, runs in found.groupby("timer"):
        for name, rows in [*runs.groupby("run"), ("all", runs)]:
            ratios, outside, alone = rows[["ratios", "outside", "alone"]].sum()
            print(
                f"{timer:12s} {name:17s} {outside:4d} of {ratios:4d} ratios outside ({outside / ratios:.1%}; of the "
                f"interval within one run {alone / ratios:.1%}), half width {rows['half'].median() - 1:.1%}"
            )
    return 0
