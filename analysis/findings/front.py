"""The front page: what came of the published winners, and V8."""

from __future__ import annotations

from ..evidence import Evidence
from ..measure.studies import MAIN
from ..models.waves import as_many_there, occupied, windows
from ..record.text import number
from . import Says, checks, faster, finding, not_faster, numbers, slower
from .common import printed
from .rope import SEPARATE, SMALL, V7
from .sinusoidal import DIMS, FLOAT4, SCALAR, V5
from .v8 import over

V8_SEPARATE = "rope_separate_v8"
SMALL_US = 20.0  # µs, below which a time has a decimal


@finding("sinusoidal-baseline", """**Sinusoidal fusion's {most} came from a slow baseline.** On an {card}, fused
attention (sinusoidal V5) is up to {scalar} as fast as separate kernels that load one float at a time, and up to {busy}
where more heads give each SM (multiprocessor) as many blocks as on the authors' card.""")
def sinusoidal_baseline(e: Evidence) -> Says:
    scalar, busy = (e.speedup(V5, over=SCALAR, study=study, hdim=DIMS) for study in ("log", "matched"))
    most = number(max(printed(V5, SCALAR).values_known.values()), "×", 0)
    float4 = e.speedup(V5, over=FLOAT4, hdim=DIMS)
    return numbers(most=most, scalar=scalar.fastest, busy=busy.fastest), checks(
        faster(scalar.at(512, 2048)), faster(busy.at(512, 2048)), not_faster(float4)
    )


@finding("sinusoidal-baseline-float4", """Against kernels that load four, as V5 does, it is not faster at any of the
authors' shapes on the GPU alone, and takes up to {float4:slower} longer. (Built with fast-math, it is ahead at head dim
512 alone.)""")
def sinusoidal_float4(e: Evidence) -> Says:
    float4, fast = (e.speedup(f"{V5}{build}", over=FLOAT4, hdim=DIMS) for build in ("", "_fast_math"))
    return numbers(float4=float4.slowest), checks(
        not_faster(float4), slower(float4.slowest), faster(fast.at(512)), not_faster(fast.at(*DIMS[1:]))
    )


@finding("rope-device", """**RoPE's published winner, V7, wins by a wave of blocks.** At the authors' shapes, which fill
less than half of an {card}, V7 takes {hybrid:slower} longer than separate kernels on the GPU alone. With as many blocks
to an SM (multiprocessor) as on their card, its blocks fit at once and those of separate kernels do not: V7 is {loaded}
as fast up to head dim 2048 (they printed {said}).""")
def rope_device(e: Evidence) -> Says:
    hybrid, loaded = e.speedup(V7, over=SEPARATE), e.speedup(V7, over=SEPARATE, study="matched", hdim=SMALL)
    return numbers(hybrid=hybrid, loaded=loaded, said=printed(V7, hdim=SMALL)), checks(
        occupied(e, SEPARATE, hdim=SMALL) < 0.5,
        slower(hybrid),
        occupied(e, V7, "matched", SMALL) < 1,
        occupied(e, SEPARATE, "matched", SMALL) > 1,
        faster(loaded),
    )


@finding("rope-window", """This is a window, not a threshold: V7 wins at {window} heads of 64 queries, {won}; where both
need as many waves it is at {level}, and with 128 heads at {full}. In our build for the authors' card both need as many,
so whether a wave decided there is not known.""")
def rope_window(e: Evidence) -> Says:
    window, won, level = windows(e)
    full = e.speedup(V7, over=SEPARATE, study="filled", hdim=SMALL)
    return numbers(window=window, won=won, level=level, full=full), checks(
        faster(won), slower(level.slowest), level < 1.1, full > 1, full < 1.1, as_many_there(e)
    )


@finding("rope-others", """No other published RoPE kernel wins at these two loads; with 128 heads V3 does at head dim
512 if built with fast-math, {v3}.""")
def rope_others(e: Evidence) -> Says:
    v3 = e.speedup("rope_v3_fast_math", over=SEPARATE, study="filled", hdim=512)
    rest = [each for study in ("log", "matched") for name in e.study().versions("rope")
            if name not in (SEPARATE, V7) for each in [e.speedup(name, over=SEPARATE, study=study)]]
    return numbers(v3=v3), checks(faster(v3), *map(not_faster, rest))


@finding("rope-v8", """**RoPE can be fused completely.** Our V8 rotates each key once per tile of queries, not once per
query. With 4 heads of 64 tokens, head dim 2048 and 128 rotated dims it takes {v8} on an {card}; separate kernels take
{separate}, V7 {v7}, and PyTorch's fastest way {peer}.""")
def rope_v8(e: Evidence) -> Says:
    v8, separate, v7 = (e.time(name, study="beyond", problem=MAIN)[MAIN] for name in ("rope_v8", SEPARATE, V7))
    gain, over_peer = e.speedup("rope_v8", over=V7, study="beyond", problem=MAIN), over(e, (MAIN,))
    over_separate = e.speedup("rope_v8", over=SEPARATE, study="beyond", problem=MAIN)
    peer = v8.value * over_peer[MAIN].value
    return numbers(v8=us(v8.value), separate=us(separate.value), v7=us(v7.value), peer=us(peer)), checks(
        faster(gain), faster(over_separate), faster(over_peer)
    )


def us(taken: float) -> str:
    return number(taken, "µs", 0 if taken >= SMALL_US else 1)


@finding("rope-v8-core", """Most of the gain is a faster attention kernel: built on it, separate kernels take
{separate}. Fusing gives the rest, {fused}.""")
def rope_v8_core(e: Evidence) -> Says:
    separate = e.time(V8_SEPARATE, study="beyond", problem=MAIN)
    fused = e.speedup("rope_v8", over=V8_SEPARATE, study="beyond", problem=MAIN)
    core = e.speedup(V8_SEPARATE, over=SEPARATE, study="beyond", problem=MAIN)
    return numbers(separate=us(separate[MAIN].value), fused=fused), checks(faster(fused), core > fused)
