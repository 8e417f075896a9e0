"""Tensor cores in an afternoon? The half-precision report's Phase 6, and what it calls Phase 7."""

from __future__ import annotations

from ..evidence import Evidence, said
from . import Says, checks, faster, finding, numbers, slower
from .common import times

PHASE4, CAUSAL, PHASE6 = "fp16_phase4", "fp16_phase4_causal", "fp16_phase6_iter2"  # CAUSAL has the mask of Phase 6
CUDNN, HDIM = "torch_sdpa_fp16_cudnn", 64


@finding(
    "tensor-cores-phase6",
    """With the same mask Phase 6 takes {slow:.1} as long as Phase 4. Rows that are a few
elements longer, and nothing else, close {share} of that gap.""",
)
def phase6(e: Evidence) -> Says:
    slow = e.speedup(CAUSAL, over=PHASE6, study="ablation", hdim=HDIM)
    share = e.share_closed(PHASE6, f"{PHASE6}_padded", CAUSAL, hdim=HDIM)
    return numbers(slow=times(slow), share=share), checks(faster(slow), share > 0.9, share < 1)


@finding(
    "tensor-cores-mma",
    """Put both products of the working kernel on tensor cores, leave the rest as it is, and it
is {mma:.1} as fast. The report predicts {said:.1f} times: right direction, and too modest.""",
)
def mma(e: Evidence) -> Says:
    mma = e.speedup(f"{PHASE4}_mma", over=PHASE4, study="ablation", hdim=HDIM)
    predicted = said("N406") / said("N469")
    return numbers(mma=times(mma), said=predicted.value), checks(mma > predicted)


@finding(
    "tensor-cores-library",
    """cuDNN, as PyTorch calls it, is {library:.0f} times as fast as that kernel. So most
of the way is still to go.""",
)
def library(e: Evidence) -> Says:
    library = e.speedup(CUDNN, over=PHASE4, study="fp16", hdim=HDIM)
    mma = e.speedup(f"{PHASE4}_mma", over=PHASE4, study="ablation", hdim=HDIM)
    return numbers(library=library[HDIM].value), checks(library > mma)


@finding(
    "tensor-cores-small",
    """Longer rows make the working kernel {padded:.1} as fast. Larger tiles, which the
report would try next, make it {tiles:slower} slower.""",
)
def small(e: Evidence) -> Says:
    padded, tiles = (
        e.speedup(f"{PHASE4}_{name}", over=PHASE4, study="ablation", hdim=HDIM) for name in ("padded", "64x64")
    )
    return numbers(padded=times(padded), tiles=tiles), checks(faster(padded), slower(tiles))
