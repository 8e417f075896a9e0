"""The front page: four findings of one number at most, and what became of the claims."""

import math
from collections import Counter

from ..claims import judge
from ..claims.rule import BETWEEN, FALLS, NOT_SUPPORTED, STANDS
from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..models.rivals import HYBRID
from ..models.waves import LOG_BLOCKS, SEPARATE, V7, places
from ..studies import MAIN, SLICES, THEIR_SMS
from . import Says, checks, exact, faster, finding, not_faster, numbers, of_values, printed, slower, ties, times
from .fuse import rule
from .loads import DIMS, FLOAT4, SCALAR, V5, own
from .rope import V1C
from .v8 import ROTATED, over
from .validation import LOG, ONLINE, by_their_test, share
from .wave import by_heads

SMALL, SEPARATE_V8 = (128, 512, 2048), "rope_separate_v8"


@finding("front-loads", """**[The sinusoidal 2x was four floats.](loads.html)** V5 is the authors' fifth fused version.
On as many SMs as they had, it takes {v5:slower} longer than separate kernels that also load four floats. By the
authors' own times it takes {own:slower} longer.""")
def loads(e: Evidence) -> Says:
    v5, scalar = e.speedup(V5, over=FLOAT4, hdim=DIMS), e.speedup(V5, over=SCALAR, study=SLICES, hdim=(512, 2048))
    theirs, there = own(V5, FLOAT4), e.speedup(V5, over=FLOAT4, study=SLICES, hdim=DIMS)
    return numbers(v5=there.at(MAIN.hdim), own=theirs.at(MAIN.hdim)), checks(
        slower(there), not_faster(v5), slower(v5.at(MAIN.hdim)), faster(scalar), slower(theirs.at(2048, 4096))
    )


@finding("front-wave", """**[V7 won by a wave.](wave.html)** On as many SMs as the authors' card has, their best RoPE
kernel is {v7:.1} as fast as separate kernels. They print the same. Its blocks need one round (a *wave*) fewer there.
With one head more or fewer it loses. On the whole card it loses at their shape, too.""")
def wave(e: Evidence) -> Says:
    v7 = e.under(THEIR_SMS).speedup(V7, over=SEPARATE, hdim=SMALL)
    said = of_values(v7.at(MAIN.hdim).within(0.1, printed(V7, hdim=(MAIN.hdim,))))
    fits = places(e, V7) >= LOG_BLOCKS > places(e, SEPARATE)
    return numbers(v7=times(v7.at(MAIN.hdim))), checks(
        faster(v7), said, slower(by_heads(e).at(3, 5)), fits, slower(e.speedup(V7, over=SEPARATE, hdim=SMALL))
    )


@finding("front-v8", """**[RoPE can be fused.](v8.html)** Our V8 does it. The same attention takes {fused:.1} as
long if separate kernels rotate Q and K. It takes {hybrid:faster} longer if one rotates K (*hybrid*). When
all dims are rotated, V8 is only level with the hybrid.""")
def v8(e: Evidence) -> Says:
    fused, hybrid = over(e, SEPARATE_V8, MAIN), over(e, HYBRID, MAIN)
    whole, level = over(e, SEPARATE_V8, ROTATED), over(e, HYBRID, ROTATED)
    return numbers(fused=times(fused), hybrid=hybrid), checks(
        faster(fused), faster(hybrid), faster(whole), of_values(ties(level)), fused[MAIN] > whole[ROTATED]
    )


@finding("front-checks", """**[The test cannot see NaN.](checks.html)** The recommended attention kernel returns mostly
NaN (not a number). The authors' test never counts a NaN, so at two of four head dims the kernel passes. At
the other two it fails for another fault: it counts {seen} of the outputs, which are about twice too large.""")
def nan(e: Evidence) -> Says:
    _, check = by_their_test(e)
    return numbers(seen=share(ONLINE, "counted", (MAIN.hdim,))), checks(e.nan_share(ONLINE, hdim=LOG) > 0.5, check)


@finding("front-verdicts", """Of the {claims} claims of the documents {right} are right, and {wrong} are wrong. Claims
of times are judged on *their SMs*. We call a printed number right if ours is within 10 %, and a cause if removing it
closes at least half of the gap. Another {rest} claims hold in direction, in part, or by one clock, or stay open. Of the
wrong ones {causes} name a cause that explains less than half of a gap.""")
def verdicts(e: Evidence) -> Says:
    given = Counter(tests[0]["verdict"] for tests in judge.recorded(e.record).values())
    right, wrong, between = (sum(given[word] for word in words) for words in (STANDS, FALLS, BETWEEN))
    total, causes = given.total(), given[NOT_SUPPORTED]
    shown = {"claims": total, "right": right, "wrong": wrong, "causes": causes, "rest": (rest := total - right - wrong)}
    return exact("verdicts", **shown), checks(between > 0.9 * rest, causes > 1)


@finding("front-you", """**[For you?](practice.html)** Fuse if your cache holds raw (unrotated) keys. In float32 also
fuse with {least} to {few} queries a head. Of {all} such shapes fusing lost at {lost}. With more queries it mostly gains
nothing. On an {card} we timed no fully fused kernel for prompts in half precision.""")
def you(e: Evidence) -> Says:
    return rule(e)


@finding("front-sure", """**[How sure?](method.html)** The light-blue bars repeat to within {slice}, the dark-blue
ones to within {alone}. Inputs were in the cache. The authors' card was not at hand. The shapes are theirs: few tokens,
huge heads.""")
def sure(e: Evidence) -> Says:
    pairs = ((V5, SCALAR), (V5, FLOAT4), (V7, SEPARATE), (V1C, SEPARATE))

    def known(at: Evidence, *more: Estimate) -> Estimates:
        bars = [at.speedup(name, over=base, hdim=MAIN.hdim)[MAIN.hdim] for name, base in pairs]
        bars = [bar for bar in (*bars, *more) if bar.known]
        if not bars:
            raise NotMeasured("no bar is measured")
        widest = math.ceil(100 * max(bar.high / bar.value - 1 for bar in bars)) / 100  # whole percent, rounded up
        return Estimates({MAIN: Estimate.count(widest, bars)}, "%")

    theirs, alone = known(e.under(THEIR_SMS)), known(e, over(e, SEPARATE_V8, MAIN)[MAIN])
    return numbers(slice=theirs, alone=alone), checks(alone < 0.1, theirs < 0.1)
