"""The figure of the front page: three results at head dim 2048, published beside measured."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ..evidence import Evidence, measured, published_on
from ..measure.studies import MAIN
from ..record import published
from ..record.text import factor
from .style import PALETTE, Plot, canvas, key, log_ticks

SEPARATE, FULL = "rope_separate", "rope_v8"
ROWS = (  # in words, the version, and the baselines of what was published, where it was, and measured
    ("Sinusoidal V5, all fused", "sinusoidal_v5", "sinusoidal_separate_scalar", "sinusoidal_separate_float4"),
    ("RoPE V7, Q fused", "rope_v7", SEPARATE, SEPARATE),
    ("RoPE V1, all fused", "rope_v1c", SEPARATE, SEPARATE),
    ("RoPE V8, all fused, ours", FULL, "", "rope_separate_v8"),
)
LOOKS: dict[str, dict[str, Any]] = {
    "published": {"facecolor": "white", "edgecolor": "0.35", "hatch": "////"},
    "measured": {"facecolor": PALETTE[0]},
}


def fusing(e: Evidence) -> Plot:
    """Speedups over separate kernels: published, and measured against the best separate kernels of the same kind."""
    rows = []
    for words, version, baseline, against in ROWS:
        problem = e.study("log").shapes(version).get(MAIN.hdim)
        said = published.speedup(version, baseline, problem) if problem and baseline else None
        if version == FULL:
            here = e.speedup(version, against, "beyond", "device_warm", problem=MAIN)[MAIN]
        else:
            here = e.speedup(version, against, "log", "device_warm", hdim=MAIN.hdim)[MAIN.hdim]
        rows.append((words, version, baseline, said.value if said else None, against, here.value, here.low, here.high))
    names = ["compared", "version", "baseline", "published", "against", "measured", "low", "high"]
    frame = pd.DataFrame(rows, columns=names).astype(dict.fromkeys(("published", "measured", "low", "high"), float))
    labels = {
        "published": f"published, {published.card('rope')}",
        "measured": f"measured, {e.card.removeprefix('NVIDIA ')}",
    }
    values = frame[list(LOOKS)].stack().dropna().tolist()
    with canvas("", height=1.8) as (figure, (axis,)):
        log_ticks(axis, "x", min(values), max(values), "×")
        axis.set_xlim(min(0.25, min(values) / 1.6), 1.6 * max(values))
        axis.axvline(1, color="0.2", lw=1, zorder=3)
        axis.grid(False, axis="y")
        for place, row in enumerate(frame.to_dict("records")):
            for at, name in enumerate(LOOKS):
                if row[name] == row[name]:
                    _bar(axis, place + (0.46 * at - 0.23) * (row["published"] == row["published"]), row[name], name)
        axis.set_yticks(range(len(frame)), frame["compared"], fontsize=8)
        axis.set_ylim(len(frame) - 0.6, -0.5)
        axis.set_xlabel("speedup over separate kernels (above 1: faster)", loc="right", fontsize=8)
        key(figure, {labels[name]: look for name, look in LOOKS.items()})
    return Plot(
        "front",
        figure,
        f"Head dim {MAIN.hdim}. Published: the authors' clock; ours: the GPU alone. Beside the published V5 separate "
        "kernels load single floats, beside ours float4; beside V8 they have its attention.",
        "Bars of speedups over separate kernels, published and measured. Sinusoidal V5 and RoPE V7 are published above "
        "1 and measured below. RoPE V1, all fused, is below 1 in both, and our V8, all fused as well, is above.",
        frame,
        measured(e, "log", "beyond") + published_on("rope"),
        "At these shapes V5 and V7 lose, and RoPE can be fused",
    )


def _bar(axis: Axes, at: float, value: float, series: str) -> None:
    """A bar from 1 to a speedup, which stands at its end."""
    axis.barh(at, value - 1, 0.34, left=1, lw=0.8, zorder=2, **LOOKS[series])
    side, off = ("left", (3, 0)) if value > 1 else ("right", (-3, -1.5))  # clear of a longer bar above
    axis.annotate(factor(value), (value, at), off, textcoords="offset points", ha=side, va="center", fontsize=8)
