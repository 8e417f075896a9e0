"""The two clocks."""

from ..evidence import Evidence
from . import Says, checks, faster, finding, not_faster, numbers, of_values, slower, times

SEPARATE, V7 = "rope_separate", "rope_v7"


@finding("setup-wait", """On the GPU alone V7 is slower at every head dim. By the authors' clock it is {v7:.1} as fast
at head dim 128, and {middle:.1} at 512, as it saves a launch and a wait. From 2048 on these do not make up for what V7
loses on the GPU.""")
def wait(e: Evidence) -> Says:
    device, timed = (e.speedup(V7, over=SEPARATE, timer=timer) for timer in ("device_warm", "launched"))
    return numbers(v7=times(timed.at(128)), middle=times(timed.at(512))), checks(
        slower(device), faster(timed.at(128, 512)), of_values(not_faster(timed.at(2048, 4096, 8192)))
    )
