"""The problem and its arithmetic."""

import math

from kernels import Problem

from ..evidence import Evidence
from ..measure.studies import MAIN
from ..record.text import number
from . import Says, checks, faster, finding, not_faster, numbers, of_values, slower
from .common import times

SEPARATE, V7 = "rope_separate", "rope_v7"


def megabytes(problem: Problem) -> float:
    """Q, K, V and the output in float32, each moved once."""
    return 8 * (math.prod(problem.q_shape) + math.prod(problem.kv_shape)) / 1e6


@finding("setup-floor", """At full speed the card could read every input of head dim 2048 from its memory, do all the
arithmetic and write the output in {floor}. The authors' separate kernels take {separate:.0f} times as long. Most of
that time they wait.""")
def floor(e: Evidence) -> Says:
    ceilings, taken = e.gpu["ceilings"], e.time(SEPARATE, problem=MAIN)[MAIN]
    least = 1e3 * megabytes(MAIN) / ceilings["read_gb_s"] + MAIN.flops / ceilings["fp32_tflops"] / 1e6
    return numbers(floor=number(least, "µs", 1), separate=taken.value / least), checks(taken > 4 * least)


@finding("setup-wait", """On the GPU alone V7 is slower at every head dim. By the authors' clock it is {v7:.1} as fast
at head dim 128, thanks to the saved wait. At 2048 that wait is too short for V7 to win.""")
def wait(e: Evidence) -> Says:
    device, timed = (e.speedup(V7, over=SEPARATE, timer=timer) for timer in ("device_warm", "launched"))
    return numbers(v7=times(timed.at(128))), checks(
        slower(device), faster(timed.at(128)), of_values(not_faster(timed.at(2048, 4096, 8192)))
    )
