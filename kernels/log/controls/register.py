"""Controls: versions of the log in CUDA C++, as its authors wrote them, with the same launches as their Numba ports.

A control and its port differ in the language alone, that is, in the compiler that produces the PTX. A control follows
its port statement by statement: even `int tid` in place of a repeated threadIdx.x changes the registers of a loop. What
the port unrolls by hand or takes from helpers is plain C++ here: unroll pragmas, `int`, separate shared arrays.
"""

import re
from dataclasses import replace
from pathlib import Path

from ...version import VERSIONS, CudaFunction, Kernel, Launch
from ..ablations.ablate import derive

HERE = Path(__file__).parent


def text_of(file: str) -> str:
    """The text of a file in this folder, with the first `#include` of each file replaced by its text."""
    seen = set()

    def included(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return expanded(name)

    def expanded(name: str) -> str:
        text = (HERE / name).read_text(encoding="utf-8")
        return re.sub(r'^#include "(.+)"\n', included, text, flags=re.MULTILINE)

    return expanded(file)


def control(name: str, port: str, **files: str) -> None:
    """Register `name`: the launches of the version `port`. `files` gives the source file of each kernel, by kernel
    name.
    """
    functions = {kernel: CudaFunction(kernel, text_of(f"{file}.cu")) for kernel, file in files.items()}

    def in_cpp(launch: Launch) -> Launch:
        kernel = launch.kernel
        function = functions[kernel.name]
        return replace(launch, kernel=Kernel(function, kernel.signature, fast_math=kernel.fast_math))

    title = f"{VERSIONS[port].title}; CUDA C++"
    derive(name, port, in_cpp, title=title, change="in CUDA C++", baseline=port, control_of=port)


control("control_attention_baseline", "attention_baseline", attention="attention_baseline")
control("control_attention_online", "attention_online", attention="attention_online")
control(
    "control_sinusoidal_separate_float4",
    "sinusoidal_separate_float4",
    embed_tokens="embed_tokens",
    attention="sinusoidal_separate_float4",
)
control(
    "control_sinusoidal_hybrid_v1",
    "sinusoidal_hybrid_v1",
    embed_tokens="embed_tokens",
    attention="sinusoidal_hybrid_v1",
)
control("control_sinusoidal_v5", "sinusoidal_v5", attention="sinusoidal_v5")
control("control_rope_separate", "rope_separate", rotate_tokens="rotate_tokens", attention="attention_online_fixed")
control("control_rope_v1c", "rope_v1c", attention="rope_v1c")
control("control_rope_v3", "rope_v3", attention="rope_v3")
control("control_rope_v7", "rope_v7", rotate_tokens="rotate_tokens", attention="rope_v7")
control("control_fp16_phase4", "fp16_phase4", attention="fp16_phase4")
