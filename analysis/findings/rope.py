"""The steps of RoPE: why each gains or loses. Numbers are of head dim 2048."""

from dataclasses import replace

from ..evidence import Evidence, NotMeasured
from ..evidence.compare import faster, not_faster, not_slower, slower, ties
from ..studies import FUSIONS, MAIN, SLICES, THEIR_SMS
from . import Says, across, checks, exact, finding, numbers, of_values, times

SEPARATE = "rope_separate"
V1C, V2, V3, V4, V5, V6A, V6B, V7 = (f"rope_v{name}" for name in ("1c", "2", "3", "4", "5", "6a", "6b", "7"))
HDIM = 2048
SMALL = (128, 512, HDIM)  # head dims with four heads of 64 tokens


@finding("rope-separate", """A token's position is its index among all tokens, modulo 64. That is right for 64 tokens
a head, and wrong at head dim 4096, where heads are shorter: the second head reads past the tables.""")
def separate(e: Evidence) -> Says:
    wrong, right = (e.status(SEPARATE, word, hdim=dims) for word, dims in (("wrong", 4096), ("ok", SMALL)))
    return numbers(), checks(wrong > 0.5, right > 0.5)


@finding("rope-v1", """The tables cost it, not the rotations: with every rotation kept and the angles taken from
registers, which gives a wrong result on purpose, V1c is no slower than separate kernels.""")
def v1(e: Evidence) -> Says:
    slow, without = e.speedup(V1C, over=SEPARATE), e.speedup(f"{V1C}_no_tables", over=SEPARATE)
    return numbers(), checks(slower(slow), not_slower(without))


@finding("rope-v2", """It gives up V1c's float4 loads. Its angles cost less than tables: a copy of V2 with float4
loads is {float4:.2} as fast as V1c. Built with fast-math V2 is {fast:.1} as fast as V1c, and still slower than separate
kernels.""")
def v2(e: Evidence) -> Says:
    small, float4 = e.speedup(V2, over=V1C, hdim=SMALL), e.speedup(f"{V2}_float4", over=V1C, hdim=SMALL)
    fast, over = (e.speedup(f"{V2}_fast_math", over=other) for other in (V1C, SEPARATE))
    return numbers(fast=times(fast.at(HDIM)), float4=times(float4.at(HDIM))), checks(
        slower(small), faster(float4), faster(fast), slower(over)
    )


@finding("rope-v3", """Its 64 blocks cannot fill the {sms} SMs of the card. On *their SMs* it overtakes V2, and is
{loaded:.1} as fast. Beside separate kernels it is still only {theirs:.2} as fast there, for it rotates each key
{often:.0} times as often. The write-up blames these rotations, and is right ([C-08](claims.html#C-08)): without the
rotations of K {share} of that gap is gone.""")
def v3(e: Evidence) -> Says:
    few, loaded = (e.speedup(V3, over=V2, study=study, hdim=SMALL) for study in ("log", SLICES))
    own, sms, blocks = e.under(THEIR_SMS), e.gpu["sms"], e.blocks(V3, hdim=HDIM)
    theirs = own.speedup(V3, SEPARATE, hdim=SMALL)
    share = own.share_closed(V3, f"{V3}_no_rotation", SEPARATE, hdim=SMALL)
    often = e.size(V3, "seq_q", hdim=HDIM) / 4  # blocks of a head: each rotates all keys
    shown = {"loaded": times(loaded.at(HDIM)), "theirs": times(theirs.at(HDIM)), "share": share.at(HDIM)}
    return numbers(**exact("gpu.json", sms=sms), often=often, **shown), checks(
        blocks >= 64, blocks <= 64, blocks < sms, slower(few), faster(loaded.at(HDIM)), slower(theirs), share > 0.5
    )


@finding("rope-v4", """The idea is good: cached frequencies alone make V3 {idea:.1} as fast, though rotating K still
costs {bare:slower}. But V4 also goes back to one query a block, with a block reduction for each key. With the four
heads of the documents it is {theirs:.1} as fast as V3 on *their SMs*. On a *full card* it is no faster.""")
def v4(e: Evidence) -> Says:
    cached = f"{V3}_cached_frequencies"
    idea, bare = (e.speedup(cached, over=other, hdim=SMALL) for other in (V3, f"{V3}_no_rotation"))
    few, full = (e.speedup(V4, over=V3, study=study, hdim=SMALL) for study in ("log", "filled"))
    theirs, slow = e.under(THEIR_SMS).speedup(V4, over=V3, hdim=HDIM), e.speedup(V4, over=SEPARATE, hdim=SMALL)
    return numbers(idea=times(idea.at(HDIM)), bare=bare.at(HDIM), theirs=times(theirs)), checks(
        faster(idea), slower(bare), faster(few.at(HDIM)), faster(theirs), of_values(not_faster(full)), slower(slow)
    )


@finding("rope-v5", """Four keys fit beside the query, so only that many threads compute scores. With all threads at
work, {share} of the gap to separate kernels closes. At head dim 128, where 16 keys fit, V5 is {small:.1} as fast as
V4.""")
def v5(e: Evidence) -> Says:
    over, busy = e.speedup(V5, over=V4, hdim=SMALL), e.speedup(f"{V5}_all_threads", over=V5, hdim=SMALL)
    share = e.share_closed(V5, f"{V5}_all_threads", SEPARATE, hdim=SMALL)
    return numbers(share=share.at(HDIM), small=times(over.at(128))), checks(
        faster(over.at(128)), slower(over.at(HDIM)), faster(busy), share.at(HDIM) > 0.5
    )


@finding("rope-v6", """With all threads at the dot products, {busy} of V6b's gap to separate kernels closes. Leaving
out the rotation closes less, and so does padding rows against bank conflicts. No single change closes all of it.""")
def v6(e: Evidence) -> Says:
    slow = [e.speedup(name, over=SEPARATE, hdim=SMALL) for name in (V6A, V6B)]
    changes = ("all_threads", "no_rotation", "padded")
    busy, *rest = (e.share_closed(V6B, f"{V6B}_{name}", SEPARATE, hdim=SMALL) for name in changes)
    return numbers(busy=busy.at(HDIM)), checks(*map(slower, slow), busy < 1, *(busy - each > 0 for each in rest))


@finding("rope-v6b", """The log expected much of this change. With {dims:.0} rotated dims V6b is {fewer:.2} as fast as
V6a with all of them, at head dim 2048. It gains less at 512, and nothing at 128. Where V6b, too, rotates all dims, it
is {full:.2} as fast as V6a: it tests for every pair whether to rotate it.""")
def v6b(e: Evidence) -> Says:
    fewer, full = across(e, V6B, V6A, hdim=SMALL), e.speedup(V6B, over=V6A, hdim=SMALL, rotary="full")
    dims = e.size(V6B, "rotary_dim", hdim=HDIM)
    return numbers(fewer=times(fewer.at(HDIM)), full=times(full.at(HDIM)), dims=dims), checks(
        faster(fewer.at(512, HDIM)), of_values(fewer.at(512) < fewer.at(HDIM)), ties(fewer.at(128)), slower(full)
    )


@finding("rope-v7-full", """With 128 heads on the whole card V7 is {full:.2} as fast as separate kernels. That is of the
study `filled`, whose code `ptxas` assembled, as `nvcc` does by default. In the study `beyond` another assembler,
`nvJitLink`, made the code of both, and V7 is {other:.2} as fast.""")
def v7_full(e: Evidence) -> Says:
    problem = replace(MAIN, batch=8, heads=16, kv_heads=16)
    full, other = (e.speedup(V7, SEPARATE, study, problem=problem) for study in ("filled", "beyond"))
    by = [{*(rows := e.study(name).timings)["assembler"][rows["version"] == V7]} for name in ("filled", "beyond")]
    if by[0] == by[1]:
        raise NotMeasured("one assembler made the code of both studies")
    return numbers(full=times(full), other=times(other)), checks(full < 1, other > 1, by[0] == {"ptxas"})


@finding("rope-v8", """Fusion is the smaller part of this speedup. V8 is {hybrid:.2} as fast as a hybrid on the same
core. It is {separate:.2} as fast as separate kernels on that core.""")
def v8(e: Evidence) -> Says:
    fused, *others = FUSIONS
    hybrid, separate = (e.speedup(fused, over=each, study="beyond", problem=MAIN) for each in others)
    core = e.speedup(others[1], over=SEPARATE, study="beyond", problem=MAIN)
    return numbers(hybrid=times(hybrid), separate=times(separate)), checks(
        faster(hybrid), faster(separate), core > separate
    )
