"""How far published speedups are from measured ones, as the harness and the load come nearer to the authors'."""

from __future__ import annotations

import pandas as pd

from ..evidence.known import NOT_MEASURED
from ..evidence.origin import Source, published_on
from ..record import published
from .style import PALETTE, Plot, canvas, log_ticks

WORDS = {
    "as timed": "as timed:\nlaunches and waits too",
    "device": "on the device",
    "matched": "load matched",
    "matched launched": "load matched,\nas timed",
}
SPREAD = 0.28  # of a row on which dots are spread, up and down
STEP = 0.618  # of it from dot to dot, so that neighbours lie apart


def published_distance(frame: pd.DataFrame, card: str, source: Source) -> Plot:
    """A dot for each row of `compare.distance.distances` that has a factor, a line for each condition's median.

    `source` says where the measured numbers are from.
    """
    theirs = " or ".join(published.card(family).removeprefix("NVIDIA ") for family in ("rope", "fp16"))
    most = frame["factor"].max() if frame["factor"].notna().any() else 2.0
    title = "With the authors' load and timing, speedups come nearest to theirs"
    soft = {"fontsize": 9, "color": "0.4", "va": "center"}
    with canvas(title, height=3.4) as (figure, (axis,)):
        edge = axis.get_yaxis_transform()
        for place, name in enumerate(WORDS):
            values = frame.loc[frame["condition"] == name, "factor"].dropna()
            if values.empty:
                axis.annotate(NOT_MEASURED, (1, place), (6, 0), textcoords="offset points", **soft)
                continue
            heights = [place + SPREAD * (2 * (number * STEP % 1) - 1) for number in range(len(values))]
            axis.plot(values, heights, "o", ms=4, color=PALETTE[0], alpha=0.45, mew=0)
            axis.plot([values.median()] * 2, [place - 0.36, place + 0.36], color="0.1", lw=2)
            text = f"{values.median():.2f}×\nof {len(values)}"
            axis.text(1.02, place, text, transform=edge, va="center", fontsize=9)
        log_ticks(axis, "x", 1, most, "×")
        axis.set_xlim(1, most * 1.05)
        axis.set_ylim(len(WORDS) - 0.5, -0.5)
        axis.set_yticks(range(len(WORDS)), WORDS.values())
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False, axis="y")
        axis.grid(visible=True, axis="x")
        axis.text(1.02, -0.5, "median", transform=edge, **{**soft, "va": "bottom", "fontsize": 8.5})
        measured = card.removeprefix("NVIDIA ")
        axis.set_xlabel(f"factor from the published speedup\nmeasured: {measured}; published: {theirs}", loc="left")
    return Plot(
        "published-distance",
        figure,
        "The factor between each published speedup and the measured one: 1 is equal, lines are medians. Matched: as "
        "many heads as give each SM the load that it had on the authors' card.",
        "Dot plot with a row for each condition and a dot for each published speedup; lines mark the medians.",
        frame,
        source + published_on("rope") + published_on("fp16"),
    )
