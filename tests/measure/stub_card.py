"""A made-up card for tests of runs and files: its identity, rows as a run on it writes them, and its processes."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from analysis.measure import workers
from analysis.measure.card import Card
from analysis.record.columns import SCHEMAS
from analysis.record.problems import problem_columns
from analysis.studies import Pair
from kernels import Problem

CARD: dict[str, Any] = {
    "name": "Made-up card", "slug": "made-up-card", "uuid": "GPU-aaaa1111-0000-0000-0000-000000000000",
    "compute_capability": "9.0", "sms": 2, "memory_bytes": 1 << 30, "l2_bytes": 1 << 20, "power_limit_w": 300,
    "target": "sm_90", "node": "n", "driver": "1", "cuda": "13", "python": "3.12", "numba": "0", "numba_cuda": "0",
    "torch": "2", "sm_mhz_max": 1, "commit": "c",
}  # fmt: skip
_VALUES = {"text": "x", "integer": 1, "number": 1.0, "flag": True}


def filled(schema: str, /, **values: Any) -> dict[str, Any]:
    """A row of a table with something in every cell."""
    return {**{column.name: _VALUES[column.kind] for column in SCHEMAS[schema]}, **values}


PROBLEM = problem_columns(Problem("attention", hdim=64))


def check_row(run: str, number: int, study: str = "log") -> dict[str, Any]:
    """The check of a run with that number, which stands in its error."""
    return filled("checks", **PROBLEM, run=run, study=study, max_abs_err=float(number))


@contextlib.contextmanager
def compilers(target: str) -> Iterator[Callable[..., None]]:
    """In the place of the processes that compile: everything is compiled."""
    yield lambda build, jobs: None


class Ends(BaseException):
    """A process hangs or dies, which no `except` in it sees; its parent says `error`."""

    def __init__(self, error: workers.MeasureError) -> None:
        super().__init__(str(error))
        self.error = error


class AtOnce(workers.Worker):
    """Does its work at once, in this process; what it sent before it failed arrives."""

    pids = itertools.count(1)
    doing = 0  # the made-up process that does something

    def begin(self) -> None:
        self.process = self.process or SimpleNamespace(pid=next(self.pids))

    def ask(self, work: Callable[..., None], *arguments: Any) -> Iterator[tuple[str, Any]]:
        self.begin()
        self.begun = None
        sent: list[tuple[str, Any]] = []
        failed = None
        AtOnce.doing = self.process.pid
        try:
            work(*arguments, SimpleNamespace(send=sent.append))
        except workers.MeasureError as error:
            failed = error
        except Ends as end:
            failed = end.error
        for kind, content in sent:
            if kind == "begun":
                self.begun = content
            else:
                yield kind, content
        if failed is not None:
            self.close()
            raise failed

    def close(self) -> None:
        self.process = None


def answer(work: Callable[..., None]) -> Any:
    [(_, content)] = AtOnce().ask(work)
    return content


IN_PLACE = SimpleNamespace(Worker=AtOnce, compilers=compilers, answer=answer)  # of analysis.measure.workers


class MadeUp(Card):
    """A made-up card: what it does in a check or a timing of a version is `does[version, step]`, an exception."""

    target = "sm_90"

    def __init__(self) -> None:
        self.does: dict[tuple[str, str], BaseException] = {}
        self.did: list[tuple[int, str, str]] = []  # process, step, version
        self.dead: set[int] = set()
        self.taken: list[tuple[str, str, Problem]] = []  # timer, version, problem
        self.us: Callable[[str], float] = lambda name: 2.0
        self.wrong = ""  # a version whose result is wrong

    def act(self, step: str, name: str) -> None:
        self.did.append((AtOnce.doing, step, name))
        error = self.does.get((name, step))
        if isinstance(error, torch.AcceleratorError):
            self.dead.add(AtOnce.doing)
        if error is not None:
            raise error

    def identity(self) -> dict[str, Any]:
        return dict(CARD)

    def ceilings(self) -> dict[str, float]:
        return {"read_gb_s": 100.0}

    def warm_up(self, seconds: float) -> None:
        pass

    def throttle(self) -> frozenset[str]:
        return frozenset()

    def sm_mhz(self) -> int:
        return 1500

    def synchronize(self) -> None:
        if AtOnce.doing in self.dead:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    def free_gb(self) -> float:
        return 0.5

    def let_go(self) -> None:
        pass

    def plan(self, pair: Pair) -> Any:
        self.act("plan", pair[0])
        said = {"expected": "ok", "unspecified": False, "defect": "", "core": f"of {self.target}", "hazards": ()}
        return SimpleNamespace(name=pair[0], problem=pair[1], **said)

    def load(self, plan: Any) -> None:
        pass

    def verdict(self, plan: Any, kind: str) -> Any:
        self.act("check", plan.name)
        numbers = {"max_abs_err": 1e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0, "relative_err": 1e-7}
        return SimpleNamespace(status="wrong" if plan.name == self.wrong else "ok", **numbers)

    def program(self, plan: Any, cold: bool = False) -> Any:
        if cold:
            self.act("copy", plan.name)
        return SimpleNamespace(name=plan.name, plan=plan)

    def measure(self, program: Any, timer: str, iterations: int, probed: bool) -> list[float]:
        self.act(timer, program.name)
        self.taken.append((timer, program.name, program.plan.problem))
        return [self.us(program.name)] if timer == "launched" else [1.0, 2.0, 3.0]
