"""Measure studies on the GPU at hand, one after the other: check every version once, then time it in several processes.

    python -m analysis measure                  all studies
    python -m analysis measure --study log

The documents' study comes first, so that its rows come early. What a study compares is timed side by side, in the same
processes; the host compiles for the next study while this one is checked, and nothing while it is timed. Each finished
row is on disk at once. An interrupted run goes on where it stopped, on the same node and card with the same software
and commit; a complete one stays as it is: `--new-run`, another card or software, a new version or one whose code has
changed begin another.

What fails is a row with the status error and its reason, and ends nothing: a process that the card no longer answers,
that dies, or that sends nothing for PATIENCE seconds is replaced by a fresh one, which goes on behind it. A time on the
device that is off those of the other processes is measured once more by its own; both rows are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels import VERSIONS, Unsupported
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target

from .. import record
from ..evidence.current import outdated
from ..record import cards
from ..record.columns import STATUSES
from ..record.files import DataError, known_gpus, problem_of
from . import preflight
from .crew import PATIENCE, Crew
from .machine import now
from .on_gpu import Pair, identify, survey
from .runs import StudyRun, Writer
from .studies import AUTOTUNED, STUDIES, Study, loads_ahead, studies
from .workers import Compilers, MeasureError, Worker, compile_each

PROCESSES = 5
FIRST = "log"  # the documents' study


def _compile(pair: Pair, target: str) -> None:
    name, problem = pair
    # What cannot be planned or compiled is said by the check, in its row.
    with contextlib.suppress(Unsupported, CompileError):
        for launch in VERSIONS[name](problem, target).launches:
            require_target(launch, target)
            assembled(compile_ptx(launch.kernel, target), target)


def compile_all(pairs: Iterable[Pair], target: str) -> None:
    """Fill the cache of compiled kernels, several at a time; first those of large head dims, which take longest."""
    own = {pair for pair in pairs if not VERSIONS[pair[0]].is_peer}
    compile_each(_compile, sorted(own, key=_longest_first), target)


def _longest_first(pair: Pair) -> tuple[int, str]:
    return -pair[1].hdim, str(pair)


def survey_of(surveyor: Worker, folder: Path, gpu: dict[str, Any]) -> None:
    """Write what the card reaches at most to gpu.json; where that fails, say so and go on."""
    try:
        found = dict(surveyor.do())["gpu"]
        cards.describe(folder, {**gpu, "tensor_dtype": found["tensor_dtype"]}, found["ceilings"])
    except MeasureError as error:
        print(f"[measure] the card's ceilings were not measured: {str(error).splitlines()[0]}", flush=True)


def require_versions(names: str) -> None:
    """Raises: MeasureError for a name, of those separated by commas, that is no version's."""
    unknown = [name for name in names.split(",") if name and name not in VERSIONS]
    if unknown:
        raise MeasureError(f"no version is called {unknown[0]!r}; known: {', '.join(VERSIONS)}")


def measure_studies(
    chosen: Sequence[Study],
    processes: int = PROCESSES,
    new_run: bool = False,
    versions: str = "",
    named: str = "",
    wait: bool = False,
) -> str:
    """Bring the current run of each study to its end on the GPU at hand, and return the GPU's folder name.

    `named` is that of the folder, which otherwise follows from the card; `wait` for another command that writes there.

    Raises: MeasureError, DataError.
    """
    require_versions(versions)
    keep = set(versions.split(",")) if versions else set(VERSIONS)
    started, began = now(), time.monotonic()
    with contextlib.ExitStack() as stack:
        identifier = stack.enter_context(contextlib.closing(Worker(identify)))
        gpu = dict(identifier.do())["identity"]  # without a GPU this one process is all that begins
        identifier.close()
        folder = cards.folder_of(gpu, named, wait)
        gpu["slug"] = folder.name
        writer = stack.enter_context(contextlib.closing(Writer(folder, gpu, started)))
        runs = [StudyRun(study.on(gpu["sms"]), writer, new_run) for study in first_things_first(chosen)]
        for run in runs:
            what = "everything is measured; --new-run measures it again" if run.complete else f"run {run.id}"
            print(f"[measure] study {run.study.name} on {gpu['name']}, folder {folder.name}: {what}", flush=True)
        runs = [run for run in runs if not run.complete]
        if not runs:
            return str(gpu["slug"])
        compilers = stack.enter_context(contextlib.closing(compiling(runs, keep, gpu["target"])))
        crew = stack.enter_context(contextlib.closing(Crew(gpu, processes)))
        surveyor = stack.enter_context(contextlib.closing(Worker(survey, PATIENCE)))
        said: list[str] = []
        for run in runs:
            stages = Stages()
            run.started = time.monotonic()
            with stages.of("compile"):
                compilers.wait(run.study.name)
                left = run.unfinished(crew.processes)
                crew.load([pair for pair in left if pair[0] in keep and loads_ahead(VERSIONS[pair[0]])])
            with stages.of("check"):
                crew.check(run, [pair for pair in run.unchecked() if pair[0] in keep])
                run.note_untimed()
            with stages.of("load"):  # what was tuned when it was checked, and is on disk since
                crew.load([pair for pair in run.unfinished(crew.processes) if pair[0] in keep & set(AUTOTUNED)])
            with compilers.paused():
                if run is runs[0]:
                    survey_of(surveyor, folder, gpu)
                    surveyor.close()
                with stages.of("time"):
                    crew.time(run, keep)
            run.save(complete=not versions)
            lines = [f"{summary(run)}; {stages}", *failures_of(run)]
            print(f"[measure] {lines[0]}", flush=True)
            said += lines
    print("\n".join(f"[measure] {line}" for line in said))
    seconds = time.monotonic() - began
    print(f"[measure] {seconds:.0f} s in all; rows are in {folder}; to render them: make book GPU={gpu['slug']}")
    return str(gpu["slug"])


class Stages:
    """Wall-clock seconds of what a study waited for; compiling ahead costs it nothing."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def of(self, stage: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[stage] = time.monotonic() - began

    def __str__(self) -> str:
        return ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in self.seconds.items())


def first_things_first(chosen: Sequence[Study]) -> list[Study]:
    """The documents' study, then the others as they were given."""
    return sorted(chosen, key=lambda study: study.name != FIRST)


def compiling(runs: Sequence[StudyRun], keep: Collection[str], target: str) -> Compilers:
    """Compiles what the runs have not finished, study by study; first large head dims, which take longest."""
    jobs = [
        (run.study.name, pair)
        for run in runs
        for pair in sorted(run.pairs(), key=_longest_first)
        if pair[0] in keep and not VERSIONS[pair[0]].is_peer
    ]
    first: dict[Pair, tuple[str, Pair]] = {}
    for job in jobs:
        first.setdefault(job[1], job)
    return Compilers(_compile, first.values(), target)


def summary(run: StudyRun) -> str:
    """How many pairs have which status, and how many timings failed."""
    statuses = Counter(check["status"] for check in run.verdicts().values())
    counted = ", ".join(f"{statuses[status]} {status}" for status in STATUSES if statuses[status])
    rows = [row for row in run.rows("timings") if row["timer"]]
    bad = sum(row["status"] == "error" for row in rows)
    timed = f"{len(rows)} timings, of which {bad} failed and {run.state['repeated']} were repeats"
    return f"{run.study.name}: {counted}; {timed}; {run.state['seconds']:.0f} s"


def failures_of(run: StudyRun) -> list[str]:
    """A line for every pair and reason that failed, in the check or when it was timed."""
    found = {(pair, check["reason"]): "check" for pair, check in run.verdicts().items() if check["status"] == "error"}
    for row in run.rows("timings"):
        if row["status"] == "error" and row["timer"]:
            found.setdefault(((row["version"], problem_of(row)), row["reason"]), row["timer"])
    return [f"{run.study.name}: {name} on {problem}, {what}: {why}" for ((name, problem), why), what in found.items()]


def stale() -> list[str]:
    """Lines that name measured versions whose code has changed since, or that are gone."""
    lines = []
    for gpu in known_gpus():
        frame = record.rows(gpu, "timings")
        latest = frame.groupby("study")["run"].transform("max") == frame["run"]
        for (chosen, name), rows in frame[latest].groupby(["study", "version"]):
            if name not in VERSIONS:
                lines.append(f"{gpu}, study {chosen}: {name} is gone")
            elif outdated(rows).all():
                lines.append(f"{gpu}, study {chosen}: {name} has changed since it was measured")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis measure", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="all", help=f"some of, separated by commas: {', '.join(STUDIES)}")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--new-run", action="store_true", help="measure again although a run is complete")
    parser.add_argument("--versions", default="", help="only these, separated by commas; the run stays incomplete")
    cards.add_options(parser)
    parser.add_argument("--checked", action="store_true", help="say nothing of what stands before measuring here")
    parser.add_argument("--status", action="store_true", help="list measured versions whose code has changed since")
    options = parser.parse_args(arguments)
    try:
        if options.status:
            print("\n".join(stale()) or "every measured version is today's")
            return 0
        chosen = studies(options.study)
        require_versions(options.versions)
        if not options.checked and not preflight.passes(chosen):
            return 1
        measure_studies(chosen, options.processes, options.new_run, options.versions, options.gpu, options.wait)
    except (MeasureError, DataError, ValueError) as error:
        print(f"measure: {error}", file=sys.stderr)
        return 1
    return 0
