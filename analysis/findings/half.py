"""Half precision: Phases 4 and 6 of the report."""

from __future__ import annotations

from ..evidence import Estimates, Evidence
from . import Says, checks, faster, finding, numbers, slower, ties
from .common import fastest_peer

MINIMAL, PHASE4, CAUSAL = "fp16_minimal", "fp16_phase4", "fp16_phase4_causal"  # Phase 4 with the mask of Phase 6
ITER1, ITER2 = "fp16_phase6_iter1", "fp16_phase6_iter2"
HDIM = 64


@finding("fp16-story", """On an {card} Phase 4 is {phase4} as fast as the minimal kernel. Phase 6 runs at {phase6} the
speed of Phase 4 with the same mask, nearly all because of the layout of its shared memory: slightly longer rows alone
close {share} of the gap. With longer rows it runs at {padded} the speed of Phase 4.""")
def story(e: Evidence) -> Says:
    phase4 = e.speedup(PHASE4, over=MINIMAL, hdim=HDIM)
    phase6, padded = (e.speedup(name, over=CAUSAL, study="ablation", hdim=HDIM) for name in (ITER2, f"{ITER2}_padded"))
    share = e.share_closed(ITER2, f"{ITER2}_padded", CAUSAL, hdim=HDIM)
    return numbers(phase4=phase4, phase6=phase6, share=share, padded=padded), checks(
        faster(phase4), slower(phase6), share > 0.9, slower(padded)
    )


def changed(e: Evidence, name: str, study: str = "ablation") -> Estimates:
    """How much faster Phase 4 is with one change."""
    return e.speedup(f"{PHASE4}_{name}", over=PHASE4, study=study, hdim=HDIM)


@finding("fp16-phase4-why", """**Where its time goes: one warp reads rows that all start in one bank.** On an {card}
Phase 4 is {scores} as fast without Q times K, {softmax} without the softmax and {values} without the product with V.
The scores are slow for two reasons: with padded rows Phase 4 is {padded} as fast, with all threads at the scores
{threads}.""")
def phase4_why(e: Evidence) -> Says:
    scores, softmax, values = (changed(e, f"no_{name}") for name in ("scores", "softmax", "values"))
    padded, threads = changed(e, "padded"), changed(e, "all_threads")
    larger = [scores / each for each in (softmax, values)]
    return numbers(scores=scores, softmax=softmax, values=values, padded=padded, threads=threads), checks(
        faster(scores), *map(faster, larger), faster(padded), faster(threads)
    )


@finding("fp16-iter1-why", """**Not register pressure.** On an {card} the first iteration runs at {slow} the speed of
Phase 4 with the same mask. With arrays for a thread's own row alone it is {own} as fast as before, which closes {share}
of the gap.""")
def iter1_why(e: Evidence) -> Says:
    slow = e.speedup(ITER1, over=CAUSAL, study="ablation", hdim=HDIM)
    own = e.speedup(f"{ITER1}_own_row", over=ITER1, hdim=HDIM)
    share = e.share_closed(ITER1, f"{ITER1}_own_row", CAUSAL, hdim=HDIM)
    return numbers(slow=slow, own=own, share=share), checks(slower(slow), faster(own), share < 0.5)


@finding("fp16-iter2-why", """**Why Phase 6 loses: 32 threads do the work, and their rows lie in the same banks.** On an
{card} the second iteration is {again} as fast as the first, and runs at {slow} the speed of Phase 4 with the same
mask.""")
def iter2_why(e: Evidence) -> Says:
    again = e.speedup(ITER2, over=ITER1, study="fp16", hdim=HDIM)
    slow = e.speedup(ITER2, over=CAUSAL, study="ablation", hdim=HDIM)
    return numbers(again=again, slow=slow), checks(faster(again), slower(slow))


@finding("fp16-iter2-changes", """Padded rows, so that neighbours start in different banks, close {share} of the gap.
With one warp for each row, which gives all threads work and removes some of the conflicts, Phase 6 is {warps} as fast
as Phase 4. Leaving out the 224 idle threads changes nothing ({alone}); they need work to do.""")
def iter2_changes(e: Evidence) -> Says:
    share = e.share_closed(ITER2, f"{ITER2}_padded", CAUSAL, hdim=HDIM)
    warps = e.speedup(f"{ITER2}_warp_per_row", over=CAUSAL, hdim=HDIM)
    alone = e.speedup(f"{ITER2}_32_threads", over=ITER2, hdim=HDIM)
    return numbers(share=share, warps=warps, alone=alone), checks(share > 0.9, faster(warps), ties(alone))


@finding("fp16-order", """On an {card} tensor cores make Phase 4 {mma} as fast, padded rows {padded}, all threads at the
scores {threads}. Vector loads gain nothing: Phase 4 with loads of one half at a time is {scalar} as fast as with the 16
bytes that it loads. So the number of threads matters more than vector loads.""")
def order(e: Evidence) -> Says:
    mma, padded, threads, scalar = (changed(e, name) for name in ("mma", "padded", "all_threads", "scalar_loads"))
    return numbers(mma=mma, padded=padded, threads=threads, scalar=scalar), checks(
        faster(mma), faster(padded), faster(threads), ties(scalar)
    )


@finding("fp16-tiles", """At this shape larger tiles lose: 64 × 64 runs at {square} Phase 4's speed, 64 × 32 at {flat};
with as many blocks per SM as on the report's card they do too, {square_loaded} and {flat_loaded}.""")
def tiles(e: Evidence) -> Says:
    square, flat = (changed(e, name) for name in ("64x64", "64x32"))
    square_loaded, flat_loaded = (changed(e, name, "matched") for name in ("64x64", "64x32"))
    return numbers(square=square, flat=flat, square_loaded=square_loaded, flat_loaded=flat_loaded), checks(
        *map(slower, (square, flat, square_loaded, flat_loaded))
    )


@finding("fp16-libraries", "The fastest of PyTorch's ways is {library} as fast as Phase 4 on an {card}.")
def libraries(e: Evidence) -> Says:
    library = 1 / fastest_peer(e, PHASE4, HDIM, study="fp16").over
    return numbers(library=library), checks(faster(library))
