"""Times in a slice of the card, with no more blocks on an SM than asked: what a timer's name says after its base."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch

from kernels import Problem
from kernels.limits import LIMITS, capability
from kernels.runtime.slices import reached, sliced
from kernels.version import Launch, Plan, SharedLayout

from ..errors import MeasureError
from ..evidence.load import held
from ..record.timers import Timer, timer_of

FLOAT = 4  # bytes: shared memory is laid out in floats


@contextlib.contextmanager
def in_slice(sms: int, capture: Callable[..., Callable[[], None]], probed: bool = False) -> Iterator[torch.cuda.Stream]:
    """Work on a slice of `sms` SMs, whose stream is the current one; `capture(launch, stream)` returns a replay.
    `probed`: for more samples of a timing whose first was probed.

    Raises: Unsupported where there is no such slice; MeasureError where a probe, launched and in a graph, reaches
    another number of SMs.
    """
    with sliced(sms) as stream, torch.cuda.stream(stream):
        ways = {"launched": lambda probe: probe(), "in a graph": lambda probe: capture(probe, stream)()}
        for how, launch in () if probed else ways.items():
            if (found := reached(launch, sms)) != sms:
                raise MeasureError(f"a slice of {sms} SMs was asked for; a probe {how} reaches {found}")
        yield stream


def capped(plan: Plan, most: Mapping[int, int], target: str) -> Plan:
    """The plan with the shared memory of launches padded, so that an SM of `target` holds `most` blocks of each.

    `most` is by launch, from 0. Padding takes from the L1 cache, which shares the memory.
    """
    limits, steps, launch = LIMITS[capability(target)], [], 0
    for step in plan.steps:
        if isinstance(step, Launch):
            if launch in most:
                least = limits.shared_bytes // (most[launch] + 1) - limits.reserved_shared_bytes + FLOAT
                pad = -(-(least - step.shared_bytes) // FLOAT)
                if pad > 0:
                    step = replace(step, shared=SharedLayout(**step.shared.sizes, pad=pad))
            launch += 1
        steps.append(step)
    return replace(plan, steps=tuple(steps))


def caps(timer: Timer, version: str, problem: Problem, target: str) -> dict[int, int]:
    """The most blocks on an SM of each launch, from 0, that the timer caps: of a target, where it holds fewer of them
    than `target`, the card at hand.
    """
    here = held(version, problem, target)
    if timer.cap.isdigit():
        return dict.fromkeys(here, int(timer.cap))
    return {launch: most for launch, most in held(version, problem, timer.cap).items() if most < here.get(launch, most)}


def applies(timer: str, version: str, problem: Problem, target: str) -> bool:
    """Whether a timer measures something of its own: one that caps does where it changes a launch."""
    how = timer_of(timer)
    return not how.cap or bool(caps(how, version, problem, target))
