"""One run of a study on one card: its rows on disk, and what is still to do."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from kernels import Problem
from kernels.checking.reference import INPUTS

from ..records import files
from ..records.current import current
from ..records.files import append_rows, problem_of, read_records, write_table, written
from ..records.schema import SCHEMAS, STATUSES
from ..records.siblings import off_siblings
from .machine import now
from .on_gpu import Pair, Row, outcome, row_of
from .studies import Study

TIMED_STATUSES = ("ok", "wrong")
SOFTWARE = ("driver", "python", "numba", "numba_cuda", "torch")
COMPLETE_KEY = ("uuid", *SOFTWARE)  # a complete run stays the latest where these are the same
KEY = ("node", "commit", *COMPLETE_KEY)  # an incomplete one is gone on with where these are
MACHINE = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "sm_mhz_max", "power_limit_w", "commit")


def machine_columns(gpu: Mapping[str, Any]) -> Row:
    """The columns of runs.csv that say where a run was measured, and with what."""
    return {**{name: gpu[name] for name in MACHINE}, "uuid": gpu.get("uuid")}


def run_name(started_at: str, runs: Iterable[Row]) -> str:
    """A name that no run in the folder has: its start, or the first second after it that is free."""
    taken = {row["run"] for row in runs}
    start = datetime.fromisoformat(started_at)
    while (name := start.strftime("%Y%m%dT%H%M%SZ")) in taken:
        start += timedelta(seconds=1)
    return name


@functools.lru_cache(maxsize=4)
def _records(path: Path, table: str, state: tuple[int, ...]) -> list[Row]:
    """The rows of a file in the state that `written` tells. Raises: DataError."""
    return read_records(path, table)


def _check_key(row: Row) -> tuple[str, Problem, str]:
    return row["version"], problem_of(row), row["inputs"]


class Run:
    """One run of a study on one GPU: its files, what they hold, what is still to do."""

    def __init__(
        self, chosen: Study, gpu: dict[str, Any], new_run: bool, folder: Path | None = None, started: str = ""
    ) -> None:
        self.study = chosen
        self.started_at = started or now()
        self._tables: dict[tuple[str, str], list[Row]] = {}
        self._checked: set[tuple[str, Problem, str]] | None = None
        self.gpu = gpu
        self.folder = folder or files.MEASURED / gpu["slug"]
        self.started = time.monotonic()
        self.runs = read_records(self.folder / "runs.csv", "runs")
        self.row: Row = (not new_run and self._latest()) or self._new_row()
        if self.row["complete"] and self.unchecked():
            self.row = self._new_row()  # what is compared is timed side by side, in one run

    def _read(self, table: str) -> list[Row]:
        path = self.folder / f"{table}.csv"
        if not path.exists():
            return []
        return _records(path, table, written(path))

    def _latest(self) -> Row | None:
        """The latest run of this study that counts or can be gone on with here and today."""
        here = machine_columns(self.gpu)
        same = [
            row
            for row in self.runs
            if row["study"] == self.study.name
            and all(row[key] == here[key] for key in (COMPLETE_KEY if row["complete"] else KEY))
        ]
        return max(same, key=lambda row: row["run"], default=None)

    def _new_row(self) -> Row:
        return {
            "run": run_name(self.started_at, self.runs),
            "study": self.study.name,
            "started_at": self.started_at,
            "finished_at": None,
            "complete": False,
            "seconds": 0.0,
            "throttle": "none",
            **machine_columns(self.gpu),
        }

    @property
    def id(self) -> str:
        return self.row["run"]

    def save(self, complete: bool) -> None:
        self.row["complete"] = complete
        self.row["repeated"] = sum(row["repeated"] is True for row in self._mine("timings"))
        self.row["finished_at"] = now() if complete else None
        self.row["seconds"] = round(time.monotonic() - self.started, 1)
        path = self.folder / "runs.csv"
        others = [row for row in read_records(path, "runs") if (row["run"], row["study"]) != (self.id, self.study.name)]
        write_table(path, "runs", [*others, self.row])

    def append(self, table: str, row: Row) -> None:
        mine, row = self._mine(table), {**dict.fromkeys(c.name for c in SCHEMAS[table]), "run": self.id, **row}
        append_rows(self.folder / f"{table}.csv", table, [row])
        mine.append(row)

    def append_check(self, row: Row) -> None:
        """Append a check, unless it is there: a pair is checked again on all inputs where one was still to do."""
        if self._checked is None:
            self._checked = {_check_key(each) for each in self.rows("checks")}
        if _check_key(row) not in self._checked:
            self.append("checks", row)
            self._checked.add(_check_key(row))

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
        seen = {_check_key(row) for row in self.rows("checks")}
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

    def off(self, process: int) -> list[tuple[Pair, str, Row]]:
        """What a process is to time again, being off its siblings: each once, as soon as all of these are timed."""
        rows = self.rows("timings")
        if not rows:
            return []
        checks = self.verdicts()
        found = off_siblings(pd.DataFrame(rows)).to_dict("records")
        mine = [((row["version"], problem_of(row)), row) for row in found if row["process"] == process]
        return [(pair, row["timer"], checks[pair]) for pair, row in mine]

    def unfinished(self, processes: int) -> list[Pair]:
        """What is still to be checked, or to be timed by one of so many processes."""
        timed = (pair for process in range(processes) for pair, *_ in self.untimed(process + 1))
        left = {*self.unchecked(), *timed}
        return [pair for pair in self.pairs() if pair in left]

    def note_untimed(self) -> None:
        """A row with the reason for every pair that could not be timed."""
        seen = {(row["version"], problem_of(row)) for row in self.rows("timings")}
        for pair, check in self.verdicts().items():
            if check["status"] not in TIMED_STATUSES and pair not in seen:
                self.append("timings", row_of(self.study.name, pair, process=0, **outcome(check)))
