"""V7 over separate kernels by how many blocks a call has: it wins where these need a wave of blocks more than V7."""

from __future__ import annotations

import math

import pandas as pd

from kernels import Problem

from ..evidence import Evidence
from ..evidence.origin import computed, measured
from ..measure.studies import AUTHORS_SMS
from ..tables.table import Missing
from .style import PALETTE, Plot, canvas

V7, SEPARATE = "rope_v7", "rope_separate"
LOG_BLOCKS = 256  # of attention, 4 heads of 64 queries


def wave_count(e: Evidence, version: str, problem: Problem) -> int | None:
    """How many waves a version's attention blocks take on the card; None where the compiler says nothing."""
    blocks = e.resource(version, "blocks_per_sm", hdim=problem.hdim, rotary_dim=problem.rotary_dim)[problem.hdim]
    held = blocks * e.gpu["sms"]
    return math.ceil(problem.heads * problem.seq_q / held.value) if held else None


def waves(e: Evidence) -> Plot | Missing:
    """V7's speedup with more and more heads; shaded where separate kernels need a wave more."""
    rows = [
        (
            problem.hdim,
            problem.heads,
            problem.heads * problem.seq_q,
            *(wave_count(e, version, problem) for version in (V7, SEPARATE)),
            *(ratio.value, ratio.low, ratio.high),
        )
        for problem, ratio in e.speedup(
            V7, SEPARATE, "waves", "device_warm", problem=e.study("waves").problems("rope")
        ).items()
        if ratio
    ]
    if not rows:
        return Missing.study("waves")
    names = ["hdim", "heads", "blocks", "waves_v7", "waves_separate", "speedup", "low", "high"]
    frame = pd.DataFrame(rows, columns=names)
    dims = sorted(frame["hdim"].unique())
    marks = {"their shapes": LOG_BLOCKS, "their load": LOG_BLOCKS * e.gpu["sms"] / AUTHORS_SMS}
    title = "V7 wins where separate kernels need a wave more"
    with canvas(title, 1, len(dims), height=3.4, sharey=True) as (figure, axes):
        for axis, hdim in zip(axes, dims):
            mine = frame[frame["hdim"] == hdim].sort_values("blocks").reset_index(drop=True)
            edges = mine["blocks"].tolist()
            for place in mine.index[mine["waves_separate"] > mine["waves_v7"]]:
                left = (edges[max(place - 1, 0)] + edges[place]) / 2
                right = (edges[min(place + 1, len(edges) - 1)] + edges[place]) / 2
                axis.axvspan(left, right, color=PALETTE[0], alpha=0.15, lw=0)
            axis.plot(mine["blocks"], mine["speedup"], "o-", color=PALETTE[0], ms=4, lw=1.5)
            axis.axhline(1, color="black", lw=1)
            for words, blocks in marks.items():
                axis.axvline(blocks, color="gray", lw=1, ls=":")
                axis.annotate(words, (blocks, 0.02), (3, 0), textcoords="offset points", fontsize=8.5,
                              xycoords=("data", "axes fraction"))  # fmt: skip
            axis.set_title(f"head dim {hdim}", loc="left", fontweight="bold", fontsize=9)
            axis.set_xlabel("blocks of attention, 64 a head", loc="left")
        axes[0].set_ylabel("speedup of V7")
    return Plot(
        "waves",
        figure,
        "Above 1 V7 is faster, on the GPU alone. Shaded: the attention blocks of separate kernels take one wave more "
        "than V7's, by the kernels' registers. Dotted: the blocks of the authors' shapes, and as many for each SM as "
        "on their card.",
        "Lines of V7's speedup over separate kernels by the number of blocks, a panel a head dim.",
        frame,
        measured(e, "waves") + computed("waves by the compiler's report"),
    )
