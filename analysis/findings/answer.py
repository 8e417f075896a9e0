"""The answer, what the counters say, and what of the write-up stands; beside them sentences of the reference pages."""

import functools
from collections.abc import Iterable
from typing import Any

import pandas as pd

from kernels import VERSIONS

from ..claims import judge
from ..claims.claim import WRITE_UP
from ..claims.measures import BUSY, DRAM, FLOAT4, L1, L2, SCALAR, busiest_memory_percent, fp32_percent
from ..claims.rule import IN_PROSE
from ..evidence import Estimate, Estimates, Evidence, NotMeasured, pool, said, stated
from ..evidence.current import PTXAS
from ..studies import MAIN, SLICES, STALLS, TIMERS
from . import Says, checks, committed, exact, faster, finding, not_faster, numbers, of_values, slower, times
from .rope import v1

SECOND_CARD = "nvidia-h200"
DUE = 0.05  # of the ratios lie outside intervals of 95 %
SMALL = (128, 512, 2048)  # head dims with four heads of 64 tokens
DIMS = (512, 2048, 4096, 8192)
V7, SEPARATE, ONLINE = "rope_v7", "rope_separate", "attention_online_fixed"
FRONT = (V7, SEPARATE, "rope_v1c", "sinusoidal_v5", SCALAR, FLOAT4)  # of the documents, on the front page
SECTORS = {  # the card's counter, and the emulator's
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "global.read.sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "global.write.sectors",
}
COMPARED = (  # a version, what it is compared with, and how it does in Python and in C++
    ("rope_v7", SEPARATE, slower), ("rope_v1c", SEPARATE, slower), ("rope_v3", SEPARATE, slower),
    ("attention_online", "attention_baseline", faster), ("sinusoidal_v5", FLOAT4, not_faster),
    ("sinusoidal_hybrid_v1", FLOAT4, faster),
)  # fmt: skip


BARRIER = "other warps at a barrier"
WAITS = {  # the reasons for which a warp does not issue, under headings; a GPU may lack some
    "nothing: it issues or is ready": ("selected", "not_selected"),
    "an earlier result, or a unit": ("wait", "dispatch_stall", "math_pipe_throttle"),
    "its next instruction": ("no_instruction", "branch_resolving", "imc_miss"),
    "shared memory, special functions": ("short_scoreboard", "mio_throttle"),
    "global or local memory": ("long_scoreboard", "lg_throttle", "tex_throttle", "drain", "membar"),
    BARRIER: ("barrier",),
    "something else": ("sleeping", "misc"),
}


@finding("answer-tables", """RoPE's V1 rotates every key for every query, and loses mostly by the [tables of cosines
and sines](rope.html) that it loads for that. In a copy we replaced these loads by values in registers, and kept all
rotations. Its output is wrong on purpose, but it is no slower than separate kernels. V8 shares each rotated key among
queries, and spares its cosines and sines as well.""")
def tables(e: Evidence) -> Says:
    return v1(e)


@functools.lru_cache(maxsize=4)
def stalls(e: Evidence) -> pd.DataFrame:
    """Shares of a warp's time by what it waits for, in every version's attention at the main head dim."""

    def share(version: str, reasons: Iterable[str]) -> float:
        return e.stalled(version, *reasons, hdim=MAIN.hdim)[MAIN.hdim].value

    return pd.DataFrame(
        {"version": version.id, "family": version.family, "wait": wait, "percent": 100 * share(version.id, reasons)}
        for version in VERSIONS.values()
        if version.of_log and not version.fast_math and share(version.id, STALLS) == 1
        for wait, reasons in WAITS.items()
    ).fillna(0.0)


def longest_at_barrier(frame: pd.DataFrame) -> tuple[int, int]:
    """The number of versions whose warps wait most at a barrier, and of all."""
    most = frame.loc[frame.groupby("version")["percent"].idxmax(), "wait"]
    return int((most == BARRIER).sum()), len(most)


@finding("answer-waits", """In {most} of {all} versions at head dim 2048, on the whole card, a warp spends more of its
time at a barrier, waiting for other warps, than on anything else.""")
def waits(e: Evidence) -> Says:
    if (frame := stalls(e)).empty:
        raise NotMeasured("hardware counters were not read: `make counters`")
    most, all = longest_at_barrier(frame)
    return exact("counters", most=most, all=all), checks(10 * most > 9 * all)


@finding("answer-bound", """In the corrected online kernel the busiest unit of memory is L1 with its shared memory, at
{l1:.0} % of its peak. L2, DRAM and the FP32 units are less busy. Its warps spend {barrier} of their time at
barriers.""")
def bound(e: Evidence) -> Says:
    asked: dict[str, Any] = {"hdim": MAIN.hdim}
    l1, l2, dram = (e.counter(ONLINE, unit, **asked) for unit in (L1, L2, DRAM))
    barrier, fp32 = e.stalled(ONLINE, "barrier", **asked), fp32_percent(e, ONLINE, **asked)
    return numbers(l1=l1, barrier=barrier.measured_in("%")), checks(
        l1 < BUSY, l1 > l2, l1 > dram, l1 > fp32, barrier > 0.5
    )


@finding("answer-threads", """Giving [idle threads work](attention.html) makes the two-pass kernel of the summary
{whole:.2} as fast on the whole card, though it saves no bytes. On *their SMs* that pays only above head dim
{hdim}.""")
def threads(e: Evidence) -> Says:
    whole, own = (
        e.speedup("attention_two_pass_all_warps", over="attention_two_pass_float4", study=study, hdim=DIMS)
        for study in ("ablation", SLICES)
    )
    return numbers(whole=times(whole.at(MAIN.hdim)), hdim=MAIN.hdim), checks(
        faster(whole), faster(own.at(4096, 8192)), slower(own.at(512, 2048))
    )


@finding("attention-bound-loaded", """With as many heads as give an SM the load that it had on their card, the busiest
unit of memory reaches {busiest:.0} % of its peak. That is too near to our threshold of {bound} %, from which we call a
kernel memory-bound: undecided. At head dims 4096 and 8192 it is at most {large:.0} %. The summary's {said} % divides
the kernel's rate by the peak of another card. Of the peak of the authors' card it is {own:.0} %.""")
def bound_loaded(e: Evidence) -> Says:
    busiest, large = (busiest_memory_percent(e.under("matched"), ONLINE, hdim=h) for h in (MAIN.hdim, (4096, 8192)))
    own, other = (100 * said("N235") / said(peak) for peak in ("N296", "N236"))
    return numbers(busiest=busiest, large=large.at(4096), own=own, bound=round(BUSY), said=said("N237")), checks(
        busiest < 1.1 * BUSY, busiest > BUSY / 1.1, large.at(8192) < large[4096], large < BUSY / 1.1,
        own > 4 * said("N237"), other > 0.95 * said("N237"), other < said("N237")
    )


@finding("answer-tflops", """The TFLOPS that the write-up prints do not follow from the times in the same rows. They
are {small:.0} too high at the two smaller head dims, and {large:.0} at the two larger.""")
def tflops(e: Evidence) -> Says:
    given = e.size("attention_online", "flops", hdim=DIMS) / stated(DIMS, "N301", "N303", "N305", "N307") / 1e9
    off = stated(DIMS, "N302", "N304", "N306", "N308") / given
    return numbers(small=times(off.at(2048)), large=times(off.at(8192))), checks(
        off.at(*DIMS[:2]) > 3.9, off.at(*DIMS[:2]) < 4.1, off.at(*DIMS[2:]) > 15.9, off.at(*DIMS[2:]) < 16.1
    )


STANDS = {  # the claims of the write-up that are right, in words
    "C-08": "why RoPE V3 loses",
    "B-24": "that sinusoidal fusion might not pay beside optimised kernels",
}  # fmt: skip


@finding("answer-stands", """Of the {claims} claims of the write-up itself {right} are right:"""
         + "; ".join(f"[{words}](claims.html#{id})" for id, words in STANDS.items())
         + ". Another {partly} hold in direction or in part, among them [by how much V7 wins](claims.html#C-18).")
def what_stands(e: Evidence) -> Says:
    if not e.study(SLICES):
        raise NotMeasured(f"nothing is judged on their SMs: `make measure STUDY={SLICES}`")
    recorded = judge.recorded(e.record)
    own = {c.id: IN_PROSE[recorded[c.id][0]["verdict"]] for c in judge.claims() if WRITE_UP in c.where}
    right = {id for id, word in own.items() if word == "right"}
    partly = [id for id, word in own.items() if word in ("right direction", "right in part")]
    given = exact("verdicts", claims=len(own), right=len(right), partly=len(partly))
    return given, checks(right == {*STANDS}, "C-18" in partly)


@finding("answer-future", """The write-up's future work names three things. Decode has [a chapter](decode.html). Tables
of sines in FP8 (INT8 we did not build) gain nothing: built into V8, they are never clearly faster than tables in
float32. ALiBi, a bias added to the scores, makes V8's attention {alibi:.2} as fast at the worst.""")
def future(e: Evidence) -> Says:
    def taken(version: str, family: str, table: str = "computed") -> dict[tuple[int, int, int], Estimate]:
        asked = [p for p in e.study("embeddings").problems(family) if p.table == table]
        found = e.time(version, "embeddings", problem=asked).known
        return {(p.batch, p.heads, p.hdim): us for p, us in found.items()}

    def over(slow: dict[Any, Estimate], fast: dict[Any, Estimate]) -> Estimates:
        return Estimates({key: us / fast[key] for key, us in slow.items() if key in fast}, "×")

    float8 = [over(taken(*asked, "float32"), taken(*asked, "float8"))
              for asked in (("sinusoidal_v6", "sinusoidal"), ("learned_v1", "learned"))]  # fmt: skip
    alibi = over(taken("attention_v8", "attention"), taken("alibi_v1", "alibi"))
    if not alibi:
        raise NotMeasured("embeddings are not measured: `make measure STUDY=embeddings`")
    return numbers(alibi=times(alibi.slowest)), checks(*map(of_values, map(not_faster, float8)), alibi > 0.9)


@finding("attention-cliff", """The documents call the fall at head dim 8192 a cliff of the L2 cache. But their shapes
leave {blocks} blocks there for {sms} SMs, with half the heads and half the tokens of head dim 4096. So the rate of the
corrected online kernel falls to {fall}. With heads and tokens kept it falls only to {held}. With warm caches DRAM is
almost idle.""")
def cliff(e: Evidence) -> Says:
    def kept(study: str) -> Estimates:
        rate, before = (e.tflops(ONLINE, study=study, hdim=hdim)[hdim] for hdim in (8192, 4096))
        return Estimates({8192: rate / before}, "%")

    fall, held, blocks = kept("log"), kept("controlled"), e.blocks(ONLINE, hdim=8192)
    return numbers(fall=fall, held=held, blocks=blocks, **exact("gpu.json", sms=e.gpu["sms"])), checks(
        fall < 0.25, held > 0.5, e.counter(ONLINE, DRAM, hdim=8192) < 10, blocks < e.gpu["sms"] / 2
    )


@finding("rope-which", """The write-up's times of fused RoPE are V1's, which loads tables; the text beside them
describes V4, which caches frequencies. It prints {printed:.3} ms, as the log does for V1; for V4 the log has
{fourth:.3} ms. Here too V4 is {gain:.1} as fast as V1 ([C-11](claims.html#C-11)).""")
def which(e: Evidence) -> Says:
    printed, first, fourth = said("N347"), said("N115"), said("N147")
    gain = e.speedup("rope_v4", over="rope_v1c", hdim=2048, rotary="full")
    near = stated(SMALL, "N341", "N344", "N347").within(0.05, stated(SMALL, "N109", "N112", "N115"))
    return numbers(printed=printed, fourth=fourth, gain=times(gain)), checks(
        near, first / fourth > 2, faster(gain)
    )


@finding("method-counts", """The emulator's counts of sectors loaded and stored are within 10 % of the card's counters
for {near} of {all} versions.""")
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


@finding("method-language", """We rewrote {all} versions in C++. In each of the {pairs} comparisons among them the
outcome is that in Python. The sinusoidal hybrid, for example, is {python:.1} as fast as separate kernels in Python and
{cpp:.1} as fast in C++. The page of each version shows its control, and says why it differs where it does.""")
def most_alike(e: Evidence) -> Says:
    def gain(one: str, other: str, made: str = "") -> Estimates:
        return e.speedup(made + one, over=made + other, study="control")

    rewritten = [version.id for version in VERSIONS.values() if version.control_of]
    same = [compare(gain(one, other, made)) for made in ("", "control_") for one, other, compare in COMPARED]
    python, cpp = (times(gain(*COMPARED[-1][:2], made).at(2048)) for made in ("", "control_"))
    return numbers(all=len(rewritten), pairs=len(COMPARED), python=python, cpp=cpp), checks(*same)


@functools.lru_cache(maxsize=4)
def outside(e: Evidence) -> dict[str, float]:
    """By timer, the share of the ratios of unseen runs that lie outside the intervals which the other runs give."""
    found = pool.coverage(e.record.ratios)
    unseen = found[~found["chose"].astype(bool)].groupby("timer")[["outside", "ratios"]].sum()
    if not {*TIMERS} <= {*unseen.index}:
        raise NotMeasured("no run can be left out: too few complete runs of the same code")
    return {timer: float(unseen["outside"][timer] / unseen["ratios"][timer]) for timer in TIMERS}


@finding("method-assembler", """On *their SMs* and on the whole card, the bars of the documents' kernels in the front
page's figure are of code that `ptxas` assembled.""")
def assembled(e: Evidence) -> Says:
    rows = pd.concat([e.study(name).timings for name in ("log", SLICES) if e.study(name)])
    mine = rows[rows["version"].isin(FRONT)]
    if {*mine["study"]} != {"log", SLICES}:
        raise NotMeasured(f"the studies log and {SLICES} are not measured: `make measure STUDY=log,{SLICES}`")
    return {}, checks({*mine["assembler"]} == {PTXAS})


@finding("method-coverage", """On this card at most {most:.1} of the ratios by `device_warm` and `launched` lie outside
in unseen runs. So these intervals are rather too wide than too narrow. Those by `device_cold` are too narrow on an
{where}, where {cold:.1} lie outside. No verdict rests on `device_cold`, but the chapter on decode does.""")
def covered(e: Evidence) -> Says:
    here, other = outside(e), committed(SECOND_CARD)
    most, cold = max(here["device_warm"], here["launched"]), outside(other)["device_cold"]
    shown = {name: Estimates({"": Estimate.exact(share, "timings")}, "%") for name, share in
             (("most", most), ("cold", cold))}  # fmt: skip
    return numbers(where=other.card.removeprefix("NVIDIA "), **shown), checks(most < DUE, cold > DUE)
