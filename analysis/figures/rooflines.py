"""Rooflines: of this card, measured, and of the published times' card, by its datasheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ..evidence import Evidence
from ..evidence.origin import COUNTED, Source, computed, measured, published_for
from ..models import roofline
from ..tables.table import family_title
from .style import MARKERS, PALETTE, Plot, canvas, legend, log_ticks

NAMED = {  # points with their names at them: version, head dim
    ("sinusoidal_hybrid_v1", 2048): "sinusoidal hybrid V1",
    ("attention_online_fixed", 2048): "online attention",
    ("rope_v7", 2048): "RoPE V7",
    ("rope_v3", 2048): "RoPE V3",
    ("attention_online_fixed", 8192): "online attention, head dim 8192",
}
WHERE = {"l2": "bytes between L2 and L1, warm", "dram": "bytes of DRAM, caches flushed"}


def roofline_plot(e: Evidence, frame: pd.DataFrame) -> Plot:
    """Measured ceilings, and below them every version and shape: for L2 with warm caches, for DRAM with flushed.

    `frame` is `roofline.points`.
    """
    ceilings = e.gpu["ceilings"]
    top = ceilings["fp32_tflops"]
    with canvas("Every version under the ceilings of its card", columns=2, height=4.2, sharey=True) as (figure, axes):
        for axis, (level, (ceiling, _)) in zip(axes, roofline.LEVELS.items()):
            mine = frame[frame["level"] == level]
            label = f"{level.upper()}, {ceilings[ceiling] / 1e3:.1f} TB/s"
            _draw_roof(axis, top, {label: ceilings[ceiling]}, frame)
            axis.set_title(f"{label}; fp32, {top:.0f} TFLOP/s", loc="left", fontsize=9)
            axis.plot(mine["flop_per_byte"], mine["tflops"], ls="", marker="o", ms=3.5, color="0.75")
            for place, ((version, hdim), name) in enumerate(NAMED.items()):
                point = mine[(mine["version"] == version) & (mine["hdim"] == hdim)].tail(1)
                for x, y in zip(point["flop_per_byte"], point["tflops"]):
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
        f"Ceilings measured on the {e.card}. A point is a version at a shape; named points at head dim 2048, "
        f"where nothing else is said. {f'Bytes are from {found}; ' if found else ''}FLOP are those of both products.",
        "Two dot plots of TFLOP/s by FLOP a byte, for L2 and for DRAM, each below a roof.",
        frame,
        measured(e, "log") + (computed(f"bytes from {found}") if found else Source()),
    )


def roofline_published(frame: pd.DataFrame, sheet: roofline.Datasheet = roofline.RTX_4000_ADA) -> Plot:
    """The published times below the roofline of their card's datasheet; `frame` is `roofline.published_points`."""
    with canvas(f"Published times under the roof of the {sheet.name}", height=4.4) as (figure, (axis,)):
        roof = {f"datasheet: DRAM, {sheet.dram_gb_s:.0f} GB/s": sheet.dram_gb_s}
        _draw_roof(axis, sheet.fp32_tflops, roof, frame)
        for (family, mine), color, marker in zip(frame.groupby("family", sort=False), PALETTE, MARKERS):
            look: dict[str, Any] = {"color": color, "marker": marker, "ls": "", "ms": 5}
            axis.plot(mine["flop_per_byte"], mine["tflops"], label=family_title(str(family)), **look)
        axis.set(xlabel="FLOP a byte touched", ylabel="TFLOP/s, from the published time")
        legend(figure, [axis], columns=2)
    return Plot(
        "roofline-published",
        figure,
        f"The roof is the datasheet's, not measured ({sheet.source}). Bytes are the distinct 32 B sectors that the "
        "kernels here touch, counted by the emulator. The published times have launches and host syncs in them.",
        "Dot plot of published TFLOP/s by FLOP a byte, below the datasheet's roof.",
        frame,
        published_for(sheet.name) + computed("its roof from the datasheet") + COUNTED,
    )


def _draw_roof(axis: Axes, tflops: float, slope: Mapping[str, float], frame: pd.DataFrame) -> None:
    """A bandwidth (GB/s, by its label) as a slope up to the fp32 ceiling, on logarithmic axes that hold all points."""
    low, bottom = (frame["flop_per_byte"].min() / 2, frame["tflops"].min() / 2) if len(frame) else (0.1, 0.1)
    ((label, gb_s),) = slope.items()
    ridge = 1e3 * tflops / gb_s
    axis.plot([low, ridge, 2 * ridge], [low * gb_s / 1e3, tflops, tflops], color="0.3", lw=1.2, label=label)
    log_ticks(axis, "x", 1, 1e4)
    log_ticks(axis, "y", 1, 1e4)
    axis.set(xlim=(low, 2 * ridge), ylim=(bottom, 2 * tflops))
