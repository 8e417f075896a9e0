"""What is known about one GPU, by the functions that expressions may call."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pandas as pd

from kernels import VERSIONS, Plan, Problem, Unsupported
from kernels.version import PROBLEM_COLUMNS, Sync

from ..measure.counters import STALL, STALLS
from ..measure.studies import CONDITIONS, STUDIES
from ..records import published
from ..records.current import complete_runs, outdated
from ..records.files import COUNTS, RESOURCES, DataError, parsed, per_file, read_json, with_problems
from ..records.known import FAILED, REFUSED, best, word
from ..records.measured import Check, Measured, middle_us
from ..records.pool import pools
from .rule import DEVICE, MATCHED, SHARE, SIZE, NotMeasured, Undecided

COUNTER = re.compile(
    r"inst\.(fma|fp(32|64|16)|int|cvt|mufu\.\w+|(ld|st)\.(global|shared|local)|atom\.(global|shared)|cp_async|shfl"
    r"|barrier|mma|control|other)|event\.(rotation|sin|cos|sincos|pow)|warp_inst|barriers"
    r"|global\.(read|write)\.sectors(\.\w+)?|global\.read\.bytes_requested|global\.unique_sectors\.(read|write)"
    r"|shared\.(requests|wavefronts)"
)

NUDGE = 1.001
Groups = Mapping[str, Mapping[Problem, pd.DataFrame]]  # rows of a table by version and problem


def read_once(folder: Path) -> None:
    """Read what answers are found in, for all processes that are forked from this one. Raises: DataError."""
    pools(folder)
    for path, table in ((folder / "counters.csv", "counters"), (COUNTS, "counts"), (RESOURCES, "resources")):
        _by_problem(path, table)
    parsed(folder / "checks.csv", "checks")


def common_run(facts: Facts) -> str:
    """The latest run in which all `studies` that were asked were measured to the end, or an empty text."""
    runs = facts._runs[facts._runs["complete"].astype(bool)].groupby("study")["run"].agg(set)
    return max(set.intersection(*(runs[study] for study in facts.studies)), default="")


class Facts:
    """The data of one GPU's folder, and what is the same on every machine.

    A version is named by its id. `hdim` and what else is `chosen` pick one problem of a study: `study` (by default
    log, fp16 for that family, ablation where one is named), any column of a problem, and for RoPE `rotary`, "full" or
    "partial" (by default the partial one where a version takes both, as published). Times are a Series with a value a
    process, named by the timer, so that what is computed from them has an interval; `timed` notes of which versions,
    `calls` the times, and of the one that is `nudged` they are `NUDGE` times as long. What names no timer or study is
    measured by those of the `condition`, and `varies` notes which was left to it; `used`, `studies` and `stale` note
    where answers are from.

    A study is asked in its latest complete run; in `run`, if that is set; and, where `earlier`, in the run before the
    latest, if it is of the same code.

    Raises: Undecided where there is no answer; DataError where the question is wrong or a file is damaged.
    """

    def __init__(self, folder: Path, earlier: bool = False) -> None:
        self.folder = folder
        self.earlier = earlier
        self.identity = read_json(folder / "gpu.json")
        self.target = "sm_" + self.identity["compute_capability"].replace(".", "")
        self.used: dict[str, None] = {}
        self.stale: dict[str, None] = {}
        self.varies: set[str] = set()
        self.condition = DEVICE
        self.pools = pools(folder)
        self.timed: set[str] = set()
        self.calls: list[pd.Series] = []
        self.nudged = ""
        self.studies: set[str] = set()
        self.run = ""
        self._takes: dict[tuple[str, str, str], set[Problem]] = {}

    # ------------------------------------------------------------ times and checks

    def us(self, version: str, hdim: int, timer: str = "", **chosen: Any) -> pd.Series:
        """Microseconds of one call."""
        return self._times(version, *self._measured((version,), hdim, chosen), timer)

    def speed(self, version: str, other: str, hdim: int, timer: str = "", **chosen: Any) -> pd.Series:
        """How many times as fast as `other` a version is on the same problem."""
        where = self._measured((version, other), hdim, chosen)
        over, under = self._times(other, *where, timer), self._times(version, *where, timer)
        found = over / under
        found.attrs[SIZE] = middle_us((over, under))
        return found

    def closed(self, version: str, without: str, reference: str, hdim: int, **chosen: Any) -> pd.Series:
        """The share of the gap from a version to a faster `reference` that goes in the version `without` something."""
        measured, problem = self._measured((version, without, reference), hdim, chosen)
        names = (version, without, reference)
        slow, middle, fast = (self._times(name, measured, problem) for name in names)
        found = (slow - middle) / (slow - fast)
        found.attrs[SHARE] = True
        return found

    def tflops(self, version: str, hdim: int, timer: str = "", **chosen: Any) -> pd.Series:
        """Multiply-adds of both products in a second, counted as two."""
        measured, problem = self._measured((version,), hdim, chosen)
        return problem.flops / self._times(version, measured, problem, timer) / 1e6

    def status(self, version: str, hdim: int, status: str, **chosen: Any) -> float:
        """1 if the check of a version says `status` (ok, wrong, infeasible), else 0.

        Like what follows it takes `inputs`, "uniform" or "sharp", of which the worse counts by default.
        """
        return float(self._check(version, hdim, chosen).status == status)

    def ran(self, version: str, hdim: int, **chosen: Any) -> float:
        """1 if a version could run on the GPU, right or wrong as it declares, else 0."""
        return float(self._check(version, hdim, chosen).status in ("ok", "wrong"))

    def _number(self, version: str, hdim: int, chosen: Mapping[str, Any]) -> Check:
        """A check that has numbers. Raises: Undecided where the version did not come to a result."""
        found = self._check(version, hdim, chosen)
        if math.isnan(found.nan_share):
            raise Undecided(f"{version} at head dim {hdim}: {word(found.status)}")
        return found

    def nan_share(self, version: str, hdim: int, **chosen: Any) -> float:
        """The share of outputs that are not finite."""
        return self._number(version, hdim, chosen).nan_share

    def error(self, version: str, hdim: int, **chosen: Any) -> float:
        """The largest absolute difference from float64 over the finite outputs, of either input."""
        return self._number(version, hdim, chosen).max_abs_err

    # ------------------------------------------------------------ counts, counters, resources

    def count(self, version: str, counter: str, hdim: int, launch: int | None = None, **chosen: Any) -> float:
        """What the emulator counts over all launches, or in one (see kernels/runtime/emulator/__init__.py)."""
        if not COUNTER.fullmatch(counter):
            raise DataError(f"the emulator counts nothing called {counter!r}")
        rows = self._rows(self._counted, "counts", version, hdim, chosen)
        kind, known = "instructions", "warp_inst" in set(rows["counter"])
        if counter.startswith("event."):  # a version that does none of them has no such row
            kind, known = "events", self._has_events
        if not known:
            raise NotMeasured(f"{kind} of {version} are not counted")
        rows = _launch(rows, launch)
        return float(rows.loc[rows["counter"] == counter, "value"].sum())

    def counter(self, version: str, metric: str, hdim: int, launch: int | None = None, **chosen: Any) -> float:
        """A hardware counter: a sum over all launches; anything else of one launch, by default the last."""
        self.varies.add("study")
        matched = self.condition == MATCHED
        groups = {
            name: {problem: rows for problem, rows in found.items() if matched == (MATCHED in set(rows["study"]))}
            for name, found in self._profiled.items()
            if name == version
        }
        rows = self._rows(groups, "counters", version, hdim, chosen)
        rows = _launch(rows, launch if ".sum" in metric or launch is not None else -1)
        rows = rows[rows["metric"] == metric]
        if rows.empty:
            raise NotMeasured(f"counter {metric} of {version} is not recorded")
        return float(rows["value"].sum())

    def stalled(self, version: str, reasons: str, hdim: int, **chosen: Any) -> float:
        """The share of its time that a warp of the last launch waits for some reasons, separated by spaces."""
        unknown = set(reasons.split()) - set(STALLS)
        if unknown:
            raise DataError(f"no warp stalls for {unknown.pop()!r}; reasons are: {', '.join(STALLS)}")
        values = {reason: self.counter(version, STALL.format(reason), hdim, **chosen) for reason in STALLS}
        return sum(values[reason] for reason in reasons.split()) / sum(values.values())

    def resource(
        self, version: str, column: str, hdim: int, launch: int = -1, target: str = "", **chosen: Any
    ) -> float:
        """A column of data/resources.csv for this GPU or another target, of one launch, by default the last."""
        rows = self._rows(self._assembled, "resources", version, hdim, chosen)
        rows = rows[rows["target"] == (target or self.target)]
        if rows.empty:
            raise NotMeasured(f"resources for {target or self.target} are not recorded")
        return float(_launch(rows, launch)[column].iloc[0])

    # ------------------------------------------------------------ plans

    def shared_bytes(self, version: str, hdim: int, array: str = "", **chosen: Any) -> float:
        """Bytes of shared memory that a block of the last launch asks for, or those of one array in it.

        Of a version that refuses the problem: the bytes that its refusal names.
        """
        plan = self._plan(version, hdim, chosen)
        if _too_big(plan) and not array:
            return float(plan.needed)
        launch = _planned(plan, version, hdim).launches[-1]
        return float(4 * {**launch.static.sizes, **launch.shared.sizes}[array] if array else launch.shared_bytes)

    def launches(self, version: str, hdim: int, **chosen: Any) -> float:
        """Launches of a call."""
        return float(len(_planned(self._plan(version, hdim, chosen), version, hdim).launches))

    def syncs(self, version: str, hdim: int, **chosen: Any) -> float:
        """Host syncs of a call, as the source's own harness makes them."""
        plan = _planned(self._plan(version, hdim, chosen), version, hdim)
        return float(sum(isinstance(step, Sync) for step in plan.steps))

    def blocks(self, version: str, hdim: int, **chosen: Any) -> float:
        """Blocks of the last launch."""
        return float(math.prod(_planned(self._plan(version, hdim, chosen), version, hdim).launches[-1].grid))

    def threads(self, version: str, hdim: int, **chosen: Any) -> float:
        """Threads of a block of the last launch."""
        return float(math.prod(_planned(self._plan(version, hdim, chosen), version, hdim).launches[-1].block))

    def hazards(self, version: str, hdim: int, kind: str, **chosen: Any) -> float:
        """Declared hazards of a kind; the checks see that exactly those are there."""
        plan = _planned(self._plan(version, hdim, chosen), version, hdim)
        return float(sum(hazard.kind == kind for hazard in plan.hazards))

    def size(self, version: str, column: str, hdim: int, **chosen: Any) -> float:
        """A column of the problem, such as seq_k, or its flops."""
        return float(getattr(_planned(self._plan(version, hdim, chosen), version, hdim).problem, column))

    # ------------------------------------------------------------ the machine, the documents

    def ceiling(self, name: str) -> float:
        """What the GPU reaches at most, measured on it."""
        if name not in self.identity["ceilings"]:
            raise NotMeasured(f"ceiling {name} is not measured")
        self.used["gpu.json"] = None
        return float(self.identity["ceilings"][name])

    def gpu(self, name: str) -> float:
        """What the GPU is: sms, l2_bytes, ..."""
        self.used["gpu.json"] = None
        return float(self.identity[name])

    def said(self, row: str) -> float:
        """A row of data/published.csv, by its id; a ratio as how many times as fast."""
        found = published.by_id()[row]
        self.used["published.csv"] = None
        return 1.0 / found["value"] if found["unit"] == "x_slower" else float(found["value"])

    def hdims(self, family: str) -> list[float]:
        """The head dims that the write-up prints a time for."""
        rows = published.load().query("source_document == @published.WRITE_UP and quantity == 'time_ms'")
        self.used["published.csv"] = None
        return sorted(set(rows.query("family == @family")["hdim"].astype(float)))

    def max(self, *values: Any) -> Any:
        """The largest of some values, or of a list of them."""
        return functools.reduce(np.maximum, values[0] if len(values) == 1 else values)

    def min(self, *values: Any) -> Any:
        """The least of some values, or of a list of them."""
        return functools.reduce(np.minimum, values[0] if len(values) == 1 else values)

    # ------------------------------------------------------------ how answers are found

    @functools.cached_property
    def _runs(self) -> pd.DataFrame:
        return parsed(self.folder / "runs.csv", "runs")

    @functools.cached_property
    def _complete(self) -> set[str]:
        return set(complete_runs(self._runs))

    def _default(self, versions: Sequence[str]) -> str:
        """The study of the condition, by default the one that holds the documents' shapes of some versions."""
        self.varies.add("study")
        ablated = any(version in VERSIONS and VERSIONS[version].ablation for version in versions)
        return CONDITIONS[self.condition][1] or ("ablation" if ablated else _home(versions[0]))

    def _study(self, name: str) -> Measured:
        """Raises: Undecided where no run of the study is complete."""
        if name not in self._complete:
            raise NotMeasured(f"study {name} is not measured")
        self.studies.add(name)
        return Measured.read(self.folder, name, run=self.run or None)

    def _measured(self, versions: Sequence[str], hdim: int, chosen: Mapping[str, Any]) -> tuple[Measured, Problem]:
        """The study, and the problem in it that all of `versions` were measured on."""
        measured = self._study(chosen.get("study") or self._default(versions))
        common: set[Problem] = set()
        try:
            for place, version in enumerate(versions):
                taken = self._taken(measured, version)
                common = common & taken if place else taken
            problem = _choose(common, versions, hdim, chosen)
            return self._of_run_asked(measured, versions, problem), problem
        except NotMeasured:
            for version in versions:
                _require_run(measured, version, hdim)
            raise

    def _of_run_asked(self, measured: Measured, versions: Sequence[str], problem: Problem) -> Measured:
        """The run, or of `earlier` ones the one before it, where the code of all versions was the same."""
        if not self.earlier or self.run:
            return measured
        try:
            before = Measured.read(self.folder, str(measured.run["study"]), before=str(measured.run["run"]))
        except DataError:
            return measured
        same = all(before.code(each, problem) == measured.code(each, problem) for each in versions)
        return before if same else measured

    def _taken(self, measured: Measured, version: str) -> set[Problem]:
        """The problems of a study that a version takes. Raises: Undecided where it was not measured."""
        key = str(measured.run["study"]), str(measured.run["run"]), version
        if key not in self._takes:
            checks = measured.checks[measured.checks["version"] == version]
            if checks.empty:
                raise NotMeasured(f"{version} is not measured")
            self._takes[key] = set(checks.loc[checks["status"] != "unsupported", "problem"])
        return self._takes[key]

    def _times(self, version: str, measured: Measured, problem: Problem, timer: str = "") -> pd.Series:
        if not timer:
            self.varies.add("timer")
        timer = timer or CONDITIONS[self.condition][0]
        run = measured.run["run"]
        self._note(f"timings of {measured.run['study']}, run {run}", version, measured.stale(version, problem))
        times = measured.medians(version, problem, timer)
        if times.empty:
            check = measured.check(version, problem)
            why = f": {check.reason}" if check and check.reason else ""
            raise Undecided(f"{version} has no time by {timer} on {problem}{why}")
        self.timed.add(version)
        self.calls.append(times)
        times = times * NUDGE if version == self.nudged else times
        return times.set_axis([f"{run} {process}" for process in times.index]).rename_axis(timer)

    def _check(self, version: str, hdim: int, chosen: Mapping[str, Any]) -> Check:
        inputs = chosen.get("inputs", "")
        chosen = {"study": _home(version), **{name: chosen[name] for name in chosen if name != "inputs"}}
        measured, problem = self._measured((version,), hdim, chosen)
        where = f"checks of {measured.run['study']}, run {measured.run['run']}"
        self._note(where, version, measured.stale(version, problem))
        check = measured.check(version, problem, inputs)
        assert check is not None
        return check

    def _plan(self, version: str, hdim: int, chosen: Mapping[str, Any]) -> Plan | Unsupported:
        """The plan for a problem of a study, or why the version refuses it."""
        if version not in VERSIONS:
            raise NotMeasured(f"there is no {version}")
        plans: dict[Problem, Plan | Unsupported] = {}
        for problem in self._problems(chosen.get("study", _home(version))):
            if problem.family == VERSIONS[version].family:
                try:
                    plans[problem] = VERSIONS[version](problem)
                except Unsupported as error:
                    plans[problem] = error
        self.used["plans"] = None
        mine = {problem: plan for problem, plan in plans.items() if problem.hdim == hdim}
        taken = {problem for problem, plan in mine.items() if isinstance(plan, Plan)}
        too_big = {problem for problem, plan in mine.items() if _too_big(plan)}
        return plans[_choose(taken or too_big or set(plans), (version,), hdim, chosen)]

    def _problems(self, study: str) -> tuple[Problem, ...]:
        """Those of a study on this GPU."""
        return STUDIES[study].on(self.identity["sms"]).problems if study in STUDIES else ()

    def _rows(self, groups: Groups, table: str, version: str, hdim: int, chosen: Mapping[str, Any]) -> pd.DataFrame:
        if version not in groups:
            raise NotMeasured(f"{table} of {version} are not recorded")
        problems = set(groups[version])
        ours = problems.intersection(self._problems(chosen.get("study", _home(version))))
        found = ours if "study" in chosen else ours or problems  # what no shape of the documents fits has its own
        rows = groups[version][_choose(found, (version,), hdim, chosen)]
        self._note(table, version, bool(outdated(rows).any()))
        return rows

    @functools.cached_property
    def _counted(self) -> Groups:
        return _by_problem(COUNTS, "counts")

    @functools.cached_property
    def _has_events(self) -> bool:
        tables = (rows["counter"] for problems in self._counted.values() for rows in problems.values())
        return any(counters.str.startswith("event.").any() for counters in tables)

    @functools.cached_property
    def _profiled(self) -> Groups:
        return _by_problem(self.folder / "counters.csv", "counters")

    @functools.cached_property
    def _assembled(self) -> Groups:
        return _by_problem(RESOURCES, "resources")

    def _note(self, source: str, version: str, stale: bool) -> None:
        self.used[source] = None
        if stale:
            self.stale[version] = None


def _require_run(measured: Measured, version: str, hdim: int) -> None:
    """Raises: Undecided where a version is refused or failed at a head dim; not where it runs, or no row says."""
    if version in VERSIONS:
        problems = measured.problems(VERSIONS[version].family)
        found = best(measured, version, (problem for problem in problems if problem.hdim == hdim))
        if found.word in (*REFUSED, FAILED):
            raise Undecided(f"{version} is {found.word} here: {found.reason}")


def _home(version: str) -> str:
    """The study that holds the documents' shapes of a version."""
    family = VERSIONS[version].family if version in VERSIONS else version.split("_")[0]
    return "fp16" if family == "fp16" else "log"


def _choose(problems: Iterable[Problem], versions: Sequence[str], hdim: int, chosen: Mapping[str, Any]) -> Problem:
    """The one problem that fits. Raises: Undecided when there is none, DataError when there are several."""
    unknown = set(chosen) - {*PROBLEM_COLUMNS, "rotary", "study"}
    if unknown:
        raise DataError(f"{unknown.pop()!r} does not choose a problem; study, rotary or a column of it does")
    columns = {"hdim": hdim, **{name: chosen[name] for name in chosen if name in PROBLEM_COLUMNS}}
    found = [each for each in problems if all(getattr(each, name) == value for name, value in columns.items())]
    partial = [problem for problem in found if problem.family != "rope" or problem.rotary_dim < problem.hdim]
    full = [problem for problem in found if problem not in partial]
    found = {"partial": partial, "full": full}[chosen["rotary"]] if "rotary" in chosen else partial or full
    if not found:
        asked = ", ".join(f"{name} {value}" for name, value in {"hdim": hdim, **chosen}.items())
        raise NotMeasured(f"{' and '.join(versions)}: nothing at {asked}")
    if len(found) > 1:
        raise DataError(f"{versions[0]} at hdim {hdim} may be any of: {'; '.join(map(str, found))}")
    return found[0]


def _too_big(plan: Plan | Unsupported) -> TypeGuard[Unsupported]:
    """Whether a version refuses for want of shared memory."""
    return isinstance(plan, Unsupported) and plan.kind == "shared_memory"


def _planned(plan: Plan | Unsupported, version: str, hdim: int) -> Plan:
    if isinstance(plan, Unsupported):
        raise Undecided(f"{version} refuses hdim {hdim}: {plan}")
    return plan


def _launch(rows: pd.DataFrame, launch: int | None) -> pd.DataFrame:
    """Rows of one launch, counted from the end where it is negative; all without one."""
    return rows if launch is None else rows[rows["launch"] == launch % (rows["launch"].max() + 1)]


@per_file
def _by_problem(path: Path, table: str) -> Groups:
    """The rows of a table by version and problem; none where there is no such file."""
    groups: dict[str, dict[Problem, pd.DataFrame]] = {}
    if path.exists() or table == "counters":
        frame = with_problems(parsed(path, table))
        for (version, problem), rows in frame.groupby(["version", "problem"], sort=False):
            groups.setdefault(version, {})[problem] = rows
    return groups
