"""Half precision: what one change does to Phase 4 and to Phase 6."""

from __future__ import annotations

import pandas as pd

from ..evidence import Estimate, Evidence, Known
from ..evidence.known import NOT_MEASURED
from ..evidence.origin import measured
from ..tables.table import Missing
from .style import PALETTE, Plot, by_process, canvas

CASES = {  # by panel: versions, what a bar says, and whether it is the kernel itself, one change, or a part left out
    "Phase 4, no mask": (
        ("fp16_phase4", "as it is", "kernel"),
        ("fp16_phase4_no_scores", "without Q times K", "part"),
        ("fp16_phase4_no_softmax", "without the softmax", "part"),
        ("fp16_phase4_no_values", "without the product with V", "part"),
        ("fp16_phase4_padded", "padded rows", "change"),
        ("fp16_phase4_all_threads", "all threads at the scores", "change"),
        ("fp16_phase4_mma", "tensor cores", "change"),
    ),
    "Phase 6, causal mask": (
        ("fp16_phase4_causal", "Phase 4 with this mask", "kernel"),
        ("fp16_phase6_iter1", "iteration 1", "kernel"),
        ("fp16_phase6_iter1_own_row", "iteration 1, own row alone", "change"),
        ("fp16_phase6_iter2", "iteration 2", "kernel"),
        ("fp16_phase6_iter2_32_threads", "iteration 2, 32 threads", "change"),
        ("fp16_phase6_iter2_padded", "iteration 2, padded rows", "change"),
        ("fp16_phase6_iter2_warp_per_row", "iteration 2, a warp a row", "change"),
    ),
}
LOOKS = {
    "kernel": {"color": PALETTE[0]},
    "change": {"color": PALETTE[9]},
    "part": {"facecolor": "white", "edgecolor": "0.4", "hatch": "///", "lw": 0.8},
}


def phases(e: Evidence) -> Plot | Missing:
    """Device time of Phase 4 and 6, and of each with one thing changed or one part left out, bars in two panels."""
    study, rows = e.study("ablation"), []
    if not study:
        return Missing.study("ablation")
    for panel, cases in CASES.items():
        for version, label, kind in cases:
            problems = [*study.shapes(version, refused=True).values()][:1]
            us = Estimate.none(Known(NOT_MEASURED))
            for problem in problems:
                us = e.time(version, "ablation", "device_warm", problem=problem)[problem]
            word = "" if us or not problems else study.known(version, problems[0]).word
            rows.append((panel, version, label, kind, *by_process(us), word))
    names = ["panel", "version", "label", "kind", "us", "low_us", "high_us", "status"]
    frame = pd.DataFrame(rows, columns=names).astype({"us": float})
    with canvas("Padded rows close most of Phase 6's gap", rows=2, height=4.7, sharex=True) as (figure, axes):
        for axis, (panel, cases) in zip(axes, frame.groupby("panel", sort=False)):
            axis.grid(visible=False)
            for place, row in enumerate(cases.itertuples()):
                timed = row.us == row.us
                if timed:
                    axis.barh(place, row.us, 0.72, **LOOKS[str(row.kind)])
                text, at = (f"{row.us:.0f} µs", row.us) if timed else (row.status or "not measured", 0)
                axis.annotate(text, (at, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
            axis.set_yticks(range(len(cases)), cases["label"])
            axis.invert_yaxis()
            axis.set_title(panel, loc="left", fontsize=9)
            if frame["us"].notna().any():
                axis.set_xlim(0, 1.15 * frame["us"].max())
        axes[-1].set_xlabel("µs a call, on the device")
    return Plot(
        "fp16-phases",
        figure,
        f"Device time of one call (device_warm) on the {e.card}: 8 heads of 512 tokens, head dim 64. Dark: the "
        "kernels. Light: one thing changed. Hatched: a part left out, so that the result is wrong on purpose.",
        "Bars of microseconds in two panels, for Phase 4 and for Phase 6.",
        frame,
        measured(e, "ablation"),
    )
