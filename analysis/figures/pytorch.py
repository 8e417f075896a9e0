"""The log's kernels beside the fastest that PyTorch offers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from kernels import Problem

from ..records.interval import TIE
from ..records.known import WRONG
from ..records.measured import Measured
from ..tables import fastest
from .style import (
    FAMILIES,
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
)


def peers(evidence: Measured, family: str, versions: Sequence[str]) -> Plot:
    """Own versions beside the fastest that PyTorch offers."""
    problems = evidence.problems(family, partial=True if family == "rope" else None)
    offered = evidence.versions(family, peers=True)
    compiled = [version for version in offered if "_compiled" in version]
    eager = [version for version in offered if version not in compiled]
    series: dict[str, dict[Problem, str | None]] = {version: {p: version for p in problems} for version in versions}
    for way, among in (("PyTorch, compiled", compiled), ("PyTorch, eager", eager)):
        if among:
            series[f"{way}, its fastest of these"] = {p: fastest(evidence, among, p) for p in problems}
    ratios = []
    for problem in problems:
        own, theirs = (fastest(evidence, names, problem) for names in (versions, offered))
        found = evidence.ratio(theirs, own, problem) if own and theirs else None
        ratios += [found.value] if found else []
    title = f"{FAMILIES.get(family, family.capitalize())}: {_message(ratios)}"
    figure, frame = _lines(evidence, series, problems, title)
    return Plot(
        f"{family}-peers",
        figure,
        f"Device time of one call (device_warm) on the {evidence.card}. PyTorch: at each head dim the "
        "fastest of its attention backends and of separate calls of matmul and softmax"
        + "; RoPE and attention compiled as one graph is not among them" * (family == "rope")
        + "."
        + " A cross marks a wrong result." * bool((frame["status"] == WRONG).any()),
        _times_in_words(frame),
        frame,
        measured_in(evidence),
    )


def _message(speedups: Sequence[float]) -> str:
    """What the speedups of the log's best kernel over PyTorch's fastest come to."""
    if speedups and max(speedups) < 1 / TIE:
        return "PyTorch's fastest beats the log's kernels at every head dim"
    if speedups and min(speedups) > TIE:
        return "the log's best beats PyTorch's fastest at every head dim"
    return "the log's best kernel and PyTorch's fastest"


def _lines(
    evidence: Measured, series: dict[str, dict[Problem, str | None]], problems: Sequence[Problem], title: str
) -> tuple[Figure, pd.DataFrame]:
    """Device times by head dim; a series names the version it shows at each problem."""
    rows = []
    for label, chosen in series.items():
        for problem, version in chosen.items():
            if version and (taken := evidence.time(version, problem)):
                check = evidence.check(version, problem)
                status = check.status if check else ""
                shape = (problem.hdim, problem.rotary_dim, problem.heads, problem.seq_q)
                rows.append((label, version, *shape, *taken, status))
    names = ["series", "version", "hdim", "rotary_dim", "heads", "seq", "us", "low_us", "high_us", "status"]
    frame = pd.DataFrame(rows, columns=names)
    with canvas(title, height=4.4) as (figure, (axis,)):
        for place, label in enumerate(series):
            mine = frame[frame["series"] == label]
            dodge = 0.08 * (place - (len(series) - 1) / 2)
            x = [place_of(problems, size) + dodge for size in mine["hdim"]]
            colour, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
            axis.plot(x, mine["us"], marker=marker, color=colour, lw=1, label=label)
            mark_wrong(axis, x, mine["us"], mine["status"])
        log_ticks(axis, "y", frame["us"].min(), frame["us"].max())
        axis.set_ylabel("µs a call, on the device")
        shape_ticks(axis, problems)
        legend(figure, [axis])
    return figure, frame


def _times_in_words(frame: pd.DataFrame) -> str:
    parts = []
    for label, rows in frame.groupby("series", sort=False):
        parts.append(f"{label}: " + ", ".join(f"{row.us:.1f} at {row.hdim}" for row in rows.itertuples()))
    return "Lines of device time in microseconds by head dim. " + "; ".join(parts) + "."
