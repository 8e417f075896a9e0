"""The figure of the front page: results at head dim 2048, published, under the authors' conditions, on the whole card.
"""

import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ..evidence import Evidence, measured, published_on
from ..findings.loads import FLOAT4, SCALAR, V5
from ..findings.v8 import ROTATED
from ..models.rivals import HYBRID
from ..record import published
from ..record.text import factor
from ..studies import MAIN, SLICE, SLICES, THEIR_CLOCK, THEIR_SMS
from .style import FUSED, PUBLISHED, THEIRS, Plot, canvas, key

SEPARATE, FULL, INSIDE = "rope_separate", "rope_v8", "rope_separate_v8"
ALL_DIMS = "the same, all dims rotated"
ROWS = (  # in words, the version, the separate kernels, what the story found behind the bars
    ("sinusoidal V5, over scalar kernels", V5, SCALAR, "loads four floats at a time"),
    ("sinusoidal V5, over float4 kernels", V5, FLOAT4, "embeds each key for every query"),
    ("RoPE V7 (Q fused)", "rope_v7", SEPARATE, "a wave fewer on their SMs; its loop loses on the whole card"),
    ("RoPE V1 (Q and K fused)", "rope_v1c", SEPARATE, "loads tables of cosines and sines"),
    ("RoPE V8, ours, over K rotated in front", FULL, HYBRID, "no launch in front; a tile of queries shares a key"),
    (ALL_DIMS, FULL, HYBRID, "the kernel in front copies nothing in vain"),
    ("RoPE V8, ours, over Q, K rotated in front", FULL, INSIDE, "saves both launches in front"),
)
LOOKS: dict[str, dict[str, Any]] = {
    "published": PUBLISHED,
    "clock": {"facecolor": "white", "edgecolor": THEIRS, "hatch": "/////"},
    "slice": {"facecolor": THEIRS},
    "alone": {"facecolor": FUSED},
}
LABELS = {
    "published": "published", "clock": "their SMs, by their clock", "slice": "their SMs, the GPU alone",
    "alone": "whole card, the GPU alone",
}  # fmt: skip


def fusing(e: Evidence) -> Plot:
    """Speedups over separate kernels: published, on their SMs by both clocks, on the whole card by the GPU alone."""
    return _speedups(
        e, "front", 4.5, False,
        f"Head dim {MAIN.hdim}, float32. Published for the {published.card('rope')}; ours on the {e.card}, on a slice "
        f"of {SLICE} SMs (light) and on all of it (dark). Hatched: by the authors' clock, which includes the host. "
        "Of our bars, each changes one thing. Each kernel is compared with kernels that rotate as many dims: "
        f"{MAIN.rotary_dim} for V7 and V8 if nothing else is said, all for V1. V8 was timed on the whole card only.",
        "A speedup depends on the baseline, and on the SMs",
    )  # fmt: skip


def answer(e: Evidence) -> Plot:
    """The same with the cause of each row in it."""
    return _speedups(
        e, "answer", 5.5, True, "The bars of the front page, and the cause that the story found for each row.",
        "What each speedup came from",
    )  # fmt: skip


def _speedups(e: Evidence, id: str, height: float, causes: bool, caption: str, name: str) -> Plot:
    rows = []
    for words, version, baseline, cause in ROWS:
        problem = e.study("log").shapes(version).get(MAIN.hdim)
        said = published.speedup(version, baseline, problem) if problem else None
        own_shape = ROTATED if words == ALL_DIMS else MAIN
        shape: dict[str, Any] = {"problem": own_shape} if version == FULL else {"hdim": MAIN.hdim}
        study = "beyond" if version == FULL else "log"
        whole = e.speedup(version, baseline, study, **shape)
        own = (e.under(name).speedup(version, baseline, **shape) for name in (THEIR_CLOCK, THEIR_SMS))
        measured_by = [*own, whole]
        ends = (end for gain in measured_by for one in gain.values() for end in (one.value, one.low, one.high))
        rows.append((words, version, baseline, cause, said.value if said else None, *ends))
    names = ["compared", "version", "baseline", "cause", "published", "clock", "clock_low", "clock_high"]
    names += ["slice", "slice_low", "slice_high", "alone", "low", "high"]
    frame = pd.DataFrame(rows, columns=names).astype(dict.fromkeys(names[4:], float))
    with canvas("", height=height) as (figure, (axis,)):
        axis.set_xlim(0, 1.15 * frame[list(LOOKS)].max(axis=None))
        axis.axvline(1, color="0.2", lw=1, zorder=3)
        axis.grid(False, axis="y")
        for place, row in enumerate(frame.to_dict("records")):
            there = [series for series in LOOKS if row[series] == row[series]]
            for at, series in enumerate(there):
                _bar(axis, place + 0.21 * (at - (len(there) - 1) / 2), row[series], series)
        found = [textwrap.fill(f"({cause})", 36) for cause in frame["cause"]]
        words = frame["compared"] + ("\n" + pd.Series(found) if causes else "")
        axis.set_yticks(range(len(frame)), words, fontsize=8.5)
        axis.set_ylim(len(frame) - 0.5, -0.5)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axis.set_xlabel("speedup (above 1: faster)", loc="right", fontsize=8.5)
        key(figure, {LABELS[series]: look for series, look in LOOKS.items()})
    return Plot(
        id,
        figure,
        caption,
        "Bars of speedups over separate kernels: published, on as many SMs as their card by both clocks, and on the "
        "whole card by the GPU alone. Sinusoidal V5 is above 1 over scalar kernels in all three, and below 1 over "
        "float4 kernels. RoPE V7 is above 1 as published and on their SMs, and below 1 on the whole card. RoPE V1, all "
        "fused, is below 1 in all. Our V8 is above 1 over both baselines, and at 1 with all dims rotated.",
        frame if causes else frame.drop(columns="cause"),
        measured(e, "log", SLICES, "beyond", of={*frame["version"], *frame["baseline"]}) + published_on("rope"),
        name,
    )


def _bar(axis: Axes, at: float, value: float, series: str) -> None:
    """A bar from 1 to a speedup, which stands at its end."""
    axis.barh(at, value - 1, 0.17, left=1, lw=0.8, zorder=2, **LOOKS[series])
    side, off = ("left", (3, 0)) if value > 1 else ("right", (-3, 0))
    axis.annotate(factor(value), (value, at), off, textcoords="offset points", ha=side, va="center", fontsize=7)
