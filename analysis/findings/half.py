"""The steps of half precision: why Phase 4 gains and Phase 6 loses."""

from ..evidence import Estimates, Evidence, maximum
from ..studies import THEIR_SMS
from . import Says, checks, faster, finding, numbers, of_values, slower, times

MINIMAL, PHASE4, CAUSAL = "fp16_minimal", "fp16_phase4", "fp16_phase4_causal"  # Phase 4 with the mask of Phase 6
ITER1, HDIM = "fp16_phase6_iter1", 64


def changed(e: Evidence, name: str) -> Estimates:
    """How much faster Phase 4 is with one change."""
    return e.speedup(f"{PHASE4}_{name}", over=PHASE4, study="ablation", hdim=HDIM)


@finding("half-phase4", """One warp of four computes all scores, and the rows that it reads all start in one bank of
shared memory: without Q times K it is {scores:.1} as fast. Leaving out either of the other parts gains {rest:faster}
at most. Padding the rows by a few elements makes it {padded:.1} as fast.""")
def phase4(e: Evidence) -> Says:
    gain = e.speedup(PHASE4, over=MINIMAL, hdim=HDIM)
    scores, softmax, values, padded = (changed(e, n) for n in ("no_scores", "no_softmax", "no_values", "padded"))
    rest = maximum(softmax, values)
    return numbers(scores=times(scores), padded=times(padded), rest=rest), checks(
        faster(gain), faster(scores), rest < padded, faster(padded)
    )


@finding("half-iter1", """It takes {slow:.1} as long as Phase 4 with the same mask. The report blames registers that
spill. In our build nothing spills. But arrays for a thread's own row alone close {share} of the gap.""")
def iter1(e: Evidence) -> Says:
    slow = e.speedup(ITER1, over=CAUSAL, study="ablation", hdim=HDIM)
    spilled = e.resource(ITER1, "spill_bytes", hdim=HDIM)
    share = e.share_closed(ITER1, f"{ITER1}_own_row", CAUSAL, hdim=HDIM)
    return numbers(slow=times(1 / slow), share=share), checks(slower(slow), spilled < 1, share > 0.5, share < 0.9)


@finding("half-order", """With both products on tensor cores Phase 4 is {mma:.1} as fast. All threads at the scores
gain {threads:faster} on the whole card, and {own:faster} on *their SMs*. Vector loads, which the report ranks above
them, gain {loads:faster} on both.""")
def order(e: Evidence) -> Says:
    mma, threads, scalar = (changed(e, name) for name in ("mma", "all_threads", "scalar_loads"))
    theirs = e.under(THEIR_SMS)
    own = theirs.speedup(f"{PHASE4}_all_threads", over=PHASE4, hdim=HDIM)
    loads, own_loads = 1 / scalar, theirs.speedup(PHASE4, over=f"{PHASE4}_scalar_loads", hdim=HDIM)
    return numbers(mma=times(mma), threads=threads, loads=loads, own=own), checks(
        *map(faster, (mma, own, loads)), threads > loads, own_loads > own, of_values(own_loads > 1.25), loads < 1.31
    )
