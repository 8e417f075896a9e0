"""Half precision: what one change does to Phase 4 and to Phase 6."""

from __future__ import annotations

import pandas as pd

from kernels import Problem

from ..records.interval import TIE
from ..records.known import known
from ..records.measured import Measured
from .style import PALETTE, Plot, canvas, measured_in

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


def phases(ablation: Measured) -> Plot:
    """Device time of Phase 4 and 6, and of each with one thing changed or one part left out, bars in two panels."""
    rows = []
    for panel, cases in CASES.items():
        for version, label, kind in cases:
            problem = _problem(ablation, version)
            taken = ablation.time(version, problem) if problem else None
            word = "" if taken or not problem else known(ablation, version, problem).word
            rows.append((panel, version, label, kind, *(taken or 3 * (None,)), word))
    names = ["panel", "version", "label", "kind", "us", "low_us", "high_us", "status"]
    frame = pd.DataFrame(rows, columns=names).astype({"us": float})
    most = frame["us"].max()
    with canvas(_title(ablation), rows=2, height=4.7, sharex=True) as (figure, axes):
        for axis, (panel, cases) in zip(axes, frame.groupby("panel", sort=False)):
            axis.grid(visible=False)
            for place, row in enumerate(cases.itertuples()):
                timed = row.us == row.us
                if timed:
                    axis.barh(place, row.us, 0.72, **LOOKS[str(row.kind)])
                text = f"{row.us:.0f} µs" if timed else row.status or "not measured"
                axis.annotate(text, (row.us if timed else 0, place), (4, 0), textcoords="offset points",
                              va="center", fontsize=8)  # fmt: skip
            axis.set_yticks(range(len(cases)), cases["label"])
            axis.invert_yaxis()
            axis.set_title(panel, loc="left", fontsize=9)
            if most == most:
                axis.set_xlim(0, 1.15 * most)
        axes[-1].set_xlabel("µs a call, on the device")
    return Plot(
        "fp16-phases",
        figure,
        f"Device time of one call (device_warm) on the {ablation.card}: 8 heads of 512 tokens, head dim 64. Dark: the "
        "kernels. Light: one thing changed. Hatched: a part left out, so that the result is wrong on purpose.",
        "Bars of microseconds. " + "; ".join(
            f"{row.panel}, {row.label}: {row.us:.0f}" for row in frame.itertuples()
            if row.us == row.us
        ) + ".",
        frame,
        measured_in(ablation),
    )  # fmt: skip


def _problem(ablation: Measured, version: str) -> Problem | None:
    return next(iter(ablation.shapes(version, refused=True).values()), None)


def _title(ablation: Measured) -> str:
    card = ablation.card.removeprefix("NVIDIA ")
    problem = _problem(ablation, "fp16_phase6_iter2")
    names = ("fp16_phase6_iter2", "fp16_phase6_iter2_padded")
    slow, padded = (ablation.ratio("fp16_phase4_causal", name, problem) if problem else None for name in names)
    # of times over that of Phase 4 the gap is 1/slow - 1, and what padding takes of it 1/slow - 1/padded
    if slow and padded and slow.high < 1 / TIE and 1 / slow.high - 1 / padded.low > 0.5 * (1 / slow.high - 1):
        return f"Padded rows close most of Phase 6's gap on the {card}"
    return f"Phases 4 and 6 with one thing changed on the {card}"
