"""Versions built with fast-math, where that changes the time by 5 % or more on some GPU.

The log does not record its compiler flags. So every version is registered with accurate functions, and these show what
the published ratio would be with fast-math.
"""

from collections.abc import Callable
from dataclasses import replace

from ..version import VERSIONS, Launch, Plan, Problem, register


def planner(accurate: Callable[[Problem], Plan]) -> Callable[[Problem], Plan]:
    """A planner of the same launches, with kernels built with fast-math."""

    def fast(launch: Launch) -> Launch:
        return replace(launch, kernel=replace(launch.kernel, fast_math=True))

    def plan(problem: Problem) -> Plan:
        return accurate(problem).with_launches(fast)

    return plan


def fast_math(name: str, base: str, baseline: str | None) -> None:
    """Register `name`: the version `base` built with fast-math, compared with `baseline`."""
    accurate = VERSIONS[base]
    plan = planner(accurate.plan)
    plan.__name__ = plan.__qualname__ = name
    plan.__doc__ = accurate.plan.__doc__
    register(
        family=accurate.family,
        title=f"{accurate.title}; fast-math",
        source=accurate.source,
        change="built with fast-math",
        parent=base,
        baseline=baseline,
        iterations=accurate.iterations,
        variant_of=base,
        fast_math=True,
        whole_rows=accurate.whole_rows,
        scalar_loads=accurate.scalar_loads,
        wrong_output=accurate.wrong_output,
    )(plan)


fast_math("attention_two_pass_float4_fast_math", "attention_two_pass_float4", "attention_baseline")
fast_math("sinusoidal_v3_fast_math", "sinusoidal_v3", "sinusoidal_separate_scalar")
fast_math("sinusoidal_v4_fast_math", "sinusoidal_v4", "sinusoidal_separate_scalar")
fast_math("sinusoidal_v5_fast_math", "sinusoidal_v5", "sinusoidal_separate_scalar")
fast_math("rope_v2_fast_math", "rope_v2", "rope_separate")
fast_math("rope_v3_fast_math", "rope_v3", "rope_separate")
fast_math("rope_v5_fast_math", "rope_v5", "rope_separate")
fast_math("fp16_minimal_fast_math", "fp16_minimal", None)
