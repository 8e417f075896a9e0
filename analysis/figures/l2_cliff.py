"""The rate of attention by head dim, in the published shapes and in one shape."""

from __future__ import annotations

import pandas as pd
from matplotlib.ticker import NullLocator

from ..evidence import Evidence
from ..evidence.origin import measured
from ..tables.table import Missing, short
from .style import MARKERS, PALETTE, Plot, canvas, legend, log_ticks

SERIES = {"log": "published shapes", "controlled": "4 heads of 64 queries"}


def cliff(e: Evidence, version: str = "attention_online_fixed") -> Plot | Missing:
    """The rate by head dim in the published shapes, which shrink with it, and with heads and queries held."""
    rows = []
    for study, label in SERIES.items():
        rates = e.tflops(version, study, "device_warm", problem=e.study(study).problems("attention"))
        for problem, rate in rates.values_known.items():
            shape = (problem.hdim, problem.heads, problem.seq_q, problem.heads * problem.seq_q)
            rows.append((label, *shape, rate))
    frame = pd.DataFrame(rows, columns=["series", "hdim", "heads", "seq", "blocks", "tflops"])
    if frame["series"].nunique() < len(SERIES):
        return Missing.study("controlled")
    frame = frame[frame["hdim"] >= frame[frame["series"] == "published shapes"]["hdim"].min()]
    dims = sorted(set(frame["hdim"]))
    with canvas("The fall at head dim 8192 is mostly that of the shapes", height=4.2) as (figure, (axis,)):
        for (label, mine), marker, color in zip(frame.groupby("series", sort=False), MARKERS, PALETTE):
            axis.plot(mine["hdim"], mine["tflops"], marker=marker, color=color, lw=1, label=label)
            for row in mine.itertuples() if label == "published shapes" else ():
                at, shift = (row.hdim, row.tflops), (-8, -9)
                axis.annotate(f"{row.blocks} blocks", at, shift, textcoords="offset points", fontsize=8, ha="right")
        log_ticks(axis, "y", frame["tflops"].min(), frame["tflops"].max())
        axis.set_xscale("log", base=2)
        axis.set_xticks(dims, map(str, dims))
        axis.set_xlim(dims[0] / 2.6, dims[-1] * 1.3)
        axis.set_ylim(frame["tflops"].min() / 2, frame["tflops"].max() * 1.3)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set(xlabel="head dim", ylabel="TFLOP/s, on the device")
        legend(figure, [axis])
    return Plot(
        "l2-cliff",
        figure,
        f"{short(version)}, device_warm on the {e.card}. Beside the published shapes the blocks "
        f"of a call, one a query of a head; {e.gpu['sms']} SMs share them.",
        "Two lines of TFLOP/s by head dim: in the published shapes the rate falls at 8192, in one shape little.",
        frame,
        measured(e, *SERIES),
    )
