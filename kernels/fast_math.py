"""Twins built with fast-math, of the versions where that changes the time by 5 % or more on some GPU.

The log does not record the flags of its builds, so every version is registered as written, with accurate functions,
and its twin shows what the published ratio would be in the other build.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .version import VERSIONS, Launch, Plan, Problem, register

SUFFIX = "_fast_math"
TWINS = (
    "attention_two_pass_float4",
    "sinusoidal_v3",
    "sinusoidal_v4",
    "sinusoidal_v5",
    "rope_v2",
    "rope_v3",
    "rope_v5",
    "fp16_minimal",
)


def planner(accurate: Callable[[Problem], Plan]) -> Callable[[Problem], Plan]:
    """What plans the same launches, of kernels built with fast-math."""

    def plan(problem: Problem) -> Plan:
        original = accurate(problem)
        steps = tuple(
            replace(step, kernel=replace(step.kernel, fast_math=True)) if isinstance(step, Launch) else step
            for step in original.steps
        )
        return replace(original, steps=steps)

    return plan


def register_twin(name: str) -> None:
    base = VERSIONS[name]
    plan = planner(base.plan)
    plan.__name__ = plan.__qualname__ = name + SUFFIX
    plan.__doc__ = base.plan.__doc__
    baseline = base.baseline
    register(
        family=base.family,
        title=f"{base.title}; fast-math",
        source=base.source,
        change="built with fast-math",
        parent=name,
        baseline=baseline + SUFFIX if baseline in TWINS else baseline,
        iterations=base.iterations,
    )(plan)


for _name in TWINS:
    register_twin(_name)
