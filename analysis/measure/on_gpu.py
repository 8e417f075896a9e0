"""What a measuring process does on the GPU: say which it is, check versions, time them. Each result is sent at once."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.reference import INPUTS, Reference, Verdict, compute_reference, make_inputs
from kernels.runtime.gpu import GpuError, Program, device_target, set_bytes
from kernels.version import Plan

from ..evidence.current import today
from ..record.files import problem_columns
from . import nvml
from .machine import ceilings, environment, identity, now, tensor_dtype, warm_up
from .studies import SOURCE_TIMER
from .timing import cold_copies, is_enough, measure, summarise
from .workers import MeasureError

TIMED_INPUTS = "uniform"
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"  # of the driver
MEMORY_ALLOCATION = 2  # the same of the runtime: cudaErrorMemoryAllocation
GB, MB = 1e9, 1e6
SIGN_OF_LIFE = 16  # calls: what nobody reads for long must fit a pipe
WARM_UP_S, SHORT_WARM_UP_S = 0.5, 0.1  # the clocks are up where another process has just ended its timings

Pair = tuple[str, Problem]
Task = tuple[str, Pair]  # a study and what it measures
Row = dict[str, Any]


class Trial(NamedTuple):
    """A version on a problem, the timers that it is still to be timed by, and the check that decides."""

    study: str
    pair: Pair
    timers: tuple[str, ...]
    checked: Row


def row_of(study_name: str, pair: Pair, **values: Any) -> Row:
    name, problem = pair
    return {
        "study": study_name,
        "version": name,
        **problem_columns(problem),
        "source_hash": today(name),
        "measured_at": now(),
        **values,
    }


def outcome(check: Row) -> Row:
    """The columns that a timing row takes over from the check that decides."""
    return {column: check[column] for column in ("status", "reason", "max_abs_err")}


def shape_of(problem: Problem) -> Problem:
    """The problem that says what the inputs are: those of one shape are the same in every family."""
    shape = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "hdim", "dtype")
    return Problem("attention", **{name: getattr(problem, name) for name in shape})


# ---------------------------------------------------------------- failures


class Poisoned(MeasureError):
    """After this error the process can do nothing more on the card: another one has to go on."""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised of: libraries wrap what a card says."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def out_of_memory(error: BaseException) -> bool:
    """Whether the card, or the host, had too little memory, whoever says so: PyTorch, the runtime or the driver."""
    return any(
        isinstance(each, (torch.OutOfMemoryError, MemoryError))
        or (isinstance(each, GpuError) and each.code == OUT_OF_MEMORY)
        or (isinstance(each, torch.AcceleratorError) and getattr(each, "error_code", None) == MEMORY_ALLOCATION)
        for each in _chain(error)
    )


def free_bytes() -> int:
    """What the card has free, with what PyTorch keeps of it for later."""
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def said(error: BaseException) -> str:
    """The first line of an error, after its type where the message alone may say nothing."""
    line = (str(error).splitlines() or [""])[0]
    return line if isinstance(error, RuntimeError) and line else f"{type(error).__name__}: {line}".rstrip(": ")


def size(nbytes: int) -> str:
    """`"2.00 GB"`, `"0.31 MB"`."""
    return f"{nbytes / GB:.2f} GB" if nbytes >= GB / 10 else f"{nbytes / MB:.2f} MB"


def failure(error: Exception, needed: int | None, is_peer: bool) -> dict[str, Any]:
    """Status and reason of a measurement that `error` ended.

    Where memory lacks it is an error, with the bytes that its buffers need, if these are known, and those free. What
    else PyTorch raises for a peer is its refusal.

    Raises: Poisoned where the card does not answer any more.
    """
    if isinstance(error, Unsupported) and not out_of_memory(error):
        return {"status": error.status, "reason": str(error)}
    _require_answer(error)
    if out_of_memory(error):
        needs = "more" if needed is None else f"{size(needed)} of buffers and what it computes with"
        free = size(free_bytes())
        torch.cuda.empty_cache()
        return {"status": "error", "reason": f"out of memory: needs {needs}, free {free}: {said(error)}"}
    refusal = is_peer and isinstance(error, RuntimeError) and not isinstance(error, GpuError)
    return {"status": "unsupported" if refusal else "error", "reason": said(error)}


def _require_answer(error: Exception) -> None:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        raise Poisoned(said(error)) from error


# ---------------------------------------------------------------- loading


def load_all(pairs: Sequence[Pair], send: Connection) -> None:
    """Call each once, on no inputs: what PyTorch compiles of it is then loaded. The check says what fails.

    Raises: Poisoned where the card does not answer any more.
    """
    for place, (name, problem) in enumerate(pairs):
        if place % SIGN_OF_LIFE == 0:
            send.send(("loaded", place))
        try:
            Program(VERSIONS[name](problem, device_target()), {}).output()
        except Exception as error:
            _failed(error, None)
    torch.cuda.empty_cache()


# ---------------------------------------------------------------- checking


@functools.lru_cache(maxsize=len(INPUTS))
def reference_of(problem: Problem, kind: str, device: str) -> Reference:
    """As in `kernels.checking`, of which a card keeps only those of one problem."""
    return compute_reference(problem, _drawn(shape_of(problem), kind), device)


@functools.lru_cache(maxsize=2 * len(INPUTS))  # of the shape at hand, and of the next
def _drawn(shape: Problem, kind: str) -> dict[str, np.ndarray]:
    return make_inputs(shape, kind)


def _verdict(plan: Plan, kind: str) -> Verdict:
    """How the output compares; where memory lacks, tried once more without the reference on other inputs."""
    try:
        case = reference_of(plan.problem, kind, "cuda")
        return case.compare(Program(plan, case.given).output())
    except Exception as error:
        if not out_of_memory(error):
            raise
    reference_of.cache_clear()
    torch.cuda.empty_cache()
    case = reference_of(plan.problem, kind, "cuda")
    return case.compare(Program(plan, case.given).output())


def check(pair: Pair, kind: str) -> dict[str, Any]:
    """Columns of a check: run the version once on inputs of that kind and compare with float64.

    Whatever fails is in the columns. Raises: Poisoned where the card does not answer any more.
    """
    name, problem = pair
    needed = None
    try:
        plan = VERSIONS[name](problem, device_target())
        needed = set_bytes(plan, {})
        verdict = _verdict(plan, kind)
    except Exception as error:
        return failure(error, needed, VERSIONS[name].is_peer)
    status, reason = verdict.status, plan.defect if verdict.status == "wrong" else ""
    races = [hazard.why for hazard in plan.hazards if hazard.kind == "race"]
    if status == "wrong" and plan.expected == "ok" and races:
        found = "a race shows" if verdict.beyond_rounding else "a race shows, or rounding"
        reason = f"{found}: {'; '.join(races)}"
    elif status != plan.expected and not plan.unspecified:
        status = "error"
        reason = (
            f"declared {plan.expected}, found {verdict.status}: max_abs_err {verdict.max_abs_err:.3g}, "
            f"allowed {verdict.allowed_abs_err:.3g}, NaN share {verdict.nan_share:.3g}"
        )
    return {
        "status": status,
        "reason": reason,
        "max_abs_err": verdict.max_abs_err,
        "allowed_abs_err": verdict.allowed_abs_err,
        "nan_share": verdict.nan_share,
        "core": plan.core,
    }


def in_shapes(tasks: Sequence[Task]) -> list[Task]:
    """Those on the same inputs, and on the same reference, one after the other."""

    def key(task: Task) -> tuple[Any, ...]:
        problem = task[1][1]
        return dataclasses.astuple(shape_of(problem)), dataclasses.astuple(problem)

    return sorted(tasks, key=key)


def check_all(tasks: list[Task], send: Connection) -> None:
    """A row for each kind of inputs of every task; inputs of the next shape are drawn while the card works."""
    shapes = list(dict.fromkeys(shape_of(problem) for _, (_, problem) in tasks))
    following = dict(itertools.pairwise(shapes))
    drawing: dict[Problem, list[Future[Any]]] = {}
    with ThreadPoolExecutor(1) as pool:
        for place, (study_name, pair) in enumerate(tasks):
            send.send(("begun", place))
            shape = shape_of(pair[1])
            for future in drawing.pop(shape, ()):
                future.exception()  # waits; what was raised is raised again by the check
            if (ahead := following.pop(shape, None)) is not None:
                drawing[ahead] = [pool.submit(_drawn, ahead, kind) for kind in INPUTS]
            for kind in INPUTS:
                send.send(("checks", row_of(study_name, pair, inputs=kind, **check(pair, kind))))
    _let_go()


def _let_go() -> None:
    """Leave the card's memory to the process that measures next."""
    reference_of.cache_clear()
    _drawn.cache_clear()
    _given.cache_clear()
    torch.cuda.empty_cache()


# ---------------------------------------------------------------- timing


@functools.lru_cache(maxsize=1)
def _given(shape: Problem) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(x).cuda() for name, x in make_inputs(shape, TIMED_INPUTS).items()}


def in_order(trials: Sequence[Trial], seed: str) -> list[Trial]:
    """The trials in an order that the seed decides, shape after shape: what is compared is timed side by side.

    In a shape the versions come in an order of their own, and the timers of each.
    """
    dice = random.Random(seed)
    shapes: dict[Problem, list[Trial]] = {}
    for trial in trials:
        shapes.setdefault(shape_of(trial.pair[1]), []).append(trial)
    mixed = [trial for shape in dice.sample(list(shapes), len(shapes)) for trial in _mixed(shapes[shape], dice)]
    return [trial._replace(timers=tuple(_mixed(trial.timers, dice))) for trial in mixed]


def _mixed(given: Sequence[Any], dice: random.Random) -> list[Any]:
    return dice.sample(given, len(given))


@dataclasses.dataclass
class Timed:
    """A trial by one of its timers: the samples so far, or the row that says why there are none."""

    trial: Trial
    timer: str
    needed: int | None = None  # bytes of buffers, where they are known
    samples_us: list[float] = dataclasses.field(default_factory=list)
    discarded: int = 0
    failed: Row | None = None

    @property
    def iterations(self) -> int:
        return VERSIONS[self.trial.pair[0]].iterations

    @property
    def is_done(self) -> bool:
        return self.failed is not None or is_enough(self.samples_us, self.iterations)

    def take(self, program: Program, watch: nvml.Watch) -> None:
        """Add samples, or note what failed. Raises: Poisoned where the card does not answer any more."""
        try:
            chosen = _cold(program.plan) if self.timer == "device_cold" else program
            fresh, discarded = watch.steady(functools.partial(measure, chosen, self.timer, self.iterations))
        except nvml.Throttled as error:
            self.failed = {"status": "error", "reason": str(error), "discarded": self.discarded + error.discarded}
        except Exception as error:
            self.failed = _failed(error, self.needed)
        else:
            self.samples_us += fresh
            self.discarded += discarded

    def row(self) -> Row:
        """The columns of a row of timings."""
        if self.failed is not None:
            return {"timer": self.timer, **self.failed}
        seen = {"timer": self.timer, "sm_mhz": nvml.sm_mhz(), "discarded": self.discarded}
        return {**seen, **outcome(self.trial.checked), **vars(summarise(self.samples_us))}


def _failed(error: Exception, needed: int | None) -> Row:
    """What was right in the check and fails now is an error; only a timer may still be refused."""
    return failure(error.with_traceback(None), needed, is_peer=False)  # a traceback holds tensors


def _cold(plan: Plan) -> Program:
    given = _given(shape_of(plan.problem))
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    return Program(plan, given, cold_copies(plan, given, l2_bytes))


def timed(shape: Sequence[Trial], watch: nvml.Watch, begin: Callable[[Trial], None]) -> Iterator[Timed]:
    """The trials of one shape, each by each of its timers; `begin` is told what is at work.

    What the source's harness takes drifts with the host. Its samples are taken in turns, there and back, so that a
    drift lengthens all by the same.

    Raises: Poisoned where the card does not answer any more.
    """
    harness: list[tuple[Timed, Program]] = []
    for trial in shape:
        begin(trial)
        (name, problem), needed = trial.pair, None
        try:
            plan = VERSIONS[name](problem, device_target())
            needed = set_bytes(plan, {})
            program = Program(plan, _given(shape_of(problem)))
        except Exception as error:
            failed = _failed(error, needed)
            yield from (Timed(trial, timer, failed=failed) for timer in trial.timers)
            continue
        for timer in trial.timers:
            timing = Timed(trial, timer, needed)
            if timing.timer == SOURCE_TIMER:
                harness.append((timing, program))
            else:
                timing.take(program, watch)
                yield timing
        watch.count()
    left = harness
    while left:
        for timing, program in left:
            begin(timing.trial)
            timing.take(program, watch)
        left = [pair for pair in reversed(left) if not pair[0].is_done]
    yield from (timing for timing, _ in harness)


def time_all(trials: list[Trial], process: int, ours: Sequence[int], send: Connection) -> None:
    """Rows of the trials, shape after shape in the order given; `ours` are the processes of this run, by id."""
    watch = nvml.Watch(ours)
    warm_up(WARM_UP_S if process == 1 else SHORT_WARM_UP_S)
    place = {trial.pair: place for place, trial in enumerate(trials)}
    for _, shape in itertools.groupby(trials, lambda trial: shape_of(trial.pair[1])):
        for timing in timed(list(shape), watch, lambda trial: send.send(("begun", place[trial.pair]))):
            trial = timing.trial
            send.send(("timings", row_of(trial.study, trial.pair, process=process, **timing.row())))
            send.send(("seen", watch.seen))
    _let_go()


# ---------------------------------------------------------------- the card


def identify(send: Connection) -> None:
    send.send(("identity", {**identity(), "target": device_target(), **environment()}))


def survey(send: Connection) -> None:
    """What goes to gpu.json: what the card is, and what it reaches at most."""
    warm_up()
    known = identity()
    dtype = tensor_dtype(int(known["compute_capability"].split(".")[0]))
    send.send(("gpu", {**known, "tensor_dtype": str(dtype).removeprefix("torch."), "ceilings": ceilings()}))
