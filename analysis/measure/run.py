"""Measure studies on the GPU at hand: check every version once, then time it in several processes.

    python -m analysis measure                  all studies
    python -m analysis measure --study log

The studies of one call are timed together, in the same processes. Each finished row is on disk at once. An interrupted
run goes on where it stopped; a complete one stays as it is: `--new-run`, a new version or one whose code has changed
begin another.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kernels import VERSIONS, Unsupported
from kernels.checking.reference import INPUTS
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target

from ..records.current import current, outdated
from ..records.files import (
    MEASURED,
    DataError,
    append_rows,
    problem_of,
    read_records,
    read_table,
    write_json,
    write_table,
)
from ..records.schema import SCHEMAS, STATUSES
from .machine import now
from .on_gpu import Pair, Row, Task, check_all, identify, outcome, row_of, time_all
from .progress import tqdm
from .studies import STUDIES, Study, studies
from .workers import MeasureError, Worker, compile_each

PROCESSES = 5
TIMED_STATUSES = ("ok", "wrong")


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


# ---------------------------------------------------------------- the run and its files


@functools.lru_cache(maxsize=4)
def _records(path: Path, table: str, changed: int) -> list[Row]:
    """The rows of a file that was last changed at `changed`. Raises: DataError."""
    return read_records(path, table)


class Run:
    """One run of a study on one GPU: its files, what they hold, what is still to do."""

    def __init__(
        self, chosen: Study, gpu: dict[str, Any], new_run: bool, folder: Path | None = None, started: str = ""
    ) -> None:
        self.study = chosen
        self.started_at = started or now()
        self._tables: dict[tuple[str, str], list[Row]] = {}
        self.gpu = gpu
        self.folder = folder or MEASURED / gpu["slug"]
        self.started = time.monotonic()
        self.runs = self._read("runs")
        self.row: Row = (not new_run and self._latest()) or self._newrow_of()
        if self.row["complete"] and self.unchecked():
            self.row = self._newrow_of()  # what is compared is timed side by side, in one run

    def _read(self, table: str) -> list[Row]:
        path = self.folder / f"{table}.csv"
        return _records(path, table, path.stat().st_mtime_ns) if path.exists() else []

    def _latest(self) -> Row | None:
        """The latest run of this study, unless driver or software have changed since it began."""
        mine = [row for row in self.runs if row["study"] == self.study.name]
        if not mine:
            return None
        same = all(mine[-1][key] == self.gpu[key] for key in ("driver", "numba_cuda", "torch", "python"))
        return mine[-1] if same else None

    def _newrow_of(self) -> Row:
        machine = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "sm_mhz_max", "power_limit_w")
        return {
            "run": self.started_at.replace("-", "").replace(":", ""),
            "study": self.study.name,
            "started_at": self.started_at,
            "finished_at": None,
            "complete": False,
            "seconds": 0.0,
            "throttle": "none",
            **{name: self.gpu[name] for name in (*machine, "commit")},
        }

    @property
    def id(self) -> str:
        return self.row["run"]

    def save(self, complete: bool) -> None:
        self.row["complete"] = complete
        self.row["finished_at"] = now() if complete else None
        self.row["seconds"] = round(time.monotonic() - self.started, 1)
        others = [row for row in self._read("runs") if (row["run"], row["study"]) != (self.id, self.study.name)]
        write_table(self.folder / "runs.csv", "runs", [*others, self.row])

    def append(self, table: str, row: Row) -> None:
        mine, row = self._mine(table), {**dict.fromkeys(c.name for c in SCHEMAS[table]), "run": self.id, **row}
        append_rows(self.folder / f"{table}.csv", table, [row])
        mine.append(row)

    def _mine(self, table: str) -> list[Row]:
        """Rows of this run: read once, and what is appended since."""
        if (self.id, table) not in self._tables:
            self._tables[self.id, table] = [
                row for row in self._read(table) if row["run"] == self.id and row["study"] == self.study.name
            ]
        return self._tables[self.id, table]

    def rows(self, table: str) -> list[Row]:
        """Rows of this run whose code is today's."""
        return current(self._mine(table))

    def pairs(self) -> list[Pair]:
        return [(version.id, problem) for version, problem in self.study.pairs()]

    def unchecked(self) -> list[Pair]:
        seen = {(row["version"], problem_of(row), row["inputs"]) for row in self.rows("checks")}
        return [pair for pair in self.pairs() if any((*pair, kind) not in seen for kind in INPUTS)]

    def verdicts(self) -> dict[Pair, Row]:
        """For every pair the check that decides: the worst of its inputs."""
        worst: dict[Pair, Row] = {}
        for row in self.rows("checks"):
            pair = (row["version"], problem_of(row))
            best = worst.get(pair)
            if best is None:
                worst[pair] = dict(row)
                continue
            errors = [e for e in (best["max_abs_err"], row["max_abs_err"]) if e is not None]
            decisive = max(best, row, key=lambda r: STATUSES.index(r["status"]))
            worst[pair] = {**decisive, "max_abs_err": max(errors, default=None)}
        return worst

    def untimed(self, process: int) -> list[tuple[Pair, str, Row]]:
        seen = {
            (row["version"], problem_of(row), row["timer"]) for row in self.rows("timings") if row["process"] == process
        }
        return [
            (pair, timer, check)
            for pair, check in self.verdicts().items()
            if check["status"] in TIMED_STATUSES
            for timer in self.study.timers
            if (*pair, timer) not in seen
        ]

    def note_untimed(self) -> None:
        """A row with the reason for every pair that could not be timed."""
        seen = {(row["version"], problem_of(row)) for row in self.rows("timings")}
        for pair, check in self.verdicts().items():
            if check["status"] not in TIMED_STATUSES and pair not in seen:
                self.append("timings", row_of(self.study.name, pair, process=0, **outcome(check)))


def measure_studies(
    chosen: Sequence[Study], processes: int = PROCESSES, new_run: bool = False, versions: str = ""
) -> str:
    """Bring the current run of each study to its end on the GPU at hand, and return the GPU's folder name.

    Raises: MeasureError, DataError.
    """
    if versions:
        unknown = [name for name in versions.split(",") if name not in VERSIONS]
        if unknown:
            raise MeasureError(f"no version is called {unknown[0]!r}; known: {', '.join(VERSIONS)}")
    keep = set(versions.split(",")) if versions else set(VERSIONS)
    started = now()
    with contextlib.ExitStack() as stack:

        def worker(work: Callable[..., None]) -> Worker:
            return stack.enter_context(contextlib.closing(Worker(work)))

        gpu = dict(worker(identify).do())["identity"]  # without a GPU this one process is all that begins
        checker, timers = worker(check_all), [worker(time_all) for _ in range(processes)]
        runs = {study.name: Run(study, gpu, new_run, started=started) for study in chosen}
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
                    runs[content["study"]].append("checks", content)
                    bar.update()
                elif kind == "gpu":
                    write_json(next(iter(runs.values())).folder / "gpu.json", content)
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
    parser.add_argument("--status", action="store_true", help="list measured versions whose code has changed since")
    options = parser.parse_args(arguments)
    try:
        if options.status:
            print("\n".join(stale()) or "every measured version is today's")
            return 0
        measure_studies(studies(options.study), options.processes, options.new_run, options.versions)
    except (MeasureError, DataError, ValueError) as error:
        print(f"measure: {error}", file=sys.stderr)
        return 1
    return 0
