"""The evidence of one card: every question to what was measured, counted, compiled or planned is asked here.

    e = Evidence.load("nvidia-h200")
    e.speedup("rope_v7", "rope_separate", study="matched")[2048].value

A version is named by its id. Answers are `Estimates`, by head dim: those in `hdim`, one or several, by default those of
the documents' shapes of the version, each with the one problem that the further columns choose (any column of a
`Problem`, and for RoPE `rotary`, "full" or "partial", by default the partial one where a version takes both, as
published). With `problem`, one or several, they are by problem. `study` is by default log, fp16 for that family,
ablation where one is named; what names no study or timer follows the condition, see `under`.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pandas as pd

from kernels import VERSIONS, Plan, Problem, Unsupported
from kernels.version import PROBLEM_COLUMNS
from kernels.version import version as version_of

from ..record import published
from ..record.files import DataError, gpu_folder, problem_columns
from ..record.problems import name_of
from ..record.timers import timer_of
from ..studies import AUTHORS_TARGET, CONDITIONS, DEVICE, MATCHED, SLICES, STALL, STALLS, STUDIES
from .current import outdated
from .estimates import About, Estimate, Estimates, Sample
from .known import FAILED, NOT_MEASURED, REFUSED, UNDECIDED, Known, NotMeasured, Undecided, word
from .load import Groups, Record, held
from .study import Check, Study

Columns = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of one card, under a condition; of the runs `among` some alone, else of all complete ones."""

    record: Record
    condition: str = DEVICE
    among: frozenset[str] | None = None

    @classmethod
    def load(cls, gpu: str | Path) -> "Evidence":
        """By the name of its folder, or its path; read once."""
        return cls(Record.load(gpu if isinstance(gpu, Path) else gpu_folder(gpu)))

    def under(self, condition: str) -> "Evidence":
        """The same evidence with the timer and study of another condition, one of `CONDITIONS`."""
        return replace(self, condition=condition)

    def together(self, *studies: str) -> "Evidence":
        """The evidence of the runs that measured all of some studies, so that ratios across studies are of one run."""
        runs = self.record.complete.groupby("study")["run"].agg(set)
        common = set.intersection(*(runs.get(study, set()) for study in studies))
        return replace(self, among=frozenset(common)) if common else self

    @property
    def slug(self) -> str:
        return self.record.slug

    @property
    def gpu(self) -> Mapping[str, Any]:
        """The card: gpu.json."""
        return self.record.gpu

    @property
    def card(self) -> str:
        """Its name, with the start of its UUID where its folder's name ends in that."""
        short = str(self.gpu.get("uuid") or "").removeprefix("GPU-")[:8]
        return f"{self.gpu['name']} ({short})" if short and self.slug.endswith(f"-{short}") else str(self.gpu["name"])

    @property
    def target(self) -> str:
        return self.record.target

    def study(self, name: str = "log") -> Study:
        """The rows of a study's complete runs; false where none is."""
        return self.record.study(name, self.among)

    def covers(self) -> str:
        """The coverage of intervals of times on the device, for captions: "95 % interval ..."."""
        return "for another run" if "device_warm" in self.record.pools else "within one run"

    def time(self, version: str, study: str = "", timer: str = "", **asked: Any) -> Estimates:
        """Microseconds of one call."""
        return self._times((version,), lambda problem, us: us, study, timer, **asked).measured_in("µs")

    def speedup(self, version: str, over: str, study: str = "", timer: str = "", **asked: Any) -> Estimates:
        """How many times as fast as another a version is: above 1 is faster."""
        found = self._times((version, over), lambda problem, us, other: other / us, study, timer, **asked)
        return found.measured_in("×")

    def share_closed(
        self, version: str, without: str, over: str, study: str = "", timer: str = "", **asked: Any
    ) -> Estimates:
        """The share of a version's gap to a faster one that goes in the version `without` something: 1 is all of it."""

        def share(problem: Problem, slow: Estimate, middle: Estimate, fast: Estimate) -> Estimate:
            return ((slow - middle) / (slow - fast)).as_share

        return self._times((version, without, over), share, study, timer, **asked).measured_in("%")

    def tflops(self, version: str, study: str = "", timer: str = "", **asked: Any) -> Estimates:
        """Multiply-adds of both products in a second, counted as two."""
        found = self._times((version,), lambda problem, us: problem.flops / us / 1e6, study, timer, **asked)
        return found.measured_in("TFLOPS")

    def _times(
        self, versions: Sequence[str], formula: Callable[..., Estimate], study: str, timer: str, **asked: Any
    ) -> Estimates:
        condition = CONDITIONS[self.condition]
        timer = timer or condition.timer
        ablated = any(version_of(version).ablation for version in versions)
        study = study or condition.study or ("ablation" if ablated else home(versions[0]))
        if study == SLICES and home(versions[0]) == "fp16":
            study = f"{SLICES}_fp16"
        sms = STUDIES[study].sms if study in STUDIES else 0
        timer += f"@{sms}" if sms and "@" not in timer else ""

        def ask(at: Study, problem: Problem) -> Estimate:
            return formula(problem, *(self._time(version, at, problem, timer) for version in versions))

        return self._measured(versions, ask, study, **asked)

    def _time(self, version: str, study: Study, problem: Problem, timer: str) -> Estimate:
        """In a slice that of the control where `decides` says so. Raises: Undecided where no time stands."""
        timed = version
        if study.name.startswith(SLICES) and not timer_of(timer).cap:
            timed, timer = self._on_their_sms(version, problem, timer)
        values = study.medians(timed, problem, timer)
        if np.isnan(values).all():
            known = study.known(version, problem)
            reason = f"{version} has no time by {timer} on {problem}{f': {known.reason}' if known.reason else ''}"
            raise Undecided(reason, UNDECIDED if known.ran else known.word)
        by_run = zip(study.names, values.reshape(len(study.names), -1))
        runs = [name for name, mine in by_run if not np.isnan(mine).all()]
        log = float(np.nanmean(np.log(values)))
        stale = (timed,) if timed in study.stale_versions() else ()
        sample = Sample(study.names, values, {version: values}, (log,), timer, self.record.pools)
        source = study.source("timings", runs) + f" ({timed})" * (timed != version)
        return Estimate.of(sample, About((source,), stale))

    def _measured(
        self, versions: Sequence[str], ask: Callable[[Study, Problem], Estimate], study: str, **asked: Any
    ) -> Estimates:
        """Answers of `ask` for the problems of a study that all versions take; the reason for each of the others."""
        families, at = [version_of(version).family for version in versions], self.study(study)
        missing = next((version for version in versions if version not in at.taken), "") if at else f"study {at.name}"
        why = Known(NOT_MEASURED, f"{missing} is not measured") if missing else Known(NOT_MEASURED)

        def refuse(hdim: int) -> None:
            """Raises: Undecided where a version is refused or failed at a head dim, or not measured at all."""
            for version, family in zip(versions, families) if at else ():
                found = at.best(version, (each for each in at.problems(family) if each.hdim == hdim))
                if found.word in (*REFUSED, FAILED):
                    raise Undecided(f"{version} is {found.word} here: {found.reason}", found.word)
            if missing:
                raise Undecided(why.reason, why.word)

        def number(problem: Problem) -> Estimate:
            if not at:
                raise Undecided(why.reason, why.word)
            return ask(at, problem)

        best = at.best(versions[0], at.problems(families[0])) if at else why
        known = () if missing else set.intersection(*map(at.taken.__getitem__, versions))
        documents = at.taken.get(versions[0], ())
        return _answers(versions, number, known, documents, refuse, why if best.ran else best, **asked)

    def decides(self, version: str, problem: Problem) -> str:
        """The version that is timed for another on their SMs: its control in CUDA C++ where an SM of their card holds
        another number of its blocks, else itself.
        """
        control = next((v.id for v in VERSIONS.values() if v.control_of == version), "")
        theirs = held(control, problem, AUTHORS_TARGET)
        return control if theirs and theirs != held(version, problem, AUTHORS_TARGET) else version

    def _on_their_sms(self, version: str, problem: Problem, timer: str) -> tuple[str, str]:
        """The version and the timer that play their card in a slice: with as many blocks on an SM as one of theirs.

        Raises: Undecided where an SM of this card holds fewer, and the blocks of the launch do not all fit at once.
        """
        timed, sms = self.decides(version, problem), timer_of(timer).sms
        theirs, here = (held(timed, problem, target).values() for target in (AUTHORS_TARGET, self.target))
        plan = _plan(timed, problem)
        for launch, most, fits in zip(plan.launches if isinstance(plan, Plan) else (), theirs, here):
            if fits < most and fits * sms < math.prod(launch.grid):
                reason = f"an SM of this card holds {fits} blocks of {timed}, one of theirs {most}"
                raise Undecided(f"{reason}, at head dim {problem.hdim}")
        fewer = any(most < fits for most, fits in zip(theirs, here))
        return timed, f"{timer}/{AUTHORS_TARGET}" if fewer else timer

    def status(self, version: str, status: str, study: str = "", **asked: Any) -> Estimates:
        """1 where the check of a version says `status` (ok, wrong, infeasible), else 0.

        Like what follows it takes `inputs`, "uniform" or "sharp", of which the worse counts by default.
        """
        return self._checks(version, lambda check: float(check.status == status), study, **asked)

    def nan_share(self, version: str, study: str = "", **asked: Any) -> Estimates:
        """The share of outputs that are not finite."""
        return self._checks(version, lambda check: check.nan_share, study, **asked).measured_in("%")

    def error(self, version: str, study: str = "", **asked: Any) -> Estimates:
        """The largest absolute difference from float64 over the finite outputs, of either input."""

        def error(check: Check) -> float:
            return math.nan if math.isnan(check.nan_share) else check.max_abs_err

        return self._checks(version, error, study, **asked)

    def relative_error(self, version: str, study: str = "", **asked: Any) -> Estimates:
        """The norm of the difference from float64 over that of the output, of the worse input."""
        return self._checks(version, lambda check: check.relative_err, study, **asked)

    def _checks(
        self, version: str, number: Callable[[Check], float], study: str, inputs: str = "", **asked: Any
    ) -> Estimates:
        def ask(at: Study, problem: Problem) -> Estimate:
            check = at.check(version, problem, inputs)
            if check is None:
                raise NotMeasured(f"{version} is not measured on {problem}")
            value = number(check)
            if math.isnan(value):
                raise Undecided(f"{version} at head dim {problem.hdim}: {word(check.status)}", word(check.status))
            stale = (version,) if version in at.stale_versions() else ()
            return Estimate.exact(value, at.source("checks"), stale=stale)

        return self._measured((version,), ask, study or home(version), **asked)

    def count(self, version: str, counters: str, launch: int | None = None, **asked: Any) -> Estimates:
        """Counts of the emulator over all launches, or in one (see kernels/runtime/emulator/__init__.py).

        `counters` are one, or several to add, separated by spaces. A version that does none of them has no such row.
        """
        counted, known = set(counters.split()), self.record.counted
        if unknown := [each for each in counted - known if known and not each.startswith("event.")]:
            raise DataError(f"the emulator counts nothing called {unknown[0]!r}")

        def number(rows: pd.DataFrame) -> float:
            if "warp_inst" not in set(rows["counter"]):
                raise NotMeasured(f"instructions of {version} are not counted")
            rows = _launch(rows, launch)
            return float(rows.loc[rows["counter"].isin(counted), "value"].sum())

        return self._exact(self.record.counts, "counts", version, number, **asked)

    def counter(self, version: str, metrics: str, launch: int | None = None, **asked: Any) -> Estimates:
        """A hardware counter, or the sum of several: over all launches, or else of one launch, by default the last."""
        matched = self.condition == MATCHED

        def number(rows: pd.DataFrame) -> float:
            rows = _launch(rows, launch if ".sum" in metrics or launch is not None else -1)
            rows = rows[rows["metric"].isin(metrics.split(" + "))]
            if rows.empty:
                raise NotMeasured(f"counter {metrics} of {version} is not recorded")
            return float(rows["value"].sum())

        groups = self.record.counters
        mine = {p: rows for p, rows in groups.get(version, {}).items() if matched == (MATCHED in set(rows["study"]))}
        return self._exact({version: mine}, "counters", version, number, **asked)

    def stalled(self, version: str, *reasons: str, **asked: Any) -> Estimates:
        """The share of its time that a warp of the last launch waits for some reasons."""
        both = (" + ".join(map(STALL.format, each)) for each in (reasons, STALLS))
        waits, total = (self.counter(version, metrics, **asked) for metrics in both)
        return (waits / total).measured_in("%")

    def resource(self, version: str, column: str, launch: int = -1, target: str = "", **asked: Any) -> Estimates:
        """A column of data/resources.csv for this GPU or another target, of one launch, by default the last."""

        def number(rows: pd.DataFrame) -> float:
            rows = rows[rows["target"] == (target or self.target)]
            if rows.empty:
                raise NotMeasured(f"resources for {target or self.target} are not recorded")
            return float(_launch(rows, launch)[column].iloc[0])

        return self._exact(self.record.resources, "resources", version, number, **asked)

    def _exact(
        self, groups: Groups, table: str, version: str, number: Callable[[pd.DataFrame], float], study: str = "",
        **asked: Any,
    ) -> Estimates:  # fmt: skip
        """The value of `number` for the rows of a version and problem in a table without times."""
        mine, planned = groups.get(version, {}), self._planned(study or home(version))
        ours = set(mine) & set(planned)
        known = ours if study else ours or set(mine)  # what no shape of the documents fits has its own

        def refuse(hdim: int) -> None:
            if not mine:
                raise NotMeasured(f"{table} of {version} are not recorded")

        def ask(problem: Problem) -> Estimate:
            if problem not in mine:
                raise NotMeasured(f"{table} of {version} are not recorded on {problem}")
            stale = (version,) if bool(outdated(mine[problem]).any()) else ()
            return Estimate.exact(number(mine[problem]), table, stale=stale)

        return _answers((version,), ask, known, known, refuse, **asked)

    def shared_bytes(self, version: str, array: str = "", **asked: Any) -> Estimates:
        """Bytes of shared memory that a block of the last launch asks for, or those of one array in it.

        Of a version that refuses the problem: the bytes that its refusal names.
        """

        def number(plan: Plan) -> float:
            last = plan.launches[-1]
            return 4 * {**last.static.sizes, **last.shared.sizes}[array] if array else last.shared_bytes

        return self._plans(version, number, needed=not array, **asked)

    def blocks(self, version: str, **asked: Any) -> Estimates:
        return self._plans(version, lambda plan: math.prod(map(int, plan.launches[-1].grid)), **asked)

    def hazards(self, version: str, kind: str, **asked: Any) -> Estimates:
        """Declared hazards of a kind; the checks see that exactly those are there."""
        return self._plans(version, lambda plan: sum(one.kind == kind for one in plan.hazards), **asked)

    def size(self, version: str, column: str, **asked: Any) -> Estimates:
        """A column of the problem, such as seq_k, or its flops."""
        return self._plans(version, lambda plan: getattr(plan.problem, column), **asked)

    def _plans(
        self, version: str, number: Callable[[Plan], float], study: str = "", needed: bool = False, **asked: Any
    ) -> Estimates:
        """Statuses of a version's plans; `needed`: for a refusal, the bytes of shared memory that it would need."""
        family = version_of(version).family
        plans: dict[int, dict[Problem, Plan | Unsupported]] = {}
        for each in self._planned(study or home(version)):
            if each.family == family:
                plans.setdefault(each.hdim, {})[each] = _plan(version, each)
        taken = {each for mine in plans.values() for each, plan in mine.items() if isinstance(plan, Plan)}
        known = list(taken)  # and at head dims where none is taken, those too large, else all
        for mine in plans.values():
            if not taken & set(mine):
                known += [each for each, plan in mine.items() if _too_big(plan)] or [*mine]

        def ask(problem: Problem) -> Estimate:
            plan = _plan(version, problem)
            if isinstance(plan, Plan):
                return Estimate.exact(number(plan), "plans")
            if needed and _too_big(plan):
                return Estimate.exact(plan.needed, "plans")
            raise Undecided(f"{version} refuses hdim {problem.hdim}: {plan}", plan.status)

        return _answers((version,), ask, known, taken, **asked)

    def _planned(self, study: str) -> tuple[Problem, ...]:
        """Those of a study on this GPU."""
        return STUDIES[study].on(self.gpu["sms"]).problems if study in STUDIES else ()

    def ceiling(self, name: str) -> Estimate:
        """A ceiling of the GPU, measured on it."""
        if name not in self.gpu["ceilings"]:
            return Estimate.none(Known(NOT_MEASURED, f"ceiling {name} is not measured"))
        return Estimate.exact(self.gpu["ceilings"][name], "gpu.json")


def said(row: str) -> Estimate:
    """A row of data/published.csv, by its id; a ratio as how many times as fast."""
    found = published.by_id()[row]
    value = 1.0 / found["value"] if found["unit"] == "x_slower" else float(found["value"])
    return Estimate.exact(value, "published.csv", names=(row,))


def stated(hdim: Sequence[int], *rows: str) -> Estimates:
    """Rows of data/published.csv, one a head dim."""
    return Estimates({key: said(row) for key, row in zip(hdim, rows, strict=True)})


def home(version: str) -> str:
    """The study that holds the documents' shapes of a version."""
    return "fp16" if version_of(version).family == "fp16" else "log"


@functools.cache
def _plan(version: str, problem: Problem) -> Plan | Unsupported:
    try:
        return VERSIONS[version](problem)
    except Unsupported as refusal:
        return refusal


def _answers(
    versions: Sequence[str],
    ask: Callable[[Problem], Estimate],
    known: Iterable[Problem],
    documents: Iterable[Problem],
    refuse: Callable[[int], None] = lambda hdim: None,
    why: Known | None = None,
    hdim: int | Iterable[int] | None = None,
    problem: Problem | Collection[Problem] | None = None,
    **columns: Any,
) -> Estimates:
    """Answers of `ask` for versions, by problem or by head dim, each with the one of the `known` that fits the columns.

    By default at one of `documents` a head dim, as published. `refuse` raises where it knows why nothing fits.
    """
    keys: Iterable[tuple[Any, Problem | None]]
    if problem is not None:
        keys = [(each, each) for each in ([problem] if isinstance(problem, Problem) else problem)]
    elif hdim is not None:
        keys = [(each, None) for each in ([hdim] if isinstance(hdim, int) else hdim)]
    else:
        fits = published.main_problems(each for each in documents if _fits(each, columns))
        keys = sorted({each.hdim: each for each in reversed(fits)}.items())
    found: dict[Any, Estimate] = {}
    for key, pick in keys:
        about = About(names=tuple(versions))
        try:
            at = pick or _choose(known, versions, key, columns, refuse)
            about |= About(problems=(name_of(*problem_columns(at).values()),))
            one = ask(at)
        except Undecided as refusal:
            one = Estimate.none(refusal.why)
        found[key] = replace(one, about=one.about | about)
    return Estimates(found, why=why)


def _fits(problem: Problem, columns: Columns) -> bool:
    if unknown := set(columns) - {*PROBLEM_COLUMNS, "rotary"}:
        raise DataError(f"{unknown.pop()!r} does not choose a problem; study, rotary or a column of it does")
    if "rotary" in columns and (problem.rotary_dim < problem.hdim) != (columns["rotary"] == "partial"):
        return False
    return all(getattr(problem, name) == value for name, value in columns.items() if name != "rotary")


def _choose(
    problems: Iterable[Problem], versions: Sequence[str], hdim: int, columns: Columns, refuse: Callable[[int], None]
) -> Problem:
    """The one problem that fits. Raises: Undecided when there is none, DataError when there are several."""
    found = [each for each in problems if each.hdim == hdim and _fits(each, columns)]
    found = [each for each in found if each.family != "rope" or each.rotary_dim < each.hdim] or found
    if not found:
        refuse(hdim)
        asked = ", ".join(f"{name} {value}" for name, value in {"hdim": hdim, **columns}.items())
        raise NotMeasured(f"{' and '.join(versions)}: nothing at {asked}")
    if len(found) > 1:
        raise DataError(f"{versions[0]} at hdim {hdim} may be any of: {'; '.join(map(str, found))}")
    return found[0]


def _too_big(plan: Plan | Unsupported) -> TypeGuard[Unsupported]:
    """Whether a version refuses for want of shared memory."""
    return isinstance(plan, Unsupported) and plan.kind == "shared_memory"


def _launch(rows: pd.DataFrame, launch: int | None) -> pd.DataFrame:
    """Rows of one launch, counted from the end where it is negative; all without one."""
    return rows if launch is None else rows[rows["launch"] == launch % (rows["launch"].max() + 1)]
