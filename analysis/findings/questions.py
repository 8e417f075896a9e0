"""Ten things the documents disagree on, or explain otherwise than the hardware does."""

from typing import Any

from ..claims.measures import BUSY, DRAM, FLOAT4, L1, L2, busiest_memory_percent, fp32_percent
from ..evidence import Estimate, Estimates, Evidence, NotMeasured, said, stated
from ..studies import MAIN
from . import Says, checks, exact, faster, finding, not_faster, not_slower, numbers, of_values, slower, times

SMALL, BOTH = (128, 512, 2048), (512, 2048)  # head dims with four heads of 64 tokens; those of all families
V7, SEPARATE, ONLINE = "rope_v7", "rope_separate", "attention_online_fixed"
SECTORS = {  # the card's counter, and the emulator's
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "global.read.sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "global.write.sectors",
}
COMPARED = (  # a version, what it is compared with, and how it does in Python and in C++
    ("rope_v7", SEPARATE, slower), ("rope_v1c", SEPARATE, slower), ("rope_v3", SEPARATE, slower),
    ("sinusoidal_v5", FLOAT4, not_faster), ("sinusoidal_hybrid_v1", FLOAT4, faster),
)  # fmt: skip


@finding("question-rules", """**No: both hybrids fuse Q, of the outer loop, and at *their shapes* only the sinusoidal
one wins.** It is {sinusoidal:.1} as fast as separate kernels, where the RoPE hybrid takes {rope:slower} longer. V8
fuses RoPE, which depends on the values, and is {v8:.1} as fast as separate kernels with its attention when all dims
are rotated.""")
def rules(e: Evidence) -> Says:
    sinusoidal = e.speedup("sinusoidal_hybrid_v1", over=FLOAT4, hdim=BOTH)
    rope = e.speedup(V7, over=SEPARATE, hdim=BOTH, rotary="partial")
    v8 = e.speedup("rope_v8", over="rope_separate_v8", study="beyond", hdim=BOTH, heads=4, rotary="full")
    return numbers(
        sinusoidal=times(sinusoidal.at(MAIN.hdim)), rope=rope.at(MAIN.hdim), v8=times(v8.at(MAIN.hdim))
    ), checks(faster(sinusoidal), slower(rope), faster(v8))


@finding("question-rotation", """**In part.** V1 loses by its table loads: without them, every rotation kept, it is no
slower than separate kernels. Leaving out the rotation of K closes {v3} of V3's gap to these. It closes {v2} of V2's,
but then V2 computes no angles either. V6 loses more by threads that have no key: with all at the scores it closes
{threads}, and without rotating K {rotation}.""")
def rotation(e: Evidence) -> Says:
    def closed(name: str, without: str = "no_rotation", rotary: str = "full") -> Estimates:
        return e.share_closed(name, f"{name}_{without}", SEPARATE, study="ablation", hdim=SMALL, rotary=rotary)

    tables = e.speedup("rope_v1c_no_tables", over=SEPARATE, study="ablation", hdim=SMALL, rotary="full")
    v2, v3 = closed("rope_v2"), closed("rope_v3")
    threads, v6 = (closed("rope_v6b", name, "partial") for name in ("all_threads", "no_rotation"))
    shown = {"v2": v2, "v3": v3, "threads": threads, "rotation": v6}
    return numbers(**{name: share.at(MAIN.hdim) for name, share in shown.items()}), checks(
        not_slower(tables), v3 > 0.4, v3 < 0.6, of_values(v2 > v3), threads > v6
    )


@finding("question-bound", """**By neither: its warps wait.** The corrected online kernel keeps the path to L1 and
shared memory busy for {l1:.0} % of its peak, and L2, DRAM and the FP32 units for less. Its warps spend {barrier} of
their time at barriers.""")
def bound(e: Evidence) -> Says:
    asked: dict[str, Any] = {"hdim": MAIN.hdim}
    l1, l2, dram = (e.counter(ONLINE, unit, **asked) for unit in (L1, L2, DRAM))
    barrier, fp32 = e.stalled(ONLINE, "barrier", **asked), fp32_percent(e, ONLINE, **asked)
    return numbers(l1=l1, barrier=barrier.measured_in("%")), checks(
        l1 < BUSY, l1 > l2, l1 > dram, l1 > fp32, barrier > 0.5
    )


@finding("question-bound-loaded", """At *their load* the busiest of these units comes to {busiest:.0} % of its peak,
just below what this book calls bound. The summary divides its rate by the peak of another card. Of the peak of the
authors' card it is {own:.0} %.""")
def bound_loaded(e: Evidence) -> Says:
    busiest = busiest_memory_percent(e.under("matched"), ONLINE, hdim=MAIN.hdim)
    own, other = (100 * said("N235") / said(peak) for peak in ("N296", "N236"))
    return numbers(busiest=busiest, own=own), checks(
        busiest < BUSY, busiest > 0.9 * BUSY, own > 4 * said("N237"), other > 0.95 * said("N237"), other < said("N237")
    )


@finding("question-cliff", """**No: their shapes leave {blocks} blocks for {sms} SMs.** From head dim 4096 to 8192 the
corrected online kernel falls to {fall} of its rate. With equally many queries at both it falls to {held}. With warm
caches DRAM is almost idle.""")
def cliff(e: Evidence) -> Says:
    def kept(study: str) -> Estimates:
        rate, before = (e.tflops(ONLINE, study=study, hdim=hdim)[hdim] for hdim in (8192, 4096))
        return Estimates({8192: rate / before}, "%")

    fall, held, blocks = kept("log"), kept("controlled"), e.blocks(ONLINE, hdim=8192)
    return numbers(fall=fall, held=held, blocks=blocks, **exact("gpu.json", sms=e.gpu["sms"])), checks(
        fall < 0.25, held > 0.5, e.counter(ONLINE, DRAM, hdim=8192) < 10, blocks < e.gpu["sms"] / 2
    )


@finding("question-which", """**To V1, which loads tables; the text beside them describes V4, which caches
frequencies.** The write-up prints {printed:.3} ms, as the log does for V1; for V4 the log has {fourth:.3} ms. Here
too V1 takes {longer:.1} as long as V4.""")
def which(e: Evidence) -> Says:
    printed, first, fourth = said("N347"), said("N115"), said("N147")
    longer = e.speedup("rope_v4", over="rope_v1c", hdim=2048, rotary="full")
    near = stated(SMALL, "N341", "N344", "N347").within(0.05, stated(SMALL, "N109", "N112", "N115"))
    return numbers(printed=printed, fourth=fourth, longer=times(longer)), checks(
        near, first / fourth > 2, faster(longer)
    )


@finding("question-counts", """The emulator's counts of sectors loaded and stored are within 10 % of the card's
counters for {near} of {all} versions.""")
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
    both = [each[MAIN.hdim] for pair in ratios for each in pair if each]
    shown = {"near": near, "all": len(known)}
    return numbers(**{name: Estimate.count(n, both) for name, n in shown.items()}), checks(near > 0.9 * len(known))


@finding("language-alike", """**Little: in C++ the same versions win and lose.** The sinusoidal hybrid, for example,
is {python:.1} as fast as separate kernels in Python and {cpp:.1} as fast in C++. The page of each version shows its
control, and says why it differs where it does.""")
def most_alike(e: Evidence) -> Says:
    def gain(one: str, other: str, made: str = "") -> Estimates:
        return e.speedup(made + one, over=made + other, study="control")

    same = [compare(gain(one, other, made)) for made in ("", "control_") for one, other, compare in COMPARED]
    python, cpp = (times(gain(*COMPARED[-1][:2], made).at(2048)) for made in ("", "control_"))
    return numbers(python=python, cpp=cpp), checks(*same)
