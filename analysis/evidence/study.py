"""One study on one card: the rows of its complete runs, and what is known from them.

Of each version the rows of the code as it stands count, from all runs; where there is none, those of the latest run
that has it, which are stale.
"""

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kernels import VERSIONS, Problem

from ..record.columns import STATUSES
from ..record.problems import with_problems
from ..record.published import main_problems
from .current import outdated
from .known import NOT_MEASURED, WORDS, Known, planned, word
from .siblings import standing

NUMBERS = ("max_abs_err", "allowed_abs_err", "nan_share", "median_us")
PAIR = ["version", "problem"]


class Check(NamedTuple):
    """Results of the checks of a version on a problem: the worse of the two inputs decides whether it is right.

    `max_abs_err` is the largest error on inputs of that status, and `allowed_abs_err` what is allowed there; `excess`
    is the largest share of what is allowed, which may be of the other input. `relative_err`: the larger of both inputs.
    """

    status: str
    reason: str
    nan_share: float
    max_abs_err: float
    allowed_abs_err: float
    excess: float = math.nan
    relative_err: float = math.nan


@dataclass(eq=False)
class Study:
    """The rows of a study in its complete `runs`, from the first to the latest; false without any."""

    target: str
    name: str
    runs: Sequence[Mapping[str, Any]]
    checks: pd.DataFrame
    timings: pd.DataFrame
    most: int  # processes of a run of this card
    _stale: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.checks, self.timings = self._latest(self.checks), standing(self._latest(self.timings))

    def _latest(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows that count, of one code of each version."""
        frame = frame[(frame["study"] == self.name) & frame["run"].isin(self.names)]
        if frame.empty:
            return frame.iloc[:0].assign(problem=[])
        old = outdated(frame)
        stale = set(frame["version"]) - set(frame.loc[~old, "version"])
        latest = frame.groupby("version")["run"].transform("max")
        frame = with_problems(frame[~old | (frame["version"].isin(stale) & (frame["run"] == latest))])
        numbers = [name for name in NUMBERS if name in frame]
        frame[numbers] = frame[numbers].astype(float)
        shown = frame["median_us"].notna() if "median_us" in frame else frame["version"].notna()  # a time, or a check
        self._stale |= stale & set(frame.loc[shown, "version"])
        return frame

    def __bool__(self) -> bool:
        return len(self.checks) > 0

    @property
    def run(self) -> Mapping[str, Any]:
        """The latest run."""
        return self.runs[-1]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(run["run"]) for run in self.runs)

    def counted(self, versions: Collection[str] = ()) -> list[Mapping[str, Any]]:
        """The runs that have rows which count, of these versions or of any."""
        frames = (self.checks, self.timings)
        there = {run for rows in frames for run in rows.loc[rows["version"].isin(versions or rows["version"]), "run"]}
        return [run for run in self.runs if run["run"] in there]

    def source(self, table: str, runs: Sequence[str] = ()) -> str:
        """A table and the runs of it, by default all that have rows which count; empty without any."""
        runs = runs or [str(run["run"]) for run in self.counted()]
        return f"{table} of {self.name}, run{'s' * (len(runs) > 1)} {', '.join(runs)}" if runs else ""

    @property
    def processes(self) -> int:
        return 0 if self.timings.empty else int(self.timings["process"].max())

    def stale_versions(self) -> list[str]:
        """Of the versions that there are, those whose code has changed since."""
        return sorted(version for version in self._stale if version in VERSIONS)

    def problems(self, family: str) -> list[Problem]:
        """Measured problems of a family by head dim."""
        found = {problem for _, problem in self._checked if problem.family == family}
        return sorted(found, key=lambda problem: (problem.hdim, problem.rotary_dim, problem))

    def versions(self, family: str, peers: bool = False) -> list[str]:
        """Measured versions of a family, in log order, fast-math builds behind their originals: own ones, or peers."""
        seen, order = {version for version, _ in self._checked}, list(VERSIONS)
        mine = [v.id for v in VERSIONS.values() if v.family == family and v.is_peer == peers and v.id in seen]
        return sorted(mine, key=lambda name: (order.index(VERSIONS[name].built_from), name))

    def shapes(self, version: str, refused: bool = False) -> dict[int, Problem]:
        """A problem a head dim: with RoPE the published rotary dim where the version takes it, else full rotation.

        Those that the version takes, or, of head dims where it takes none, also those `refused`.
        """
        problems, taken = self.problems(VERSIONS[version].family), self.taken.get(version, ())
        shown = [*main_problems(each for each in problems if each in taken)]
        shown += main_problems(problems) if refused else []
        return dict(sorted({problem.hdim: problem for problem in reversed(shown)}.items()))

    @functools.cached_property
    def taken(self) -> Mapping[str, set[Problem]]:
        """By version, the problems that it takes, whether or not it runs there."""
        by_version = self.checks.groupby("version", sort=False)
        return {name: set(rows.loc[rows["status"] != "unsupported", "problem"]) for name, rows in by_version}

    def medians(self, version: str, problem: Problem, timer: str) -> np.ndarray:
        """Median microseconds by run and process, NaN of one that has none; each run has `most` places."""
        return self._timed.get((version, problem, timer), np.full(self.most * len(self.runs), np.nan))

    @functools.cached_property
    def _timed(self) -> dict[tuple[str, Problem, str], np.ndarray]:
        frame = self.timings[self.timings["median_us"].notna()]
        first = {name: place * self.most for place, name in enumerate(self.names)}
        places = (frame["run"].map(first) + frame["process"] - 1).to_numpy(int)
        found = {}
        for key, at in frame.groupby([*PAIR, "timer"], sort=False).indices.items():
            found[key] = np.full(self.most * len(self.runs), np.nan)
            found[key][places[at]] = frame["median_us"].to_numpy()[at]
        return found

    @functools.cached_property
    def _checked(self) -> dict[tuple[str, Problem], list[dict[str, Any]]]:
        found: dict[tuple[str, Problem], list[dict[str, Any]]] = {}
        for row in self.checks.to_dict("records"):
            found.setdefault((row["version"], row["problem"]), []).append(row)
        return found

    def check(self, version: str, problem: Problem, inputs: str = "") -> Check | None:
        """Results of the checks on one kind of inputs (uniform, sharp), by default on the worse."""
        rows = [row for row in self._checked.get((version, problem), ()) if inputs in ("", row["inputs"])]
        return _judged(rows) if rows else None

    def known(self, version: str, problem: Problem) -> Known:
        """The result of the check, or without one the status of the version's plan for this card."""
        check = self.check(version, problem)
        return Known(word(check.status), check.reason) if check else planned(version, problem, self.target)

    def outcomes(self, version: str, problems: Iterable[Problem]) -> dict[str, list[str]]:
        """The head dims of some problems by what is known of a version there."""
        found: dict[str, dict[str, None]] = {}
        for problem in problems:
            found.setdefault(self.known(version, problem).word, {})[str(problem.hdim)] = None
        return {word: [*dims] for word, dims in found.items()}

    def best(self, version: str, problems: Iterable[Problem]) -> Known:
        """The best status over these problems, with its reason."""
        found = [self.known(version, problem) for problem in problems]
        return min(found, key=lambda each: WORDS.index(each.word), default=Known(NOT_MEASURED))


def _judged(rows: list[dict[str, Any]]) -> Check:
    def excess(row: Mapping[str, Any]) -> float:
        return row["max_abs_err"] / row["allowed_abs_err"] if row["allowed_abs_err"] > 0 else math.inf

    worst = max(rows, key=lambda row: STATUSES.index(row["status"]))
    errors = [row for row in rows if row["max_abs_err"] >= 0] or rows[:1]  # one that has none has NaN
    alike = [row for row in errors if row["status"] == worst["status"]] or errors
    largest = max(alike, key=lambda row: row["max_abs_err"])
    return Check(
        worst["status"],
        worst["reason"] if isinstance(worst["reason"], str) else "",
        max((row["nan_share"] for row in rows if row["nan_share"] >= 0), default=math.nan),
        largest["max_abs_err"],
        largest["allowed_abs_err"],
        max(map(excess, errors)),
        max((err for row in errors if (err := row.get("relative_err") or math.nan) >= 0), default=math.nan),
    )
