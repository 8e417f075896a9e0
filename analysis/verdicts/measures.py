"""What several questions and chapters measure and `Facts` alone does not say. Expressions call these functions by name.

The first argument is the data of one GPU, which an expression leaves out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from kernels import VERSIONS, Problem
from kernels.checking.reference import attention, make_inputs

from ..measure.studies import partial_rope
from .facts import Facts

DRAM, L2 = (f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed" for unit in ("dram", "lts"))
L1 = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
SEPARATE = {"sinusoidal": "sinusoidal_separate_float4", "rope": "rope_separate"}
SCALAR = "sinusoidal_separate_scalar"
PARTIAL = ("rope_v6b", "rope_v7")  # published with partial rotation; the others rotate every dim


def rotary(version: str) -> dict[str, Any]:
    """What picks the problem of a version as it was published."""
    if VERSIONS[version].family != "rope":
        return {}
    return {"rotary": "partial" if VERSIONS[version].built_from in PARTIAL else "full"}


def embedded(facts: Facts, version: str, hdim: int) -> float:
    """How often a version embeds each element of Q and K, where once would do.

    RoPE by its rotations. Sinusoidal embeddings by the sines and cosines computed, one an element; where they come
    from tables by the additions beyond those of the separate kernels that load alike.
    """
    chosen = rotary(version)
    separate = SEPARATE[VERSIONS[version].family]
    if VERSIONS[version].family == "rope":
        done, once = (facts.count(each, "event.rotation", hdim, **chosen) for each in (version, separate))
        return done / once
    rows = facts.size(version, "seq_q", hdim) + facts.size(version, "seq_k", hdim)
    elements = facts.size(version, "heads", hdim) * rows * hdim
    computed = sum(facts.count(version, f"event.{each}", hdim) for each in ("sin", "cos", "sincos"))
    if computed:
        return computed / elements
    alike = SCALAR if version in ("sinusoidal_v1", SCALAR) else separate
    added = facts.count(version, "inst.fp32", hdim) - facts.count(alike, "inst.fp32", hdim)
    return 1 + added / elements


def memory_percent(facts: Facts, version: str, hdim: int, **chosen: Any) -> float:
    """What a version moves, of what DRAM or L2 can: the larger share, in per cent."""
    return max(facts.counter(version, counter, hdim, **chosen) for counter in (DRAM, L2))


def busiest_memory_percent(facts: Facts, version: str, hdim: int, **chosen: Any) -> float:
    """The same, with the data pipe of L1 and shared memory as well."""
    return max(memory_percent(facts, version, hdim, **chosen), facts.counter(version, L1, hdim, **chosen))


def fp32_percent(facts: Facts, version: str, hdim: int, **chosen: Any) -> Any:
    """The FLOP of a version's instructions a second, of what the FP32 units reach at most, in per cent."""
    done = 2 * facts.count(version, "inst.fma", hdim, **chosen) + facts.count(version, "inst.fp32", hdim, **chosen)
    return 100 * done / facts.us(version, hdim, **chosen) / 1e6 / facts.ceiling("fp32_tflops")


def forgotten_rope(facts: Facts, hdim: int, inputs: str) -> float:
    """How far V7's result would move if it rotated nothing: the largest difference, on inputs of that kind."""
    return _forgotten_rope(hdim, inputs)


@functools.cache
def _forgotten_rope(hdim: int, inputs: str) -> float:
    rope = partial_rope(1, 4, 64, hdim)
    plain = Problem("attention", 1, 4, seq_q=64, hdim=hdim)
    given = {name: torch.from_numpy(array).double() for name, array in make_inputs(rope, inputs).items()}
    return float((attention(rope, **given) - attention(plain, **given)).abs().max())


MEASURES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (embedded, memory_percent, busiest_memory_percent, fp32_percent, forgotten_rope)
}
