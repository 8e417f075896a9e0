"""A map of calls: where fusing RoPE wins, by queries and head dim, in float32 and in half precision."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from ..evidence import Evidence, measured
from ..findings.decode import COLD, RAW, STUDY
from ..findings.fuse import HALF, MAPPED, compared, over_others
from ..models.rivals import FULL
from ..tables.table import Missing
from .style import FUSED, LIBRARY, Plot, canvas

SINGLE, SHORT = "float32", "half precision"
LOOKS: dict[str, dict[str, Any]] = {
    "fuse": {"marker": "o", "color": FUSED},
    "tie": {"marker": "o", "color": FUSED, "mfc": "w"},
    "rotate first": {"marker": "s", "color": LIBRARY},
    "not timed fused": {"marker": "x", "color": LIBRARY},
}


def fuse_map(e: Evidence) -> Plot | Missing:
    """Every shape that was timed fused and not, and in half precision those of decode and of prompts."""
    rows = [
        (SINGLE, problem, "fuse" if fastest == {FULL} else "tie" if FULL in fastest else "rotate first")
        for problem, fastest in compared(e, bool)
    ]
    if not rows:
        return Missing.study(MAPPED[0])
    if e.study(STUDY):
        sides = {1: "fuse", 0: "tie", -1: "rotate first"}
        gains = over_others(e, STUDY, RAW, COLD, *HALF)
        rows += [(SHORT, problem, sides[gain.side]) for problem, gain in gains.items()]
    prompts = e.study("half_prompts").problems("rope")
    rows += [(SHORT, problem, "not timed fused") for problem in prompts if problem.dtype in HALF]
    frame = pd.DataFrame(
        [(dtype, str(p), p.seq_q, p.seq_k, p.hdim, found) for dtype, p, found in rows],
        columns=["dtype", "problem", "queries", "keys", "hdim", "answer"],
    )
    title = "Few queries a head: fuse. Many: fusing gains little"
    with canvas(title, 1, 2, height=3.6, sharex=True, sharey=True, width_ratios=(3, 2)) as (figure, axes):
        for axis, dtype in zip(axes, (SINGLE, SHORT)):
            _draw(axis, frame[frame["dtype"] == dtype])
            axis.set_title(dtype, loc="left", fontsize=9)
        axes[0].set_xlabel("queries of a head", loc="left")
        axes[0].set_ylabel("head dim")
        for answer, look in LOOKS.items():
            axes[0].plot([], [], ls="", label=answer, ms=5.5, **look)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", frameon=False, ncols=4, fontsize=8.5)
    return Plot(
        "fuse-map",
        figure,
        f"A mark is a shape that was timed on the {e.card}. Float32: V8 against a hybrid and separate kernels of the "
        "same attention; a tie is within 3 %, or its interval reaches 1. Half precision: decode on raw keys and the "
        "fastest other way, keys in memory; of prompts no fused kernel was timed. A call of up to 8 queries runs a "
        "kernel for decode, whatever the mark of V8 is. Marks of one shape are set side by side.",
        "Marks by queries and head dim, in two panels. With up to 128 queries nearly all say fuse, with more they say "
        "tie or rotate first; in half precision decode says fuse.",
        frame,
        measured(e, *MAPPED, STUDY, "half_prompts"),
    )


def _draw(axis: Axes, frame: pd.DataFrame) -> None:
    """Marks on doublings of both sizes; those of one place beside each other."""
    for (queries, hdim), mine in frame.groupby(["queries", "hdim"]):
        for at, answer in enumerate(mine["answer"]):
            side = 2 ** (min(0.22, 1.6 / len(mine)) * (at - (len(mine) - 1) / 2))
            axis.plot(queries * side, hdim, ls="", ms=5, **LOOKS[answer])
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    ticks = (1, 8, 64, 512, 4096)
    axis.set_xticks(ticks, list(map(str, ticks)))
    dims = (64, 128, 256, 512, 1024, 2048, 4096)
    axis.set_yticks(dims, list(map(str, dims)))
