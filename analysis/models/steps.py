"""What shapes.csv says of V8: what each step to its kernel gained, what its parts cost, how good its shapes are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from kernels import Problem

from ..evidence import Evidence
from ..evidence.interval import TIE
from ..measure import tune
from ..measure.studies import MAIN
from ..record.files import with_problems
from .targets import UNMEASURED, label

IN_ORDER = tuple(dict.fromkeys((MAIN, *tune.PROBLEMS)))
CUTS = {  # parts of V8's kernel that a past audit left out; no command measures them again
    "no_scores": "no products of Q and K",
    "no_output": "no products with V, nor the output rescaled",
    "no_embedding": "nothing rotated",
    "copies_alone": "only copies and exchanges",
}


def shapes(e: Evidence) -> pd.DataFrame:
    """What the search of V8's shapes measured; no rows where it was not made on this card."""
    found = with_problems(e.record.frame("shapes"))
    number, flag = found["median_us"].astype(float), found["chosen"].astype(bool)
    return found.assign(cut=found["cut"].fillna(""), median_us=number, chosen=flag)


@dataclass(frozen=True)
class Step:
    """An idea, what it was expected to do, and which rows tell: the times without it over those with it.

    At `problems`, the best shapes `without` it are compared with the best `having` it. Or the kernel is compared with
    the same where lines were changed, a `cut` of shapes.csv, which took the step back or, if `added`, made it.
    """

    idea: str
    expected: str
    problems: tuple[Problem, ...] = ()
    without: Mapping[str, Any] = field(default_factory=dict)
    having: Mapping[str, Any] = field(default_factory=dict)
    cut: str = ""
    added: bool = False

    def compare(self, shapes: pd.DataFrame) -> dict[Problem, float]:
        """Speedup by the step, by problem."""
        cut = shapes["problem"][shapes["cut"] == self.cut] if self.cut else ()
        found = {}
        for problem in self.problems or [each for each in IN_ORDER if each in set(cut)]:
            slow, fast = best(shapes, problem, **self.without), best(shapes, problem, **self.having)
            if self.cut:
                slow, fast = best(shapes, problem, cut=self.cut), base(shapes, problem)
            if slow and fast:
                found[problem] = fast / slow if self.added else slow / fast
        return found


def best(shapes: pd.DataFrame, problem: Problem, **columns: Any) -> float | None:
    """The least microseconds at a problem of rows with these columns, with no change to the kernel but `cut`."""
    mine = shapes[(shapes["problem"] == problem) & shapes["median_us"].notna()]
    for name, value in {"cut": "", **columns}.items():
        mine = mine[mine[name] == value]
    return float(mine["median_us"].min()) if len(mine) else None


def base(shapes: pd.DataFrame, problem: Problem) -> float | None:
    """The time of the shape that changes were made to, by the same code: what the rule of the warpgroup core chose."""
    changed = shapes[(shapes["problem"] == problem) & (shapes["cut"] != "")]
    if changed.empty:
        return None
    same = ("core", "cluster", "queries", "width", "warps", "blocks_per_sm", "once", "source_hash")
    return best(shapes, problem, **{name: changed.iloc[0][name] for name in same})


def _wgmma(**columns: Any) -> dict[str, Any]:
    return {"core": "wgmma", **columns}


FILLED_512 = next(p for p in tune.PROBLEMS if p.batch > 1 and p.hdim == 512)
WARPGROUPS = Step(
    "products of warpgroups, not of warps",
    "nearly twice the rate of the tensor cores",
    (MAIN, FILLED_512, tune.PREFILL),
    without={"core": "mma"},
    having=_wgmma(),
)
FOUR_WARPGROUPS = Step(
    "four warpgroups a block, not two",
    "more warps hide latencies",
    (MAIN, tune.PREFILL),
    without=_wgmma(warps=8),
    having=_wgmma(warps=16),
)
STEPS = (
    Step(
        "the head dim split over a cluster of 8, not 4",
        "more SMs work on few heads",
        (tune.SMALL, tune.PROBLEMS[3]),
        without=_wgmma(cluster=4),
        having=_wgmma(cluster=8),
    ),
    Step(
        "a cluster of 16, not 8, for 4 heads of head dim 2048",
        "fewer bytes are copied to each block",
        (MAIN,),
        without=_wgmma(cluster=8),
        having=_wgmma(cluster=16),
    ),
    WARPGROUPS,
    FOUR_WARPGROUPS,
    Step(
        "two blocks an SM, V copied over K to make room",
        "on a full card one computes while the other waits",
        (FILLED_512,),
        without=_wgmma(blocks_per_sm=1),
        having=_wgmma(blocks_per_sm=2),
    ),
    Step(
        "copies of V begin before the products of Q and K",
        "V is there when it is needed",
        cut="values_early",
        added=True,
    ),
    Step("the rows of a warp reduced side by side", "latencies of shuffles overlap", cut="rows_in_turn"),
    Step(
        "dims that are not rotated on a path of their own",
        "no branch between a load and its product",
        cut="two_paths",
        added=True,
    ),
    Step("the wait for K is for K alone", "it does not also wait for later stores of Q", cut="wait_for_stores"),
    Step(
        "the next fragments of V loaded while products run",
        "the tensor cores do not wait for them",
        cut="values_in_turn",
    ),
    Step(
        "the mbarriers made when Q and K are on their way",
        "one thread makes them, and all others wait",
        cut="barriers_first",
    ),
    Step(
        "Q loaded before the copies of K begin, by a barrier",
        "Q is placed while K arrives",
        cut="queries_unordered",
    ),
    Step(
        "keys of many tiles embedded by all blocks together, once",
        "for long sequences no key is embedded again, for one wait",
        tune.LONG,
        without=_wgmma(once=False),
        having=_wgmma(once=True),
    ),
    Step(
        "under a mask the last queries first",
        "the longest blocks do not begin last",
        cut="first_queries_first",
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
    return chosen.reindex([problem for problem in tune.PROBLEMS if problem in chosen.index])[names].reset_index()


def cuts(shapes: pd.DataFrame) -> pd.DataFrame:
    """The kernel as it is and with each part left out, at every problem where that was timed."""
    rows = []
    recorded = set(shapes["problem"][shapes["cut"].isin(CUTS)])
    for problem in IN_ORDER:
        whole = base(shapes, problem) if problem in recorded else None
        parts = {"the kernel": whole, **{about: best(shapes, problem, cut=cut) for cut, about in CUTS.items()}}
        for part, us in parts.items():
            if us and whole:
                rows.append((label(problem), part, us, us / whole))
    return pd.DataFrame(rows, columns=["problem", "part", "median_us", "share"])
