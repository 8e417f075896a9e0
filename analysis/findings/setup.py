"""The problem and its arithmetic."""

from __future__ import annotations

import math

from kernels import Problem

from ..evidence import Evidence
from ..measure.studies import MAIN
from ..record.text import number
from . import Says, checks, faster, finding, not_faster, numbers, slower

SEPARATE, V7 = "rope_separate", "rope_v7"
FLOAT_BYTES = 4


def megabytes(problem: Problem) -> float:
    """Q, K, V and the output, each moved once."""
    return 2 * FLOAT_BYTES * (math.prod(problem.q_shape) + math.prod(problem.kv_shape)) / 1e6


@finding("setup-floor", """At head dim 2048 an {card} could move every byte of inputs and output from or to DRAM once in
{bytes_us} and do all multiply-adds in {flops_us}. The log's separate kernels take {separate:.0f} times as long as both
together. So neither traffic with DRAM nor arithmetic takes most of the time.""")
def floor(e: Evidence) -> Says:
    ceilings, taken = e.gpu["ceilings"], e.time(SEPARATE, problem=MAIN)[MAIN]
    moving = 1e3 * megabytes(MAIN) / ceilings["read_gb_s"]
    computing = MAIN.flops / ceilings["fp32_tflops"] / 1e6
    return numbers(
        bytes_us=number(moving, "µs", 1), flops_us=number(computing, "µs", 1),
        separate=taken.value / (moving + computing),
    ), checks(taken > 4 * (moving + computing))  # fmt: skip


@finding("setup-wait", """At the published shapes V7's kernels take longer on an {card}: it takes {device:slower} longer
on the GPU alone. The wait that it saves outweighs this at head dim 128: as timed, V7 is {small} as fast at 128,
{middle} at 512, {near} at 2048 and {large} at 4096 and 8192.""")
def wait(e: Evidence) -> Says:
    device, timed = (e.speedup(V7, over=SEPARATE, timer=timer) for timer in ("device_warm", "launched"))
    return numbers(
        device=device, small=timed.at(128), middle=timed.at(512), near=timed.at(2048), large=timed.at(4096, 8192)
    ), checks(slower(device), faster(timed.at(128)), not_faster(timed.at(2048)), slower(timed.at(4096, 8192)))
