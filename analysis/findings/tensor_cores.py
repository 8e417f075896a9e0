"""The half-precision report's Phase 6, second iteration, and the Phase 7 on tensor cores that it planned."""

import math
from dataclasses import replace

from kernels import VERSIONS, Problem
from kernels.runtime.compile import blocks_per_sm

from ..evidence import Estimate, Estimates, Evidence, said
from ..evidence.compare import between
from ..studies import AUTHORS_FP16_SMS, AUTHORS_TARGET, FLASHINFER, FP16_SLICE, PHASES, THEIR_SMS, unrotated
from . import Says, checks, exact, faster, finding, numbers, of_values, slower, ties, times

PHASE4, CAUSAL, PHASE6 = "fp16_phase4", "fp16_phase4_causal", "fp16_phase6_iter2"  # CAUSAL has the mask of Phase 6
CUDNN, HDIM, STUDY = "torch_sdpa_fp16_cudnn", 64, "half_prompts"
SCORES, BOTH, AHEAD, WGMMA = PHASES
REPORT = Problem("fp16", 1, 8, 8, 512, 512, HDIM, dtype="float16")
ALONE = unrotated(REPORT)  # the same call, as libraries take it that are timed without RoPE
LONG = Problem("fp16", 2, 16, 16, 4096, 4096, 128, dtype="float16")


def step(e: Evidence, version: str, over: str, problem: Problem = REPORT) -> Estimates:
    return e.speedup(version, over=over, study=STUDY, problem=problem)


def over_flashinfer(e: Evidence) -> Estimate:
    """How many times as fast as FlashInfer *both products* is at the report's shape; no value where not timed."""
    theirs, mine = (e.time(name, STUDY, problem=of)[of] for name, of in ((FLASHINFER[1], ALONE), (BOTH, REPORT)))
    return theirs / mine


@finding("tensor-cores-short", """We built a Phase 7, in four steps. At the report's shape the second step, *both
products*, is {gain:.0} as fast as Phase 4, and faster than the libraries that we timed. With {tokens:,} tokens the last
step, *wgmma*, is about level with NVIDIA's cuDNN. *Both products* and the third step, *copies ahead*, are about a third
as fast as cuDNN there.""")
def short(e: Evidence) -> Says:
    gain, flashinfer = step(e, BOTH, PHASE4), over_flashinfer(e)
    return numbers(gain=times(gain), tokens=LONG.seq_q), checks(
        faster(gain), faster(step(e, BOTH, CUDNN)), faster(step(e, BOTH, "torch_sdpa_fp16_flash")),
        *([faster(flashinfer)] if flashinfer else []),
        *(between(0.25, step(e, each, CUDNN, LONG), 0.4) for each in (BOTH, AHEAD)),
        of_values(ties(step(e, WGMMA, CUDNN, LONG))),
    )  # fmt: skip


@finding("tensor-cores-phase6", """We padded each row in shared memory by a few elements, and changed nothing else. The
whole gap to Phase 4 with the same mask closed, on the whole card and on *their SMs*.""")
def phase6(e: Evidence) -> Says:
    slow = e.speedup(PHASE6, over=CAUSAL, study="ablation", hdim=HDIM)
    shares = (each.share_closed(PHASE6, f"{PHASE6}_padded", CAUSAL, hdim=HDIM) for each in (e, e.under(THEIR_SMS)))
    return numbers(), checks(slower(slow), *(share > 1 for share in shares))


@finding("tensor-cores-idle", """No register spills in either iteration, and the second has fewer barriers than Phase 4.
Removing the idle threads changes nothing on the whole card. Giving them work would help Phase 6, but it helps Phase 4
as well.""")
def idle(e: Evidence) -> Says:
    spills = (e.resource(f"fp16_phase6_iter{n}", "spill_bytes", hdim=HDIM) < 1 for n in (1, 2))
    barriers = e.count(PHASE6, "barriers", hdim=HDIM) / e.count(PHASE4, "barriers", hdim=HDIM)
    alone = e.speedup(f"{PHASE6}_32_threads", over=PHASE6, study="ablation", hdim=HDIM)
    busy = (
        e.speedup(version, over=over, study="ablation", hdim=HDIM)
        for version, over in ((f"{PHASE6}_warp_per_row", PHASE6), (f"{PHASE4}_all_threads", PHASE4))
    )
    return numbers(), checks(*spills, barriers < 1, ties(alone), *map(faster, busy))


@finding("tensor-cores-wave", """On *their SMs* the idle threads cost a wave of blocks. With them an SM of the report's
card holds {with_idle:.0} blocks, without them {without:.0}. The call has {blocks:.0} blocks for {sms} SMs. Removing the
idle threads makes the second iteration {gain:.1} as fast on *their SMs*, and closes the whole gap, too.""")
def wave(e: Evidence) -> Says:
    other = f"{PHASE6}_32_threads"
    on = [VERSIONS[name](replace(REPORT, causal=True), AUTHORS_TARGET).launches[-1] for name in (PHASE6, other)]
    most = [blocks_per_sm(launch, AUTHORS_TARGET) for launch in on]
    blocks, own = math.prod(on[0].grid), e.under(THEIR_SMS)
    gain, share = own.speedup(other, over=PHASE6, hdim=HDIM), own.share_closed(PHASE6, other, CAUSAL, hdim=HDIM)
    told = {"with_idle": most[0], "without": most[1], "blocks": blocks, "sms": AUTHORS_FP16_SMS}
    return numbers(gain=times(gain), **exact("plans", **told)), checks(
        faster(gain), share > 0.9, FP16_SLICE * most[0] < blocks <= FP16_SLICE * most[1],
        AUTHORS_FP16_SMS * most[0] < blocks <= AUTHORS_FP16_SMS * most[1],
    )  # fmt: skip


@finding("tensor-cores-mma", """With both products on tensor cores, and nothing else changed, Phase 4 becomes {mma:.1}
as fast. The report predicts {said:.1} times.""")
def mma(e: Evidence) -> Says:
    mma = step(e, f"{PHASE4}_mma", PHASE4)
    predicted = said("N406") / said("N469")
    return numbers(mma=times(mma), said=predicted), checks(mma > predicted, predicted > 1)


@finding("tensor-cores-registers", """Its first step, *scores in registers*, computes only the scores on tensor cores.
It is {first:.0} as fast as Phase 4.""")
def registers(e: Evidence) -> Says:
    first, both, ahead = (step(e, *pair) for pair in ((SCORES, PHASE4), (BOTH, SCORES), (AHEAD, BOTH)))
    return numbers(first=times(first)), checks(first > 10, both < first, ahead < first)


@finding("tensor-cores-ahead", """The second step, *both products*, moves the product with V to tensor cores, too. It is
{both:.1} as fast as the first. The third, *copies ahead*, fetches tiles before they are needed. It is the fastest at
this shape, {cudnn:.1} as fast as NVIDIA's cuDNN. The last step, *wgmma*, uses the instruction of that name, by
which four warps of a Hopper card multiply large tiles from shared memory. At this shape it is slower than
*copies ahead*: the call makes only {blocks} of its large blocks, for {sms} SMs. With {tokens:,} tokens it is {long:.1}
as fast as *copies ahead*.""")
def ahead(e: Evidence) -> Says:
    pairs = ((BOTH, SCORES), (AHEAD, BOTH), (AHEAD, CUDNN), (WGMMA, AHEAD, LONG))
    both, gain, cudnn, long = (step(e, *asked) for asked in pairs)
    shown = {"both": times(both), "cudnn": times(cudnn), "long": times(long)}
    blocks, sms = math.prod(VERSIONS[WGMMA](REPORT, e.target).launches[-1].grid), e.gpu["sms"]
    return numbers(**shown, tokens=LONG.seq_q, **exact("plans", blocks=blocks, sms=sms)), checks(
        *map(faster, (both, gain, cudnn, long)), slower(step(e, WGMMA, AHEAD)), blocks < sms / 2,
    )  # fmt: skip


@finding("tensor-cores-estimate", """Until then the report advises to use a library. The rows agree: NVIDIA's cuDNN is
{library:.0} as fast as Phase 4.""")
def estimate(e: Evidence) -> Says:
    library, hoped = step(e, CUDNN, PHASE4), said("N406") / said("N473")
    return numbers(library=times(library)), checks(library > hoped, hoped > 1)
