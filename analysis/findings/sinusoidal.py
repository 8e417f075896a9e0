"""Sinusoidal embeddings."""

from __future__ import annotations

from ..evidence import Evidence
from . import Says, checks, faster, finding, not_faster, not_slower, numbers, slower, ties
from .common import across, printed

SCALAR, FLOAT4 = "sinusoidal_separate_scalar", "sinusoidal_separate_float4"
V1, V2, V3, V4, V5 = (f"sinusoidal_v{place}" for place in range(1, 6))
HYBRID, CONTROL = "sinusoidal_hybrid_v1", "control_sinusoidal_hybrid_v1"
PLAIN = "attention_online_fixed"
DIMS = (512, 2048, 4096, 8192)  # of the documents
UP_TO_4096, FROM_2048 = DIMS[:3], DIMS[1:]


@finding("sinusoidal-loads", """**Why the baseline decides: loads, not embeddings.** On an {card} separate kernels with
float4 loads are {unfused} as fast as scalar ones. Attention alone shows it: the corrected online kernel, which embeds
nothing, is {alone} as fast with float4 loads as with four scalar ones.""")
def loads(e: Evidence) -> Says:
    unfused = e.speedup(FLOAT4, over=SCALAR, hdim=DIMS)
    alone = e.speedup(PLAIN, over="attention_online_scalar", hdim=DIMS)
    return numbers(unfused=unfused, alone=alone), checks(faster(unfused), faster(alone))


@finding("sinusoidal-v1-why", """**Why V1 loses: the tables.** On an {card} it runs at {slow} the speed of the scalar
separate kernels (published: {published}). An ablation, whose result is wrong on purpose, keeps every addition and takes
the values from registers instead of tables: that closes {share} of the gap.""")
def v1_why(e: Evidence) -> Says:
    slow, share = e.speedup(V1, over=SCALAR, hdim=DIMS), e.share_closed(V1, f"{V1}_registers", SCALAR, hdim=DIMS)
    return numbers(slow=slow, published=printed(V1), share=share), checks(slower(slow), share > 0.8)


@finding("sinusoidal-v2-why", """**Why V2 is not enough: still the tables.** On an {card} it is {over_v1} as fast as V1
and runs at {slow} the speed of float4 separate kernels, whose dot product makes two loads where V2 makes six. V5,
further down, loads as V2 does and computes what the tables hold: it is {computed} as fast as V2.""")
def v2_why(e: Evidence) -> Says:
    over_v1, slow = (e.speedup(V2, over=base, hdim=DIMS) for base in (V1, FLOAT4))
    computed = e.speedup(V5, over=V2, hdim=DIMS)
    return numbers(over_v1=over_v1, slow=slow, computed=computed), checks(
        faster(over_v1), slower(slow), faster(computed)
    )


@finding("sinusoidal-build", """**V3 beats V1 only when it is built with fast-math.** With accurate functions V3 runs at
{slow} the speed of V1 on an {card}. With fast-math it is {quick} as fast at head dims 512 to 4096 (published:
{over_v1}).""")
def build(e: Evidence) -> Says:
    slow = e.speedup(V3, over=V1, hdim=DIMS)
    quick = e.speedup(f"{V3}_fast_math", over=V1, hdim=UP_TO_4096)
    return numbers(slow=slow, quick=quick, over_v1=printed(V3, V1)), checks(slower(slow), faster(quick))


@finding("sinusoidal-build-separate", """At the published shapes scalar separate kernels stay ahead of both builds: V3
runs at {accurate} their speed, {fast} with fast-math (published, up to 4096: {published}). With more work the fast-math
build catches up with them at 512 and 2048: {loaded} at the matched load, {full} on a full card.""")
def build_separate(e: Evidence) -> Says:
    accurate, fast = (e.speedup(name, over=SCALAR, hdim=DIMS) for name in (V3, f"{V3}_fast_math"))
    loaded, full = (
        e.speedup(f"{V3}_fast_math", over=SCALAR, study=study, hdim=(512, 2048)) for study in ("matched", "filled")
    )
    return numbers(accurate=accurate, fast=fast, published=printed(V3), loaded=loaded, full=full), checks(
        slower(accurate), slower(fast), not_slower(loaded), ties(full)
    )


@finding("sinusoidal-v4-why", """**Why V4 is not enough: it loads one float at a time.** With accurate functions V4 is
{accurate} as fast as V3 on an {card}, and {fast} with fast-math, where a power is a few instructions. At the published
shapes kernels with float4 loads stay ahead of both builds, which run at {slow} and {vector} their speed.""")
def v4_why(e: Evidence) -> Says:
    accurate = e.speedup(V4, over=V3, hdim=DIMS)
    fast = e.speedup(f"{V4}_fast_math", over=f"{V3}_fast_math", hdim=DIMS)
    slow, vector = (e.speedup(name, over=FLOAT4, hdim=DIMS) for name in (V4, f"{V4}_fast_math"))
    return numbers(accurate=accurate, fast=fast, slow=slow, vector=vector), checks(
        faster(accurate), faster(fast), slower(slow), slower(vector)
    )


@finding("sinusoidal-v4-full", """On a full card the fast-math build is at {full} the speed of that of V3, and at
{level} that of scalar separate kernels, which make the same loads.""")
def v4_full(e: Evidence) -> Says:
    full, level = (
        e.speedup(f"{V4}_fast_math", over=other, study="filled") for other in (f"{V3}_fast_math", SCALAR)
    )
    return numbers(full=full, level=level), checks(*(each > 0.95 for each in (full, level)), full < 1.05, level < 1.05)


@finding("sinusoidal-v5-gain", """**Why V5 beats the scalar baseline: it does not load scalars.** On an {card} its loads
and its fast functions together make it {over_v4} as fast as V4; V4 built with fast-math has the same sines and cosines,
and V5 is {loads} as fast as that. Fast-math affects other operations too: with it V5 is {fast} as fast as without.""")
def v5_gain(e: Evidence) -> Says:
    over_v4, over_fast = (e.speedup(V5, over=name, hdim=DIMS) for name in (V4, f"{V4}_fast_math"))
    fast = e.speedup(f"{V5}_fast_math", over=V5, hdim=DIMS)
    return numbers(over_v4=over_v4, loads=over_fast, fast=fast), checks(
        faster(over_v4), faster(over_fast), faster(fast)
    )


@finding("sinusoidal-v5-why", """**Why V5 does not beat the float4 baseline: it embeds each key again for every query.**
V5 runs at {device} the speed of float4 separate kernels on an {card}, and at {full} on a full card. With K embedded
once, by a kernel of its own, {share} of the gap closes (above 100 % it is faster than they are), and it runs at {once}
their speed; but that is no longer full fusion.""")
def v5_why(e: Evidence) -> Says:
    device = e.speedup(V5, over=FLOAT4, hdim=DIMS)
    full = e.speedup(V5, over=FLOAT4, study="filled")
    once = e.speedup(f"{V5}_k_embedded", over=FLOAT4, hdim=DIMS)
    share = e.share_closed(V5, f"{V5}_k_embedded", FLOAT4, hdim=DIMS)
    return numbers(device=device, full=full, share=share, once=once), checks(
        slower(device), not_faster(full), slower(full.at(512, 2048)), share > 0.5
    )


@finding("sinusoidal-v5-fast-math", """V5 itself, built with fast-math, runs at {fast} the speed of float4 separate
kernels, and is ahead at head dim 512 alone.""")
def v5_fast_math(e: Evidence) -> Says:
    fast = e.speedup(f"{V5}_fast_math", over=FLOAT4, hdim=DIMS)
    return numbers(fast=fast), checks(faster(fast.at(512)), not_faster(fast.at(*FROM_2048)))


@finding("sinusoidal-v5-timed", """**As timed, V5 looks better: it is launched once and never waited for.** When the
three launches and the wait of float4 separate kernels are timed too, V5 is {small} as fast as they are at head dim 512
on an {card}, but {large} at 8192. On the device it runs at {device} at 512.""")
def v5_timed(e: Evidence) -> Says:
    timed = e.speedup(V5, over=FLOAT4, timer="launched", hdim=(512, 8192))
    device = e.speedup(V5, over=FLOAT4, hdim=512)
    return numbers(small=timed.at(512), large=timed.at(8192), device=device), checks(
        faster(timed.at(512)), slower(timed.at(8192)), slower(device), timed.at(512) > device
    )


@finding("sinusoidal-hybrid-why", """**Why it wins here: another loop, not fusion.** On an {card} it is {gain} as fast
as separate kernels (published: {published}). Fusion can save no more than the embedding, but from head dim 2048 on the
hybrid is {plain} as fast as attention with no embedding at all (the corrected online kernel).""")
def hybrid_why(e: Evidence) -> Says:
    gain, plain = e.speedup(HYBRID, over=FLOAT4, hdim=DIMS), across(e, HYBRID, PLAIN, hdim=FROM_2048)
    return numbers(gain=gain, published=printed(HYBRID), plain=plain), checks(faster(gain), faster(plain))


@finding("sinusoidal-hybrid-loop", """That excess comes from its loop over dims, which is unrolled by four and reads the
query from shared memory. Separate kernels are unrolled by four as well, but read the query from global memory. A copy
of the hybrid in CUDA C++, unrolled by two, fuses just as much but loses {share} of the lead over separate kernels.""")
def hybrid_loop(e: Evidence) -> Says:
    names = (CONTROL, f"{CONTROL}_unroll_2", "control_sinusoidal_separate_float4")
    share = e.share_closed(*names, study="ablation", hdim=DIMS)
    lead = e.speedup(CONTROL, over=names[2], study="ablation", hdim=DIMS)
    return numbers(share=share), checks(faster(lead), share > 0.5)


@finding("sinusoidal-hybrid-v2-why", """**Why the lead is gone: it embeds the query again for every key.** On an {card}
it runs at {over_v1} the speed of the hybrid V1, which embeds the query once and keeps it in shared memory. That leaves
{slow} the speed of separate kernels (published: {published}); at head dim 8192 it is slower than they are.""")
def hybrid_v2_why(e: Evidence) -> Says:
    slow, over_v1 = (e.speedup("sinusoidal_hybrid_v2", over=base, hdim=DIMS) for base in (FLOAT4, HYBRID))
    ahead = e.speedup(HYBRID, over=FLOAT4, hdim=DIMS)
    return numbers(over_v1=over_v1, slow=slow, published=printed("sinusoidal_hybrid_v2")), checks(
        slower(over_v1), faster(ahead), slow < 1.05, slower(slow.at(8192))
    )
