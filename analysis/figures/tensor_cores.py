"""From Phase 4 of the half-precision report over four steps on tensor cores, beside libraries."""

from typing import Any

import pandas as pd

from ..evidence import Evidence, measured
from ..findings.tensor_cores import ALONE, REPORT, STUDY
from ..studies import FLASHINFER
from ..tables.environment import what_changed
from ..tables.table import missing
from .style import FUSED, LIBRARY, Plot, canvas, log_ticks

RUNGS = (  # in words, version
    ("Phase 4", "fp16_phase4"),
    ("Phase 4 on tensor cores", "fp16_phase4_mma"),
    ("7a, scores in registers", "fp16_phase7a"),
    ("7b, both products", "fp16_phase7b"),
    ("7c, copies ahead", "fp16_phase7c"),
    ("7d, wgmma", "fp16_phase7d"),
    ("FlashAttention, PyTorch", "torch_sdpa_fp16_flash"),
    ("cuDNN, PyTorch", "torch_sdpa_fp16_cudnn"),
    ("FlashInfer", FLASHINFER[1]),
)
OTHER = "; the run shown here has the same code from another assembler"


def tensor_cores(e: Evidence) -> Plot | str:
    """Time of Phase 4, of it with tensor cores, of the four steps of Phase 7, and of libraries."""
    asked = ((words, name, ALONE if name == FLASHINFER[1] else REPORT) for words, name in RUNGS)
    found = ((words, name, e.time(name, STUDY, problem=of)[of]) for words, name, of in asked)
    rows = [(words, name, us.value, us.low, us.high) for words, name, us in found if us]
    if not rows:
        return missing(STUDY)
    other = what_changed(e.study(STUDY), RUNGS[0][1]) == "assembler"
    frame = pd.DataFrame(rows, columns=["rung", "version", "us", "low", "high"])
    title = "7a and 7b, on tensor cores, bring nearly all of the gain"
    with canvas(title, height=3.4) as (figure, (axis,)):
        for place, row in enumerate(frame.itertuples()):
            color = FUSED if str(row.version).startswith("fp16") else LIBRARY
            axis.plot(row.us, place, "o", color=color)
            at: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5, "fontweight": "bold"}
            axis.annotate(f"{row.us:.1f} µs", (row.us, place), (7, 0), **at)
        log_ticks(axis, "x", 5, 500)
        axis.set_xlim(4, 2.2 * frame["us"].max())
        axis.set_yticks(range(len(frame)), frame["rung"], fontsize=8.5)
        axis.set_ylim(len(frame) - 0.5, -0.5)
        axis.grid(True, axis="both")
        axis.set_xlabel("µs of one call; equal distances are equal ratios", loc="left")
    return Plot(
        "tensor-cores",
        figure,
        "The report's shape: 8 heads of 512 tokens, head dim 64, float16, on the GPU alone. Blue: Phase 4, the same "
        "with both products on tensor cores, and the four steps of a new kernel (7a to 7d), each on the step before. "
        f"Grey: libraries, of which two are those of PyTorch {e.study(STUDY).run['torch']}. (The page on half "
        f"precision times Phase 4 in another run{OTHER * other}.)",
        "Dots of time on an axis of ratios. Tensor cores make Phase 4 several times as fast, scores in registers as "
        "much again; both products and copies ahead are faster than the libraries; wgmma is level with them.",
        frame,
        measured(e, STUDY),
    )
