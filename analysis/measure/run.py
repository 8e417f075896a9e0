"""Measure studies on the GPU at hand: check every version once, then time it in several processes.

    python -m analysis measure                  all studies
    python -m analysis measure --study log

The studies of one call are timed together, in the same processes. Each finished row is on disk at once. An interrupted
run goes on where it stopped, on the same node and card with the same software and commit; a complete one stays as it
is: `--new-run`, another card or software, a new version or one whose code has changed begin another.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence

from kernels import VERSIONS, Unsupported
from kernels.checking.reference import INPUTS
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target

from ..records import cards
from ..records.current import outdated
from ..records.files import (
    MEASURED,
    DataError,
    read_table,
)
from . import preflight
from .machine import now
from .on_gpu import Pair, Task, check_all, identify, time_all
from .progress import tqdm
from .runs import Run
from .studies import STUDIES, Study, studies
from .workers import MeasureError, Worker, compile_each

PROCESSES = 5


# ---------------------------------------------------------------- compiling ahead


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
    compile_each(_compile, sorted(own, key=lambda pair: (-pair[1].hdim, str(pair))), target)


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
    started = now()
    with contextlib.ExitStack() as stack:

        def worker(work: Callable[..., None]) -> Worker:
            return stack.enter_context(contextlib.closing(Worker(work)))

        gpu = dict(worker(identify).do())["identity"]  # without a GPU this one process is all that begins
        folder = stack.enter_context(cards.opened(gpu, named, wait))
        gpu["slug"] = folder.name
        checker, timers = worker(check_all), [worker(time_all) for _ in range(processes)]
        runs = {study.name: Run(study, gpu, new_run, folder, started) for study in chosen}
        unchecked: list[Task] = []
        for name, run in runs.items():
            todo = [(name, pair) for pair in run.unchecked() if pair[0] in keep]
            done = run.row["complete"] and not todo
            what = "everything is measured; --new-run measures it again" if done else f"run {run.id}"
            print(f"[measure] study {name} on {gpu['name']}: {what}", flush=True)
            unchecked += todo
        runs = {name: run for name, run in runs.items() if not run.row["complete"]}
        if not runs:
            return str(gpu["slug"])
        for run in runs.values():
            run.save(complete=False)
        compile_all([pair for run in runs.values() for pair in run.pairs() if pair[0] in keep], gpu["target"])

        with tqdm(total=len(unchecked) * len(INPUTS), desc="check", unit="check") as bar:
            for kind, content in checker.do(unchecked):
                if kind == "checks":
                    runs[content["study"]].append_check(content)
                    bar.update()
                elif kind == "gpu":
                    cards.describe(folder, gpu, content["ceilings"])
        for run in runs.values():
            run.note_untimed()

        for process, timer in enumerate(timers, start=1):
            tasks = [
                ((name, pair), by, check)
                for name, run in runs.items()
                for pair, by, check in run.untimed(process)
                if pair[0] in keep
            ]
            with tqdm(total=len(tasks), desc=f"time, process {process} of {processes}", unit="timing") as bar:
                for kind, content in timer.do(process, tasks) if tasks else ():
                    if kind == "timings":
                        runs[content["study"]].append("timings", content)
                        bar.update()
                    elif kind == "throttle":
                        for run in runs.values():
                            run.row["throttle"] = content
        for run in runs.values():
            run.save(complete=not versions)
    for run in runs.values():
        summarise(run)
    print(f"[measure] to render it: make book GPU={gpu['slug']}")
    return str(gpu["slug"])


def summarise(run: Run) -> None:
    """Print how many rows there are of each status and where they are."""
    statuses: dict[str, int] = {}
    for check in run.verdicts().values():
        statuses[check["status"]] = statuses.get(check["status"], 0) + 1
    counted = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    rows = len(run.rows("timings"))
    where = run.folder / "timings.csv"
    print(f"[measure] {run.study.name}: {counted}; {rows} timing rows in {run.row['seconds']:.0f} s; {where}")
    for pair, check in run.verdicts().items():
        if check["status"] == "error":
            print(f"[measure] error: {pair[0]} on {pair[1]}: {check['reason']}")


def stale() -> list[str]:
    """Lines that name measured versions whose code has changed since, or that are gone."""
    lines = []
    for path in sorted(MEASURED.glob("*/timings.csv")):
        frame = read_table(path, "timings")
        latest = frame.groupby("study")["run"].transform("max") == frame["run"]
        for (chosen, name), rows in frame[latest].groupby(["study", "version"]):
            if name not in VERSIONS:
                lines.append(f"{path.parent.name}, study {chosen}: {name} is gone")
            elif outdated(rows).all():
                lines.append(f"{path.parent.name}, study {chosen}: {name} has changed since it was measured")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis measure", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="all", help=f"some of, separated by commas: {', '.join(STUDIES)}")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--new-run", action="store_true", help="measure again although a run is complete")
    parser.add_argument("--versions", default="", help="only these, separated by commas; the run stays incomplete")
    cards.add_options(parser)
    parser.add_argument("--status", action="store_true", help="list measured versions whose code has changed since")
    options = parser.parse_args(arguments)
    try:
        if options.status:
            print("\n".join(stale()) or "every measured version is today's")
            return 0
        chosen = studies(options.study)
        require_versions(options.versions)
        if not preflight.passes(chosen):
            return 1
        measure_studies(chosen, options.processes, options.new_run, options.versions, options.gpu, options.wait)
    except (MeasureError, DataError, ValueError) as error:
        print(f"measure: {error}", file=sys.stderr)
        return 1
    return 0
