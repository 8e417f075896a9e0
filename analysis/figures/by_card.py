"""Speedups of the main versions, a dot for each card."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from kernels import VERSIONS

from ..evidence.known import FAILED
from ..evidence.known import WRONG as WRONG_RESULT
from ..evidence.origin import Source
from ..measure.studies import SOURCE_TIMER
from ..record.text import number
from ..tables.table import family_title, short
from .style import MARKERS, PALETTE, SERIES, WRONG, Plot, canvas, log_ticks

MAIN = ("sinusoidal_v5", "sinusoidal_hybrid_v1", "rope_v1c", "rope_v7")
LANE, GAP, PANEL = 0.14, 0.5, 0.36  # inches of a dot, lanes between head dims, inches of a panel's title
FONT = 8
LONGEST = 26  # characters of a card's name
WORDS = {"device_warm": "kernels alone", SOURCE_TIMER: "timed as the authors did"}


def speedups_by_card(frame: pd.DataFrame, source: Source) -> Plot:
    """What fusing gains on each card: rows of `compare.speedups.frame`, of which the main versions are drawn.

    `source` says where the numbers are from.
    """
    drawn = frame[frame["version"].isin(MAIN)]
    drawn = drawn[drawn["baseline"] == [VERSIONS[version].baseline for version in drawn["version"]]]
    panels = {version: drawn[drawn["version"] == version] for version in MAIN}
    cards = drawn.loc[drawn["status"] != "published", "card"].unique()
    looks = {card: {"color": color, "marker": marker} for card, color, marker in zip(cards, PALETTE, MARKERS)}
    lanes = [rows["hdim"].nunique() * (drawn["card"].nunique() + GAP) for rows in panels.values()]
    height = LANE * sum(lanes) + PANEL * len(panels) + 0.9
    (timer,) = {*drawn["timer"]} - {"published"}
    values = [*drawn["speedup"].dropna(), 1.0]
    title = "What fusing gains, card by card"
    with canvas(title, rows=len(panels), height=height, sharex=True, height_ratios=lanes) as (figure, axes):
        for axis, (version, rows) in zip(axes, panels.items()):
            _panel(axis, rows, drawn["card"].nunique(), looks)
            over = short(rows["baseline"].iloc[0]).lower()
            axis.set_title(f"{family_title(VERSIONS[version].family)} {short(version)} over {over}", loc="left", pad=3)
        log_ticks(axes[-1], "x", min(values), max(values), "×")
        axes[-1].set_xlim(min(values) / 1.15, max(values) * 1.5)
        published = "".join(f"\npublished: {gpu}" for gpu in drawn.loc[drawn["status"] == "published", "gpu"].unique())
        axes[-1].set_xlabel(f"speedup, {WORDS[timer]}; above 1 is faster{published}", loc="left")
    return Plot(
        "speedups-by-card",
        figure,
        "Speedup over each version's baseline by head dim, a dot for each card, with its 95 % interval for another "
        "run, or within one run where a card has one of the same code. A cross: the result is wrong. "
        "Ratios within a card are compared, never times of two cards.",
        "Dot plot of speedups, a row for each version, head dim and card.",
        drawn,
        source,
    )


def _panel(axis: Axes, rows: pd.DataFrame, lanes: int, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """A version: its head dims below each other, in each a lane for every card, which is named at the left."""
    ticks, names = [], []
    edge = axis.get_yaxis_transform()  # x in parts of the axis, y in lanes
    for place, (hdim, group) in enumerate(rows.groupby("hdim", sort=False)):
        top = place * (lanes + GAP)
        words = str(hdim) if place else f"head dim\n{hdim}"
        axis.text(1.02, top + (lanes - 1) / 2, words, transform=edge, va="center", fontsize=FONT)
        if place:
            axis.axhline(top - (1 + GAP) / 2, color="0.9", lw=0.8)
        for lane, row in enumerate(group.to_dict("records")):
            ticks.append(top + lane)
            names.append(shorten(row["label"], LONGEST, placeholder="…"))
            _dot(axis, top + lane, row, looks.get(row["card"], SERIES["published"]))
    axis.axvline(1, color="0.2", lw=1, zorder=1)
    axis.set_yticks(ticks, names, fontsize=FONT)
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False, axis="y")
    axis.set_ylim(ticks[-1] + 0.9, -0.9)


def _dot(axis: Axes, y: float, row: Mapping[str, Any], look: Mapping[str, Any]) -> None:
    """A speedup with its interval and its value, or why there is none."""
    stale, speedup = " stale" * bool(row["stale"]), row["speedup"]
    if speedup != speedup:
        edge = axis.get_yaxis_transform()
        axis.text(0.01, y, row["status"] + stale, transform=edge, va="center", fontsize=FONT, color="0.4")
        return
    if row["low"] == row["low"]:
        axis.plot([row["low"], row["high"]], [y, y], color=look["color"], lw=1.5, zorder=2)
    axis.plot(speedup, y, ms=5, zorder=3, **look)
    if row["status"] in (WRONG_RESULT, FAILED):
        axis.plot(speedup, y, **{**WRONG, "ms": 6.5, "label": None})
    right = row["high"] if row["high"] == row["high"] else speedup
    axis.annotate(
        number(speedup, "×", 2) + stale, (right, y), (5, 0), textcoords="offset points", va="center",
        fontsize=FONT, bbox={"fc": "white", "ec": "none", "pad": 0.3}, zorder=2,
    )  # fmt: skip
