"""Measures of several claims, questions and chapters that `Evidence` alone does not have."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kernels import Problem
from kernels.checking.reference import attention, make_inputs

from ..evidence import Estimate, Estimates, Evidence, maximum
from ..studies import partial_rope

DRAM, L2 = (f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed" for unit in ("dram", "lts"))
L1 = "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed"
BUSY = 60.0  # % of its peak at which a unit, and not latency, holds a kernel back: the rule of Nsight Compute
SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
ONLINE, FIXED, SEPARATE = "attention_online", "attention_online_fixed", "rope_separate"


def over(ask: Callable[..., Estimates], version: str, other: str, *what: str, **asked: Any) -> Estimates:
    """The answer of `ask` for a version, over that for another."""
    return ask(version, *what, **asked) / ask(other, *what, **asked)


def busiest_memory_percent(e: Evidence, version: str, **asked: Any) -> Estimates:
    """Throughput of DRAM, L2 or the data pipe of L1 and shared memory in per cent of its peak: the largest of them."""
    return maximum(*(e.counter(version, unit, **asked) for unit in (DRAM, L2, L1)))


def fp32_percent(e: Evidence, version: str, **asked: Any) -> Estimates:
    """The FLOP of a version's instructions a second, of what the FP32 units reach at most, in per cent."""
    done = 2 * e.count(version, "inst.fma", **asked) + e.count(version, "inst.fp32", **asked)
    return 100 * done / e.time(version, **asked) / 1e6 / e.ceiling("fp32_tflops")


@functools.cache
def forgotten_rope(hdims: tuple[int, ...], inputs: str, partial: bool = True) -> Estimates:
    """How far a result at the documents' shapes would move if nothing were rotated: the largest difference, on inputs
    of that kind, of dims as V7 rotates them (`partial`) or of all."""
    moved = {}
    for hdim in hdims:
        rope, plain = partial_rope(1, 4, 64, hdim), Problem("attention", 1, 4, seq_q=64, hdim=hdim)
        rope = rope if partial else replace(rope, rotary_dim=hdim)
        given = {name: torch.from_numpy(array).double() for name, array in make_inputs(rope, inputs).items()}
        moved[hdim] = Estimate.exact(float((attention(rope, **given) - attention(plain, **given)).abs().max()))
    return Estimates(moved)
