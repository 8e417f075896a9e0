"""The processes that check and time the studies of one call, and last over all of them.

To begin one takes seconds: it imports PyTorch, makes a CUDA context, and compiles and loads what it meets. Process p of
every study is the same one, and another than any other p.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kernels.checking.reference import INPUTS

from ..record.problems import problem_of
from .on_gpu import Pair, Row, Trial, check_all, in_order, in_shapes, load_all, row_of, time_all
from .progress import tqdm
from .runs import StudyRun
from .workers import Lasting

PATIENCE = 180.0  # seconds without a row: several times what PyTorch takes to tune the products of one problem
SMALL_BYTES = 16 << 30  # of a card's memory


@dataclasses.dataclass
class Crew:
    """The processes that measure, and what became of them: what is lost is not tried again in this call."""

    gpu: dict[str, Any]
    processes: int
    lost: dict[Pair, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checker = Lasting(check_all, PATIENCE)
        self.timers = [Lasting(time_all, PATIENCE) for _ in range(self.processes)]
        self.checker.begin()

    def pids(self) -> list[int]:
        """Of the processes that may be on the card."""
        return [worker.pid for worker in (self.checker, *self.timers) if worker.pid is not None]

    def rest(self, worker: Lasting) -> None:
        """A process that lasts keeps some hundred MB of the card, which a small one has not."""
        if self.gpu["memory_bytes"] < SMALL_BYTES:
            worker.close()

    def close(self) -> None:
        for worker in (self.checker, *self.timers):
            worker.close()

    def load(self, pairs: Sequence[Pair]) -> None:
        """Have every process load what PyTorch compiles: each compiles a share, and finds the others' on disk.

        All at once, before anything is timed: in turns they would take as many times longer. Not on a small card.
        """
        if not pairs or self.gpu["memory_bytes"] < SMALL_BYTES:
            return
        crew = (self.checker, *self.timers)
        for worker in crew:
            worker.begin()
        share = math.ceil(len(pairs) / len(crew))
        firsts = (share * place for place in range(len(crew)))
        loads = [worker.aside(load_all, [*pairs[at:], *pairs[:at]]) for worker, at in zip(crew, firsts, strict=True)]
        for load in loads:
            next(load, None)
        for load in loads:
            deque(load, maxlen=0)

    def check(self, run: StudyRun, pairs: Sequence[Pair]) -> None:
        """Append a row for each kind of inputs of every pair."""
        for timer in self.timers:
            timer.begin()
        tasks = in_shapes([(run.study.name, pair) for pair in pairs if pair not in self.lost])
        done: set[tuple[Pair, str]] = set()
        with tqdm(total=len(pairs) * len(INPUTS), desc=f"{run.study.name}: check", unit="check") as bar:

            def keep(row: Row) -> None:
                run.append_check(row)
                done.add(((row["version"], problem_of(row)), row["inputs"]))
                bar.update()

            def fail(pair: Pair) -> None:
                for inputs in INPUTS:
                    if (pair, inputs) not in done:
                        keep(row_of(run.study.name, pair, inputs=inputs, status="error", reason=self.lost[pair]))

            for pair in pairs:
                if pair in self.lost:
                    fail(pair)
            for kind, content in self.checker.do(tasks):
                if kind == "checks":
                    keep(content)
                elif kind == "lost":
                    (_, pair), _, self.lost[pair] = content
                    fail(pair)
        self.rest(self.checker)

    def time(self, run: StudyRun, keep: Collection[str]) -> None:
        """Append the rows of every process that are not there yet, then once more those off their siblings."""
        for again in (False, True):
            for process in range(1, self.processes + 1):
                while self._loses(run, process, keep, again):
                    pass  # what was timed together with it is timed again

    def _loses(self, run: StudyRun, process: int, keep: Collection[str], again: bool) -> bool:
        """Append the rows of a process up to one that it is lost at, if any."""
        timer, mark = self.timers[process - 1], {"repeated": True} if again else {}
        left = [each for each in (run.off if again else run.untimed)(process) if each[0][0] in keep]
        trials, failed = self._trials(left, f"{run.id} {run.study.name} {process}", run.study.name)
        for trial in failed:
            self._fail(run, process, trial, mark)
        if not trials:
            return False
        what = f"{run.study.name}: time{' again' if again else ''}, process {process} of {self.processes}"
        with tqdm(total=sum(len(trial.timers) for trial in trials), desc=what, unit="timing") as bar:
            for kind, content in timer.do(trials, process, self.pids()):
                if kind == "timings":
                    run.append("timings", {**content, **mark})
                    bar.update()
                elif kind == "lost":
                    trial, _, self.lost[trial.pair] = content
                    self._fail(run, process, trial, mark)
                    return True
                elif kind == "seen":
                    note_seen(run.state, content)
        self.rest(timer)
        return False

    def _trials(self, left: Sequence[tuple[Pair, str, Row]], seed: str, study: str) -> tuple[list[Trial], list[Trial]]:
        """What a process is still to time, in its order, and what was lost before."""
        timers: dict[Pair, list[str]] = {}
        checks: dict[Pair, Row] = {}
        for pair, by, checked in left:
            timers.setdefault(pair, []).append(by)
            checks[pair] = checked
        trials = [Trial(study, pair, tuple(by), checks[pair]) for pair, by in timers.items()]
        todo = [trial for trial in trials if trial.pair not in self.lost]
        return in_order(todo, seed), [trial for trial in trials if trial.pair in self.lost]

    def _fail(self, run: StudyRun, process: int, trial: Trial, mark: Row) -> None:
        """Rows of what a process was lost at, for those of its timers that have none."""
        left = {by for pair, by, _ in (run.off if mark else run.untimed)(process) if pair == trial.pair}
        for by in (by for by in trial.timers if by in left):
            failed = {"process": process, "timer": by, "status": "error", "reason": self.lost[trial.pair], **mark}
            run.append("timings", row_of(run.study.name, trial.pair, **failed))


def note_seen(row: Row, seen: Mapping[str, Any]) -> None:
    """Add to what is said of a study what a process saw on the card: reasons of throttling, and other processes."""
    before = set() if row["throttle"] in ("none", "unknown") else set(row["throttle"].split("+"))
    reasons = sorted(before | set(seen["throttle"]))
    row["throttle"] = "+".join(reasons) or ("none" if seen["readable"] else "unknown")
    if seen["others"] is not None:
        row["other_processes"] = max(seen["others"], row.get("other_processes") or 0)
