"""Work of a measuring process on the GPU: identify it, check versions, time them. Each result is sent at once."""

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.reference import INPUTS
from kernels.runtime.gpu import GpuError, Program

from ..errors import MeasureError
from ..evidence.current import identity
from ..record.files import Row, problem_columns
from ..record.timers import timer_of
from ..studies import SOURCE_TIMER, Pair
from . import machine
from .card import Card, shape_of
from .slices import capped, caps
from .timing import is_enough, summarise

CARD = Card()
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"  # of the driver
MEMORY_ALLOCATION = 2  # the same of the runtime: cudaErrorMemoryAllocation
WARM_UP_S, SHORT_WARM_UP_S = 0.5, 0.1  # the clocks are up where another process has just ended its timings


class Trial(NamedTuple):
    """A version on a problem, the timers that it is still to be timed by, and the status of its check."""

    pair: Pair
    timers: tuple[str, ...]
    status: str


def row_of(pair: Pair, **values: Any) -> Row:
    name, problem = pair
    return {
        "version": name,
        **problem_columns(problem),
        **identity(name),
        "measured_at": machine.now(),
        **values,
    }


def in_shapes(pairs: Sequence[Pair]) -> list[Pair]:
    """Those on the same inputs, and on the same reference, one after the other."""
    return sorted(pairs, key=lambda pair: (dataclasses.astuple(shape_of(pair[1])), dataclasses.astuple(pair[1])))


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


def said(error: BaseException) -> str:
    """The first line of an error, after its type where the message alone may say nothing."""
    line = (str(error).splitlines() or [""])[0]
    return line if isinstance(error, RuntimeError) and line else f"{type(error).__name__}: {line}".rstrip(": ")


def failure(error: Exception, is_peer: bool = False) -> Row:
    """Status and reason of a measurement that `error` ended. What PyTorch raises for a peer is its refusal.

    Raises: Poisoned where the card does not answer any more.
    """
    error = error.with_traceback(None)  # which holds tensors
    lacks_memory = out_of_memory(error)
    if isinstance(error, Unsupported) and not lacks_memory:
        return {"status": error.status, "reason": str(error)}
    try:
        CARD.synchronize()
    except RuntimeError:
        raise Poisoned(said(error)) from error
    if lacks_memory:
        return {"status": "error", "reason": f"out of memory: {CARD.free_gb():.2f} GB are free: {said(error)}"}
    refusal = is_peer and isinstance(error, RuntimeError) and not isinstance(error, GpuError)
    return {"status": "unsupported" if refusal else "error", "reason": said(error)}


def load_all(pairs: Sequence[Pair], send: Connection) -> None:
    """Call each once, on no inputs: what PyTorch compiles of it is then loaded. The check says what fails."""
    for place, pair in enumerate(pairs):
        send.send(("begun", place))
        try:
            CARD.load(CARD.plan(pair))
        except Exception as error:
            failure(error)
    CARD.let_go()


def check(pair: Pair, kind: str) -> Row:
    """Columns of a check, or of what failed: run the version once on inputs of that kind, compare with float64."""
    try:
        plan = CARD.plan(pair)
        try:
            verdict = CARD.verdict(plan, kind)
        except Exception as error:
            if not out_of_memory(error):
                raise
            CARD.let_go()  # of the reference on other inputs
            verdict = CARD.verdict(plan, kind)
    except Exception as error:
        return failure(error, VERSIONS[pair[0]].is_peer)
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
        "relative_err": verdict.relative_err,
        "core": plan.core,
    }


def check_all(pairs: Sequence[Pair], send: Connection) -> None:
    """The rows of every pair, one for each kind of inputs."""
    for place, pair in enumerate(pairs):
        send.send(("begun", place))
        send.send(("checks", [row_of(pair, inputs=kind, **check(pair, kind)) for kind in INPUTS]))
    CARD.let_go()


def in_order(trials: Sequence[Trial], seed: str) -> list[Trial]:
    """The trials in an order that the seed decides, shape after shape: what is compared is timed side by side.

    In a shape the versions come in an order of their own, and the timers of each.
    """
    dice = random.Random(seed)
    mixed = [trial._replace(timers=tuple(dice.sample(trial.timers, len(trial.timers)))) for trial in trials]
    shapes: dict[Problem, list[Trial]] = {}
    for trial in dice.sample(mixed, len(mixed)):
        shapes.setdefault(shape_of(trial.pair[1]), []).append(trial)
    return [trial for shape in dice.sample(list(shapes), len(shapes)) for trial in shapes[shape]]


@dataclasses.dataclass
class Timed:
    """A trial by one of its timers: the samples so far, or the columns that say why there are none."""

    trial: Trial
    timer: str
    samples_us: list[float] = dataclasses.field(default_factory=list)
    failed: Row | None = None
    capped: Program | None = None  # with fewer blocks on an SM, made once

    @property
    def is_done(self) -> bool:
        return self.failed is not None or is_enough(self.samples_us, VERSIONS[self.trial.pair[0]].iterations)

    def take(self, program: Program) -> None:
        """Add samples, or note what failed."""
        try:
            how, chosen = timer_of(self.timer), program
            if how.base == "device_cold":
                chosen = CARD.program(program.plan, cold=True)
            elif how.cap:
                most = caps(how, *self.trial.pair, CARD.target)
                self.capped = self.capped or CARD.program(capped(program.plan, most, CARD.target))
                chosen = self.capped
            iterations, probed = VERSIONS[self.trial.pair[0]].iterations, bool(self.samples_us)
            self.samples_us += CARD.measure(chosen, self.timer, iterations, probed)
        except Exception as error:
            self.failed = failure(error)

    def row(self, process: int) -> Row:
        own = self.failed or {
            "status": self.trial.status, "sm_mhz": CARD.sm_mhz(), **summarise(self.samples_us)
        }  # fmt: skip
        return row_of(self.trial.pair, process=process, timer=self.timer, **own)


def time_all(trials: Sequence[Trial], process: int, send: Connection) -> None:
    """Rows of the trials, shape after shape in the order given, and why clocks were reduced behind each timing.

    What the source's harness takes drifts with the host. Its samples are taken in turns, there and back, so that a
    drift lengthens all by the same.
    """
    CARD.warm_up(WARM_UP_S if process == 1 else SHORT_WARM_UP_S)
    for _, shape in itertools.groupby(enumerate(trials), lambda placed: shape_of(placed[1].pair[1])):
        harness: list[tuple[int, Timed, Program]] = []
        for place, trial in shape:
            send.send(("begun", place))
            try:
                program = CARD.program(CARD.plan(trial.pair))
            except Exception as error:
                failed = failure(error)
                for timer in trial.timers:
                    send.send(("timings", Timed(trial, timer, failed=failed).row(process)))
                continue
            for timing in (Timed(trial, timer) for timer in trial.timers):
                if timer_of(timing.timer).base == SOURCE_TIMER:
                    harness.append((place, timing, program))
                    continue
                timing.take(program)
                send.send(("seen", CARD.throttle()))
                send.send(("timings", timing.row(process)))
        left = harness
        while left:
            for place, timing, program in left:
                send.send(("begun", place))
                timing.take(program)
                send.send(("seen", CARD.throttle()))
            left = [each for each in reversed(left) if not each[1].is_done]
        for _, timing, _ in harness:
            send.send(("timings", timing.row(process)))
    CARD.let_go()


def identify(send: Connection) -> None:
    send.send(("identity", CARD.identity()))


def survey(send: Connection) -> None:
    """The measured ceilings of the card."""
    send.send(("ceilings", CARD.ceilings()))
    CARD.let_go()
