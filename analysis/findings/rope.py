"""RoPE in the log: V1 to V7, and why V7 wins where it does."""

from __future__ import annotations

import functools
import math
from collections import Counter
from itertools import combinations
from typing import Any

from kernels import VERSIONS, Problem
from kernels.checking.reference import ROUNDING

from ..evidence import Estimates, Evidence, NotMeasured, either, every
from ..measure.studies import MAIN
from ..models import waves
from ..models.waves import occupied
from . import Says, checks, faster, finding, not_faster, not_slower, numbers, of_values, slower
from .common import across, fastest_peer, printed, versions
from .v8 import over as v8_over

SEPARATE = "rope_separate"
V1C, V2, V3, V4, V5, V6A, V6B, V7 = (f"rope_v{name}" for name in ("1c", "2", "3", "4", "5", "6a", "6b", "7"))
PLAIN = "attention_online_fixed"
SMALL, LARGE = (128, 512, 2048), (4096, 8192)  # head dims with four heads of 64 tokens, and with fewer of both
DIMS = SMALL + LARGE


def others(e: Evidence, study: str, **asked: Any) -> dict[str, Estimates]:
    """Every step of the log but V7, over separate kernels."""
    names = [name for name in versions(e, "rope") if name not in (SEPARATE, V7)]
    return {name: e.speedup(name, over=SEPARATE, study=study, **asked) for name in names}


@finding("rope-timed", """Where launches and waits of the host are timed too, as in the log, several steps win at head
dim 128, V7 by {launched}.""")
def timed(e: Evidence) -> Says:
    launched = e.speedup(V7, over=SEPARATE, timer="launched", hdim=128)
    steps = map(faster, others(e, "log", timer="launched", hdim=128).values())
    return numbers(launched=launched), checks(
        faster(launched), either(*(every(*pair) for pair in combinations(steps, 2)))
    )


@finding("rope-v1-why", """**Why V1 loses: the tables, not the rotations.** V1c runs at {slow} the speed of separate
kernels on an {card}. An ablation, whose result is wrong on purpose, keeps every rotation and takes its angles from
registers instead of tables: that closes the whole gap and more, {share}: V1c is then no slower than separate kernels,
{without}.""")
def v1_why(e: Evidence) -> Says:
    slow, without = e.speedup(V1C, over=SEPARATE), e.speedup(f"{V1C}_no_tables", over=SEPARATE)
    share = e.share_closed(V1C, f"{V1C}_no_tables", SEPARATE)
    return numbers(slow=slow, share=share, without=without), checks(slower(slow), share > 0.95, not_slower(without))


@finding("rope-v2-why", """**Why V2 gains nothing at this load: it loads one float at a time, and its angles cost as
much as tables.** Up to head dim 2048 V2 runs at {small} the speed of V1c on an {card}; with float4 loads it is no
slower, {float4}. Built with fast-math it is {fast} as fast as V1c, and still slower than separate kernels,
{fast_separate}.""")
def v2_why(e: Evidence) -> Says:
    small, float4 = e.speedup(V2, over=V1C, hdim=SMALL), e.speedup(f"{V2}_float4", over=V1C, hdim=SMALL)
    fast, fast_separate = (e.speedup(f"{V2}_fast_math", over=other) for other in (V1C, SEPARATE))
    return numbers(small=small, float4=float4, fast=fast, fast_separate=fast_separate), checks(
        slower(small), not_slower(float4), faster(fast), slower(fast_separate)
    )


@finding("rope-v2-load", """Above 2048 V2 without fast-math is slower than V1c even with float4 loads, {large}. On a
full card (128 heads) V2 as written, with scalar loads, is {full} as fast as V1c at head dims 128 to 2048. Leaving out
both the computed angles and the rotations of K closes {unrotated} of V2's gap to separate kernels at 128 to 2048, and
{unrotated_large} above.""")
def v2_load(e: Evidence) -> Says:
    plain, large = (e.speedup(name, over=V1C, study="ablation", hdim=LARGE) for name in (V2, f"{V2}_float4"))
    full = e.speedup(V2, over=V1C, study="filled", hdim=SMALL)
    share = e.share_closed(V2, f"{V2}_no_rotation", SEPARATE)
    return numbers(
        large=large, full=full, unrotated=share.at(*SMALL), unrotated_large=share.at(*LARGE)
    ), checks(slower(plain), slower(large), faster(full), share > 0.5, share < 1)


@finding("rope-v3-why", """**Why V3 is so slow here: too few blocks.** Its 64 blocks cannot fill the {sms} SMs of an
{card}: with the log's four heads V3 runs at {few} the speed of V2. With 128 heads it is {full} as fast as V2.""")
def v3_why(e: Evidence) -> Says:
    few, full = (e.speedup(V3, over=V2, study=study, hdim=SMALL) for study in ("log", "filled"))
    sms = e.gpu["sms"]
    return numbers(sms=sms, few=few, full=full), checks(sms > 64, slower(few), faster(full))


@finding("rope-v3-load", """With as many blocks to an SM as on the authors' card V3 already overtakes V2, {loaded}. At
four heads, not rotating K closes {unrotated} of V3's gap to separate kernels. With 128 heads V3 runs at {rest} their
speed.""")
def v3_load(e: Evidence) -> Says:
    loaded = e.speedup(V3, over=V2, study="matched", hdim=SMALL)
    share = e.share_closed(V3, f"{V3}_no_rotation", SEPARATE, hdim=SMALL)
    rest = e.speedup(V3, over=SEPARATE, study="filled", hdim=SMALL)
    return numbers(loaded=loaded, unrotated=share, rest=rest), checks(
        faster(loaded), share > 0.25, share < 0.5, slower(rest)
    )


@finding("rope-v4-idea", """**Why V4 is not enough: it also changes the loop.** The idea is good: cached frequencies,
and nothing else changed, make V3 {idea} as fast on an {card}. Rotating K then costs next to nothing: with cached
frequencies V3 is as fast as a V3 that does not rotate K at all.""")
def v4_idea(e: Evidence) -> Says:
    cached = f"{V3}_cached_frequencies"
    idea, bare = (e.speedup(cached, over=other, hdim=SMALL) for other in (V3, f"{V3}_no_rotation"))
    slow = e.speedup(V4, over=SEPARATE, hdim=SMALL)
    return numbers(idea=idea), checks(faster(idea), not_slower(bare), slower(slow))


@finding("rope-v4-why", """But V4 is another kernel: four times the blocks, four times the rotations, and a block
reduction for each key. It stays behind separate kernels, {slow}.""")
def v4_why(e: Evidence) -> Says:
    slow = e.speedup(V4, over=SEPARATE, hdim=SMALL)
    done = [e.blocks(name, hdim=SMALL) for name in (V4, V3)]
    rotations = [e.count(name, "event.rotation", hdim=SMALL) for name in (V4, V3)]
    more = [done[0] / done[1], rotations[0] / rotations[1]]
    return numbers(slow=slow), checks(slower(slow), *(each > 3.5 for each in more), *(each < 4.5 for each in more))


@finding("rope-v4-load", """More blocks help where V3 has too few: with four heads V4 is {large} as fast as V3 from head
dim 512 on, and runs at {small} its speed at 128. On a full card (128 heads) V3 has blocks enough, and V4 is slower than
V3 at head dims 128 and 512, {full}, and no faster at 2048.""")
def v4_load(e: Evidence) -> Says:
    few, full = (e.speedup(V4, over=V3, study=study, hdim=SMALL) for study in ("log", "filled"))
    return numbers(large=few.at(512, 2048), small=few.at(128), full=full.at(128, 512)), checks(
        faster(few.at(512, 2048)), slower(few.at(128)), slower(full.at(128, 512)), not_faster(full.at(2048))
    )


@finding("rope-v5-why", """**Why V5 loses at 2048: idle threads.** It is {small} as fast as V4 at head dim 128, where a
tile has 16 keys, and runs at {large} its speed at 2048, where four fit. With all threads at the dot products it is
{busy} as fast on an {card}; that closes {share_small} of the gap to separate kernels at 128 and {share_large} at
2048.""")
def v5_why(e: Evidence) -> Says:
    over_v4 = e.speedup(V5, over=V4, hdim=SMALL)
    busy = e.speedup(f"{V5}_all_threads", over=V5, hdim=SMALL)
    share = e.share_closed(V5, f"{V5}_all_threads", SEPARATE, hdim=SMALL)
    small, large = over_v4.at(128), over_v4.at(2048)
    return numbers(
        small=small, large=large, busy=busy, share_small=share.at(128), share_large=share.at(2048)
    ), checks(faster(small), slower(large), faster(busy), share.at(128) < 0.5, share.at(2048) > 0.5)


@finding("rope-v6-why", """**Why V6 loses: idle threads most of all.** Of V6b's gap to separate kernels {busy} closes on
an {card} with all threads at the dot products, {unrotated} without rotating K, and {padded} with rows padded against
bank conflicts. The three overlap: they add up to more than the gap, and no single change closes it.""")
def v6_why(e: Evidence) -> Says:
    changes = ("all_threads", "no_rotation", "padded")
    busy, unrotated, padded = (e.share_closed(V6B, f"{V6B}_{name}", SEPARATE, hdim=SMALL) for name in changes)
    return numbers(busy=busy, unrotated=unrotated, padded=padded), checks(
        busy > 0.5,
        *(each > 0.1 for each in (unrotated, padded)),
        *(busy - each > 0 for each in (unrotated, padded)),
        busy + unrotated + padded > 1,
        *(each < 1 for each in (busy, unrotated, padded)),
    )


@finding("rope-v6-steps", """On an {card} V6a is {over_v5} as fast as V5 and still runs at {v6a} the speed of separate
kernels. Rotating fewer dims pays at head dim 2048 alone: V6b is {fewer} as fast as V6a there, and {fewer_small} at 128
and 512. That leaves it at {v6b} the speed of separate kernels.""")
def v6_steps(e: Evidence) -> Says:
    over_v5 = e.speedup(V6A, over=V5, hdim=SMALL)
    v6a, v6b = (e.speedup(name, over=SEPARATE, hdim=SMALL) for name in (V6A, V6B))
    fewer = across(e, V6B, V6A, hdim=SMALL)
    return numbers(
        over_v5=over_v5, v6a=v6a, fewer=fewer.at(2048), fewer_small=fewer.at(128, 512), v6b=v6b
    ), checks(
        faster(over_v5), slower(v6a), slower(v6b), faster(fewer.at(2048)), not_faster(fewer.at(128, 512))
    )


@finding("rope-v7-why", """**What V7 needs to win: a load that falls between two steps.** With as many blocks to an SM
as on the authors' card, V7 wins up to head dim 2048 on an {card} too, {loaded} on the device and {alike} by the
authors' timer; at 8192 it loses, {large} by their timer. The log prints {said} and {said_large}; by the same timer ours
are within 10 % of it at each head dim.""")
def v7_why(e: Evidence) -> Says:
    loaded = e.speedup(V7, over=SEPARATE, study="matched", hdim=SMALL)
    alike = e.speedup(V7, over=SEPARATE, study="matched", timer="launched", hdim=DIMS)
    said = printed(V7, hdim=DIMS)

    return numbers(
        loaded=loaded, alike=alike.at(*SMALL), large=alike.at(8192), said=said.at(*SMALL), said_large=said.at(8192)
    ), checks(faster(loaded), faster(alike.at(*SMALL)), slower(alike.at(8192)), of_values(alike.within(0.1, said)))


@finding("rope-v7-published-load", """At the published shapes, with less than half of the blocks that this card holds at
a time, V7 is slower on the device at every head dim, {device}. Where launches and waits are timed, it is {timed} as
fast at 128 (at 512 {timed_512}): there the host saves more than the device loses.""")
def v7_published_load(e: Evidence) -> Says:
    device = e.speedup(V7, over=SEPARATE, hdim=DIMS)
    timed = e.speedup(V7, over=SEPARATE, timer="launched", hdim=(128, 512))
    return numbers(device=device, timed=timed.at(128), timed_512=timed.at(512)), checks(
        occupied(e, SEPARATE, hdim=SMALL) < 0.5, slower(device), faster(timed.at(128))
    )


@finding("rope-v7-waves", """**What the load decides: whether all blocks fit at once.** At the matched load, up to head
dim 2048, all blocks of V7 fit: they are {v7} of what an {card} holds at a time. Separate kernels take more registers:
their blocks fill {separate}, so the last ones wait for a second wave; V7 is {loaded} as fast on the device.""")
def v7_waves(e: Evidence) -> Says:
    v7, separate = (occupied(e, name, "matched", SMALL) for name in (V7, SEPARATE))
    loaded = e.speedup(V7, over=SEPARATE, study="matched", hdim=SMALL)
    registers = [e.resource(name, "registers", hdim=SMALL) for name in (SEPARATE, V7)]
    return numbers(v7=v7, separate=separate, loaded=loaded), checks(
        v7 < 1, separate > 1, faster(loaded), registers[0] / registers[1] > 1
    )


@finding("rope-v7-steps", """In this test the number of heads grows from 4 to 26, around the steps by one at a time. At
the step where the blocks of separate kernels no longer fit at once, their time on an {card} grows to {separate} of what
it was, V7's to {other}. At the step where V7's blocks no longer fit, its time grows to {own}.""")
def v7_steps(e: Evidence) -> Says:
    separate, own = (waves.step_up(e, name, name) for name in (SEPARATE, V7))
    other = waves.step_up(e, V7, SEPARATE)
    return numbers(separate=separate, other=other, own=own), checks(faster(separate), faster(own), separate > other)


@finding("rope-v7-break", """**Why V7 is slower where the blocks of both fit: a test in its loop.** V7's loop over dims
tests for the end of the row, and so the compiler does not unroll it: one load of K is in flight, not four. Without that
test our copy of V7 in CUDA C++ is {gain} as fast on an {card}, and beats separate kernels at the published shapes,
{over_separate}.""")
def v7_break(e: Evidence) -> Says:
    gain, over_separate = (
        e.speedup("control_rope_v7_no_break", over=other, study="ablation")
        for other in ("control_rope_v7", "control_rope_separate")
    )
    return numbers(gain=gain, over_separate=over_separate), checks(faster(gain), faster(over_separate))


@finding("rope-v7-rest", """**On the device V7 does not win because it saves a launch and a buffer, as the log says.**
At the authors' load V7 is {alone} as fast on an {card} as attention with no embedding at all (the corrected online
kernel), which is also the attention of the separate kernels: even if their rotations cost nothing, they would be slower
than V7. Where the query lies matters little: V7 is {in_memory} as fast as a V7 that keeps its rotated query in global
memory.""")
def v7_rest(e: Evidence) -> Says:
    alone = across(e, V7, PLAIN, study="matched", hdim=(512, 2048))
    in_memory = e.speedup(V7, over=f"{V7}_global_query")
    return numbers(alone=alone, in_memory=in_memory), checks(faster(alone), not_slower(in_memory), in_memory < 1.1)


@finding("rope-race", """On an {card} the race shows in none of {few} checks at the published shapes, and in {wrong} of
{full} on a full card (batch 8, 16 heads): {where}, with errors of at least {excess:,.0f} times what is allowed.""")
def race(e: Evidence) -> Says:
    (few, hidden), (full, shown) = (raced(e, study) for study in ("log", "filled"))
    found = Counter(f"`{row['version']}` at head dim {row['problem'].hdim}" for row in shown)
    where = ", ".join(f"{each} ({count} checks)" if count > 1 else each for each, count in found.items())
    excess = min((row["max_abs_err"] / row["allowed_abs_err"] for row in shown), default=math.nan)
    return numbers(few=few, wrong=len(shown), full=full, where=where, excess=excess), checks(
        not hidden, bool(shown), not excess <= ROUNDING
    )


def raced(e: Evidence, study: str) -> tuple[int, list[dict[str, Any]]]:
    """How many checks there are of versions that have a race and are right without it, and those found wrong.

    Raises: NotMeasured where there are none.
    """
    rows = e.study(study).checks
    rows = rows[rows["status"].isin(("ok", "wrong"))].to_dict("records")
    judged = [row for row in rows if races(row["version"], row["problem"], e.target)]
    if not judged:
        raise NotMeasured(f"no version with a race was checked in study {study}")
    return len(judged), [row for row in judged if row["status"] == "wrong"]


@functools.cache
def races(version: str, problem: Problem, target: str) -> bool:
    if problem.family != "rope" or version not in VERSIONS or VERSIONS[version].is_peer:
        return False
    plan = VERSIONS[version](problem, target)
    return plan.expected == "ok" and any(hazard.kind == "race" for hazard in plan.hazards)


@finding("rope-pytorch", """At head dim 128 separate kernels are {small} as fast as the fastest of these ways on an
{card}; at 2048 they run at {large} its speed.""")
def pytorch(e: Evidence) -> Says:
    small, large = (fastest_peer(e, SEPARATE, hdim).over for hdim in (128, 2048))
    return numbers(small=small, large=large), checks(faster(small), slower(large))


@finding("rope-pytorch-v8", """PyTorch can also compile RoPE and attention as one graph, which the table leaves out.
With that way counted, [V8](v8.html) is {v8} as fast as PyTorch's fastest at 2048.""")
def pytorch_v8(e: Evidence) -> Says:
    v8 = v8_over(e, (MAIN,))
    return numbers(v8=v8), checks(faster(v8))
