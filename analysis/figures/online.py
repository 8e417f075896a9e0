"""Attention without embeddings: what the online kernel gains, and what it gets wrong."""

from __future__ import annotations

import pandas as pd

from ..records.measured import Measured
from .style import (
    HATCHES,
    MARKERS,
    PALETTE,
    Plot,
    canvas,
    legend,
    log_ticks,
    mark_wrong,
    measured_in,
    place_of,
    shape_ticks,
    short,
)


def attention_online(evidence: Measured) -> Plot:
    """Attention without embeddings: time above, share of NaN below."""
    problems = evidence.problems("attention")
    versions = ("attention_baseline", "attention_online", "attention_online_fixed")
    rows = []
    for version in versions:
        for problem in problems:
            taken, check = evidence.time(version, problem), evidence.check(version, problem)
            if check:
                shape = (problem.hdim, problem.heads, problem.seq_q)
                rows.append((version, *shape, *(taken or 3 * (None,)), 100 * check.nan_share, check.status))
    names = ["version", "hdim", "heads", "seq", "us", "low_us", "high_us", "nan_percent", "status"]
    frame = pd.DataFrame(rows, columns=names).astype({"us": float})
    lost = frame[frame["version"] == "attention_online"]["nan_percent"]
    title = f"The online kernel, as published and corrected, on the {evidence.card}"
    if lost.min() > 50:
        title = f"Most of the published online kernel's output is NaN ({evidence.card})"
    with canvas(title, rows=2, height=5.2, sharex=True, height_ratios=(2.4, 1)) as (figure, (above, below)):
        width = 0.8 / len(versions)
        for place, version in enumerate(versions):
            mine = frame[frame["version"] == version]
            x = [place_of(problems, size) for size in mine["hdim"]]
            colour, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
            dodge = 0.08 * (place - (len(versions) - 1) / 2)
            moved = [value + dodge for value in x]
            above.plot(moved, mine["us"], marker=marker, color=colour, lw=1, label=short(version))
            mark_wrong(above, moved, mine["us"], mine["status"])
            left = [value + width * (place - (len(versions) - 1) / 2) for value in x]
            hatch = HATCHES[place % len(HATCHES)]
            below.bar(left, mine["nan_percent"], width * 0.9, color=colour, hatch=hatch, edgecolor="white")
        log_ticks(above, "y", frame["us"].min(), frame["us"].max())
        above.set_ylabel("µs a call, on the device")
        below.set_ylabel("NaN, %")
        below.set_ylim(0, 100)
        shape_ticks(below, problems)
        legend(figure, [above], columns=2)
    return Plot(
        "attention-online",
        figure,
        f"Above, device time of one call (device_warm) on the {evidence.card}; below, the share of outputs that "
        "are not a number. A check that asks whether |a − b| exceeds a tolerance lets NaN pass.",
        "; ".join(
            f"{row.version} at {row.hdim}: {row.us:.1f} µs, {row.nan_percent:.1f} % NaN"
            for row in frame.dropna(subset=["us"]).itertuples()
        ),
        frame,
        measured_in(evidence),
    )
