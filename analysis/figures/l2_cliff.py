"""The rate of attention by head dim, in the published shapes and in one shape."""

from __future__ import annotations

import pandas as pd
from matplotlib.ticker import NullLocator

from ..records.interval import geometric_mean
from ..records.measured import Measured
from ..tables.table import Missing
from .style import MARKERS, PALETTE, Plot, canvas, legend, log_ticks, measured_in, short


def cliff(published_shapes: Measured, held: Measured, version: str = "attention_online_fixed") -> Plot | Missing:
    """The rate by head dim in the published shapes, which shrink with it, and with heads and queries held."""
    if not held:
        return Missing.study("controlled")
    rows, kept = [], []
    for label, evidence in (("published shapes", published_shapes), ("4 heads of 64 queries", held)):
        rates = {}
        for problem in evidence.problems("attention"):
            if taken := evidence.time(version, problem):
                rates[problem.hdim] = problem.flops / evidence.medians(version, problem, "device_warm")
                blocks, rate = problem.heads * problem.seq_q, problem.flops / taken.us / 1e6
                rows.append((label, problem.hdim, problem.heads, problem.seq_q, blocks, rate))
        if not {4096, 8192} <= set(rates):
            return Missing(why=f"The rates of {short(version)} at head dims 4096 and 8192 are not both measured")
        kept.append(geometric_mean((rates[8192] / rates[4096]).to_numpy()).value)
    names = ["series", "hdim", "heads", "seq", "blocks", "tflops"]
    frame = pd.DataFrame(rows, columns=names)
    frame = frame[frame["hdim"] >= frame[frame["series"] == "published shapes"]["hdim"].min()]
    mostly = kept[0] < 1 and 1 - kept[1] < (1 - kept[0]) / 2
    title = "The fall at head dim 8192 is mostly that of the shapes" if mostly else "Attention's rate by head dim"
    with canvas(title, height=4.2) as (figure, (axis,)):
        for place, (label, mine) in enumerate(frame.groupby("series", sort=False)):
            axis.plot(mine["hdim"], mine["tflops"], marker=MARKERS[place], color=PALETTE[place], lw=1, label=label)
            if label == "published shapes":
                for row in mine.itertuples():
                    at, shift = (row.hdim, row.tflops), (-8, -9)
                    axis.annotate(f"{row.blocks} blocks", at, shift, textcoords="offset points", fontsize=8, ha="right")
        log_ticks(axis, "y", frame["tflops"].min(), frame["tflops"].max())
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted(set(frame["hdim"])), [str(size) for size in sorted(set(frame["hdim"]))])
        axis.set_xlim(frame["hdim"].min() / 2.6, frame["hdim"].max() * 1.3)
        axis.set_ylim(frame["tflops"].min() / 2, frame["tflops"].max() * 1.3)
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_ylabel("TFLOP/s, on the device")
        axis.set_xlabel("head dim")
        legend(figure, [axis])
    return Plot(
        "l2-cliff",
        figure,
        f"{short(version)}, device_warm on the {published_shapes.card}. Beside the published shapes the blocks "
        f"of a call, one a query of a head; {published_shapes.gpu['sms']} SMs share them.",
        "Lines of TFLOP/s by head dim. "
        + "; ".join(f"{row.series}, {row.hdim}: {row.tflops:.3f} ({row.blocks} blocks)" for row in frame.itertuples())
        + ".",
        frame,
        measured_in(published_shapes, held),
    )
