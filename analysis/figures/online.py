"""Attention without embeddings: what the online kernel gains, and what it gets wrong."""

from __future__ import annotations

import pandas as pd

from ..evidence import Evidence
from ..evidence.origin import measured
from ..tables.table import short
from .style import (
    HATCHES,
    MARKERS,
    PALETTE,
    Plot,
    by_process,
    canvas,
    legend,
    log_ticks,
    mark_wrong,
    place_of,
    shape_ticks,
)

VERSIONS = ("attention_baseline", "attention_online", "attention_online_fixed")


def attention_online(e: Evidence) -> Plot:
    """Attention without embeddings: time above, share of NaN below."""
    study = e.study("log")
    problems = study.problems("attention")
    rows = []
    for version in VERSIONS:
        for problem, us in e.time(version, "log", "device_warm", problem=problems).items():
            if check := study.check(version, problem):
                shape = (problem.hdim, problem.heads, problem.seq_q)
                rows.append((version, *shape, *by_process(us), 100 * check.nan_share, check.status))
    names = ["version", "hdim", "heads", "seq", "us", "low_us", "high_us", "nan_percent", "status"]
    frame = pd.DataFrame(rows, columns=names).astype({"us": float})
    title = "Most of the published online kernel's output is NaN"
    with canvas(title, rows=2, height=5.2, sharex=True, height_ratios=(2.4, 1)) as (figure, (above, below)):
        for place, (version, color, marker, hatch) in enumerate(zip(VERSIONS, PALETTE, MARKERS, HATCHES)):
            mine = frame[frame["version"] == version]
            x = pd.Series([place_of(problems, size) for size in mine["hdim"]], dtype=float)
            above.plot(x + 0.08 * (place - 1), mine["us"], marker=marker, color=color, lw=1, label=short(version))
            mark_wrong(above, x + 0.08 * (place - 1), mine["us"], mine["status"])
            below.bar(x + (place - 1) * 0.8 / 3, mine["nan_percent"], 0.24, color=color, hatch=hatch, edgecolor="white")
        log_ticks(above, "y", frame["us"].min(), frame["us"].max())
        above.set_ylabel("µs a call, on the device")
        below.set_ylabel("NaN, %")
        below.set_ylim(0, 100)
        shape_ticks(below, problems)
        legend(figure, [above], columns=2)
    return Plot(
        "attention-online",
        figure,
        f"Above, device time of one call (device_warm) on the {e.card}; below, the share of outputs that "
        "are not a number. A check that asks whether |a − b| exceeds a tolerance lets NaN pass.",
        "Lines of time by head dim above, bars of the share of NaN below, for three kernels.",
        frame,
        measured(e, "log"),
    )
