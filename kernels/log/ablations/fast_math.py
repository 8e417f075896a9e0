"""Versions built with fast-math, where that changes the time by 5 % or more on some GPU.

The log does not record its compiler flags. So every version is registered with accurate functions, and these show what
the published ratio would be with fast-math.
"""

from dataclasses import replace

from ...version import VERSIONS, Launch
from .ablate import derive


def faster(launch: Launch) -> Launch:
    return replace(launch, kernel=replace(launch.kernel, fast_math=True))


def fast_math(base: str, baseline: str | None) -> None:
    """Register the version `base` built with fast-math, compared with `baseline`."""
    derive(
        f"{base}_fast_math",
        base,
        faster,
        title=f"{VERSIONS[base].title}; fast-math",
        change="built with fast-math",
        parent=base,
        baseline=baseline,
        variant_of=base,
        fast_math=True,
        accurate_sines=False,
    )


fast_math("attention_two_pass_float4", "attention_baseline")
fast_math("sinusoidal_v3", "sinusoidal_separate_scalar")
fast_math("sinusoidal_v4", "sinusoidal_separate_scalar")
fast_math("sinusoidal_v5", "sinusoidal_separate_scalar")
fast_math("rope_v2", "rope_separate")
fast_math("rope_v3", "rope_separate")
fast_math("rope_v5", "rope_separate")
fast_math("fp16_minimal", None)
