"""The front page: three findings of one number each."""

from statistics import median

from ..evidence import Evidence
from ..measure.studies import MAIN
from ..models.waves import SEPARATE, V7, occupied, windows
from ..record.text import number
from . import Says, checks, faster, finding, not_faster, numbers, slower
from .common import times
from .loads import DIMS, FLOAT4, SCALAR, V5, own
from .v8 import FULL, HYBRID, over

SMALL, SEPARATE_V8 = (128, 512, 2048), "rope_separate_v8"


@finding("front-loads", """**[The sinusoidal 2x was four floats.](loads.html)** Where separate kernels load four floats
too, the fused V5 takes {v5:slower} longer. By the authors' times it is mostly slower, too.""")
def loads(e: Evidence) -> Says:
    v5, scalar = e.speedup(V5, over=FLOAT4, hdim=DIMS), e.speedup(V5, over=SCALAR, study="matched", hdim=(512, 2048))
    return numbers(v5=v5.at(MAIN.hdim)), checks(
        not_faster(v5),
        slower(v5.at(MAIN.hdim)),
        faster(scalar),
        slower(own(V5, FLOAT4).at(2048, 4096)),
    )


@finding(
    "front-wave",
    """**[On our cards V7 wins by a wave.](wave.html)** It wins clearly only where its blocks fit in fewer rounds,
or *waves*, than those of separate kernels. There it is up to {v7:.1} as fast.""",
)
def wave(e: Evidence) -> Says:
    v7, (_, won, level) = e.speedup(V7, over=SEPARATE, study="matched", hdim=SMALL), windows(e)
    return numbers(v7=times(won.fastest)), checks(
        faster(v7), faster(won), slower(level.slowest), level.fastest < won.slowest,
        slower(e.speedup(V7, over=SEPARATE, hdim=SMALL)),
        occupied(e, V7, "matched", SMALL) < 1, occupied(e, SEPARATE, "matched", SMALL) > 1,
    )  # fmt: skip


@finding("front-v8", """**[RoPE can be fused.](v8.html)** In V8, our kernel, blocks share a head. It is {fused:.1} as
fast as separate kernels with its attention. With all dims rotated it wins by less.""")
def v8(e: Evidence) -> Says:
    fused, hybrid = over(e, SEPARATE_V8, MAIN), over(e, HYBRID, MAIN)
    full = e.speedup(FULL, over=SEPARATE_V8, study="beyond", hdim=MAIN.hdim, heads=MAIN.heads, rotary="full")
    return numbers(fused=times(fused)), checks(
        faster(fused), faster(hybrid), faster(full), full.slowest < fused.slowest
    )


@finding("front-sure", """**[How sure?](method.html)** The ratios above are known to within {half}. Not measured: the
authors' card. The shapes are theirs: few tokens, huge heads.""")
def sure(e: Evidence) -> Says:
    gains = [e.speedup(name, over=base, hdim=DIMS) for name, base in ((V5, FLOAT4), (V5, SCALAR), (V7, SEPARATE))]
    half = 100 * median(one.high / one.value - 1 for gain in gains for one in gain.values() if one.known)
    return numbers(half=number(half, "%", 1)), checks(half < 3)
