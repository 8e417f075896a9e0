"""What a call measures: each study in a run folder, its rows so far, and what is still to do."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.checking.reference import INPUTS

from ..evidence.current import current
from ..evidence.siblings import off_siblings
from ..record import cards
from ..record import runs as record
from ..record.columns import SCHEMAS, STATUSES
from ..record.problems import problem_of
from .machine import now
from .on_gpu import Pair, Row, Trial, identify, row_of
from .studies import Study
from .workers import answer

TIMED_STATUSES = ("ok", "wrong")
SOFTWARE = ("driver", "python", "numba", "numba_cuda", "torch")
COMPLETE_KEY = ("uuid", *SOFTWARE)  # a complete run stays the latest where these are the same
KEY = ("node", "commit", *COMPLETE_KEY)  # an incomplete one is gone on with where these are


class Writer:
    """The run folders that one call writes to: those that it goes on with, and at most one at a time that it begins."""

    def __init__(self, card: Path, gpu: Mapping[str, Any]) -> None:
        self.card, self.gpu, self.started = card, gpu, now()
        self.opened: dict[str, record.Run] = {}
        self.begun: record.Run | None = None

    def run(self, study: str, new: bool = False) -> record.Run:
        """The latest run of a study without its end, on this card with this software and code; else a new one.

        Raises: DataError.
        """
        for folder in () if new else record.unfinished(self.card):
            said = record.about(folder)
            if said["studies"].get(study, {"complete": True})["complete"] or not self._same(said, KEY):
                continue
            run = self.opened.get(folder.name) or record.Run.resume(folder)
            if run is None:
                continue  # another process goes on with it
            rows = [row for table in ("checks", "timings") for row in record.read(folder, table)]
            if len(current(rows)) == len(rows):
                self.opened[folder.name] = run
                return run
            run.close()
        if self.begun is None or self.begun.about["complete"]:
            self.begun = record.Run.begin(self.card, self.gpu, self.started)
            self.opened[self.begun.id] = self.begun
        return self.begun

    def complete(self, study: str) -> Path | None:
        """The folder of the latest run that came to the end of a study on this card with this software."""
        for folder in reversed(record.folders(self.card)):
            said = record.about(folder)
            if said["studies"].get(study, {}).get("complete") and self._same(said, COMPLETE_KEY):
                return folder
        return None

    def _same(self, said: Mapping[str, Any], key: tuple[str, ...]) -> bool:
        return all(said[name] == self.gpu.get(name) for name in key)

    def close(self) -> None:
        for run in self.opened.values():
            run.close()


@contextlib.contextmanager
def at_card(named: str = "") -> Iterator[Writer]:
    """Writes to the folder of the card at hand: the one that is `named`, or else its own, see `cards.folder_of`.

    This process takes no memory of the card. Raises: MeasureError without a GPU, DataError.
    """
    gpu = answer(identify)
    with contextlib.closing(Writer(cards.folder_of(gpu, named), gpu)) as writer:
        yield writer


class StudyRun:
    """A study in a run: its rows, and what is still to do; the complete run that counts, if there is one."""

    def __init__(self, study: Study, writer: Writer, new: bool = False) -> None:
        self.study = study
        self.started = time.monotonic()
        self._tables: dict[str, list[Row]] = {}
        folder = None if new else writer.complete(study.name)
        if folder is not None:
            self.folder, self.state = folder, record.about(folder)["studies"][study.name]
            if not self.unchecked():
                return
            self._tables.clear()
        self.run = writer.run(study.name, new or folder is not None)  # what is compared is timed side by side
        self.folder, self.state = self.run.folder, self.run.study(study.name)
        self.save(complete=False)

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def complete(self) -> bool:
        return bool(self.state["complete"])

    def save(self, complete: bool) -> None:
        repeated = sum(row["repeated"] is True for row in self._mine("timings"))
        seconds = round(time.monotonic() - self.started, 1)
        self.run.settle(self.study.name, complete, repeated=repeated, seconds=seconds)

    def append(self, table: str, rows: list[Row]) -> None:
        blank = dict.fromkeys(column.name for column in SCHEMAS[table])
        rows = [{**blank, **row, "study": self.study.name, "run": self.id} for row in rows]
        mine = self._mine(table)
        self.run.append(table, rows)
        mine += rows

    def _mine(self, table: str) -> list[Row]:
        """Rows of this study in this run: read once, and what is appended since."""
        if table not in self._tables:
            rows = record.read(self.folder, table)
            self._tables[table] = [row for row in rows if row["study"] == self.study.name]
        return self._tables[table]

    def rows(self, table: str) -> list[Row]:
        """Rows of this run whose code is today's."""
        return current(self._mine(table))

    def pairs(self) -> list[Pair]:
        return [(version.id, problem) for version, problem in self.study.pairs()]

    def unchecked(self) -> list[Pair]:
        seen = {(row["version"], problem_of(row), row["inputs"]) for row in self.rows("checks")}
        return [pair for pair in self.pairs() if any((*pair, kind) not in seen for kind in INPUTS)]

    def verdicts(self) -> dict[Pair, Row]:
        """For every pair the check that decides: the worst of its inputs, with the largest error of all."""
        worst: dict[Pair, Row] = {}
        for row in self.rows("checks"):
            pair = (row["version"], problem_of(row))
            both = [worst.get(pair, row), row]
            errors = [each["max_abs_err"] for each in both if each["max_abs_err"] is not None]
            decisive = max(both, key=lambda each: STATUSES.index(each["status"]))
            worst[pair] = {**decisive, "max_abs_err": max(errors, default=None)}
        return worst

    def untimed(self, process: int) -> list[Trial]:
        """What a process has not timed yet."""
        rows = (row for row in self.rows("timings") if row["process"] == process)
        seen = {(row["version"], problem_of(row), row["timer"]) for row in rows}
        trials = [
            Trial(pair, tuple(timer for timer in self.study.timers if (*pair, timer) not in seen), check)
            for pair, check in self.verdicts().items()
            if check["status"] in TIMED_STATUSES
        ]
        return [trial for trial in trials if trial.timers]

    def off(self, process: int) -> list[Trial]:
        """What a process is to time again, being off its siblings: each once, as soon as all of these are timed."""
        rows = self.rows("timings")
        if not rows:
            return []
        timers: dict[Pair, list[str]] = {}
        for row in off_siblings(pd.DataFrame(rows)).to_dict("records"):
            if row["process"] == process:
                timers.setdefault((row["version"], problem_of(row)), []).append(row["timer"])
        checks = self.verdicts() if timers else {}
        return [Trial(pair, tuple(names), checks[pair]) for pair, names in timers.items()]

    def unfinished(self, processes: int) -> list[Pair]:
        """What is still to be checked, or to be timed by one of so many processes."""
        timed = {trial.pair for process in range(processes) for trial in self.untimed(process + 1)}
        left = {*self.unchecked(), *timed}
        return [pair for pair in self.pairs() if pair in left]

    def note_untimed(self) -> None:
        """A row with the reason for every pair that could not be timed."""
        seen = {(row["version"], problem_of(row)) for row in self.rows("timings")}
        for pair, check in self.verdicts().items():
            if check["status"] not in TIMED_STATUSES and pair not in seen:
                own = {name: check[name] for name in ("status", "reason", "max_abs_err")}
                self.append("timings", [row_of(pair, process=0, **own)])
