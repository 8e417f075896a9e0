"""The rows of a made-up card, by the functions that make measured ones; what would run on the card is replaced."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from tqdm import tqdm

from analysis.measure import counters as profiling
from analysis.measure import failures, on_gpu, sanitize, sanitized, tune
from analysis.measure.on_gpu import Pair, Row
from analysis.measure.op import study as op_study
from analysis.measure.op.calls import Call
from analysis.measure.refused import REFUSED
from analysis.measure.run import PROCESSES
from analysis.measure.runs import TIMED_STATUSES, Run
from analysis.measure.studies import PUBLISHED, STUDIES, Study
from analysis.records.current import is_current
from analysis.records.files import RESOURCES, read_records, write_json
from analysis.records.schema import STATUSES
from kernels import VERSIONS, Plan, Unsupported
from kernels.checking.reference import INPUTS, Verdict
from kernels.limits import capability
from kernels.runtime import compile as compiling
from kernels.version import Launch

from .card import Card, drawn, share

STARTED, NOW = "2027-01-01T00:00:00Z", "2027-01-01T00:10:00Z"
RUN, RUN_OF_TOOLS = "20270101T000000Z", "20270101T010000Z"
COMMIT = "made-up"
ENVIRONMENT = {
    "node": "made-up",
    "driver": "made-up",
    "cuda": "13.0",
    "python": "3.12",
    "numba": "0.68.0",
    "numba_cuda": "0.30.4",
    "torch": "2.11.0",
    "sm_mhz_max": 2111,
    "power_limit_w": 211,
    "commit": COMMIT,
}
ALLOWED = {"float32": 3.1e-6, "float16": 2.3e-3}
RANDOM_CALLS = 80
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. The card is made up."
FREE_BYTES = 10**9
NO_KERNEL = "No available kernel. Aborting execution."  # PyTorch's words
HALF_ONLY = ("_flash", "_cudnn")  # peers of half precision, and of 8.0 and newer


@contextlib.contextmanager
def on(card: Card) -> Iterator[None]:
    """In place of the GPU at hand, a card: what is asked of it, and the time of day."""
    fixed = {
        on_gpu: {"device_target": lambda: card.target, "now": lambda: NOW},
        tune: {
            "device_target": lambda: card.target,
            "now": lambda: NOW,
            "commit": lambda: COMMIT,
            "_inputs": lambda *_: {},
        },
        op_study: {"now": lambda: NOW, "tqdm": functools.partial(tqdm, disable=True), "compile_all": lambda *_: None},
    }
    with contextlib.ExitStack() as stack:
        for module, names in fixed.items():
            for name, value in names.items():
                stack.enter_context(mock.patch.object(module, name, value))
        yield


class Taken:
    """Which versions have all instructions on a card: as data/resources.csv says, or else the compiler."""

    def __init__(self, card: Card) -> None:
        self.target, most = card.target, capability(card.target)
        at_most = [row for row in read_records(RESOURCES, "resources") if capability(row["target"]) <= most]
        nearest = max(capability(row["target"]) for row in at_most)
        self.compiled = {
            row["version"]
            for row in at_most
            if capability(row["target"]) == nearest and is_current(row["version"], row["source_hash"])
        }

    def require(self, version: str, launches: Sequence[Launch]) -> None:
        """Raises: Unsupported where a launch needs what the card lacks."""
        with contextlib.ExitStack() as stack:
            if version in self.compiled:
                stack.enter_context(mock.patch.object(compiling, "require_instructions", lambda *_: None))
            for launch in launches:
                compiling.require_target(launch, self.target)


# ---------------------------------------------------------------- checks and timings


def _run(study: Study, card: Card, folder: Path) -> Row:
    """The row of runs.csv of a complete run."""
    run = Run(study, {**card.gpu(), **ENVIRONMENT, "target": card.target}, True, folder, STARTED)
    return {**run.row, "complete": True, "finished_at": NOW, "seconds": 600.0}


def _check(card: Card, taken: Taken, pair: Pair, kind: str, fails: bool) -> Row:
    """What `check` finds where the version does what it declares."""
    name, problem = pair

    def found(plan: Plan) -> Verdict:
        allowed = ALLOWED[problem.dtype] * drawn(0.5, 2.0, card.name, problem, kind)
        error = allowed * drawn(0.05, 0.9, name, problem, kind)
        if plan.expected == "wrong":
            error = drawn(0.1, 3.0, name, problem, kind)
        return Verdict(plan.expected, error, allowed, 0.0)

    def program(plan: Plan, inputs: object) -> Any:
        taken.require(name, plan.launches)
        if fails:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        if name.endswith(HALF_ONLY) and (problem.dtype != "float16" or capability(card.target) < (8, 0)):
            raise RuntimeError(NO_KERNEL)
        return SimpleNamespace(output=lambda: plan)

    reference = SimpleNamespace(given={}, compare=found)
    with (
        mock.patch.object(on_gpu, "reference_of", mock.Mock(return_value=reference)),
        mock.patch.object(on_gpu, "Program", program),
        mock.patch.object(torch.cuda, "synchronize", lambda: None),
        mock.patch.object(failures, "free_bytes", lambda: FREE_BYTES),
    ):
        return on_gpu.check(pair, kind)


def measured(card: Card, folder: Path, names: Sequence[str], errors: bool, gaps: bool) -> dict[str, list[Row]]:
    """runs, checks and timings of some studies; gpu.json is written."""
    write_json(folder / "gpu.json", card.gpu())
    taken = Taken(card)
    tables: dict[str, list[Row]] = {"runs": [], "checks": [], "timings": []}
    known: dict[Pair, dict[str, Row]] = {}
    for study in (STUDIES[name].on(card.sms) for name in names):
        tables["runs"].append(_run(study, card, folder))
        for version, problem in study.pairs():
            pair = (version.id, problem)
            if gaps and share("gap", card.name, *pair) < 0.08:
                continue
            if pair not in known:
                fails = errors and share("error", card.name, *pair) < 0.04
                known[pair] = {kind: _check(card, taken, pair, kind, fails) for kind in INPUTS}
            checks = known[pair]
            tables["checks"] += [
                {"run": RUN, **on_gpu.row_of(study.name, pair, inputs=kind, **found)} for kind, found in checks.items()
            ]
            worst = max(checks.values(), key=lambda found: STATUSES.index(found["status"]))
            tables["timings"] += [{"run": RUN, **row} for row in _timings(card, study, pair, worst)]
    return tables


def _timings(card: Card, study: Study, pair: Pair, check: Row) -> Iterator[Row]:
    decided = on_gpu.outcome({"max_abs_err": None, **check})
    if check["status"] not in TIMED_STATUSES:
        yield on_gpu.row_of(study.name, pair, process=0, **decided)
        return
    plan = VERSIONS[pair[0]](pair[1], card.target)
    for process in range(1, PROCESSES + 1):
        for timer in study.timers:
            timing = card.timing(pair[0], plan, timer, process)
            seen = {"timer": timer, "sm_mhz": 2100, "discarded": 0}
            yield on_gpu.row_of(study.name, pair, process=process, **seen, **decided, **vars(timing))


# ---------------------------------------------------------------- shapes, counters, sanitizers, the op


def shapes(card: Card) -> list[Row]:
    """What the search of shapes finds; every shape is right that the card takes."""

    def checked(candidate: Any, inputs: object) -> tuple[Row, Any]:
        try:
            plan = candidate.plan()
        except Unsupported as refusal:
            return {"status": refusal.status, "reason": str(refusal)}, None
        launch = plan.launches[0]
        found = {"blocks": math.prod(launch.grid), "shared_bytes": launch.shared_bytes, "registers": 128}
        return {**found, "status": "ok", "max_abs_err": 1.1e-7, "allowed_abs_err": 4.1e-7}, (candidate, plan)

    def timed(program: Any) -> Any:
        candidate, plan = program
        return card.timing(str(candidate.key), plan, "device_warm", 1)

    found: list[Row] = []
    chosen = tune.candidates(card.target)
    with mock.patch.object(tune, "_checked", checked), mock.patch.object(tune, "device_warm", timed):
        for problem in dict.fromkeys(candidate.problem for candidate in chosen):
            found += tune.measured(problem, [each for each in chosen if each.problem == problem])
    return found


def _metric(card: Card, name: str, task: profiling.Task, launch: int) -> str:
    """A value in the range of what a metric is: a share, a ratio or a count."""
    per_cent, ratio = "pct" in name, name.endswith(".ratio")
    high = 90.0 if per_cent else 4.0 if ratio else 1e8
    return f"{drawn(high / 1000, high, card.name, name, task.version, task.problem, launch):.6g}"


def counters(card: Card) -> list[Row]:
    """What the profiler reads of every launch at the published shapes that the card takes."""
    taken, found = Taken(card), []
    for task in profiling.tasks(PUBLISHED, card.sms):
        try:
            plan = VERSIONS[task.version](task.problem, card.target)
            taken.require(task.version, plan.launches)
        except Unsupported:
            continue
        names = [(task, index, launch.kernel.name) for index, launch in enumerate(plan.launches)]
        for group in profiling.GROUPS:
            units = dict.fromkeys(group.metrics, "")
            table = [
                {"Kernel Name": kernel} | {name: _metric(card, name, task, index) for name in group.metrics}
                for _, index, kernel in names
            ]
            found += profiling.tidy([units, *table], names, group.metrics, group.mark)
    return profiling.merge([], [{"run": RUN, **row} for row in found])


def sanitizers(card: Card, folder: Path) -> None:
    """Write what the tools say where every declared hazard is seen: sanitizers.csv, and its run."""
    taken, found = Taken(card), []
    for name in (version.id for version in VERSIONS.values() if not version.is_peer):
        kinds, code = set(), 0
        try:
            for problem in sanitized.problems(VERSIONS[name]):
                plan = VERSIONS[name](problem, card.target)
                taken.require(name, plan.launches)
                kinds |= {hazard.kind for hazard in plan.hazards}
        except Unsupported:
            code = REFUSED
        for tool, (kind, _) in sanitize.FINDS.items():
            told = sanitize.Told(code, 2 * (kind in kinds and not code))
            found.append(sanitize.row_of(RUN_OF_TOOLS, tool, name, told, hears=True))
    entry = _run(Study("sanitizers", "", (), ()), card, folder) | {"run": RUN_OF_TOOLS}
    sanitize.write(found, entry, folder)


def op(card: Card, folder: Path, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """What the op does on the card: op_problems and op; their runs are added to those of `tables`."""
    found: dict[str, list[Row]] = {"op_problems": [], "op": []}
    problems, timing = (Study(name, "", (), ()) for name in ("op_problems", "op_time"))
    tables["runs"] += [_run(study, card, folder) for study in (problems, timing)]
    run = SimpleNamespace(
        study=problems,
        append=lambda table, row: found[table].append({"run": RUN, **row}),
        rows=lambda table: [],
    )

    def answered(work: object, todo: Sequence[Any], patience: float) -> Iterator[tuple[str, Any]]:
        for index, call in todo:
            yield "row", (index, _answer(card, index, call))

    with mock.patch.object(op_study, "watched", answered):
        op_study.check_problems(run, card.target, RANDOM_CALLS)  # type: ignore[arg-type]
    found["op"] += [{"run": RUN, "study": "op_time", **row} for row in _op_times(card)]
    return found


def _answer(card: Card, index: int, call: Call) -> Row:
    """What becomes of a random call."""
    if op_study.launch_of(call, card.target) is None:
        return {"status": "fell_back", "reason": "no core takes it", "seconds": 0.1}
    ratio = drawn(0.1, 3.7, card.name, index)
    errors = {"max_abs_err": ratio * 1e-7, "fp32_abs_err": 1e-7, "allowed_abs_err": 4e-7, "ratio": ratio}
    return {"status": "ok", **errors, "seconds": 0.1}


def _op_times(card: Card) -> Iterator[Row]:
    for problem in op_study.TIMED:
        for variant in op_study.VARIANTS:
            call = Call(problem, **variant)
            try:
                plan = VERSIONS["rope_v8"](problem, card.target)
            except Unsupported:
                continue
            for what in ("op", *(() if variant else ("launch",))):
                for repetition in range(1, op_study.REPETITIONS + 1):
                    for timer in ("device_warm", "host_loop"):
                        timing = card.timing(what + timer, plan, timer, repetition)
                        row = {"what": what, "timer": timer, "repetition": repetition, "status": "ok", **vars(timing)}
                        yield {**op_study.call_columns(call, card.target), **row}
