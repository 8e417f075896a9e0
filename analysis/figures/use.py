"""A map of calls: where fusing RoPE wins, by queries and head dim, in float32 and in half precision."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ..evidence import Evidence, measured
from ..findings.decode import COLD, RAW, STUDY
from ..findings.fuse import HALF, MAPPED, compared, decodes, over_others
from ..models.rivals import FULL, MEASURED_IN, beside_op
from ..tables.table import missing
from .style import FUSED, LIBRARY, Plot, canvas

SINGLE, SHORT = "float32", "half precision"
COMPARED = {
    SINGLE: "inputs in L2; RoPE inside V8 or in front",
    SHORT: "decode from DRAM, beside libraries",
}
QUERIES = {"1": 1, "2–8": 8, "9–32": 32, "33–128": 128, "129–512": 512, "> 512": math.inf}  # cells, and their ends
DIMS = {"≤ 96": 96, "97–128": 128, "129–256": 256, "257–1024": 1024, "> 1024": math.inf}
FUSE, TIE, FIRST = "fusing is faster", "fusing ties", "rotating first is faster"
UNTIMED = "prompt: no fused kernel timed"
BESIDE_LIBRARIES = {1: "decode: faster than libraries", 0: "decode: level with one", -1: "decode: slower than one"}
LOOKS: dict[str, dict[str, Any]] = {
    FUSE: {"marker": "o", "color": FUSED},
    TIE: {"marker": "o", "color": FUSED, "mfc": "w"},
    FIRST: {"marker": "s", "color": LIBRARY},
    BESIDE_LIBRARIES[1]: {"marker": "^", "color": FUSED},
    BESIDE_LIBRARIES[0]: {"marker": "^", "color": FUSED, "mfc": "w"},
    BESIDE_LIBRARIES[-1]: {"marker": "v", "color": LIBRARY},
    UNTIMED: {"marker": "x", "color": LIBRARY},
}


def fuse_map(e: Evidence) -> Plot | str:
    """Every shape that was timed fused and not, and in half precision those of decode and of prompts."""
    rows = [
        (SINGLE, problem, FUSE if fastest == {FULL} else TIE if FULL in fastest else FIRST)
        for problem, fastest in compared(e, lambda problem: not decodes(problem))
    ]
    if not rows:
        return missing(MAPPED[0])
    steps = ((problem, rival.over) for problem, rival in beside_op(e).items() if decodes(problem))
    rows += [(SINGLE, problem, BESIDE_LIBRARIES[over.side]) for problem, over in steps]
    if e.study(STUDY):
        gains = over_others(e, STUDY, RAW, COLD, *HALF)
        rows += [(SHORT, problem, BESIDE_LIBRARIES[gain.side]) for problem, gain in gains.items()]
    prompts = e.study("half_prompts").problems("rope")
    rows += [(SHORT, problem, UNTIMED) for problem in prompts if problem.dtype in HALF]
    frame = pd.DataFrame(
        [(dtype, str(p), p.seq_q, p.seq_k, p.hdim, found) for dtype, p, found in rows],
        columns=["dtype", "problem", "queries", "keys", "hdim", "answer"],
    )
    several = f" rope_prompt_split, which runs few queries in half precision, was not timed on the {e.card}."
    several *= not e.study("few")
    title = "In float32 fusing nearly always wins with 9 to 128 queries"
    with canvas(title, 2, 1, height=5.0, sharex=True, height_ratios=(5, 3)) as (figure, axes):
        for axis, dtype, words in zip(axes, COMPARED, COMPARED.values()):
            _draw(axis, frame[frame["dtype"] == dtype])
            axis.set_title(f"{dtype}: {words}", loc="left", fontsize=10)
            axis.set_ylabel("head dim")
        for axis, words in zip(axes, ("grey: only\nbeside libraries", "")):
            axis.axvspan(-0.5, 1.5, color="0.92", zorder=0)
            axis.text(0.01, 0.98, words, va="top", fontsize=8.5, fontweight="bold", transform=axis.transAxes)
        axes[1].set_xticks(range(len(QUERIES)), QUERIES, fontsize=10)
        axes[1].set_xlabel("queries of a head", loc="left")
        seen = {*frame["answer"]}
        for answer, look in LOOKS.items():
            if answer in seen:
                axes[0].plot([], [], ls="", label=answer, ms=5.5, **look)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", frameon=False, ncols=2, fontsize=9)
    return Plot(
        "fuse-map",
        figure,
        f"A mark is a shape that was timed on the {e.card}; a cell without a mark has none. In grey cells fusing was "
        "compared with libraries that rotate the keys at each call, and not with rotating first: decode from raw keys. "
        "Marks in float32 are of inputs in L2 if they fit, those of decode in half precision of K and V from DRAM. A "
        "cross is a prompt in half precision, for which no fused kernel was timed."
        + several,
        "Marks in cells of queries and head dims, in two panels. In float32 nearly all marks with 9 to 128 queries "
        "say that fusing is faster; with more they say tie or rotate first. Decode is faster than libraries. Prompts "
        "in half precision were not timed fused.",
        frame,
        measured(e, *dict.fromkeys((*MAPPED, *MEASURED_IN, STUDY, "half_prompts"))),
    )


def _draw(axis: Axes, frame: pd.DataFrame) -> None:
    """Marks in cells of queries and head dims, in rows of eight: those that say fuse first, losses last."""
    cells = [np.searchsorted([*ends.values()], frame[name]) for ends, name in ((QUERIES, "queries"), (DIMS, "hdim"))]
    for (column, row), answers in frame["answer"].groupby(cells):
        for at, answer in enumerate(sorted(answers, key=[*LOOKS].index)):
            axis.plot(column - 0.38 + 0.11 * (at % 8), row - 0.22 + 0.26 * (at // 8), ls="", ms=5, **LOOKS[answer])
    rows = cells[1].max(initial=0) + 1
    axis.set(xlim=(-0.5, len(QUERIES) - 0.5), ylim=(-0.5, rows - 0.5))
    axis.set_yticks(range(rows), [*DIMS][:rows], fontsize=10)
    axis.set_xticks(np.arange(0.5, len(QUERIES) - 1), minor=True)
    axis.set_yticks(np.arange(0.5, rows - 1), minor=True)
    for column in sorted({*range(len(QUERIES))} - {*cells[0]}):
        axis.text(column, (rows - 1) / 2, "not timed", ha="center", va="center", fontsize=8.5, color="0.4")
    axis.grid(visible=False)
    axis.grid(which="minor", axis="both", color="0.8")
