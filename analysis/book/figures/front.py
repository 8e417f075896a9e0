"""The figure of the front page: every RoPE version at head dim 2048, published beside measured, and V8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from kernels import Problem

from ...measure.studies import MAIN
from ...records import published
from ...records.interval import Ratio
from ...records.measured import Measured
from ...records.text import factor
from ..step import stated
from ..style import PALETTE, Plot, canvas, log_ticks, measured_in, published_on, short

BASELINE, FUSED = "rope_separate", "rope_v8"
LADDER = ("rope_v1c", "rope_v2", "rope_v3", "rope_v4", "rope_v5", "rope_v6a", "rope_v6b", "rope_v7")
SOFT = "0.4"
MARKS: dict[str, dict[str, Any]] = {
    "published": {"marker": "o", "mfc": "white", "mec": "0.2"},
    "measured": {"marker": "o", "color": PALETTE[0]},
    "loaded": {"marker": "D", "color": PALETTE[1], "ms": 5.5},
}
SAID = {"published": "published", "measured": "measured", "loaded": "with the authors' load"}
INKS = {"published": SOFT, "measured": PALETTE[0], "loaded": PALETTE[1]}


def rope_ladder_2048(evidence: Measured, beyond: Measured | None, matched: Measured | None) -> Plot:
    """Speedup of every RoPE version over separate kernels at head dim 2048.

    `beyond` adds V8, `matched` the same kernels with as many blocks per SM as on the authors' card, where measured.
    """
    rows = []
    for version in LADDER:
        problem = evidence.shapes(version).get(MAIN.hdim)
        ratio = evidence.ratio(BASELINE, version, problem) if problem else None
        stated = published.speedup(version, BASELINE, problem) if problem else None
        more = matched.shapes(version).get(MAIN.hdim) if matched else None
        loaded = matched.ratio(BASELINE, version, more) if matched and more else None
        rows.append(_row(version, problem, stated.value if stated else None, ratio, loaded))
    if beyond:
        rows.append(_row(FUSED, MAIN, None, beyond.ratio(BASELINE, FUSED, MAIN), None))
    names = ["version", "rotary_dim", "published", "measured", "low", "high", "loaded"]
    frame = pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[2:], float))
    drawn = frame.dropna(subset=list(MARKS), how="all").reset_index(drop=True)
    card = evidence.card.removeprefix("NVIDIA ")
    title = _title(drawn.set_index("version"), card)
    labels = {
        "published": f"published, {published.card('rope')}",
        "measured": f"{card}, at the published shape",
        "loaded": f"{card}, with the load of the authors' card",
    }
    marks = {name: label for name, label in labels.items() if drawn[name].notna().any()}
    with canvas(title, height=3.0) as (figure, (axis,)):
        values = drawn[list(marks)].stack()
        log_ticks(axis, "y", values.min(), values.max(), "×")
        axis.set_ylim(values.min() / 1.9, max(values.max(), 1) * 2)
        axis.axhline(1, color="0.2", lw=1)
        for place, row in drawn.iterrows():
            _column(axis, int(str(place)), {name: row[name] for name in marks})
        axis.legend(
            handles=[Line2D([], [], ls="", label=label, **MARKS[name]) for name, label in marks.items()],
            loc="upper left", bbox_to_anchor=(0, 1.02), frameon=False, fontsize=8.5, handletextpad=0.1,
        )  # fmt: skip
        axis.set_xticks(range(len(drawn)), [short(version) for version in drawn["version"]])
        axis.set_xlim(-0.6, len(drawn) - 0.4)
        axis.set_ylabel("speedup over separate")
        axis.set_xlabel(
            f"head dim {MAIN.hdim}, {MAIN.heads} heads, {MAIN.seq_q} tokens; time on the GPU alone",
            loc="left", color=SOFT, fontsize=8.5,
        )  # fmt: skip
    alt = "; ".join(
        f"{short(row.version)}: "
        + ", ".join(f"{SAID[name]} {row[name]:.2f}" for name in marks if row[name] == row[name])
        for _, row in drawn.iterrows()
    )
    return Plot(
        "front",
        figure,
        "Above 1 is faster than separate kernels. V6b, V7 and V8 rotate the published 128 dims, the others all."
        + "".join(f" {each}." for each in printed_twice(evidence))
        + (
            " Diamonds: more heads, so that an SM has as many blocks as on the authors' card."
            if "loaded" in marks
            else ""
        ),
        f"Dot plot of speedups over separate RoPE kernels at head dim {MAIN.hdim}. {alt}.",
        frame,
        measured_in(*filter(None, (evidence, beyond, matched))) + published_on("rope"),
    )


def printed_twice(evidence: Measured) -> Iterator[str]:
    """The versions of which the documents print speedups more than a tenth apart, with each."""
    for version in LADDER:
        problem = evidence.shapes(version).get(MAIN.hdim)
        said = (
            {each.source: each.speedup for each in stated(version, BASELINE, problem) if each.speedup}
            if problem
            else {}
        )
        if said and max(said.values()) > 1.1 * min(said.values()):
            each = " and ".join(f"{factor(speed)} ({source})" for source, speed in said.items())
            yield f"{short(version)} is printed as {each}"


def _title(drawn: pd.DataFrame, card: str) -> str:
    measured, loaded = drawn["measured"].dropna(), drawn["loaded"].dropna()
    if not len(measured) or measured.drop(FUSED, errors="ignore").max() >= 1:
        return f"RoPE kernels against separate kernels on the {card}"
    winners = [short(version) for version in loaded.index[loaded > 1]]
    fused = measured.get(FUSED, 0) > 1
    if winners:
        only = f"only at {'their' if len(winners) > 1 else 'its'} authors' load"
        named = " and ".join(winners)
        return f"V8 beats separate kernels; {named} {only}" if fused else f"{named} beats separate kernels {only}"
    return f"{'V8 beats separate kernels; no' if fused else 'No'} kernel of the log {'does' if fused else 'beats them'}"


def _column(axis: Axes, place: int, values: dict[str, float]) -> None:
    """What is published and what is measured of one version, joined by a line, each with its value."""
    known = {name: value for name, value in values.items() if value == value}
    axis.plot([place, place], [min(known.values()), max(known.values())], color="0.8", lw=2, zorder=1)
    for name, value in known.items():
        axis.plot(place, value, **{"ms": 6.5, "ls": "", "zorder": 3, **MARKS[name]})
        top, bottom = value == max(known.values()), value == min(known.values())
        off, side = ((0, 6 if top else -6), "center") if top or bottom else ((7, 0), "left")
        _say(axis, (place, value), f"{value:.2g}", INKS[name], off, side)


def _say(axis: Axes, at: tuple[float, float], text: str, ink: Any, off: tuple[int, int], side: str) -> None:
    """Words at a point of the data, so many points off."""
    up = {0: "center", 1: "bottom", -1: "top"}[(off[1] > 0) - (off[1] < 0)]
    axis.annotate(
        text, at, off, textcoords="offset points", ha=side, va=up, fontsize=8.5, color=ink,
        bbox={"fc": "white", "ec": "none", "pad": 0.4},
    )  # fmt: skip


def _row(
    version: str, problem: Problem | None, stated: float | None, ratio: Ratio | None, loaded: Ratio | None
) -> tuple[Any, ...]:
    measured = ratio[:3] if ratio else (None,) * 3
    return version, problem and problem.rotary_dim, stated, *measured, loaded.value if loaded else None
