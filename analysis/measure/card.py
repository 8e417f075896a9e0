"""The GPU at hand, as checks and timings ask of it. Tests put a made-up one in its place: `on_gpu.CARD`."""

import functools
from typing import Any

import numpy as np
import torch

from kernels import VERSIONS, Problem
from kernels.checking.reference import INPUTS, Reference, Verdict, compute_reference, make_inputs
from kernels.runtime.gpu import Program, device_target
from kernels.version import Plan

from ..record.files import Row
from ..studies import Pair
from . import machine
from .timing import cold_copies, measure

TIMED_INPUTS = "uniform"


def shape_of(problem: Problem) -> Problem:
    """The problem that says what the inputs are: those of one shape are the same in every family."""
    shape = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "hdim", "dtype")
    return Problem("attention", **{name: getattr(problem, name) for name in shape})


class Card:
    """torch's current GPU. `let_go` frees the inputs and references that it keeps, for the process that is next."""

    warm_up = staticmethod(machine.warm_up)
    throttle = staticmethod(machine.throttle)
    sm_mhz = staticmethod(machine.sm_mhz)
    measure = staticmethod(measure)
    synchronize = staticmethod(torch.cuda.synchronize)  # raises RuntimeError where it does not answer any more

    @property
    def target(self) -> str:
        return device_target()

    def identity(self) -> Row:
        """Card, software and machine, as run.json has them."""
        return {**machine.identity(), "target": self.target, **machine.environment()}

    def ceilings(self) -> dict[str, float]:
        machine.warm_up()
        return machine.ceilings()

    def free_gb(self) -> float:
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0] / 1e9

    def let_go(self) -> None:
        _reference.cache_clear()
        _inputs.cache_clear()
        torch.cuda.empty_cache()

    def plan(self, pair: Pair) -> Plan:
        """Raises: Unsupported."""
        return VERSIONS[pair[0]](pair[1], self.target)

    def load(self, plan: Plan) -> None:
        """Call it once, on no inputs."""
        Program(plan, {}).output()

    def verdict(self, plan: Plan, kind: str) -> Verdict:
        """Of its result on inputs of that kind, beside float64."""
        case = _reference(plan.problem, kind)
        return case.compare(Program(plan, case.given).output())

    def program(self, plan: Plan, cold: bool = False) -> Program:
        """On inputs for timing; `cold`: with as many sets of them as exceed the L2."""
        inputs = _inputs(shape_of(plan.problem))
        if not cold:
            return Program(plan, inputs)
        return Program(plan, inputs, cold_copies(plan, inputs, torch.cuda.get_device_properties(0).L2_cache_size))


@functools.lru_cache(maxsize=len(INPUTS))
def _reference(problem: Problem, kind: str) -> Reference:
    """As in `kernels.checking`, of which a card keeps only those of one problem."""
    return compute_reference(problem, _drawn(shape_of(problem), kind), "cuda")


@functools.lru_cache(maxsize=len(INPUTS))
def _drawn(shape: Problem, kind: str) -> dict[str, np.ndarray]:
    return make_inputs(shape, kind)


@functools.lru_cache(maxsize=1)
def _inputs(shape: Problem) -> dict[str, Any]:
    return {name: torch.from_numpy(x).cuda() for name, x in make_inputs(shape, TIMED_INPUTS).items()}
