"""What fusing gains: speedups over separate kernels, published and measured."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from kernels import Problem

from ..measure.studies import TIMERS
from ..records import published
from ..records.measured import Measured
from ..tables import SOURCE_TIMER
from .style import (
    SERIES,
    Plot,
    canvas,
    legend,
    log_ticks,
    mark_wrong,
    measured_in,
    place_of,
    published_on,
    shape_ticks,
    short,
)

PAIRS = (
    ("sinusoidal_v5", "sinusoidal_separate_scalar"),
    ("sinusoidal_v5", "sinusoidal_separate_float4"),
    ("sinusoidal_hybrid_v1", "sinusoidal_separate_float4"),
)


def sinusoidal_fusion(evidence: Measured) -> Plot:
    """What fusing sinusoidal embeddings gains, and over which baseline: a panel for each pair."""
    panels = []
    for version, baseline in PAIRS:
        shapes = [
            problem for problem in evidence.shapes(version).values()
            if evidence.ratio(baseline, version, problem) or published.speedup(version, baseline, problem)
        ]  # fmt: skip
        panels.append((version, baseline, shapes, pd.DataFrame(speedup_rows(evidence, version, shapes, baseline))))
    frame = pd.concat([drawn for *_, drawn in panels])
    title = "Fused sinusoidal kernels against each baseline"
    with canvas(title, columns=len(panels), height=4.8, sharey=True) as (figure, axes):
        for axis, (version, baseline, shapes, drawn) in zip(axes, panels):
            draw_speedups(axis, drawn, shapes)
            axis.set_title(f"{short(version)}\nover {_plain(baseline)}", loc="left")
        axes[0].set_ylim(frame["speedup"].min() / 1.25, frame["speedup"].max() * 1.25)
        axes[0].set_ylabel("speedup over separate")
        legend(figure, axes, columns=4)
    return Plot(
        "sinusoidal-fusion",
        figure,
        "Speedup over separate kernels; above 1 is faster. The write-up compares V5 with scalar separate kernels, the "
        f"hybrid analysis with float4 ones. Published on the {published.card('sinusoidal')}.",
        describe(frame),
        frame,
        published_on("sinusoidal") + measured_in(evidence),
    )


def _plain(baseline: str) -> str:
    """A separate path's name in words: `"separate, scalar"`."""
    return short(baseline).lower().replace("separate ", "separate, ")


def speedup_rows(evidence: Measured, version: str, problems: Sequence[Problem], baseline: str) -> list[dict]:
    """Speedups of a version over a baseline: published and measured, a row each."""
    rows = []
    for problem in problems:
        check = evidence.check(version, problem)
        base = {
            "version": version,
            "baseline": baseline,
            "hdim": problem.hdim,
            "rotary_dim": problem.rotary_dim,
            "heads": problem.heads,
            "seq": problem.seq_q,
            "status": check.status if check else "",
        }
        if claim := published.speedup(version, baseline, problem):
            rows.append({**base, "series": "published", "speedup": claim.value, "low": claim.low, "high": claim.high})
        for series in ("device_warm", SOURCE_TIMER):
            found = evidence.ratio(baseline, version, problem, series)
            if found:
                rows.append({**base, "series": series, "speedup": found.value, "low": found.low, "high": found.high})
    return rows


def draw_speedups(axis: Axes, frame: pd.DataFrame, problems: Sequence[Problem]) -> None:
    """Published and measured speedups side by side at each head dim, around a line at 1."""
    series = [name for name in SERIES if name in set(frame["series"])]
    axis.axhline(1, color="0.2", lw=1)
    for place, name in enumerate(series):
        mine = frame[frame["series"] == name]
        x = [place_of(problems, row.hdim) + 0.2 * (place - (len(series) - 1) / 2) for row in mine.itertuples()]
        axis.plot(x, mine["speedup"], ls="", zorder=3, **SERIES[name])
        if name in TIMERS:
            mark_wrong(axis, x, mine["speedup"], mine["status"])
    low, high = frame["speedup"].min(), frame["speedup"].max()
    axis.set_ylim(min(low, 1) / 1.25, max(high, 1) * 1.25)
    log_ticks(axis, "y", low, high, "×")
    shape_ticks(axis, problems)


def describe(frame: pd.DataFrame) -> str:
    parts = []
    for (version, baseline, series), rows in frame.groupby(["version", "baseline", "series"], sort=False):
        values = ", ".join(f"{row.speedup:.2f} at {row.hdim}" for row in rows.itertuples())
        parts.append(f"{version} over {baseline}, {series}: {values}")
    return "Dot plot of speedups by head dim. " + "; ".join(parts) + "."
