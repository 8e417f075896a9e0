"""What fusing gains: speedups over separate kernels, published and measured."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..evidence import Evidence
from ..evidence.origin import measured, published_on
from ..record import published
from ..tables.table import short
from .style import SERIES, Plot, canvas, legend, log_ticks, mark_wrong, place_of, shape_ticks

PAIRS = (
    ("sinusoidal_v5", "sinusoidal_separate_scalar"),
    ("sinusoidal_v5", "sinusoidal_separate_float4"),
    ("sinusoidal_hybrid_v1", "sinusoidal_separate_float4"),
)


def sinusoidal_fusion(e: Evidence) -> Plot:
    """What fusing sinusoidal embeddings gains, and over which baseline: a panel for each pair."""
    study = e.study("log")
    frames = [pd.DataFrame(rows(e, *pair)) for pair in PAIRS]
    frame = pd.concat(frames)
    title = "Fused sinusoidal kernels against each baseline"
    with canvas(title, columns=len(PAIRS), height=4.8, sharey=True) as (figure, axes):
        for axis, (version, baseline), drawn in zip(axes, PAIRS, frames):
            problems = [each for each in study.shapes(version).values() if each.hdim in set(drawn["hdim"])]
            axis.axhline(1, color="0.2", lw=1)
            series = [name for name in SERIES if name in set(drawn["series"])]
            for place, name in enumerate(series):
                mine = drawn[drawn["series"] == name]
                x = [place_of(problems, hdim) + 0.2 * (place - (len(series) - 1) / 2) for hdim in mine["hdim"]]
                axis.plot(x, mine["speedup"], ls="", zorder=3, **SERIES[name])
                if name != "published":
                    mark_wrong(axis, x, mine["speedup"], mine["status"])
            log_ticks(axis, "y", drawn["speedup"].min(), drawn["speedup"].max(), "×")
            shape_ticks(axis, problems)
            axis.set_title(f"{short(version)}\nover {short(baseline).lower().replace(' ', ', ')}", loc="left")
        axes[0].set_ylim(frame["speedup"].min() / 1.25, frame["speedup"].max() * 1.25)
        axes[0].set_ylabel("speedup over separate")
        legend(figure, axes, columns=4)
    return Plot(
        "sinusoidal-fusion",
        figure,
        "Speedup over separate kernels; above 1 is faster. The write-up compares V5 with scalar separate kernels, the "
        f"hybrid analysis with float4 ones. Published on the {published.card('sinusoidal')}.",
        "Dot plot of speedups by head dim, published and measured, a panel for each version and baseline.",
        frame,
        published_on("sinusoidal") + measured(e, "log"),
    )


def rows(e: Evidence, version: str, baseline: str) -> list[dict]:
    """Speedups of a version over a baseline at the documents' shapes: published and measured, a row each."""
    found = []
    for problem in e.study("log").shapes(version).values():
        check = e.study("log").check(version, problem)
        base = {
            "version": version,
            "baseline": baseline,
            "hdim": problem.hdim,
            "rotary_dim": problem.rotary_dim,
            "heads": problem.heads,
            "seq": problem.seq_q,
            "status": check.status if check else "",
        }
        values: dict[str, Any] = {"published": published.speedup(version, baseline, problem)}
        for timer in ("device_warm", "launched"):
            values[timer] = e.speedup(version, baseline, "log", timer, problem=problem)[problem] or None
        found += [
            {**base, "series": series, "speedup": each.value, "low": each.low, "high": each.high}
            for series, each in values.items()
            if each
        ]
    return found
