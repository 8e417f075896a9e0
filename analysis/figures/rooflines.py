"""Rooflines: of this card, measured, and of the published times' card, by its datasheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ..models import roofline
from ..records.measured import Measured
from ..records.text import span
from .style import (
    COUNTED,
    FAMILIES,
    MARKERS,
    PALETTE,
    Plot,
    Source,
    canvas,
    computed,
    legend,
    log_ticks,
    measured_in,
    published_for,
)

NAMED = {  # points with their names at them: version, head dim
    ("sinusoidal_hybrid_v1", 2048): "sinusoidal hybrid V1",
    ("attention_online_fixed", 2048): "online attention",
    ("rope_v7", 2048): "RoPE V7",
    ("rope_v3", 2048): "RoPE V3",
    ("attention_online_fixed", 8192): "online attention, head dim 8192",
}
WHERE = {"l2": "bytes between L2 and L1, warm", "dram": "bytes of DRAM, caches flushed"}


def roofline_plot(evidence: Measured, frame: pd.DataFrame | None = None) -> Plot:
    """Measured ceilings, and below them every version and shape: for L2 with warm caches, for DRAM with flushed."""
    frame = roofline.points(evidence) if frame is None else frame
    ceilings = evidence.gpu["ceilings"]
    top = ceilings["fp32_tflops"]
    title = f"Every version under the ceilings of the {evidence.card}"
    if len(frame) and frame["percent_of_roof"].max() < 50:
        title = f"No version reaches half of what the {evidence.card} allows"
    with canvas(title, columns=2, height=4.2, sharey=True) as (figure, axes):
        for axis, (level, (ceiling, _)) in zip(axes, roofline.LEVELS.items()):
            slope = ceilings[ceiling]
            mine = frame[frame["level"] == level]
            label = f"{level.upper()}, {slope / 1e3:.1f} TB/s"
            _draw_roofs(axis, top, {label: slope}, frame)
            axis.set_title(f"{label}; fp32, {top:.0f} TFLOP/s", loc="left", fontsize=9)
            axis.plot(mine["flop_per_byte"], mine["tflops"], ls="", marker="o", ms=3.5, color="0.75")
            for place, ((version, hdim), name) in enumerate(NAMED.items()):
                point = mine[(mine["version"] == version) & (mine["hdim"] == hdim)].tail(1)
                if len(point):
                    x, y = point["flop_per_byte"].iloc[0], point["tflops"].iloc[0]
                    axis.plot(x, y, marker=MARKERS[place], color=PALETTE[place], ms=6)
                    side, high = (0.97, 0.62) if level == "l2" else (0.03, 0.42)  # where there are no points
                    axis.annotate(
                        name, (x, y), (side, high - 0.07 * place), textcoords="axes fraction", va="center",
                        ha="right" if side > 0.5 else "left", fontsize=8, color=PALETTE[place],
                        arrowprops={"arrowstyle": "-", "color": PALETTE[place], "lw": 0.7, "shrinkB": 4},
                    )  # fmt: skip
            axis.set_xlabel(f"FLOP a byte\n{WHERE[level]}")
        axes[0].set_ylabel("TFLOP/s")
    found = roofline.sources(frame) if len(frame) else ""
    return Plot(
        "roofline",
        figure,
        f"Ceilings measured on the {evidence.card}. A point is a version at a shape; named points at head dim 2048, "
        f"where nothing else is said. {f'Bytes are from {found}; ' if found else ''}FLOP are those of both products.",
        "Two dot plots of TFLOP/s by FLOP a byte, each below a roof. "
        + "; ".join(f"{level}: {_in_words(rows)}" for level, rows in frame.groupby("level")),
        frame,
        measured_in(evidence) + (computed(f"bytes from {found}") if found else Source()),
    )


def roofline_published(frame: pd.DataFrame, sheet: roofline.Datasheet = roofline.RTX_4000_ADA) -> Plot:
    """The published times below the roofline of their card's datasheet; `frame` is `roofline.published_points`."""
    title = f"Published times under the roof of the {sheet.name}"
    families = list(dict.fromkeys(frame["family"]))
    with canvas(title, height=4.4) as (figure, (axis,)):
        _draw_roofs(axis, sheet.fp32_tflops, {f"datasheet: DRAM, {sheet.dram_gb_s:.0f} GB/s": sheet.dram_gb_s}, frame)
        for place, family in enumerate(families):
            mine = frame[frame["family"] == family]
            style: dict[str, Any] = {"color": PALETTE[place], "marker": MARKERS[place], "ls": "", "ms": 5}
            axis.plot(mine["flop_per_byte"], mine["tflops"], label=FAMILIES.get(family, family), **style)
        axis.set(xlabel="FLOP a byte touched", ylabel="TFLOP/s, from the published time")
        legend(figure, [axis], columns=2)
    return Plot(
        "roofline-published",
        figure,
        f"The roof is the datasheet's, not measured ({sheet.source}). Bytes are the distinct 32 B sectors that the "
        "kernels here touch, counted by the emulator. The published times have launches and host syncs in them.",
        "Dot plot of published TFLOP/s by FLOP a byte, below the datasheet's roof. "
        + "; ".join(f"{family}: {_in_words(rows)}" for family, rows in frame.groupby("family", sort=False)),
        frame,
        published_for(sheet.name) + computed("its roof from the datasheet") + COUNTED,
    )


def _draw_roofs(axis: Axes, tflops: float, slopes: Mapping[str, float], frame: pd.DataFrame) -> None:
    """Bandwidths (GB/s, by their labels) as slopes up to the fp32 ceiling, on logarithmic axes that hold all points."""
    low, bottom = (frame["flop_per_byte"].min() / 2, frame["tflops"].min() / 2) if len(frame) else (0.1, 0.1)
    high = 2e3 * tflops / min(slopes.values())
    for (label, gb_s), dashes in zip(slopes.items(), ("-", "--")):
        ridge = 1e3 * tflops / gb_s
        axis.plot([low, ridge, high], [low * gb_s / 1e3, tflops, tflops], color="0.3", ls=dashes, lw=1.2, label=label)
    log_ticks(axis, "x", 1, 1e4)
    log_ticks(axis, "y", 1, 1e4)
    axis.set(xlim=(low, high), ylim=(bottom, 2 * tflops))


def _in_words(points: pd.DataFrame) -> str:
    return f"{span(points['flop_per_byte'], 'FLOP a byte', 2)}, {span(points['tflops'], 'TFLOP/s', 2)}"
