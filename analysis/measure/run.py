"""Measure studies on the GPU at hand, one after the other: check every version once, then time it in several processes.

    python -m analysis measure                  all studies
    python -m analysis measure --study log

The documents' study comes first, so that its rows come early. What a study compares is timed side by side, in the same
processes; the host compiles nothing while it is timed. Each finished row is on disk at once. An interrupted run goes on
where it stopped, on the same node and card with the same software and commit; a complete one stays as it is:
`--new-run`, another card or software, a new version or one whose code has changed begin another.

What fails is a row with the status error and its reason, and ends nothing: a process that the card no longer answers,
that dies, or that sends nothing for PATIENCE seconds is replaced by a fresh one, which goes on behind it. A time on the
device that is off those of the other processes is measured once more by its own; both rows are kept.
"""

import argparse
import contextlib
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kernels import VERSIONS, Unsupported
from kernels.checking.reference import INPUTS
from kernels.peers import flashinfer
from kernels.runtime.compile import CompileError, assembled, compile_ptx, require_target

from ..errors import DataError, MeasureError
from ..record import cards
from ..record.columns import STATUSES
from ..record.files import problem_of
from . import preflight
from .on_gpu import Pair, Row, check_all, in_order, in_shapes, load_all, row_of, survey, time_all
from .runs import StudyRun, at_card
from .studies import STUDIES, Study, loads_ahead, studies
from .workers import Sent, Worker, compilers, tqdm

PROCESSES = 5
FIRST = "log"  # the documents' study


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
    """What the host compiles of pairs, large head dims first, which take longest."""
    pairs = sorted(pairs, key=lambda pair: (-pair[1].hdim, pair[1].batch, str(pair)))
    theirs = [(name, problem) for name, problem in pairs if VERSIONS[name].source == flashinfer.LIBRARY]
    libraries = {(flashinfer.library_of(pair[1]), pair[1].dtype): pair for pair in theirs[::-1]}  # the first of each
    return [*libraries.values(), *dict.fromkeys(pair for pair in pairs if not VERSIONS[pair[0]].is_peer)]


# ---------------------------------------------------------------- the processes


class Crew:
    """The processes that check and time the studies of one call; process p is the same one in every study.

    To begin one takes seconds: it imports PyTorch, makes a CUDA context, and compiles and loads what it meets. What one
    was lost at is not tried again in this call.
    """

    def __init__(self, processes: int, stack: contextlib.ExitStack) -> None:
        self.checker, *self.timers = self.all = [Worker() for _ in range(processes + 1)]
        for worker in self.all:
            stack.callback(worker.close)
        self.lost: dict[Pair, str] = {}

    def begin(self) -> None:
        for worker in self.all:
            worker.begin()

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
        with tqdm(total=len(pairs), desc=f"{run.study.name}: check", unit="pair") as bar:

            def fail(pair: Pair) -> None:
                why = self.lost[pair]
                run.append("checks", [row_of(pair, inputs=kind, status="error", reason=why) for kind in INPUTS])
                bar.update()

            for pair in (pair for pair in pairs if pair in self.lost):
                fail(pair)
            for kind, content in self.checker.do(check_all, in_shapes([p for p in pairs if p not in self.lost])):
                if kind == "lost":
                    pair, error = content
                    self.lost[pair] = first_line(error)
                    fail(pair)
                else:
                    run.append("checks", content)
                    bar.update()

    def time(self, run: StudyRun) -> None:
        """Append the rows of every process that are not there yet, then once more those off their siblings."""
        for again, (process, worker) in itertools.product((False, True), enumerate(self.timers, 1)):
            while not self._timed(run, process, worker, again):
                pass  # what was timed together with what is lost is timed again

    def _timed(self, run: StudyRun, process: int, worker: Worker, again: bool) -> bool:
        """Append what a process has to time; False where it is lost at one."""
        mark: Row = {"repeated": True} if again else {}
        left = (run.off if again else run.untimed)(process)
        for pair, timer in ((trial.pair, timer) for trial in left for timer in trial.timers if trial.pair in self.lost):
            failed = {"process": process, "timer": timer, "status": "error", "reason": self.lost[pair], **mark}
            run.append("timings", [row_of(pair, **failed)])
        left = [trial for trial in left if trial.pair not in self.lost]
        trials = in_order(left, f"{run.id} {run.study.name} {process}")
        if not trials:
            return True
        what = f"{run.study.name}: time{' again' if again else ''}, process {process} of {len(self.timers)}"
        pids = [each.process.pid for each in self.all if each.process]
        begun = None
        with tqdm(total=sum(len(trial.timers) for trial in trials), desc=what, unit="timing") as bar:
            try:
                for kind, content in worker.ask(time_all, trials, process, pids):
                    if kind == "begun":
                        begun = content
                    elif kind == "seen":
                        note_seen(run.state, content)
                    else:
                        run.append("timings", [{**content, **mark}])
                        bar.update()
            except MeasureError as error:
                if begun is None:
                    raise
                self.lost[trials[begun].pair] = first_line(error)
                return False
        return True


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def note_seen(row: Row, seen: Mapping[str, Any]) -> None:
    """Add to what is said of a study what a process saw on the card: reasons of throttling, and other processes."""
    before = set() if row["throttle"] in ("none", "unknown") else set(row["throttle"].split("+"))
    reasons = sorted(before | set(seen["throttle"]))
    row["throttle"] = "+".join(reasons) or ("none" if seen["readable"] else "unknown")
    if seen["others"] is not None:
        row["other_processes"] = max(seen["others"], row.get("other_processes") or 0)


# ---------------------------------------------------------------- the studies


def require_versions(names: str) -> list[str]:
    """Versions by their names, separated by commas; all for none. Raises: DataError with the known names."""
    chosen = names.split(",") if names else list(VERSIONS)
    if unknown := set(chosen) - set(VERSIONS):
        raise DataError(f"no version is called {min(unknown)!r}; known: {', '.join(VERSIONS)}")
    return chosen


def measure_studies(
    chosen: Sequence[Study], processes: int = PROCESSES, new_run: bool = False, named: str = ""
) -> str:
    """Bring the current run of each study to its end on the GPU at hand, and return the GPU's folder name.

    `named` is that of the folder, which otherwise follows from the card.

    Raises: MeasureError, DataError.
    """
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(at_card(named))  # without a GPU its one process is all that begins
        folder, gpu = writer.card, writer.gpu
        chosen = sorted(chosen, key=lambda study: study.name != FIRST)
        runs = [StudyRun(study.on(gpu["sms"]), writer, new_run) for study in chosen]
        for run in runs:
            what = "everything is measured; --new-run measures it again" if run.complete else f"run {run.id}"
            print(f"[measure] study {run.study.name} on {gpu['name']}, folder {folder.name}: {what}", flush=True)
        runs = [run for run in runs if not run.complete]
        if not runs:
            return folder.name
        compile_each = stack.enter_context(compilers(gpu["target"]))
        crew = Crew(processes, stack)
        for run in runs:
            run.started = time.monotonic()
            crew.begin()
            left = run.unfinished(processes)
            loads = crew.load([pair for pair in left if loads_ahead(VERSIONS[pair[0]])])
            compile_each(compile_pair, to_compile(left))  # meanwhile: both leave cores idle at their ends
            for load in loads:
                with contextlib.suppress(MeasureError):
                    deque(load, maxlen=0)
            crew.check(run, run.unchecked())
            run.note_untimed()
            if run is runs[0]:
                describe(folder, gpu, crew.checker)
            crew.time(run)
            run.save(complete=True)
            print("\n".join(f"[measure] {line}" for line in summary(run)), flush=True)
    print(f"[measure] rows are in {folder}; to render them: make book GPU={folder.name}")
    return folder.name


def describe(folder: Any, gpu: Mapping[str, Any], worker: Worker) -> None:
    """Write what the card reaches at most to gpu.json; where that fails, say so and go on."""
    try:
        [(_, ceilings)] = worker.ask(survey)
        cards.describe(folder, gpu, ceilings)
    except MeasureError as error:
        print(f"[measure] the card's ceilings were not measured: {first_line(error)}", flush=True)


def summary(run: StudyRun) -> Iterator[str]:
    """How many pairs have which status and how many timings failed; a line for every pair and reason that failed."""
    checks, rows = run.verdicts(), [row for row in run.rows("timings") if row["timer"]]
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
    parser = argparse.ArgumentParser(prog="python -m analysis measure", description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="all", help=f"some of, separated by commas: {', '.join(STUDIES)}")
    parser.add_argument("--new-run", action="store_true", help="measure again although a run is complete")
    cards.add_options(parser)
    parser.add_argument("--checked", action="store_true", help="say nothing of what stands before measuring here")
    options = parser.parse_args(arguments)
    chosen = studies(options.study)
    if not options.checked and not preflight.passes([study.name for study in chosen]):
        return 1
    measure_studies(chosen, new_run=options.new_run, named=options.gpu)
    return 0
