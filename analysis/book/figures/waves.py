"""Time of a call by how many blocks it has: it steps up where they no longer fit the card at once."""

from __future__ import annotations

import pandas as pd

from ...records.measured import Measured
from ..chapters.story import held, step_up
from ..origin import computed
from ..style import PALETTE, Plot, canvas, measured_in, short

INKS = {"rope_separate": PALETTE[1], "rope_v7": PALETTE[0]}


def waves(evidence: Measured) -> Plot:
    """Separate kernels and V7 with more and more heads, and where another wave of their attention blocks begins."""
    rows = [
        (
            problem.hdim,
            version,
            problem.heads,
            problem.heads * problem.seq_q,
            held(evidence, version, problem),
            taken.us,
        )
        for version in INKS
        for problem in evidence.problems("rope")
        if (taken := evidence.time(version, problem))
    ]
    frame = pd.DataFrame(rows, columns=["hdim", "version", "heads", "blocks", "held", "us"])
    dims = sorted(frame["hdim"].unique())
    card = evidence.card.removeprefix("NVIDIA ")
    own = [step_up(evidence, version, version).faster for version in INKS]
    title = "Where blocks no longer fit at once, time steps up" if all(own) else "Time of a call by its blocks"
    with canvas(f"{title} ({card})", 1, len(dims), height=3.4) as (
        figure,
        axes,
    ):
        for axis, hdim in zip(axes, dims):
            for version, mine in frame[frame["hdim"] == hdim].groupby("version", sort=False):
                mine = mine.sort_values("blocks")
                ink = INKS[str(version)]
                axis.plot(mine["blocks"], mine["us"], "o-", color=ink, ms=4, lw=1.5)
                last = mine.iloc[-1]
                axis.annotate(short(str(version)), (last["blocks"], last["us"]), (5, 0), textcoords="offset points",
                              color=ink, va="center", fontsize=8.5)  # fmt: skip
                for full in range(int(mine["held"].iloc[0] or 0), int(last["blocks"]), int(mine["held"].iloc[0] or 1)):
                    axis.axvline(full, color=ink, lw=1, ls=":")
            axis.set_title(f"head dim {hdim}", loc="left", fontweight="bold", fontsize=9)
            axis.set_xlabel("blocks of attention, 64 a head", loc="left")
            axis.set_ylim(0)
            axis.margins(x=0.14)
        axes[0].set_ylabel("µs of a call")
    alt = "; ".join(f"{row.version}, {row.heads} heads at {row.hdim}: {row.us:.1f} µs" for row in frame.itertuples())
    return Plot(
        "waves",
        figure,
        "Dotted: how many blocks of the attention kernel the card holds at a time, computed from the kernel's "
        "registers, and multiples of that number. Time on the GPU alone.",
        f"Line plot of time by blocks. {alt}.",
        frame,
        measured_in(evidence) + computed("blocks held by the compiler's report"),
    )
