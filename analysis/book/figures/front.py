"""The figure of the front page: every RoPE version at one shape, published beside measured, and V8."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from kernels import Problem

from ...measure.studies import MAIN
from ...records import published
from ...records.interval import Ratio
from ...records.measured import Measured
from ..style import PALETTE, Plot, canvas, log_ticks, measured_in, published_on, short

BASELINE, FUSED = "rope_separate", "rope_v8"
LADDER = ("rope_v1c", "rope_v2", "rope_v3", "rope_v4", "rope_v5", "rope_v6a", "rope_v6b", "rope_v7")
SOFT = "0.4"
MARKS = {"published": {"mfc": "white", "mec": "0.2"}, "measured": {"color": PALETTE[0]}}
INKS = {"published": SOFT, "measured": PALETTE[0]}


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
    measured = drawn.set_index("version")["measured"].dropna()
    card = evidence.card.removeprefix("NVIDIA ")
    title = f"RoPE kernels against separate kernels on the {card}"
    if len(measured) and measured.drop(FUSED, errors="ignore").max() < 1:
        title = f"No published RoPE kernel beats separate kernels on the {card}"
        title += "; V8 does" if measured.get(FUSED, 0) > 1 else ""
    with canvas(title, height=2.7) as (figure, (axis,)):
        values = pd.concat([drawn["published"], drawn["measured"]]).dropna()
        log_ticks(axis, "y", values.min(), values.max(), "×")
        axis.set_ylim(values.min() / 1.9, max(values.max(), 1) * 2)
        axis.axhline(1, color="0.2", lw=1)
        for place, row in drawn.iterrows():
            _pair(axis, int(str(place)), {name: getattr(row, name) for name in MARKS})
        for name, words in (("published", f"published, {published.card('rope')}"), ("measured", f"measured, {card}")):
            known = drawn[drawn[name].notna()]
            if len(known):
                row = known.iloc[-1] if name == "measured" else known.loc[known[name].idxmax()]
                _say(axis, (row.name, row[name]), words, INKS[name], (-14, 7), "right")
        axis.set_xticks(range(len(drawn)), [short(version) for version in drawn["version"]])
        axis.set_xlim(-0.6, len(drawn) - 0.4)
        axis.set_ylabel("speedup over separate")
        axis.set_xlabel(
            f"head dim {MAIN.hdim}, {MAIN.heads} heads, {MAIN.seq_q} tokens; time on the GPU alone",
            loc="left", color=SOFT, fontsize=8.5,
        )  # fmt: skip
    alt = "; ".join(
        f"{short(row.version)}: " + ", ".join(f"{name} {row[name]:.2f}" for name in MARKS if row[name] == row[name])
        for _, row in drawn.iterrows()
    )
    return Plot(
        "front",
        figure,
        "Above 1 is faster than separate kernels. V1c to V5 rotate all dims; V6, V7 and V8 the published 128.",
        f"Dot plot of speedups over separate RoPE kernels at head dim {MAIN.hdim}. {alt}.",
        frame,
        measured_in(*filter(None, (evidence, beyond))) + published_on("rope"),
    )


def _pair(axis: Axes, place: int, values: dict[str, float]) -> None:
    """What is published and what is measured of one version, joined by a line, each with its value."""
    known = {name: value for name, value in values.items() if value == value}
    axis.plot([place, place], [min(known.values()), max(known.values())], color="0.8", lw=2, zorder=1)
    for name, value in known.items():
        up = value == max(known.values())
        axis.plot(place, value, "o", ms=6.5, zorder=3, **MARKS[name])
        _say(axis, (place, value), f"{value:.2g}", INKS[name], (0, 6 if up else -6), "center")


def _say(axis: Axes, at: tuple[float, float], text: str, ink: Any, off: tuple[int, int], side: str) -> None:
    """Words at a point of the data, so many points off."""
    up = {0: "center", 1: "bottom", -1: "top"}[(off[1] > 0) - (off[1] < 0)]
    axis.annotate(
        text, at, off, textcoords="offset points", ha=side, va=up, fontsize=8.5, color=ink,
        bbox={"fc": "white", "ec": "none", "pad": 0.4},
    )  # fmt: skip


def _row(version: str, problem: Problem | None, stated: float | None, ratio: Ratio | None) -> tuple:
    return (version, problem and problem.rotary_dim, stated, *(ratio[:3] if ratio else (None,) * 3))
