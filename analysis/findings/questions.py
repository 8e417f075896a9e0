"""Ten things the documents disagree on, or explain otherwise than the hardware does."""

from __future__ import annotations

from typing import Any

from ..claims.measures import DRAM, FLOAT4, L1, L2, SCALAR, busiest_memory_percent, forgotten_rope, fp32_percent
from ..evidence import Estimates, Evidence, NotMeasured, said, stated
from ..measure.studies import MAIN
from ..models import profiles
from ..models.profiles import BUSY
from ..models.waves import occupied
from . import Says, checks, faster, finding, not_slower, numbers, slower, ties

SMALL, LARGE = (128, 512, 2048), (4096, 8192)  # head dims with four heads of 64 tokens, and with fewer of both
SINUSOIDAL, BOTH, LOG = (512, 2048, 4096), (512, 2048), (512, 2048, 4096, 8192)
HALF: dict[str, Any] = {"hdim": 64, "seq_q": 512}
ABLATION: dict[str, Any] = {"study": "ablation", **HALF}
V5, V7, SEPARATE, ONLINE = "sinusoidal_v5", "rope_v7", "rope_separate", "attention_online_fixed"
TWO_PASS = "attention_two_pass_float4"
SECTORS = {  # the card's counter, and the emulator's
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "global.read.sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "global.write.sectors",
}


@finding("question-baseline", """**Only faster than kernels that load one float at a time.** Separate kernels that load
four, with nothing fused, are {loads} as fast as those; the documents' own times give {printed}. Against separate
kernels with four floats a load V5 takes {longer:slower} longer.""")
def baseline(e: Evidence) -> Says:
    loads = e.speedup(FLOAT4, over=SCALAR, hdim=SINUSOIDAL)
    printed = stated(SINUSOIDAL, "N330", "N333", "N336") / stated(SINUSOIDAL, "N077", "N078", "N079")
    scalar, longer = (e.speedup(V5, over=other, hdim=SINUSOIDAL) for other in (SCALAR, FLOAT4))
    return numbers(loads=loads, printed=printed, longer=longer), checks(
        faster(scalar), faster(loads), faster(printed), slower(longer)
    )


@finding("question-v7", """**In a window of loads.** At *their load* V7 is {loaded} as fast as separate kernels up to
head dim 2048, since its blocks fit on the card at once and theirs need a second wave. At *their shapes* it takes
{longer:slower} longer.""")
def window(e: Evidence) -> Says:
    loaded = e.speedup(V7, over=SEPARATE, study="matched", hdim=SMALL, rotary="partial")
    longer = e.speedup(V7, over=SEPARATE, hdim=SMALL + LARGE, rotary="partial")
    v7, separate = (occupied(e, name, "matched", SMALL) for name in (V7, SEPARATE))
    return numbers(loaded=loaded, longer=longer), checks(faster(loaded), slower(longer), v7 < 1, separate > 1)


@finding("question-rules", """**No: both hybrids fuse Q, of the outer loop, and one wins.** The sinusoidal hybrid is
{sinusoidal} as fast as separate kernels, where the RoPE hybrid takes {rope:slower} longer. V8 fuses RoPE, which depends
on the values, and is {v8} as fast as separate kernels on its core.""")
def rules(e: Evidence) -> Says:
    sinusoidal = e.speedup("sinusoidal_hybrid_v1", over=FLOAT4, hdim=BOTH)
    rope = e.speedup(V7, over=SEPARATE, hdim=BOTH, rotary="partial")
    v8 = e.speedup("rope_v8", over="rope_separate_v8", study="beyond", hdim=BOTH, heads=4, rotary="full")
    return numbers(sinusoidal=sinusoidal, rope=rope, v8=v8), checks(faster(sinusoidal), slower(rope), faster(v8))


@finding("question-unrolled", """What decides between the hybrids is whether the compiler unrolls the loop over the head
dim, so that several loads are in flight. In CUDA C++ the sinusoidal hybrid without its unroll hint takes
{rolled:slower} longer than separate kernels, and the RoPE hybrid without a bounds test in its loop is {unrolled} as
fast.""")
def unrolled(e: Evidence) -> Says:
    asked: dict[str, Any] = {"study": "ablation", "hdim": BOTH}
    hybrid, separate = "control_sinusoidal_hybrid_v1_unroll_1", "control_sinusoidal_separate_float4"
    rolled = e.speedup(hybrid, over=separate, **asked)
    free = e.speedup("control_rope_v7_no_break", over="control_rope_separate", rotary="partial", **asked)
    return numbers(rolled=rolled, unrolled=free), checks(slower(rolled), faster(free))


def closed(e: Evidence, version: str, without: str, rotary: str = "full") -> Estimates:
    """The share of the gap between a RoPE kernel and separate kernels that closes without something."""
    return e.share_closed(version, f"{version}_{without}", SEPARATE, study="ablation", hdim=SMALL, rotary=rotary)


@finding("question-rotation", """**Mostly not.** V1 loses by its table loads: without them, every rotation kept, it is
no slower than separate kernels. Not rotating K closes {v3} of V3's gap to these, and {v2} of V2's, whose angles go with
it.""")
def rotation(e: Evidence) -> Says:
    tables = e.speedup("rope_v1c_no_tables", over=SEPARATE, study="ablation", hdim=SMALL, rotary="full")
    v2, v3 = (closed(e, name, "no_rotation") for name in ("rope_v2", "rope_v3"))
    return numbers(v2=v2, v3=v3), checks(not_slower(tables), v3 < 0.5, v2 > 0.5)


@finding("question-idle", """Threads that have no key cost V6 more. With all of them at the scores {threads} of the gap
of V6 with partial rotation closes, and without rotating K {rotation}.""")
def idle(e: Evidence) -> Says:
    threads, unrotated = (closed(e, "rope_v6b", name, rotary="partial") for name in ("all_threads", "no_rotation"))
    return numbers(threads=threads, rotation=unrotated), checks(threads > unrotated)


@finding("question-checks", """**No: of what the recommended kernel returns {nan} is not a number.** No comparison with
NaN is true, so a test that counts errors above a tolerance passes it. That tolerance is {used} in the programs, not the
{stated:.5f} that the write-up states: at head dim 2048 a V7 that rotates nothing is off by {forgotten:.2}.""")
def passed(e: Evidence) -> Says:
    nan, used, told = e.nan_share("attention_online", hdim=LOG), 0.05, said("N395").value
    forgotten = forgotten_rope((MAIN.hdim,), "uniform")
    return numbers(nan=nan.measured_in("%"), used=used, stated=told, forgotten=forgotten), checks(
        nan > 0.5, forgotten < used, forgotten > told, e.error(V7, hdim=SMALL) < told
    )


@finding("question-bound", """**By neither: its warps wait.** At head dim 2048 the corrected online kernel keeps the
path to L1 and shared memory busy for {l1:.0f} % of its peak, and L2, DRAM and the FP32 units for less. Its warps spend
{barrier} of their time at barriers.""")
def bound(e: Evidence) -> Says:
    asked: dict[str, Any] = {"hdim": MAIN.hdim}
    l1, l2, dram = (e.counter(ONLINE, unit, **asked) for unit in (L1, L2, DRAM))
    barrier, fp32 = e.stalled(ONLINE, "barrier", **asked), fp32_percent(e, ONLINE, **asked)
    return numbers(l1=l1[MAIN.hdim].value, barrier=barrier.measured_in("%")), checks(
        l1 < BUSY, l1 > l2, l1 > dram, l1 > fp32, barrier > 0.5
    )


@finding("question-bound-loaded", """At *their load* the busiest of these units comes to {busiest:.0f} % of its peak,
near the 60 % that are called bound here. The 4.7 % of the summary divide by the peak of another card: of their own it
is {own:.0f} %.""")
def bound_loaded(e: Evidence) -> Says:
    busiest = busiest_memory_percent(e.under("matched"), ONLINE, hdim=MAIN.hdim)
    own = 100 * said("N235") / said("N296")
    return numbers(busiest=busiest[MAIN.hdim].value, own=own.value), checks(
        busiest < BUSY, busiest > 0.9 * BUSY, own > 4 * said("N237")
    )


@finding("question-bound-all", """At head dim 2048 no version of this book is bound by DRAM or by L2. {waiting} of {all}
wait, for barriers or for loads; {l1} keep the path to L1 and shared memory busy for 60 % of its peak or more.""")
def bound_all(e: Evidence) -> Says:
    attention = profiles.attention(profiles.at(profiles.launches(e.record.folder), MAIN.hdim))
    if attention.empty:
        raise NotMeasured("hardware counters were not read: `make counters`")
    held = profiles.tally(attention, e.gpu["sms"])
    busiest = max(float(attention[f"{unit}_percent"].max()) for unit in ("dram", "l2"))
    return numbers(waiting=held["latency"], all=len(attention), l1=held["L1"]), checks(
        busiest < BUSY, held["latency"] > held["L1"]
    )


@finding("question-cliff", """**No: their shapes leave {blocks:.0f} blocks for {sms} SMs.** With four heads of 64
queries at every head dim the corrected online kernel keeps {held} of its rate at 4096; at *their shapes* it keeps
{fall}. With warm caches DRAM is all but idle.""")
def cliff(e: Evidence) -> Says:
    def kept(study: str) -> Estimates:
        rate, before = (e.tflops(ONLINE, study=study, hdim=hdim)[hdim] for hdim in (8192, 4096))
        return Estimates({8192: rate / before}, "%")

    fall, held, blocks = kept("log"), kept("controlled"), e.blocks(ONLINE, hdim=8192)[8192]
    return numbers(fall=fall, held=held, blocks=blocks.value, sms=e.gpu["sms"]), checks(
        fall < 0.25, held > 0.5, e.counter(ONLINE, DRAM, hdim=8192) < 10, blocks < e.gpu["sms"] / 2
    )


@finding("question-tricks", """**No: with all threads at the scores, and the same bytes, attention in two passes is
{threads} as fast.** Before, one thread took a whole key: at head dim 8192 these are {keys:.0f} of {all:.0f}. Tensor
cores make Phase 4 of half precision {half} as fast, and the fp32 kernel slower up to head dim 2048.""")
def tricks(e: Evidence) -> Says:
    threads = e.speedup("attention_two_pass_all_warps", over=TWO_PASS, study="ablation", hdim=LOG)
    single = e.speedup("attention_two_pass_mma", over=TWO_PASS, study="ablation", hdim=BOTH)
    half = e.speedup("fp16_phase4_mma", over="fp16_phase4", **ABLATION)
    keys, block = e.size(TWO_PASS, "seq_k", hdim=8192)[8192], e.threads(TWO_PASS, hdim=8192)[8192]
    return numbers(threads=threads, half=half, keys=keys.value, all=block.value), checks(
        faster(threads), slower(single), faster(half), keys < block / 2
    )


@finding("question-which", """**To V1, which loads tables; the text beside them describes V4, which caches
frequencies.** At head dim 2048 the write-up prints {printed:.3f} ms, as the log does for V1; for V4 the log has
{fourth:.3f} ms. Here too V1 takes {longer:.1f} times as long as V4 there.""")
def which(e: Evidence) -> Says:
    printed, first, fourth = said("N347"), said("N115"), said("N147")
    longer = e.speedup("rope_v4", over="rope_v1c", hdim=2048, rotary="full")
    near = stated(SMALL, "N341", "N344", "N347").within(0.05, stated(SMALL, "N109", "N112", "N115"))
    return numbers(printed=printed.value, fourth=fourth.value, longer=longer[2048].value), checks(
        near, first / fourth > 2, faster(longer)
    )


@finding("question-phase6", """**Bank conflicts, which the report lists among four causes.** Padding its rows in shared
memory closes {padded} of the gap to Phase 4. Nothing spills, it has fewer barriers than Phase 4, and without its idle
threads it is as fast as before.""")
def phase6(e: Evidence) -> Says:
    padded = e.share_closed("fp16_phase6_iter2", "fp16_phase6_iter2_padded", "fp16_phase4_causal", **ABLATION)
    barriers = e.count("fp16_phase6_iter2", "barriers", **HALF) / e.count("fp16_phase4", "barriers", **HALF)
    fewer = e.speedup("fp16_phase6_iter2_32_threads", over="fp16_phase6_iter2", **ABLATION)
    spill = e.resource("fp16_phase6_iter1", "spill_bytes", **HALF)
    return numbers(padded=padded), checks(padded > 0.9, padded < 1, barriers < 1, spill < 1, ties(fewer))


@finding("question-counts", """The emulator's counts of sectors loaded and stored are within 10 % of the card's counters
for {near} of {all} versions at head dim 2048.""")
def counts(e: Evidence) -> Says:
    names = [name for family in ("attention", "sinusoidal", "rope") for name in e.study().versions(family)]
    ratios = [
        [e.counter(name, card, hdim=MAIN.hdim) / e.count(name, own, hdim=MAIN.hdim) for card, own in SECTORS.items()]
        for name in names
    ]
    known = [[each.values_known[MAIN.hdim] for each in pair] for pair in ratios if all(pair)]
    if not known:
        raise NotMeasured("hardware counters were not read: `make counters`")
    near = sum(all(abs(each - 1) < 0.1 for each in pair) for pair in known)
    return numbers(near=near, all=len(known)), checks(near > 0.9 * len(known))
