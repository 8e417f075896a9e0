"""The front page: four findings of one number at most, and what became of the claims."""

import math

from ..claims import judge
from ..claims.rule import FALLS, STANDS
from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..models.rivals import HYBRID
from ..models.waves import LOG_BLOCKS, SEPARATE, V7, places
from ..studies import MAIN, THEIR_CLOCK, THEIR_SMS
from . import Says, checks, exact, faster, finding, not_faster, numbers, of_values, printed, slower, ties, times
from .fuse import rule
from .loads import FLOAT4, SCALAR, V5, own
from .rope import V1C
from .v8 import HEADS, ROTATED, filled, over
from .validation import LOG, ONLINE, SEVERAL, by_their_test, share
from .wave import by_heads

SMALL, SEPARATE_V8 = (128, 512, 2048), "rope_separate_v8"


@finding("front-loads", """**[The sinusoidal 2x was four floats.](loads.html)** On as many SMs as the authors had, and
by their clock, their fused V5 is {scalar:.2} as fast as separate kernels that load one float at a time. Against
kernels that load four floats, as V5 does, nothing is left: at head dim {hdim} V5 is {v5:.2} as fast, and {own:.2} by
the authors' own times.""")
def loads(e: Evidence) -> Says:
    clock, hdim = e.under(THEIR_CLOCK), MAIN.hdim
    v5, scalar = (clock.speedup(V5, over=over, hdim=hdim) for over in (FLOAT4, SCALAR))
    theirs = own(V5, FLOAT4)
    given = {"scalar": scalar, "v5": v5, "own": theirs.at(hdim)}
    return numbers(hdim=hdim, **{name: times(gain) for name, gain in given.items()}), checks(
        faster(scalar), not_faster(v5), slower(theirs.at(2048, 4096)),
        slower(e.under(THEIR_SMS).speedup(V5, over=FLOAT4, hdim=hdim)), slower(e.speedup(V5, over=FLOAT4, hdim=hdim)),
    )  # fmt: skip


@finding("front-wave", """**[V7 won by a wave.](wave.html)** On as many SMs and by their clock, their best RoPE kernel
is {clock:.2} as fast as separate kernels, where they print {said:.2}. Its blocks all run at once, and those of
separate kernels need a second round (a *wave*). By the GPU alone V7 is {alone:.2} as fast there, and loses with one
head more or fewer. On the whole card it loses with their four heads.""")
def wave(e: Evidence) -> Says:
    v7, clock = (e.under(name).speedup(V7, over=SEPARATE, hdim=SMALL) for name in (THEIR_SMS, THEIR_CLOCK))
    said = printed(V7, hdim=(MAIN.hdim,))
    near = of_values(clock.at(MAIN.hdim).within(0.1, said))
    fits = places(e, V7) >= LOG_BLOCKS > places(e, SEPARATE)
    return numbers(alone=times(v7.at(MAIN.hdim)), clock=times(clock.at(MAIN.hdim)), said=times(said)), checks(
        faster(v7), faster(clock), near, fits, slower(by_heads(e).at(3, 5)),
        slower(e.speedup(V7, over=SEPARATE, hdim=SMALL)),
    )  # fmt: skip


@finding("front-v8", """**[RoPE can be fused.](v8.html)** Our V8 rotates Q and K inside. At their shape, with 128 of
2,048 dims rotated, it is {hybrid:.2} as fast as its own attention with K alone rotated in front (a *hybrid*). With all
dims rotated the two are level. With {heads} heads V8 is faster either way: with all dims rotated {all:.2}.""")
def v8(e: Evidence) -> Says:
    hybrid, level = over(e, HYBRID, MAIN), over(e, HYBRID, ROTATED)
    more, whole = (over(e, HYBRID, filled(problem)) for problem in (MAIN, ROTATED))
    return numbers(hybrid=times(hybrid), all=times(whole), **exact("beyond", heads=HEADS)), checks(
        faster(hybrid), of_values(ties(level)), faster(more), faster(whole),
        more[filled(MAIN)] > hybrid[MAIN], whole[filled(ROTATED)] > level[ROTATED],
        faster(over(e, SEPARATE_V8, MAIN, ROTATED)), (MAIN.rotary_dim, MAIN.hdim) == (128, 2048),
    )  # fmt: skip


@finding("front-checks", """**[The test cannot see NaN.](checks.html)** The recommended attention kernel returns mostly
NaN (not a number), which the authors' test never counts. At two of four head dims the kernel passes. At the other two
it fails for another fault: an eighth of the outputs are about double, and the test counts half of these.""")
def nan(e: Evidence) -> Says:
    _, check = by_their_test(e)
    counted = share(ONLINE, "counted", SEVERAL)
    return numbers(), checks(e.nan_share(ONLINE, hdim=LOG) > 0.5, check, (8 * counted).within(0.6, 0.5))


@finding("front-verdicts", """Of the {claims} claims of the documents {right} are right, and {wrong} are wrong. Claims
of times are judged on *their SMs*. A printed ratio is right if ours is within 10 % of it by both clocks, and wrong
only if ours is 1 or on the other side of it.""")
def verdicts(e: Evidence) -> Says:
    heads = [tests[0] for tests in judge.recorded(e.record).values()]
    right, wrong = ([head for head in heads if head["verdict"] in words] for words in (STANDS, FALLS))
    return exact("verdicts", claims=len(heads), right=len(right), wrong=len(wrong)), checks(len(heads) > 0)


@finding("front-you", """**[For you?](practice.html)** If your cache holds rotated keys, little is left to fuse. If it
holds raw keys, fuse to decode. In float32 also fuse with {least} to {few} queries a head: fusing lost at {lost} of
{all} such shapes. With more queries it mostly gains nothing.""")
def you(e: Evidence) -> Says:
    return rule(e)


@finding("front-sure", """**[How sure?](method.html)** Bars by the authors' clock repeat to within {clock}, the others
to within {alone}. Their inputs were in the cache. The authors' card was not at hand. The shapes are theirs: few
tokens, huge heads.""")
def sure(e: Evidence) -> Says:
    pairs = ((V5, SCALAR), (V5, FLOAT4), (V7, SEPARATE), (V1C, SEPARATE))

    def known(at: Evidence, *more: Estimate) -> Estimates:
        bars = [at.speedup(name, over=base, hdim=MAIN.hdim)[MAIN.hdim] for name, base in pairs]
        bars = [bar for bar in (*bars, *more) if bar.known]
        if not bars:
            raise NotMeasured("no bar is measured")
        widest = math.ceil(100 * max(bar.high / bar.value - 1 for bar in bars)) / 100  # whole percent, rounded up
        return Estimates({MAIN: Estimate.count(widest, bars)}, "%")

    clock, theirs = (known(e.under(name)) for name in (THEIR_CLOCK, THEIR_SMS))
    alone = known(e, *over(e, HYBRID, MAIN).values())
    return numbers(clock=clock, alone=alone), checks(alone < 0.1, clock < 0.1, of_values(theirs < alone))
