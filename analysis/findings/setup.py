"""The two clocks, and the two cards."""

from ..evidence import Evidence
from ..studies import AUTHORS_SMS, MAIN
from . import Says, checks, exact, faster, finding, not_faster, numbers, of_values, slower, times

SEPARATE, V7 = "rope_separate", "rope_v7"


@finding("setup-wait", """On the whole card, by the GPU alone, V7 is slower at every head dim. By the authors' clock it
is {v7:.1} as fast at head dim 128, as it saves a launch and a wait. At 512 it still wins. From 2048 on
it loses more time on the GPU than it saves by a launch and a wait.""")
def wait(e: Evidence) -> Says:
    device, timed = (e.speedup(V7, over=SEPARATE, timer=timer) for timer in ("device_warm", "launched"))
    return numbers(v7=times(timed.at(128))), checks(
        slower(device), faster(timed.at(128, 512)), of_values(not_faster(timed.at(2048, 4096, 8192)))
    )


@finding("setup-cards", """Blocks run on *streaming multiprocessors* (SMs). The authors' card, an RTX 4000 Ada, has
{theirs} of them, and our {card} has {ours}. Their shape has {blocks} blocks, one for each query of each head. That
fills their card and leaves more than half of ours empty.""")
def cards(e: Evidence) -> Says:
    blocks, sms = MAIN.heads * MAIN.seq_q, e.gpu["sms"]
    return exact("gpu.json", theirs=AUTHORS_SMS, ours=sms, blocks=blocks), checks(
        5 * AUTHORS_SMS < blocks, 2 * blocks < 5 * sms
    )
