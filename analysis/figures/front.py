"""The figure of the front page: results at head dim 2048, published, on their SMs and on the whole card."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ..evidence import Evidence, measured, published_on
from ..record import published
from ..record.text import factor
from ..studies import MAIN, SLICE, SLICES, THEIR_CLOCK
from .style import PALETTE, Plot, canvas, key, log_ticks

SEPARATE, FULL = "rope_separate", "rope_v8"
ROWS = (  # in words, the version, and the separate kernels, by which the documents print a speedup or a time of both
    ("V5, over scalar kernels", "sinusoidal_v5", "sinusoidal_separate_scalar"),
    ("V5, over float4 kernels", "sinusoidal_v5", "sinusoidal_separate_float4"),
    ("V7 (Q fused), RoPE", "rope_v7", SEPARATE),
    ("V1 (all fused), RoPE", "rope_v1c", SEPARATE),
    ("V8 (all fused), RoPE, ours", FULL, "rope_separate_v8"),
)
LOOKS: dict[str, dict[str, Any]] = {
    "published": {"facecolor": "white", "edgecolor": "0.35", "hatch": "////"},
    "clock": {"facecolor": PALETTE[9]},
    "alone": {"facecolor": PALETTE[0]},
}


def fusing(e: Evidence) -> Plot:
    """Speedups over separate kernels: published, on their SMs by the same clock, and on the whole card."""
    rows = []
    for words, version, baseline in ROWS:
        problem = e.study("log").shapes(version).get(MAIN.hdim)
        said = published.speedup(version, baseline, problem) if problem else None
        shape: dict[str, Any] = {"problem": MAIN} if version == FULL else {"hdim": MAIN.hdim}
        study = "beyond" if version == FULL else "log"
        whole = e.speedup(version, baseline, study, **shape)
        measured_by = [e.under(THEIR_CLOCK).speedup(version, baseline, **shape), whole]
        ends = (end for gain in measured_by for one in gain.values() for end in (one.value, one.low, one.high))
        rows.append((words, version, baseline, said.value if said else None, *ends))
    names = ["compared", "version", "baseline", "published", "clock", "clock_low", "clock_high", "alone", "low", "high"]
    frame = pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[3:], float))
    labels = {"published": "published", "clock": "their SMs, same clock", "alone": "whole card, GPU alone"}
    values = frame[list(LOOKS)].stack().dropna().tolist()
    with canvas("", height=2.9) as (figure, (axis,)):
        log_ticks(axis, "x", min(values), max(values), "×")
        axis.set_xlim(min(0.25, min(values) / 1.6), 1.6 * max(values))
        axis.axvline(1, color="0.2", lw=1, zorder=3)
        axis.grid(False, axis="y")
        for place, row in enumerate(frame.to_dict("records")):
            there = [name for name in LOOKS if row[name] == row[name]]
            for at, name in enumerate(there):
                _bar(axis, place + 0.28 * (at - (len(there) - 1) / 2), row[name], name)
        axis.set_yticks(range(len(frame)), frame["compared"], fontsize=8)
        axis.set_ylim(len(frame) - 0.5, -0.5)
        axis.set_xlabel("speedup over separate kernels (above 1: faster)", loc="right", fontsize=8)
        key(figure, {labels[name]: look for name, look in LOOKS.items()})
    return Plot(
        "front",
        figure,
        f"Head dim {MAIN.hdim}: published for the {published.card('rope')}, measured on the {e.card}. Their SMs: a "
        f"slice with as many ({SLICE}); it answers whether they were right, the whole card whether to fuse. "
        "Bars of a row have one baseline; V8's is its own attention, with RoPE in front. Speedups in the text are of "
        "the GPU alone, on the whole card where nothing else is said.",
        "Bars of speedups over separate kernels: published, on as many SMs as their card, and on the whole card. "
        "Sinusoidal V5 is above 1 over scalar kernels in all three, and below 1 over float4 kernels. RoPE V7 is above "
        "1 as published and on their SMs, and below 1 on the whole card. RoPE V1, all fused, is below 1 in all, our V8 "
        "above.",
        frame,
        measured(e, "log", SLICES, "beyond") + published_on("rope"),
        "V7 wins on their SMs, as published, and loses on the whole card",
    )


def _bar(axis: Axes, at: float, value: float, series: str) -> None:
    """A bar from 1 to a speedup, which stands at its end."""
    axis.barh(at, value - 1, 0.24, left=1, lw=0.8, zorder=2, **LOOKS[series])
    side, off = ("left", (3, 0)) if value > 1 else ("right", (-3, 0))
    axis.annotate(factor(value), (value, at), off, textcoords="offset points", ha=side, va="center", fontsize=7)
