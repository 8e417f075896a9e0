"""How far published speedups are from measured ones, as the harness and the load come nearer to the authors'."""

from __future__ import annotations

import pandas as pd

from ..measure.studies import CONDITIONS
from ..records import published
from ..records.known import NOT_MEASURED
from .style import PALETTE, Plot, Source, canvas, log_ticks, published_on

WORDS = {
    "as timed": "as timed:\nlaunches and waits too",
    "device": "on the device",
    "matched": "load matched",
    "matched launched": "load matched,\nas timed",
}
NEAREST = {  # a title for each condition, where all are measured and it is the nearest
    "as timed": "Timed as the authors did, speedups come nearest to theirs",
    "device": "Device times come nearest to the published speedups",
    "matched": "With the authors' load, speedups come nearest to theirs",
    "matched launched": "With the authors' load and timing, speedups come nearest to theirs",
}
SPREAD = 0.28  # of a row on which dots are spread, up and down
STEP = 0.618  # of it from dot to dot, so that neighbours lie apart


def published_distance(frame: pd.DataFrame, card: str, source: Source) -> Plot:
    """A dot for each row of `compare.distance.distances` that has a factor, a line for each condition's median.

    `source` says where the measured numbers are from.
    """
    short = card.removeprefix("NVIDIA ")
    factors = {name: frame.loc[frame["condition"] == name, "factor"].dropna() for name in CONDITIONS}
    medians = {name: values.median() for name, values in factors.items() if len(values)}
    title = "How far published speedups are from measured ones"
    if len(medians) == len(CONDITIONS):
        title = NEAREST[min(medians, key=lambda name: medians[name])]
    theirs = " or ".join(published.card(family).removeprefix("NVIDIA ") for family in ("rope", "fp16"))
    most = frame["factor"].max() if medians else 2.0
    with canvas(title, height=3.4) as (figure, (axis,)):
        for place, (name, values) in enumerate(factors.items()):
            if name not in medians:
                axis.annotate(
                    NOT_MEASURED, (1, place), (6, 0), textcoords="offset points", va="center", fontsize=9, color="0.4"
                )
                continue
            heights = [place + SPREAD * (2 * (number * STEP % 1) - 1) for number in range(len(values))]
            axis.plot(values, heights, "o", ms=4, color=PALETTE[0], alpha=0.45, mew=0)
            axis.plot([medians[name]] * 2, [place - 0.36, place + 0.36], color="0.1", lw=2)
            axis.text(
                1.02, place, f"{medians[name]:.2f}×\nof {len(values)}", transform=axis.get_yaxis_transform(),
                va="center", fontsize=9,
            )  # fmt: skip
        log_ticks(axis, "x", 1, most, "×")
        axis.set_xlim(1, most * 1.05)
        axis.set_ylim(len(factors) - 0.5, -0.5)
        axis.set_yticks(range(len(factors)), [WORDS[name] for name in factors])
        axis.tick_params(axis="y", length=0)
        axis.grid(visible=False, axis="y")
        axis.grid(visible=True, axis="x")
        axis.text(1.02, -0.5, "median", transform=axis.get_yaxis_transform(), va="bottom", fontsize=8.5, color="0.4")
        axis.set_xlabel(f"factor from the published speedup\nmeasured: {short}; published: {theirs}", loc="left")
    told = ", ".join(
        f"{name} {medians[name]:.2f} (of {len(values)})" if name in medians else f"{name} {NOT_MEASURED}"
        for name, values in factors.items()
    )
    return Plot(
        "published-distance",
        figure,
        "The factor between each published speedup and the measured one: 1 is equal, lines are medians. Matched: as "
        "many heads as give each SM the load that it had on the authors' card.",
        "Dot plot with a row for each condition and a dot for each published speedup. "
        f"Median factor between the measured and the published speedup on the {card}: {told}.",
        frame,
        source + published_on("rope") + published_on("fp16"),
    )
