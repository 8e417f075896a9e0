"""How a cluster of V8 shares a tile of queries: a drawing."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kernels import Problem

from ..style import PALETTE, Plot, canvas, computed


def v8_idea(core: str, shape: Any, problem: Problem, target: str) -> Plot:
    """How a cluster shares one tile of queries: drawn, not measured; the numbers are those of the chosen shape."""
    stages = (
        "rotates its slice\nof Q and of K",
        "multiplies them:\npart of all scores",
        "sums some rows,\nsoftmax",
        "multiplies weights\nwith its slice of V",
    )
    tops = (3.0, 2.2, 1.0, -0.2)
    ranks = ("block 0", "block 1", f"block {shape.cluster - 1}")
    columns = (0.0, 1.5, 3.4)
    title = (
        f"A cluster of {shape.cluster} blocks takes {shape.queries} queries of a head; each block holds {shape.width} "
        "of the dims, and rotates each key once"
    )
    with canvas(title, height=4.6) as (figure, (axis,)):
        axis.set(xlim=(-0.75, 4.85), ylim=(-0.75, 3.85))
        axis.axis("off")
        for place, (rank, x) in enumerate(zip(ranks, columns)):
            colour = (PALETTE[0], PALETTE[2], PALETTE[4])[place]
            axis.text(x, 3.55, rank, ha="center", va="center", fontsize=9, fontweight="bold", color=colour)
            for stage, y in zip(stages, tops):
                axis.text(
                    x, y, stage, ha="center", va="center", fontsize=7.5,
                    bbox={"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": colour, "linewidth": 1.3},
                )  # fmt: skip
            axis.annotate("", (x, tops[1] + 0.24), (x, tops[0] - 0.24), arrowprops={"arrowstyle": "->", "color": "0.3"})
        axis.text(2.45, 2.6, "…", ha="center", va="center", fontsize=14)
        for high, low, what in ((1, 2, "parts of the scores to\nthe owners of their rows"), (2, 3, "weights to all")):
            for start in columns:
                for end in columns:
                    axis.annotate(
                        "", (end, tops[low] + 0.25), (start, tops[high] - 0.25),
                        arrowprops={"arrowstyle": "->", "color": "0.6", "linewidth": 0.8},
                    )  # fmt: skip
            middle = (tops[high] + tops[low]) / 2
            axis.text(4.15, middle, what, ha="left", va="center", fontsize=7.5, color="0.25", style="italic")
        for y, what in ((tops[0], "Q, K from global\nmemory, once"), (tops[3], "V once;\nthe output out")):
            axis.text(4.15, y, what, ha="left", va="center", fontsize=7.5, color="0.25")
    frame = pd.DataFrame(
        [(str(problem), core, shape.cluster, shape.queries, shape.width)],
        columns=["problem", "core", "cluster", "queries", "width"],
    )
    return Plot(
        "v8-idea",
        figure,
        f"The shape is the one chosen for {problem} on {target}. Both exchanges, in grey, go from shared memory to "
        "shared memory of the cluster; no score and no rotated value goes through global memory.",
        f"Diagram: each of {shape.cluster} blocks rotates its slice of Q and K, multiplies them, sends the parts of "
        "the scores to the blocks that own their rows, which sum them and send the weights to all; each multiplies "
        "them with its slice of V.",
        frame,
        computed("drawn; its numbers by the rule that chooses the shape"),
    )
