"""The log's kernels beside the fastest that PyTorch offers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from kernels import Problem

from ..evidence import Evidence
from ..evidence.origin import measured
from ..tables.speed import fastest
from ..tables.table import family_title
from .style import (
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

TITLES = {"attention": "PyTorch's fastest beats the log's kernels at every head dim"}  # the edition's


def peers(e: Evidence, family: str, versions: Sequence[str]) -> Plot:
    """Own versions beside the fastest that PyTorch offers, compiled and not: device times by head dim."""
    study = e.study("log")
    problems = study.problems(family, partial=True if family == "rope" else None)
    offered = study.versions(family, peers=True)
    series: dict[str, dict[Problem, str | None]] = {name: dict.fromkeys(problems, name) for name in versions}
    for way, compiled in (("PyTorch, compiled", True), ("PyTorch, eager", False)):
        names = [name for name in offered if ("_compiled" in name) == compiled]
        if names:
            series[f"{way}, its fastest of these"] = {p: fastest(study, names, p) for p in problems}
    rows = []
    for label, chosen in series.items():
        for problem, version in chosen.items():
            if version and (us := e.time(version, "log", "device_warm", problem=problem)[problem]):
                check = study.check(version, problem)
                shape = (problem.hdim, problem.rotary_dim, problem.heads, problem.seq_q)
                rows.append((label, version, *shape, *by_process(us), check.status if check else ""))
    names = ["series", "version", "hdim", "rotary_dim", "heads", "seq", "us", "low_us", "high_us", "status"]
    frame = pd.DataFrame(rows, columns=names)
    title = TITLES.get(family, "the log's best kernel and PyTorch's fastest")
    with canvas(f"{family_title(family)}: {title}", height=4.4) as (figure, (axis,)):
        for place, (label, color, marker) in enumerate(zip(series, PALETTE, MARKERS)):
            mine = frame[frame["series"] == label]
            x = [place_of(problems, size) + 0.08 * (place - (len(series) - 1) / 2) for size in mine["hdim"]]
            axis.plot(x, mine["us"], marker=marker, color=color, lw=1, label=label)
            mark_wrong(axis, x, mine["us"], mine["status"])
        log_ticks(axis, "y", frame["us"].min(), frame["us"].max())
        axis.set_ylabel("µs a call, on the device")
        shape_ticks(axis, problems)
        legend(figure, [axis])
    return Plot(
        f"{family}-peers",
        figure,
        f"Device time of one call (device_warm) on the {e.card}. PyTorch: at each head dim the "
        "fastest of its attention backends and of separate calls of matmul and softmax"
        + "; RoPE and attention compiled as one graph is not among them" * (family == "rope")
        + ". A cross marks a wrong result.",
        "Lines of device time in microseconds by head dim, for the log's kernels and for PyTorch.",
        frame,
        measured(e, "log"),
    )
