"""What shapes.csv says of V8: what each step to its kernel gained, what its parts cost, how good its shapes are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kernels import Problem

from ..measure import candidates
from ..measure.studies import MAIN
from ..records.interval import TIE
from .targets import UNMEASURED, label


@dataclass(frozen=True)
class Step:
    """An idea, what it was expected to do, and how today's code tells: the times without it over those with it."""

    idea: str
    expected: str
    compare: Callable[[pd.DataFrame], dict[Problem, float]]


def _timed(shapes: pd.DataFrame, problem: Problem, **columns: Any) -> pd.DataFrame:
    """Rows of right results at a problem, with no change to the kernel unless `cut` names one."""
    mine = shapes[(shapes["problem"] == problem) & shapes["median_us"].notna()]
    for name, value in {"cut": "", **columns}.items():
        mine = mine[mine[name] == value]
    return mine


def time_of(shapes: pd.DataFrame, problem: Problem, cut: str) -> float | None:
    """Microseconds of the kernel with one change."""
    mine = _timed(shapes, problem, cut=cut)
    return float(mine["median_us"].iloc[0]) if len(mine) else None


def best(shapes: pd.DataFrame, problem: Problem, **columns: Any) -> float | None:
    mine = _timed(shapes, problem, **columns)
    return float(mine["median_us"].min()) if len(mine) else None


def _between(problems: Iterable[Problem], without: Mapping[str, Any], having: Mapping[str, Any]) -> Callable:
    """The best time of shapes `without` something over the best of those `having` it."""

    def compare(shapes: pd.DataFrame) -> dict[Problem, float]:
        found = {}
        for problem in problems:
            slow, fast = best(shapes, problem, **without), best(shapes, problem, **having)
            if slow and fast:
                found[problem] = slow / fast
        return found

    return compare


def _changed(name: str, back: bool) -> Callable[[pd.DataFrame], dict[Problem, float]]:
    """What a change to the kernel gains or, where it takes a step back, what the step gained."""

    def compare(shapes: pd.DataFrame) -> dict[Problem, float]:
        found = {}
        for problem in candidates.CHANGES[name].problems:
            as_it_is, changed = base(shapes, problem), time_of(shapes, problem, name)
            if as_it_is and changed:
                found[problem] = changed / as_it_is if back else as_it_is / changed
        return found

    return compare


def base(shapes: pd.DataFrame, problem: Problem) -> float | None:
    """The time of the shape that changes are made to: what the rule of the warpgroup core chooses."""
    changed = shapes[(shapes["problem"] == problem) & (shapes["cut"] != "")]
    if changed.empty:
        return None
    first = changed.iloc[0]
    same = {name: first[name] for name in ("core", "cluster", "queries", "width", "warps", "blocks_per_sm", "once")}
    return best(shapes, problem, **same)


FILLED_512 = next(p for p in candidates.PROBLEMS if p.batch > 1 and p.hdim == 512)
WARPGROUPS = Step(
    "products of warpgroups, not of warps",
    "nearly twice the rate of the tensor cores",
    _between((MAIN, FILLED_512, candidates.PREFILL), {"core": "mma"}, {"core": "wgmma"}),
)
FOUR_WARPGROUPS = Step(
    "four warpgroups a block, not two",
    "more warps hide latencies",
    _between((MAIN, candidates.PREFILL), {"core": "wgmma", "warps": 8}, {"core": "wgmma", "warps": 16}),
)
STEPS = (
    Step(
        "the head dim split over a cluster of 8, not 4",
        "more SMs work on few heads",
        _between(
            (candidates.SMALL, candidates.PROBLEMS[3]), {"core": "wgmma", "cluster": 4}, {"core": "wgmma", "cluster": 8}
        ),
    ),
    Step(
        "a cluster of 16, not 8",
        "fewer bytes are copied to each block",
        _between((MAIN,), {"core": "wgmma", "cluster": 8}, {"core": "wgmma", "cluster": 16}),
    ),
    WARPGROUPS,
    FOUR_WARPGROUPS,
    Step(
        "two blocks an SM, V copied over K to make room",
        "on a full card one computes while the other waits",
        _between((FILLED_512,), {"core": "wgmma", "blocks_per_sm": 1}, {"core": "wgmma", "blocks_per_sm": 2}),
    ),
    Step(
        "copies of V begin before the products of Q and K",
        "V is there when it is needed",
        _changed("values_early", back=False),
    ),
    Step(
        "the rows of a warp reduced side by side",
        "latencies of shuffles overlap",
        _changed("rows_in_turn", back=True),
    ),
    Step(
        "dims that are not rotated on a path of their own",
        "no branch between a load and its product",
        _changed("two_paths", back=False),
    ),
    Step(
        "the wait for K is for K alone",
        "it does not also wait for later stores of Q",
        _changed("wait_for_stores", back=True),
    ),
    Step(
        "the next fragments of V loaded while products run",
        "the tensor cores do not wait for them",
        _changed("values_in_turn", back=True),
    ),
    Step(
        "the mbarriers made when Q and K are on their way",
        "one thread makes them, and all others wait",
        _changed("barriers_first", back=True),
    ),
    Step(
        "Q loaded before the copies of K begin, by a barrier",
        "Q is placed while K arrives",
        _changed("queries_unordered", back=True),
    ),
    Step(
        "keys of many tiles embedded by all blocks together, once",
        "for long sequences no key is embedded again, for one wait",
        _between(candidates.LONG, {"core": "wgmma", "once": False}, {"core": "wgmma", "once": True}),
    ),
    Step(
        "under a mask the last queries first",
        "the longest blocks do not begin last",
        _changed("first_queries_first", back=True),
    ),
)


def held(ratios: Iterable[float]) -> str:
    """Whether a step that was expected to be faster is: all within 3 % of 1 make no difference."""
    ratios = list(ratios)
    if not ratios:
        return UNMEASURED
    if all(ratio > TIE for ratio in ratios):
        return "held"
    if all(1 / TIE <= ratio <= TIE for ratio in ratios):
        return "no difference"
    return "refuted" if max(ratios) <= TIE else "held in part"


# ---------------------------------------------------------------- shapes and parts


def searched(shapes: pd.DataFrame) -> pd.DataFrame:
    """A row a problem: the shape that the rule chose, how many were right, and the best time over the chosen one's.

    Columns: problem, core, cluster, queries, width, warps, median_us, tried, best_over_chosen.
    """
    right = shapes[(shapes["cut"] == "") & (shapes["status"] == "ok") & shapes["median_us"].notna()]
    times = right.groupby("problem")["median_us"].agg(["min", "size"])
    chosen = right[right["chosen"]].set_index("problem").join(times)
    chosen = chosen.assign(best_over_chosen=chosen["min"] / chosen["median_us"], tried=chosen["size"])
    names = ["core", "cluster", "queries", "width", "warps", "median_us", "tried", "best_over_chosen"]
    return chosen.reindex([problem for problem in candidates.PROBLEMS if problem in chosen.index])[names].reset_index()


def cuts(shapes: pd.DataFrame) -> pd.DataFrame:
    """The kernel as it is and with each part left out, at every problem of the cuts."""
    rows = []
    for problem in candidates.CUT_AT:
        whole = base(shapes, problem)
        parts = {"the kernel": whole, **{cut.about: time_of(shapes, problem, cut.name) for cut in candidates.CUTS}}
        for part, us in parts.items():
            if us and whole:
                rows.append((label(problem), part, us, us / whole))
    return pd.DataFrame(rows, columns=["problem", "part", "median_us", "share"])
