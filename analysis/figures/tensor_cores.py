"""From Phase 4 of the half-precision report over four steps on tensor cores, beside cuDNN and flash."""

import pandas as pd

from ..evidence import Evidence, measured
from ..findings.tensor_cores import REPORT
from ..tables.table import missing
from .style import FUSED, LIBRARY, Plot, canvas, time_bars

STUDY = "half_prompts"
SHORT = 50  # µs: up to which times have a scale of their own
RUNGS = (  # in words, version
    ("Phase 4", "fp16_phase4"),
    ("Phase 4 on tensor cores", "fp16_phase4_mma"),
    ("7a, scores in registers", "fp16_phase7a"),
    ("7b, both products", "fp16_phase7b"),
    ("7c, copies ahead", "fp16_phase7c"),
    ("7d, wgmma", "fp16_phase7d"),
    ("FlashAttention, PyTorch", "torch_sdpa_fp16_flash"),
    ("cuDNN, PyTorch", "torch_sdpa_fp16_cudnn"),
)


def tensor_cores(e: Evidence) -> Plot | str:
    """Time of Phase 4, of it with tensor cores, of the four steps of Phase 7, and of two libraries."""
    found = ((words, name, e.time(name, STUDY, problem=REPORT)[REPORT]) for words, name in RUNGS)
    rows = [(words, name, us.value, us.low, us.high) for words, name, us in found if us]
    if not rows:
        return missing(STUDY)
    frame = pd.DataFrame(rows, columns=["rung", "version", "us", "low", "high"])
    groups = [group for _, group in frame.groupby(frame["us"] <= SHORT, sort=False)]
    sizes = {"height_ratios": [len(group) for group in groups]}
    with canvas("Two steps bring nearly all of the gain", len(groups), height=3.8, gridspec_kw=sizes) as (figure, axes):
        for axis, group in zip(axes, groups):
            colors = [FUSED if name.startswith("fp16") else LIBRARY for name in group["version"]]
            time_bars(axis, group["rung"], group["us"], colors)
            axis.set_xlabel("")
        axes[-1].set_xlabel("µs of one call; each panel has a scale of its own", loc="left")
    return Plot(
        "tensor-cores",
        figure,
        "The report's shape: 8 heads of 512 tokens, head dim 64, on the GPU alone. Blue: Phase 4, the same with both "
        "products on tensor cores, and the four steps of a new kernel, each on the step before. Grey: libraries, "
        f"those of PyTorch {e.study(STUDY).run['torch']}. (The page on half precision times Phase 4 in another run.)",
        "Bars of time. Tensor cores make Phase 4 several times as fast, scores in registers as "
        "much again, both products and copies ahead go below the libraries; wgmma is level with them.",
        frame,
        measured(e, STUDY),
    )
