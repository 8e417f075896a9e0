"""The steps of half precision: why Phase 4 gains and Phase 6 loses."""

from typing import Any

from ..evidence import Estimate, Estimates, Evidence, NotMeasured, maximum
from ..models.moves import COUNTERS, WORK
from ..studies import AUTHORS_FP16_SMS, FP16_SLICE, MAIN, THEIR_SMS
from . import Says, checks, exact, faster, finding, numbers, slower, times

MINIMAL, PHASE4, CAUSAL = "fp16_minimal", "fp16_phase4", "fp16_phase4_causal"  # Phase 4 with the mask of Phase 6
ITER1, HDIM = "fp16_phase6_iter1", 64


def changed(e: Evidence, name: str) -> Estimates:
    """How much faster Phase 4 is with one change."""
    return e.speedup(f"{PHASE4}_{name}", over=PHASE4, study="ablation", hdim=HDIM)


@finding("half-phase4", """One warp of four computes all scores, and the rows that it reads all start in one bank of
shared memory: without Q times K it is {scores:.1} as fast, and without any other part it gains little. Padding the
rows by a few elements makes it {padded:.1} as fast.""")
def phase4(e: Evidence) -> Says:
    gain = e.speedup(PHASE4, over=MINIMAL, hdim=HDIM)
    scores, softmax, values, padded = (changed(e, n) for n in ("no_scores", "no_softmax", "no_values", "padded"))
    rest = maximum(softmax, values)
    return numbers(scores=times(scores), padded=times(padded)), checks(
        faster(gain), faster(scores), rest < 1.2, rest < padded, faster(padded)
    )


@finding("half-sms", """Here *their SMs* are {slice}, of the {sms} of the report's L4: a Hopper card gives multiples of
eight.""")
def their_sms(e: Evidence) -> Says:
    return exact("studies", slice=FP16_SLICE, sms=AUTHORS_FP16_SMS), checks(
        FP16_SLICE % 8 == 0, FP16_SLICE <= AUTHORS_FP16_SMS < FP16_SLICE + 8
    )


@finding("half-luck", """A barrier is missing between its scores and its softmax. So three of four warps read the
maximum of their first row before anyone has written it. The result is right only where the stale value happens to be
near the row's true maximum. That is luck: of {all} variants of Phase 4 that lack the same barrier {right} pass the
checks.""")
def luck(e: Evidence) -> Says:
    changes = ("causal", "mma", "scalar_loads", "padded", "all_threads", "64x64", "64x32")
    asked: dict[str, Any] = {"study": "ablation", "hdim": HDIM}
    right = [e.status(f"{PHASE4}_{change}", "ok", **asked)[HDIM] for change in changes]
    races = (e.hazards(f"{PHASE4}_{change}", "race", hdim=HDIM, seq_q=512) for change in changes)
    passed = Estimate.count(sum(each.value for each in right), right)
    return numbers(right=passed, all=len(changes)), checks(
        *(each > 0 for each in races), e.status(PHASE4, "wrong", hdim=HDIM) > 0, passed > 1, passed < len(changes)
    )


@finding("half-iter1", """The report blames registers that spill. In our build nothing spills. But if each thread keeps
only its own row's values, {theirs} of the gap closes on *their SMs*, and {share} on the whole card. Our rule asks for
half of it on *their SMs*: [the claim](claims.html#E-03) is not supported.""")
def iter1(e: Evidence) -> Says:
    slow = e.speedup(ITER1, over=CAUSAL, study="ablation", hdim=HDIM)
    spilled = e.resource(ITER1, "spill_bytes", hdim=HDIM)
    share = e.share_closed(ITER1, f"{ITER1}_own_row", CAUSAL, hdim=HDIM)
    theirs = e.under(THEIR_SMS).share_closed(ITER1, f"{ITER1}_own_row", CAUSAL, hdim=HDIM)
    return numbers(share=share, theirs=theirs), checks(
        slower(slow), spilled < 1, share > 0.5, share < 0.9, theirs < 0.5, theirs > 0.3
    )


@finding("half-order", """On *their SMs* this order is right ([E-18](claims.html#E-18)). On the whole card more threads
come before vector loads.""")
def order(e: Evidence) -> Says:
    theirs = e.under(THEIR_SMS)
    mma, padded, threads, scalar = (changed(e, name) for name in ("mma", "padded", "all_threads", "scalar_loads"))
    own = [theirs.speedup(f"{PHASE4}_{name}", over=PHASE4, hdim=HDIM) for name in ("mma", "padded", "all_threads")]
    loads, own_loads = 1 / scalar, theirs.speedup(PHASE4, over=f"{PHASE4}_scalar_loads", hdim=HDIM)
    return numbers(), checks(
        mma > padded, *map(faster, (padded, loads)), threads > loads,
        own[0] > own[1], own[1] > own_loads, own_loads > own[2], faster(own[2]),
    )  # fmt: skip


@finding("method-wavefronts", """The emulator's wavefronts of shared memory are within 10 % of the card's counter for
{near} of {all} versions. So figures show the card's counter where it was read. In half precision the emulator counts up
to {most:.1} as many, because PTX loads neighbouring values one by one, and the assembler joins such loads. Where
threads add to one word by atomics it counts {least:.1} as many, because the card repeats an atomic until it
succeeds.""")
def wavefronts(e: Evidence) -> Says:
    log = [name for family in ("attention", "sinusoidal", "rope") for name in e.study().versions(family)]
    asked = {**dict.fromkeys(log, MAIN.hdim), **dict.fromkeys(e.study("fp16").versions("fp16"), HDIM)}
    ours = {name: e.count(name, " ".join(WORK["shared"]), hdim=hdim)[hdim] for name, hdim in asked.items()}
    cards = {name: e.counter(name, COUNTERS["shared"], hdim=hdim)[hdim] for name, hdim in asked.items()}
    ratios = (Estimates(ours) / Estimates(cards)).known
    if not ratios:
        raise NotMeasured("hardware counters were not read: `make counters`")
    near = Estimate.count(sum(abs(each - 1) < 0.1 for each in ratios.values_known.values()), ratios.values())
    most, least = times(ratios.fastest), times(ratios.slowest)
    return numbers(near=near, all=Estimate.count(len(ratios), ratios.values()), most=most, least=least), checks(
        near > 0.7 * len(ratios), all("fp16" in name for name in most), all("atomics" in name for name in least)
    )
