"""Measure studies on the GPU at hand, one after the other: check every version once, then time it in several processes.

What a study compares is timed side by side, in
the same processes; the host compiles nothing while it is timed. Each finished row is on disk at once. An interrupted
run goes on where it stopped, on the same node and card with the same software and commit; a complete one stays as it
is: `--new-run`, another card or software, a new version or one whose code has changed begin another.

What fails is a row with the status error and its reason, and ends nothing: a process that the card no longer answers,
that dies, or that sends nothing for PATIENCE seconds is replaced by a fresh one, which goes on behind it. A time on the
device that is off those of the other processes is measured once more by its own; both rows are kept.
"""

import contextlib
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kernels import VERSIONS, Unsupported
from kernels.checking.reference import INPUTS
from kernels.peers import flashinfer
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target

from ..errors import MeasureError
from ..evidence.current import current
from ..evidence.siblings import off_siblings
from ..record import cards
from ..record import runs as record
from ..record.columns import SCHEMAS, STATUSES
from ..record.problems import problem_of
from ..studies import STUDIES, Pair, Study, loads_ahead, studies
from . import preflight, workers
from .machine import now
from .on_gpu import Row, Trial, check_all, identify, in_order, in_shapes, load_all, row_of, said, survey, time_all
from .slices import applies
from .workers import Sent, tqdm

PROCESSES = 5
TIMED_STATUSES = ("ok", "wrong")
SOFTWARE = ("driver", "python", "numba", "numba_cuda", "torch")
COMPLETE_KEY = ("uuid", *SOFTWARE)  # a complete run stays the latest where these are the same
KEY = ("node", "commit", *COMPLETE_KEY)  # an incomplete one is gone on with where these are

# ---------------------------------------------------------------- compiling


def compile_pair(pair: Pair, target: str) -> None:
    """Fill the cache of kernels; the check says, in its row, what cannot be planned or compiled."""
    name, problem = pair
    with contextlib.suppress(Unsupported, CompileError):
        plan = VERSIONS[name](problem, target)
        if VERSIONS[name].source == flashinfer.LIBRARY:
            flashinfer.compiled(target, **dict(zip(flashinfer.MACROS, flashinfer.library_of(problem))))
        for launch in plan.launches:
            require_target(launch, target)
            assembled(compile_ptx(launch.kernel, target), target)


def to_compile(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs that the host compiles, large head dims first, as they take longest."""
    pairs = sorted(pairs, key=lambda pair: (-pair[1].hdim, pair[1].batch, str(pair)))
    theirs = [(name, problem) for name, problem in pairs if VERSIONS[name].source == flashinfer.LIBRARY]
    libraries = {(flashinfer.library_of(pair[1]), pair[1].dtype): pair for pair in theirs[::-1]}  # the first of each
    return [*libraries.values(), *dict.fromkeys(pair for pair in pairs if not VERSIONS[pair[0]].is_peer)]


# ---------------------------------------------------------------- runs: their rows, and what is still to do


class Writer:
    """The run folders that one call writes to: those that it goes on with, and at most one at a time that it begins."""

    def __init__(self, card: Path, gpu: Mapping[str, Any]) -> None:
        record.folders(card, gpu)
        self.card, self.gpu, self.started = card, gpu, now()
        self.opened: dict[str, record.Run] = {}
        self.begun: record.Run | None = None

    def run(self, study: str, new: bool = False) -> record.Run:
        """The latest run of a study without its end, on this card with this software and code; else a new one."""
        for folder in () if new else record.unfinished(self.card):
            said = record.about(folder)
            if said["studies"].get(study, {"complete": True})["complete"] or not self._same(said, KEY):
                continue
            rows = [row for table in ("checks", "timings") for row in record.read(folder, table)]
            if len(current(rows)) < len(rows):
                continue
            if run := self.opened.get(folder.name) or record.Run.resume(folder):  # else another process has it
                self.opened[folder.name] = run
                return run
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
        return all(said.get(name) == self.gpu.get(name) for name in key)

    def close(self) -> None:
        for run in self.opened.values():
            run.close()


@contextlib.contextmanager
def at_card(named: str = "") -> Iterator[Writer]:
    """Writes to the folder of the card at hand, the one that is `named` or its own; takes no memory of the card."""
    gpu = workers.answer(identify)
    with contextlib.closing(Writer(cards.folder_of(gpu, named), gpu)) as writer:
        yield writer


class StudyRun:
    """A study in a run: its rows, and what is still to do; the complete run that counts, if there is one."""

    def __init__(self, study: Study, writer: Writer, new: bool = False) -> None:
        self.study, self.target = study, writer.gpu["target"]
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
    def complete(self) -> bool:
        return bool(self.state["complete"])

    def save(self, complete: bool) -> None:
        repeated = sum(row["repeated"] is True for row in self._mine("timings"))
        seconds = round(time.monotonic() - self.started, 1)
        self.run.settle(self.study.name, complete, repeated=repeated, seconds=seconds)

    def append(self, table: str, rows: list[Row]) -> None:
        blank = dict.fromkeys(column.name for column in SCHEMAS[table])
        rows = [{**blank, **row, "study": self.study.name, "run": self.folder.name} for row in rows]
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

    def unchecked(self) -> list[Pair]:
        seen = {(row["version"], problem_of(row), row["inputs"]) for row in self.rows("checks")}
        return [pair for pair in self.study.pairs() if any((*pair, kind) not in seen for kind in INPUTS)]

    def verdicts(self) -> dict[Pair, Row]:
        """For every pair the check that decides: the worst of its inputs."""
        worst: dict[Pair, Row] = {}
        for row in self.rows("checks"):
            pair = (row["version"], problem_of(row))
            worst[pair] = max(worst.get(pair, row), row, key=lambda each: STATUSES.index(each["status"]))
        return worst

    def untimed(self, process: int) -> list[Trial]:
        """Trials that a process has not timed yet."""
        rows = (row for row in self.rows("timings") if row["process"] == process)
        seen = {(row["version"], problem_of(row), row["timer"]) for row in rows}
        trials = []
        for pair, check in self.verdicts().items():
            own = [timer for timer in self.study.timers if applies(timer, *pair, self.target)]
            timers = tuple(timer for timer in own if (*pair, timer) not in seen)
            if timers and check["status"] in TIMED_STATUSES:
                trials.append(Trial(pair, timers, check["status"]))
        return trials

    def off(self, process: int) -> list[Trial]:
        """Trials that a process repeats, as outliers among their siblings: each once, when all of these are timed."""
        rows = self.rows("timings")
        if not rows:
            return []
        timers: dict[Pair, list[str]] = {}
        for row in off_siblings(pd.DataFrame(rows)).to_dict("records"):
            if row["process"] == process:
                timers.setdefault((row["version"], problem_of(row)), []).append(row["timer"])
        checks = self.verdicts() if timers else {}
        return [Trial(pair, tuple(names), checks[pair]["status"]) for pair, names in timers.items()]

    def unfinished(self, processes: int) -> list[Pair]:
        """Pairs still to be checked, or to be timed by one of the processes."""
        timed = {trial.pair for process in range(processes) for trial in self.untimed(process + 1)}
        left = {*self.unchecked(), *timed}
        return [pair for pair in self.study.pairs() if pair in left]


# ---------------------------------------------------------------- the processes


class Crew:
    """The processes that check and time the studies of one call; process p is the same one in every study.

    To begin one takes seconds: it imports PyTorch, makes a CUDA context, and compiles and loads what it meets. What one
    was lost at is not tried again in this call.
    """

    def __init__(self, processes: int, stack: contextlib.ExitStack) -> None:
        self.checker, *self.timers = self.all = [workers.Worker() for _ in range(processes + 1)]
        for worker in self.all:
            stack.callback(worker.close)
        self.lost: dict[Pair, MeasureError] = {}

    def load(self, pairs: Sequence[Pair]) -> list[Sent]:
        """Have every process load what PyTorch compiles: each compiles a share, and finds the others' on disk.

        All at once, before anything is timed: in turns they would take as many times longer. What is returned ends when
        they have. A process that is lost loads no more.
        """
        share = math.ceil(len(pairs) / len(self.all))
        firsts = (share * place for place in range(len(self.all)))
        return [worker.ask(load_all, [*pairs[at:], *pairs[:at]]) for worker, at in zip(self.all, firsts) if pairs]

    def check(self, run: StudyRun, pairs: Sequence[Pair]) -> None:
        """Append the rows of every pair, one for each kind of inputs."""
        lost = [("lost", (pair, self.lost[pair])) for pair in pairs if pair in self.lost]
        sent = self.checker.do(check_all, in_shapes([pair for pair in pairs if pair not in self.lost]))
        what = f"{run.study.name}: check"
        for kind, content in tqdm(itertools.chain(lost, sent), total=len(pairs), desc=what, unit="pair"):
            if kind == "lost":
                pair, self.lost[pair] = content
                row = {"status": "error", "reason": said(self.lost[pair])}
                content = [row_of(pair, inputs=inputs, **row) for inputs in INPUTS]
            run.append("checks", content)

    def time(self, run: StudyRun) -> None:
        """Append the rows of every process that are not there yet, then once more those off their siblings."""
        for again, (process, worker) in itertools.product((False, True), enumerate(self.timers, 1)):
            while not self._timed(run, process, worker, again):
                pass  # what was timed together with what is lost is timed again

    def _timed(self, run: StudyRun, process: int, worker: workers.Worker, again: bool) -> bool:
        """Append what a process has to time; False where it is lost at one."""
        mark: Row = {"repeated": True} if again else {}
        left = (run.off if again else run.untimed)(process)
        for trial in (trial for trial in left if trial.pair in self.lost):
            failed = {"process": process, "status": "error", "reason": said(self.lost[trial.pair]), **mark}
            run.append("timings", [row_of(trial.pair, timer=timer, **failed) for timer in trial.timers])
        left = [trial for trial in left if trial.pair not in self.lost]
        trials = in_order(left, f"{run.folder.name} {run.study.name} {process}")
        if not trials:
            return True
        what = f"{run.study.name}: time{' again' if again else ''}, process {process} of {len(self.timers)}"
        with tqdm(total=sum(len(trial.timers) for trial in trials), desc=what, unit="timing") as bar:
            try:
                for kind, content in worker.ask(time_all, trials, process):
                    if kind == "seen":
                        note_seen(run.state, content)
                    else:
                        run.append("timings", [{**content, **mark}])
                        bar.update()
            except MeasureError as error:
                if worker.begun is None:
                    raise
                self.lost[trials[worker.begun].pair] = error
                return False
        return True


def note_seen(row: Row, reasons: Collection[str] | None) -> None:
    """Add to what is said of a study why clocks were reduced; None where the card does not say."""
    known = {*row["throttle"].split("+"), *(["unknown"] if reasons is None else reasons)}
    row["throttle"] = "+".join(sorted(known - {"none"})) or "none"


# ---------------------------------------------------------------- the studies


def measure_studies(chosen: Sequence[Study], processes: int = PROCESSES, new_run: bool = False, named: str = "") -> str:
    """Bring the current run of each study to its end on the GPU at hand; the name of the GPU's folder, which is `named`
    or follows from the card."""
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(at_card(named))  # without a GPU its one process is all that begins
        folder, gpu = writer.card, writer.gpu
        runs = [StudyRun(study.on(gpu["sms"]), writer, new_run) for study in chosen]
        for run in runs:
            what = "everything is measured; --new-run measures it again" if run.complete else f"run {run.folder.name}"
            print(f"[measure] study {run.study.name} on {gpu['name']}, folder {folder.name}: {what}", flush=True)
        runs = [run for run in runs if not run.complete]
        if not runs:
            return folder.name
        compile_each = stack.enter_context(workers.compilers(gpu["target"]))
        crew = Crew(processes, stack)
        for run in runs:
            run.started = time.monotonic()
            for worker in crew.all:
                worker.begin()
            left = run.unfinished(processes)
            loads = crew.load([pair for pair in left if loads_ahead(VERSIONS[pair[0]])])
            compile_each(compile_pair, to_compile(left))  # meanwhile: both leave cores idle at their ends
            for load in loads:
                with contextlib.suppress(MeasureError):
                    deque(load, maxlen=0)
            crew.check(run, run.unchecked())
            if run is runs[0]:  # write what the card reaches at most to gpu.json
                try:
                    [(_, ceilings)] = crew.checker.ask(survey)
                    cards.describe(folder / "gpu.json", gpu, ceilings)
                except MeasureError as error:
                    print(f"[measure] the card's ceilings were not measured: {said(error)}", flush=True)
            crew.time(run)
            run.save(complete=True)
            print("\n".join(f"[measure] {line}" for line in summary(run)), flush=True)
    print(f"[measure] rows are in {folder}; to render them: make book GPU={folder.name}")
    return folder.name


def summary(run: StudyRun) -> Iterator[str]:
    """How many pairs have which status and how many timings failed; a line for every pair and reason that failed."""
    checks, rows = run.verdicts(), run.rows("timings")
    found = {(pair, check["reason"]): "check" for pair, check in checks.items() if check["status"] == "error"}
    for row in rows:
        if row["status"] == "error":
            found.setdefault(((row["version"], problem_of(row)), row["reason"]), row["timer"])
    statuses = Counter(check["status"] for check in checks.values())
    counted = ", ".join(f"{statuses[status]} {status}" for status in STATUSES if statuses[status])
    bad = sum(row["status"] == "error" for row in rows)
    timed = f"{len(rows)} timings, of which {bad} failed and {run.state['repeated']} were repeats"
    yield f"{run.study.name}: {counted}; {timed}; {run.state['seconds']:.0f} s"
    for ((name, problem), why), what in found.items():
        yield f"{run.study.name}: {name} on {problem}, {what}: {why}"


def main(arguments: list[str] | None = None) -> int:
    parser = cards.parser("measure", __doc__, "measure again although a run is complete")
    parser.add_argument("--study", default="all", help=f"some of, separated by commas: {', '.join(STUDIES)}")
    parser.add_argument("--checked", action="store_true", help="say nothing of what stands before measuring here")
    options = parser.parse_args(arguments)
    chosen = studies(options.study)
    if not options.checked and not preflight.passes([study.name for study in chosen]):
        return 1
    measure_studies(chosen, new_run=options.new_run, named=options.gpu)
    return 0
