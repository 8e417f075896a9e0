"""What was measured on one GPU: the latest complete run of a study, and what follows from it.

A row counts as stale when its source_hash is not that of today's code. What is compared is a ratio within
a process; its interval is over the processes and, where the card's record has enough of them, the runs.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kernels import VERSIONS, Problem, Unsupported

from .current import called_today, complete_runs, outdated
from .files import DataError, card_name, gpu_folder, is_reference, parsed, read_json, target_of, with_problems, written
from .interval import Pool, Ratio, covers, geometric_mean, pool_of, share_closed
from .pool import pools
from .published import main_problems
from .schema import STATUSES
from .siblings import standing

NUMBERS = ("max_abs_err", "allowed_abs_err", "nan_share", "median_us")
FILES = ("gpu.json", "runs.csv", "checks.csv", "timings.csv")
CEILINGS = ("read_gb_s", "l2_read_gb_s", "fp32_tflops", "tensor_tflops", "empty_kernel_us", "empty_launch_us")


class Time(NamedTuple):
    """Microseconds of one call: the geometric mean of the processes' medians, the least and the largest of them.

    Geometric, so that two times of the same processes divide to their `Ratio`.
    """

    us: float
    low: float
    high: float

    @classmethod
    def of(cls, medians: pd.Series) -> Time:
        return cls(statistics.geometric_mean(medians), float(medians.min()), float(medians.max()))


class Check(NamedTuple):
    """What the checks of a version on a problem found: the worse of the two inputs decides whether it is right.

    `max_abs_err` is the largest error on inputs of that status, and `allowed_abs_err` what is allowed there; `excess`
    is the largest share of what is allowed, which may be of the other input.
    """

    status: str
    reason: str
    nan_share: float
    max_abs_err: float
    allowed_abs_err: float
    excess: float = math.nan


def middle_us(times: Iterable[pd.Series]) -> float | None:
    """The geometric mean of times by process; None of none."""
    logs = [float(np.log(each).mean()) for each in times]
    return math.exp(statistics.mean(logs)) if logs else None


def baseline_of(version: str) -> str:
    """What its source compares a version with, or an empty text."""
    return VERSIONS[version].baseline or ""


@dataclass
class Measured:
    """The evidence of one GPU and study. `run`, `timings` and `checks` are those of its latest complete run."""

    slug: str
    gpu: dict[str, Any]
    run: dict[str, Any]
    checks: pd.DataFrame
    timings: pd.DataFrame
    pools: Mapping[str, Pool] = field(default_factory=dict)  # by timer, how runs of the same code differ
    _stale: set[tuple[str, Problem]] = field(default_factory=set)
    _found: dict[tuple[str, Problem, str], Check | None] = field(default_factory=dict)

    @classmethod
    def load(cls, slug: str, study: str = "log") -> Measured:
        """Raises: DataError when the GPU is unknown, no run of the study is complete or a file is damaged."""
        return cls.read(gpu_folder(slug), study)

    @classmethod
    def read(cls, folder: Path, study: str = "log", before: str | None = None, run: str | None = None) -> Measured:
        """The latest complete run of a study under `folder`, or the latest before the run called `before`, or `run`.

        Read once, as the files stand: not to be changed.
        """
        return _read(folder, study, before, run, *(written(folder / name) for name in FILES))

    @classmethod
    def _of(cls, folder: Path, study: str, before: str | None, run: str | None) -> Measured:
        gpu = read_json(folder / "gpu.json")
        missing = [name for name in CEILINGS if name not in gpu.get("ceilings", {})]
        if missing:
            raise DataError(f"{folder / 'gpu.json'}: ceiling {missing[0]!r} is missing")
        tables = {name: parsed(folder / f"{name}.csv", name) for name in ("runs", "checks", "timings")}
        listed = tables["runs"]
        runs = complete_runs(listed[listed["run"] == run] if run else listed, before)
        if study not in runs:
            raise DataError(
                f"{folder / 'runs.csv'}: no run of study {study!r} is complete; `make measure` brings one to its end"
            )
        evidence = cls(folder.name, gpu, runs[study], tables["checks"], tables["timings"], pools(folder))
        evidence.checks, evidence.timings = evidence._latest(evidence.checks), evidence._latest(evidence.timings)
        evidence.timings = standing(evidence.timings)
        return evidence

    def _latest(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of the chosen run; where a resumed run holds several codes of a version, today's or the last."""
        frame = with_problems(frame[(frame["study"] == self.run["study"]) & (frame["run"] == self.run["run"])])
        numbers = [name for name in NUMBERS if name in frame]
        frame[numbers] = frame[numbers].astype(float)
        frame["stale"] = outdated(frame)
        pair = ["version", "problem"]
        changed = frame.groupby(pair, sort=False)["stale"].transform("all")
        newest = frame.sort_values("measured_at", kind="stable").groupby(pair, sort=False)["source_hash"]
        self._stale |= set(frame.loc[changed, pair].itertuples(index=False, name=None))
        return frame[(frame["source_hash"] == newest.transform("last")).where(changed, ~frame["stale"])]

    @classmethod
    def nothing(cls, slug: str, study: str) -> Measured:
        """The evidence of a study that has no complete run: no rows. Raises: DataError as `load`."""
        folder = gpu_folder(slug)
        tables = (parsed(folder / f"{name}.csv", name) for name in ("checks", "timings"))
        checks, timings = (table.iloc[:0].assign(problem=[], stale=[]) for table in tables)
        return cls(folder.name, read_json(folder / "gpu.json"), {"study": study}, checks, timings)

    def __bool__(self) -> bool:
        """Whether anything was measured."""
        return len(self.checks) > 0

    @property
    def card(self) -> str:
        """The card's name, as the book shows it."""
        return card_name(self.slug, self.gpu)

    @property
    def is_reference(self) -> bool:
        """Whether it is the record that the book is written for."""
        return is_reference(self.slug, self.gpu)

    @property
    def target(self) -> str:
        """What its kernels are compiled for, such as "sm_90"."""
        return target_of(self.gpu)

    @property
    def processes(self) -> int:
        return 0 if self.timings.empty else int(self.timings["process"].max())

    def stale(self, version: str, problem: Problem) -> bool:
        """Whether the version's code has changed since it was measured on that problem."""
        return (version, problem) in self._stale

    def stale_versions(self) -> list[str]:
        return sorted({version for version, _ in self._stale})

    def problems(self, family: str, partial: bool | None = None) -> list[Problem]:
        """Measured problems of a family by head dim; with RoPE, those that rotate all dims (False) or some (True)."""
        found = {problem for _, problem in self._checked if problem.family == family}
        if partial is not None:
            found = {problem for problem in found if (problem.rotary_dim < problem.hdim) == partial}
        return sorted(found, key=lambda problem: (problem.hdim, problem.rotary_dim, problem))

    def shapes(self, version: str, refused: bool = False) -> dict[int, Problem]:
        """A problem a head dim: with RoPE the published rotary dim where the version takes it, else full rotation.

        Those that the version takes, or, of head dims where it takes none, also those `refused`.
        """
        problems = self.problems(VERSIONS[version].family)
        checks = {problem: self.check(version, problem) for problem in problems}
        taken = [problem for problem, check in checks.items() if check and check.status != "unsupported"]
        shown = [*main_problems(taken), *(main_problems(problems) if refused else ())]
        return dict(sorted({problem.hdim: problem for problem in reversed(shown)}.items()))

    def versions(self, family: str, peers: bool = False) -> list[str]:
        """Measured versions of a family, in log order, fast-math builds behind their originals: own ones, or peers."""
        seen, order = {version for version, _ in self._checked}, list(VERSIONS)
        mine = [v.id for v in VERSIONS.values() if v.family == family and v.is_peer == peers and v.id in seen]
        return sorted(mine, key=lambda name: (order.index(VERSIONS[name].built_from), name))

    def medians(self, version: str, problem: Problem, timer: str) -> pd.Series:
        """Median microseconds by process."""
        rows = self._timed.get((version, problem, timer))
        return rows if rows is not None else pd.Series(dtype=float)

    @functools.cached_property
    def _timed(self) -> dict[tuple[str, Problem, str], pd.Series]:
        frame = self.timings[self.timings["median_us"].notna()]
        places = frame.groupby(["version", "problem", "timer"], sort=False).indices
        processes, medians = frame["process"].to_numpy(), frame["median_us"].to_numpy()
        return {key: pd.Series(medians[at], index=processes[at]) for key, at in places.items()}

    def time(self, version: str, problem: Problem, timer: str = "device_warm") -> Time | None:
        rows = self.medians(version, problem, timer)
        return None if rows.empty else Time.of(rows)

    def ratio(self, a: str, b: str, problem: Problem, timer: str = "device_warm") -> Ratio | None:
        """How many times longer `a` takes than `b`: the speedup of b over a."""
        over, under = self.medians(a, problem, timer), self.medians(b, problem, timer)
        if not over.index.equals(under.index):
            over, under = over.align(under, join="inner")
        return self.mean(over / under, timer, over, under)

    def mean(self, values: Sequence[float] | np.ndarray, timer: str, *times: pd.Series) -> Ratio | None:
        """The geometric mean of positive values by process, with its interval; None of none.

        `times` are those that the values were computed from; they say how long a call takes.
        """
        if not len(values):
            return None
        return geometric_mean(np.asarray(values), pool_of(self.pools, timer, middle_us(times)))

    def closed(self, version: str, without: str, baseline: str, problem: Problem) -> Ratio | None:
        """The share of a version's gap to a faster baseline that goes in the version `without` something."""
        names = (version, without, baseline)
        times = pd.DataFrame({name: self.medians(name, problem, "device_warm") for name in names}).dropna()
        if times.empty:
            return None
        slow, middle, fast = (times[name].to_numpy() for name in names)
        size = middle_us(times[name] for name in names)
        return share_closed(slow, middle, fast, pool_of(self.pools, "device_warm", size))

    def runs_covered(self, timer: str = "device_warm") -> int:
        """How many runs the intervals of a timer take in."""
        return self.pools[timer].runs if timer in self.pools else 1

    def covers(self, timer: str = "device_warm") -> str:
        """What the intervals of a timer cover, for captions: "95 % interval ..."."""
        return covers(self.runs_covered(timer))

    def previous(self) -> Measured | None:
        """The evidence as it stood before this run, or None if this is the first."""
        try:
            return Measured.read(gpu_folder(self.slug), self.run["study"], before=str(self.run["run"]))
        except DataError:
            return None

    @functools.cached_property
    def _checked(self) -> dict[tuple[str, Problem], list[dict[str, Any]]]:
        found: dict[tuple[str, Problem], list[dict[str, Any]]] = {}
        for row in self.checks.to_dict("records"):
            found.setdefault((row["version"], row["problem"]), []).append(row)
        return found

    def check(self, version: str, problem: Problem, inputs: str = "") -> Check | None:
        """What the checks found, on one kind of inputs (uniform, sharp) or by default on the worse."""
        if (version, problem, inputs) not in self._found:
            rows = [r for r in self._checked.get((version, problem), ()) if inputs in ("", r["inputs"])]
            self._found[version, problem, inputs] = self._judged(rows) if rows else None
        return self._found[version, problem, inputs]

    def code(self, version: str, problem: Problem) -> str:
        """The hash of the code that was measured, as it is called today; empty where nothing was."""
        rows = self._checked.get((version, problem))
        return called_today(rows[-1]["source_hash"]) if rows else ""

    def core(self, version: str, problem: Problem) -> str:
        """The V8 core that ran, empty where none did; of checks that do not say so, that of the emulated target."""
        check = self.check(version, problem)
        if check is None or check.status not in ("ok", "wrong") or VERSIONS[version].is_peer:
            return ""
        recorded = [row["core"] for row in self._checked[version, problem] if isinstance(row["core"], str)]
        try:
            return recorded[-1] if recorded else VERSIONS[version](problem).core
        except Unsupported:  # today
            return ""

    @staticmethod
    def _judged(rows: list[dict[str, Any]]) -> Check:
        def excess(row: Mapping[str, Any]) -> float:
            error, allowed = row["max_abs_err"], row["allowed_abs_err"]
            return error / allowed if allowed > 0 else math.inf

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
        )


@functools.lru_cache(maxsize=128)
def _read(folder: Path, study: str, before: str | None, run: str | None, *state: tuple[int, ...]) -> Measured:
    return Measured._of(folder, study, before, run)
