"""Rooflines: of this card, measured, and of the published times' card, by its datasheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from ...models import roofline
from ...records.measured import Measured
from ...records.text import span
from ..style import (
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


def roofline_plot(evidence: Measured, frame: pd.DataFrame | None = None) -> Plot:
    """Measured ceilings, and below them every version and shape twice: for L2 warm, for DRAM with caches flushed."""
    frame = roofline.points(evidence) if frame is None else frame
    ceilings = evidence.gpu["ceilings"]
    top = ceilings["fp32_tflops"]
    title = f"Ceilings of the {evidence.card}, measured"
    most = frame.groupby("level")["percent_of_roof"].max()
    if len(frame):
        title = (
            f"No version gets beyond {most['l2']:.0f} % of what L2 would allow it, nor, with caches flushed, beyond "
            f"{most['dram']:.0f} % of what DRAM would"
        )
    families = list(dict.fromkeys(frame["family"])) or [""]
    dims = sorted(set(frame["hdim"]))
    shades = sns.color_palette("viridis", len(dims))
    of = {level: ceilings[key] for level, (key, _) in roofline.LEVELS.items()}
    slopes = {f"{level.upper()}, {gb_s / 1e3:.1f} TB/s": gb_s for level, gb_s in of.items()}
    with canvas(title, columns=len(families), height=4.6, sharey=True) as (figure, axes):
        for axis, family in zip(axes, families):
            _draw_roofs(axis, top, slopes, frame)
            axis.set_title(FAMILIES.get(family, family.capitalize()), loc="left")
            for place, size in enumerate(dims):
                mine = frame[(frame["family"] == family) & (frame["hdim"] == size)]
                style: dict[str, Any] = {"color": shades[place], "marker": MARKERS[place % len(MARKERS)], "ls": ""}
                for level, look in (("l2", {"label": f"head dim {size}"}), ("dram", {"markerfacecolor": "white"})):
                    points = mine[mine["level"] == level]
                    axis.plot(points["flop_per_byte"], points["tflops"], ms=4, **style, **look)
            axis.set_xlabel("FLOP a byte")
        axes[0].set_ylabel("TFLOP/s")
        legend(figure, axes, columns=3)
    return Plot(
        "roofline",
        figure,
        f"Ceilings measured on the {evidence.card}, fp32 {top:.0f} TFLOP/s. Each version and shape is there "
        "twice. Filled: over the bytes between L2 and the L1s, time device_warm. Open: over the bytes of DRAM, time "
        f"device_cold. Bytes are from {roofline.sources(frame)}; FLOP are those of the two products."
        if len(frame)
        else f"Ceilings measured on the {evidence.card}.",
        "Dot plot of TFLOP/s by FLOP a byte, below two roofs. "
        + "; ".join(
            f"{level} at head dim {size}: {_in_words(rows)}" for (level, size), rows in frame.groupby(["level", "hdim"])
        )
        if len(frame)
        else "Ceilings only.",
        frame,
        measured_in(evidence) + (computed(f"bytes from {roofline.sources(frame)}") if len(frame) else Source()),
    )


def roofline_published(frame: pd.DataFrame, sheet: roofline.Datasheet = roofline.RTX_4000_ADA) -> Plot:
    """The published times below the roofline of their card's datasheet; `frame` is `roofline.published_points`."""
    title = (
        f"On the {sheet.name} the published times reach {span(frame['percent_of_roof'], '%', 0)} of what its "
        "datasheet allows if every byte comes from DRAM once"
    )
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
