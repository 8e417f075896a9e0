"""The figure of the front page: every RoPE version at one shape, published beside measured, and V8."""

from __future__ import annotations

import pandas as pd

from kernels import Problem

from ...measure.studies import MAIN
from ...records import published
from ...records.interval import Ratio
from ...records.measured import Measured
from ..style import PALETTE, Plot, canvas, log_ticks, measured_in, published_on, short

BASELINE, FUSED = "rope_separate", "rope_v8"
LADDER = ("rope_v1c", "rope_v2", "rope_v3", "rope_v4", "rope_v5", "rope_v6a", "rope_v6b", "rope_v7")
SOFT = "0.45"


def rope_ladder_2048(evidence: Measured, beyond: Measured | None) -> Plot:
    """Speedup of every RoPE version over separate kernels at head dim 2048; `beyond` adds V8 where it was measured."""
    rows = []
    for version in LADDER:
        problem = evidence.shapes(version).get(MAIN.hdim)
        ratio = evidence.ratio(BASELINE, version, problem) if problem else None
        stated = published.speedup(version, BASELINE, problem) if problem else None
        rows.append(_row(version, problem, stated.value if stated else None, ratio))
    if beyond:
        rows.append(_row(FUSED, MAIN, None, beyond.ratio(BASELINE, FUSED, MAIN)))
    names = ["version", "rotary_dim", "published", "measured", "low", "high"]
    frame = pd.DataFrame(rows, columns=names)
    drawn = frame.dropna(subset=["published", "measured"], how="all").reset_index(drop=True)
    log = drawn[drawn["version"] != FUSED]["measured"].dropna()
    card = evidence.card.removeprefix("NVIDIA ")
    title = f"Published RoPE kernels against separate kernels on the {card}"
    if len(log) and log.max() < 1:
        title = f"No published RoPE kernel beats separate kernels on the {card}"
    with canvas(title, height=3.4) as (figure, (axis,)):
        axis.axhline(1, color="0.2", lw=1)
        for place, row in drawn.iterrows():
            both = [value for value in (row.published, row.measured) if value == value]
            axis.plot([place, place], [min(both), max(both)], color="0.8", lw=2, zorder=1)
            for value, other, style, ink in (
                (row.published, row.measured, {"mfc": "white", "mec": "0.2"}, SOFT),
                (row.measured, row.published, {"color": PALETTE[0]}, PALETTE[0]),
            ):
                if value == value:
                    above = not (other == other and value < other)
                    axis.plot(place, value, "o", ms=6.5, zorder=3, **style)
                    axis.annotate(
                        f"{value:.2g}", (place, value), (0, 6 if above else -6), textcoords="offset points",
                        ha="center", va="bottom" if above else "top", fontsize=8, color=ink,
                        bbox={"fc": "white", "ec": "none", "pad": 0.4},
                    )  # fmt: skip
        values = pd.concat([drawn["published"], drawn["measured"]]).dropna()
        log_ticks(axis, "y", values.min(), values.max(), "×")
        axis.set_ylim(values.min() / 1.8, max(values.max(), 1) * 1.9)
        axis.set_xticks(range(len(drawn)), [short(version) for version in drawn["version"]])
        axis.set_xlim(-0.6, len(drawn) - 0.4)
        axis.set_ylabel("speedup over separate")
        axis.set_xlabel(f"head dim {MAIN.hdim}, 4 heads, 64 tokens", loc="left", color=SOFT, fontsize=8.5)
        axis.plot([], [], "o", mfc="white", mec="0.2", label=f"published, {published.card('rope')}")
        axis.plot([], [], "o", color=PALETTE[0], label=f"measured, {card}, device")
        axis.legend(loc="upper left", frameon=False, handletextpad=0.3)
    measured = [each for each in (evidence, beyond) if each]
    alt = "; ".join(
        f"{short(row.version)}: "
        + ", ".join(
            f"{name} {value:.2f}"
            for name, value in (("published", row.published), ("measured", row.measured))
            if value == value
        )
        for row in drawn.itertuples()
    )
    return Plot(
        "rope-ladder-2048",
        figure,
        "Speedup over separate kernels at head dim 2048; above 1 is faster. Open marks: published; filled marks: "
        "measured on the device (device_warm). V1c to V5 rotate every dim; V6, V7 and V8 the published 128.",
        f"Dot plot of speedups over separate RoPE kernels at head dim {MAIN.hdim}. {alt}.",
        frame,
        measured_in(*measured) + published_on("rope"),
    )


def _row(version: str, problem: Problem | None, stated: float | None, ratio: Ratio | None) -> tuple:
    return (version, problem and problem.rotary_dim, stated, *(ratio or (None,) * 3))
