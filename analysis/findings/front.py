"""The front page: three findings of one number each."""

from __future__ import annotations

from statistics import median

from ..evidence import Evidence
from ..measure.studies import MAIN
from ..models.waves import SEPARATE, V7, occupied, windows
from ..record.text import number
from . import Says, checks, faster, finding, not_faster, numbers, slower
from .common import times
from .loads import DIMS, FLOAT4, SCALAR, V5, own
from .v8 import HYBRID, over
from .v8 import SEPARATE as SEPARATE_V8

SMALL = (128, 512, 2048)


@finding(
    "front-loads",
    """**[The sinusoidal 2x was four floats.](loads.html)** Where the separate kernels have the same loads, the
fused one takes {v5:slower} longer. By the authors' own times it loses, too.""",
)
def loads(e: Evidence) -> Says:
    v5, scalar = e.speedup(V5, over=FLOAT4, hdim=DIMS), e.speedup(V5, over=SCALAR, study="matched", hdim=(512, 2048))
    return numbers(v5=v5.at(MAIN.hdim)), checks(
        not_faster(v5), slower(v5.at(MAIN.hdim)), faster(scalar), slower(own(V5, FLOAT4).at(2048, 4096))
    )


@finding(
    "front-wave",
    """**[RoPE's V7 won by a wave.](wave.html)** It is {v7:.1} as fast where only its own blocks all fit
at once; elsewhere it mostly loses. For the authors' card we cannot tell.""",
)
def wave(e: Evidence) -> Says:
    v7, (_, won, level) = e.speedup(V7, over=SEPARATE, study="matched", hdim=SMALL), windows(e)
    return numbers(v7=times(v7.at(MAIN.hdim))), checks(
        faster(v7), faster(won), slower(level.slowest), slower(e.speedup(V7, over=SEPARATE, hdim=SMALL)),
        occupied(e, V7, "matched", SMALL) < 1, occupied(e, SEPARATE, "matched", SMALL) > 1,
    )  # fmt: skip


@finding(
    "front-v8",
    """**[RoPE can be fused.](v8.html)** With the head dim split over a cluster of blocks it is {fused:.1} as fast
as separate kernels with the same attention.""",
)
def v8(e: Evidence) -> Says:
    fused, hybrid = (over(e, (MAIN,), (name,)) for name in (SEPARATE_V8, HYBRID))
    return numbers(fused=times(fused)), checks(faster(fused), faster(hybrid))


@finding(
    "front-sure",
    """**[How sure?](method.html)** Ratios like these, on the GPU alone, are known to within {half}. Not measured: the
authors' card. The float32 shapes are theirs, perhaps not yours.""",
)
def sure(e: Evidence) -> Says:
    gains = [e.speedup(name, over=base, hdim=DIMS) for name, base in ((V5, FLOAT4), (V5, SCALAR), (V7, SEPARATE))]
    half = 100 * median(one.high / one.value - 1 for gain in gains for one in gain.values() if one.known)
    return numbers(half=number(half, "%", 1)), checks(half < 3)
