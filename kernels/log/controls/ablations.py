"""Controls with one thing changed: how many steps of the dot product, and so how many loads, are in flight at a time.

Only C++ has unroll pragmas, so these ablations change the controls and not the ports.
"""

from dataclasses import replace
from typing import Any

from ...version import CudaFunction, Launch
from ..ablations.ablate import derive, patched


def ablate_control(name: str, parent: str, diff: str, **fields: Any) -> None:
    """Register `name`: the control `parent` with a diff of its attention kernel."""

    def edited(launch: Launch) -> Launch:
        function = launch.kernel.function
        assert isinstance(function, CudaFunction)
        if function.name != "attention":
            return launch
        text = patched(function.text, diff)
        return replace(launch, kernel=replace(launch.kernel, function=replace(function, text=text)))

    derive(name, parent, edited, parent=parent, ablation=True, **fields)


ablate_control(
    "control_rope_v7_no_break",
    "control_rope_v7",
    baseline="control_rope_separate",
    title="V7 in CUDA C++ without its break",
    change="no bounds test with a break in the dot product, so that the compiler may unroll it",
    diff="""
        - if (dim + 3 >= hdim)
        -     break;
    """,
)
ablate_control(
    "control_sinusoidal_hybrid_v1_unroll_2",
    "control_sinusoidal_hybrid_v1",
    baseline="control_sinusoidal_separate_float4",
    title="Hybrid V1 in CUDA C++, unrolled by 2",
    change="the dot product is unrolled by 2, where it is unrolled by 4",
    diff="""
        - #pragma unroll 4
        + #pragma unroll 2
    """,
)
