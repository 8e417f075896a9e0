"""The figure of the front page: what fusing is worth at head dim 2048, published beside measured."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..evidence import Evidence
from ..evidence.origin import measured, published_on
from ..measure.studies import MAIN
from ..models.moves import SCALAR, SEPARATE
from ..record import published
from ..record.text import factor
from ..tables.table import short
from .style import PALETTE, Plot, canvas, log_ticks

FUSED = "rope_v8"
COMPARED = (  # in words, version, baseline
    ("Sinusoidal V5, over separate kernels that load one float", "sinusoidal_v5", SCALAR),
    ("Sinusoidal V5, over separate kernels that load four", "sinusoidal_v5", SEPARATE["sinusoidal"]),
    ("RoPE V1c: all fused, K rotated for every query", "rope_v1c", "rope_separate"),
    ("RoPE V7: only the rotation of Q fused", "rope_v7", "rope_separate"),
    ("RoPE V8, ours: all fused, K rotated for every tile", FUSED, "rope_separate"),
    ("The same, over separate kernels with V8's attention", FUSED, "rope_separate_v8"),
)
NARROW = 4.8  # inches: it is read on a phone without scrolling
LOOKS: dict[str, dict[str, Any]] = {
    "published": {"facecolor": "white", "edgecolor": "0.35", "hatch": "////"},
    "measured": {"facecolor": PALETTE[0]},
    "loaded": {"facecolor": PALETTE[1]},
}


def fusing(e: Evidence) -> Plot:
    """Speedups over separate kernels at head dim 2048: published, measured, and with as many blocks per SM as there."""
    rows = []
    for words, version, baseline in COMPARED:
        study = "beyond" if version == FUSED else "log"
        problem = MAIN if version == FUSED else e.study("log").shapes(version).get(MAIN.hdim)
        said = published.speedup(version, baseline, problem) if problem else None
        here = e.speedup(version, baseline, study, "device_warm", problem=problem or MAIN)[problem or MAIN]
        loaded = e.speedup(version, baseline, "matched", "device_warm", hdim=MAIN.hdim)[MAIN.hdim]
        numbers = (said.value if said else None, here.value, here.low, here.high, loaded.value)
        rows.append((words, version, baseline, *numbers))
    names = ["compared", "version", "baseline", "published", "measured", "low", "high", "loaded"]
    frame = pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[3:], float))
    card = e.card.removeprefix("NVIDIA ")
    series = {
        "published": f"published, {published.card('rope')}",
        "measured": f"{card}, the published shape",
        "loaded": f"{card}, with as many blocks per SM as there",
    }
    series = {name: label for name, label in series.items() if frame[name].notna().any()}
    values = frame[list(LOOKS)].stack().dropna().tolist() or [1.0]
    title = "V8 beats separate kernels; published winners depend on baseline or load"
    with canvas(title, width=NARROW, height=5.2) as (figure, (axis,)):
        log_ticks(axis, "x", min(values), max(values), "×")
        axis.set_xlim(min(0.25, min(values) / 1.6), 2 * max(values))
        axis.axvline(1, color="0.2", lw=1, zorder=3)
        axis.grid(False, axis="y")
        axis.set_yticks([])
        down = 0.5
        for row in frame.to_dict("records"):
            axis.text(
                0.01, down, row["compared"], transform=axis.get_yaxis_transform(), fontsize=9, va="center", zorder=4,
                bbox={"fc": "white", "ec": "none", "pad": 0.5},
            )  # fmt: skip
            for name in series:
                if row[name] == row[name]:
                    down += 1
                    _bar(axis, down, row[name], name)
            down += 1.5
        axis.set_ylim(down - 0.7, -0.2)
        axis.set_xlabel("speedup over separate kernels, time on the GPU alone", loc="left", fontsize=8.5, color="0.4")
        handles = [Patch(label=label, **LOOKS[name]) for name, label in series.items()]
        if handles:
            figure.legend(handles=handles, loc="outside lower left", frameon=False, fontsize=8.5, handletextpad=0.4)
    return Plot(
        "front",
        figure,
        f"Right of 1 the fused kernel is faster. Head dim {MAIN.hdim}, {MAIN.heads} heads of {MAIN.seq_q} tokens; "
        f"{', '.join(short(name) for name in ('rope_v7', FUSED))} rotate {MAIN.rotary_dim} dims, V1c all. To have as "
        "many blocks per SM as on the authors' card, more heads are computed.",
        f"Bars of speedups over separate kernels at head dim {MAIN.hdim}, for each comparison published and measured.",
        frame,
        measured(e, "log", "beyond", "matched") + published_on("rope"),
    )


def _bar(axis: Axes, at: float, value: float, series: str) -> None:
    """A bar from 1 to a speedup, which stands at its end."""
    axis.barh(at, value - 1, 0.9, left=1, lw=0.8, zorder=2, **LOOKS[series])
    side, off = ("left", 3) if value > 1 else ("right", -3)
    axis.annotate(factor(value), (value, at), (off, 0), textcoords="offset points", ha=side, va="center", fontsize=8.5)
