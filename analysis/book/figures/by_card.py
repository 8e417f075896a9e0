"""Speedups of the main versions, a dot for each card."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from ...records.text import number, ratios
from ..style import MARKERS, PALETTE, WRONG, Plot, canvas, log_ticks, short

MAIN = ("sinusoidal_v5", "sinusoidal_hybrid_v1", "rope_v1c", "rope_v7")
LANE, GAP, PANEL = 0.155, 0.9, 0.42  # inches of a dot, lanes between head dims, inches of a panel's title
FONT = 8


def speedups_by_card(frame: pd.DataFrame, source: str) -> Plot:
    """What fusing gains on each card: rows of `compare.speedups.frame`, of which the main versions are drawn.

    `source` says where the numbers are from.
    """
    drawn = frame[frame["version"].isin(MAIN)]
    drawn = drawn[drawn["baseline"] == drawn.groupby("version")["baseline"].transform("first")]
    panels = [(version, drawn[drawn["version"] == version]) for version in MAIN]
    cards = list(drawn["card"].unique())
    lanes = [rows["hdim"].nunique() * (len(cards) + GAP) for _, rows in panels]
    height = LANE * sum(lanes) + PANEL * len(panels) + 0.9
    (timer,) = {*drawn["timer"]} - {"published"}
    values = drawn["speedup"].dropna()
    title = "What fusing gains over separate kernels, card by card"
    with canvas(title, rows=len(panels), height=height, sharex=True, height_ratios=lanes) as (figure, axes):
        for axis, (version, rows) in zip(axes, panels):
            _panel(axis, rows, cards)
            axis.set_title(f"{short(version)} over {short(rows['baseline'].iloc[0]).lower()}", loc="left")
        log_ticks(axes[-1], "x", values.min(), values.max(), "×")
        axes[-1].set_xlim(min(values.min(), 1) / 1.15, max(values.max(), 1) * 1.5)
        axes[-1].set_xlabel(f"speedup, {timer}; above 1 is faster", loc="left")
    named = dict(zip(drawn["card"], drawn["gpu"]))
    ranges = "; ".join(
        f"{short(version)}, " + ", ".join(f"{named[card]} {ratios(found.dropna())}" for card, found in by_card)
        for version, rows in panels
        for by_card in [rows.groupby("card", sort=False)["speedup"]]
    )
    return Plot(
        "speedups-by-card",
        figure,
        "Speedup over each version's baseline, a dot for each card, with its 95 % interval over the processes; a cross: "
        "the result is wrong. The published card is the write-up's. Ratios within a card are compared, times of different cards never.",
        f"Dot plot, a row for each version, head dim and card. Ranges over the head dims: {ranges}.",
        drawn,
        source,
    )  # fmt: skip


def _panel(axis: Axes, rows: pd.DataFrame, cards: list[str]) -> None:
    """A version: its head dims below each other, in each a lane for every card with its name at the left."""
    ticks, names = [], []
    edge = axis.get_yaxis_transform()  # x in parts of the axis, y in lanes
    for place, (hdim, group) in enumerate(rows.groupby("hdim", sort=False)):
        top = place * (len(cards) + GAP)
        middle = top + (len(cards) - 1) / 2
        axis.text(
            1.02, middle, f"head dim\n{hdim}" if not place else str(hdim), transform=edge, va="center", fontsize=FONT
        )
        if place:
            axis.axhline(top - (1 + GAP) / 2, color="0.9", lw=0.8)
        for lane, row in enumerate(group.to_dict("records")):
            ticks.append(top + lane)
            names.append(row["label"])
            _dot(axis, top + lane, row, cards.index(row["card"]))
    axis.axvline(1, color="0.2", lw=1, zorder=1)
    axis.set_yticks(ticks, names, fontsize=FONT)
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False, axis="y")
    axis.set_ylim(ticks[-1] + 0.9, -0.9)


def _dot(axis: Axes, y: float, row: dict, place: int) -> None:
    """A speedup with its interval and its value, or why there is none."""
    stale = " stale" if row["stale"] else ""
    if row["speedup"] != row["speedup"]:
        axis.text(
            0.01,
            y,
            row["status"] + stale,
            transform=axis.get_yaxis_transform(),
            va="center",
            fontsize=FONT,
            color="0.4",
        )
        return
    published = row["status"] == "published"
    colour = "0.35" if published else PALETTE[(place - 1) % len(PALETTE)]
    look = {"mfc": "white", "marker": "D"} if published else {"marker": MARKERS[(place - 1) % len(MARKERS)]}
    if row["low"] == row["low"]:
        axis.plot([row["low"], row["high"]], [y, y], color=colour, lw=1.5, zorder=2)
    axis.plot(row["speedup"], y, color=colour, ms=5, zorder=3, **look)
    if row["status"] == "wrong":
        axis.plot(row["speedup"], y, **{**WRONG, "ms": 6.5, "label": None})
    right = row["speedup"] if published or row["high"] != row["high"] else row["high"]
    axis.annotate(
        number(row["speedup"], "×", 2) + stale,
        (right, y),
        (5, 0),
        textcoords="offset points",
        va="center",
        fontsize=FONT,
        color=colour,
    )
