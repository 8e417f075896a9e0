"""From Phase 4 of the half-precision report to cuDNN: what one change at a time gains."""

from __future__ import annotations

import pandas as pd

from ..evidence import Evidence
from ..evidence.origin import measured
from ..tables.table import Missing
from .style import NARROW, PALETTE, Plot, canvas, log_ticks

HDIM = 64
RUNGS = (  # in words, version, study
    ("Phase 4", "fp16_phase4", "ablation"),
    ("larger tiles, 64 × 64", "fp16_phase4_64x64", "ablation"),
    ("all threads at the scores", "fp16_phase4_all_threads", "ablation"),
    ("padded rows", "fp16_phase4_padded", "ablation"),
    ("tensor cores", "fp16_phase4_mma", "ablation"),
    ("FlashAttention, by PyTorch", "torch_sdpa_fp16_flash", "fp16"),
    ("cuDNN, by PyTorch", "torch_sdpa_fp16_cudnn", "fp16"),
)


def tensor_cores(e: Evidence) -> Plot | Missing:
    """Time of Phase 4, of it with one change each, and of two libraries."""
    found = [(words, name, e.time(name, study, hdim=HDIM, causal=False)[HDIM]) for words, name, study in RUNGS]
    rows = [(words, name, us.value, us.low, us.high) for words, name, us in found if us]
    if not rows:
        return Missing.study("ablation")
    frame = pd.DataFrame(rows, columns=["rung", "version", "us", "low", "high"])
    with canvas("Tensor cores are one rung of the ladder", width=NARROW, height=2.9) as (figure, (axis,)):
        colors = [PALETTE[0] if name.startswith("fp16") else "0.6" for name in frame["version"]]
        axis.barh(range(len(frame)), frame["us"], 0.7, color=colors)
        for place, us in enumerate(frame["us"]):
            axis.text(us, place, f" {us:.3g} µs", va="center", fontsize=8.5)
        log_ticks(axis, "x", 5, 1000, "")
        axis.set_xlim(5, 2500)
        axis.set_yticks(range(len(frame)), frame["rung"])
        axis.set_ylim(len(frame) - 0.4, -0.6)
        axis.grid(False, axis="y")
        axis.set_xlabel("µs of one call", loc="left")
    return Plot(
        "tensor-cores",
        figure,
        "The report's shape: 8 heads of 512 tokens, head dim 64, on the GPU alone. Blue: Phase 4, and Phase 4 with one "
        "thing changed. Grey: libraries.",
        "Bars of time: Phase 4, four changes to it of which tensor cores gain most, and two libraries far below.",
        frame,
        measured(e, "ablation", "fp16"),
    )
