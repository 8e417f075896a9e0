"""How a cluster of V8 shares a tile of queries, and what one of its blocks does when: drawings."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from kernels import Problem

from ..evidence.origin import Source, computed
from ..models.steps import CUTS
from .style import PALETTE, Plot, canvas

SHOWN = 4  # slices that are drawn of a head dim
INK, SOFT, TURNED = "0.15", "0.45", "#a35c00"
COPY, WORK, ROTATE = "#d9dde1", "#d7e6f5", "#f3cf9b"  # what boxes of the timeline are filled with
IDEA = (  # where each step's words stand
    (1.75, 2.72, "1. Each block rotates its slices of Q and\nK and multiplies them: a part of all scores"),
    (3.05, 1.42, "2. The parts go to the\nblock that owns the row"),
    (3.05, 0.75, "3. It sums them and does\nthe softmax"),
    (2.4, -0.1, "4. Weights go to all blocks; each\nmultiplies them by its slice of V\nand stores its output"),
)
ARROWS = (((1.3, 1.95), (1.9, 1.95)), ((2.4, 1.5), (2.4, 1.02)), ((2.2, 0.48), (1.3, 0.1)))


def _matrix(axis: Axes, y: float, height: float, name: str, rotated: bool = False) -> None:
    """A matrix cut along the head dim: a slice for each block."""
    for i in range(SHOWN):
        axis.add_patch(Rectangle((0.3 * i, y), 0.3, height, fc=PALETTE[i], ec="white", lw=1.5))
    axis.text(-0.08, y + height / 2, name, ha="right", va="center", fontsize=9, linespacing=1.1)
    if rotated:
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 7.5, "color": TURNED}
        axis.text(0.15 * SHOWN, y + height + 0.02, "rotated once a tile", **style)


def v8_idea(core: str, shape: Any, problem: Problem, target: str) -> Plot:
    """How the blocks of a cluster share the head dim: drawn, not measured; its numbers are those of the shape."""
    title = f"{shape.cluster} blocks share {shape.queries} queries: each holds {shape.width} of {problem.hdim} dims"
    with canvas(title, height=4.3) as (figure, (axis,)):
        axis.set(xlim=(-0.75, 4.4), ylim=(-0.75, 3.2))
        axis.axis("off")
        _matrix(axis, 2.3, 0.45, f"Q tile\n{shape.queries} rows", rotated=True)
        _matrix(axis, 1.1, 0.9, f"K\n{problem.seq_k} rows", rotated=True)
        _matrix(axis, -0.35, 0.9, f"V\n{problem.seq_k} rows")
        axis.text(0.6, 3.02, "head dim, a slice per block", ha="center", fontsize=8, color=SOFT)
        axis.text(0.6, -0.6, "one colour is one block of the cluster", ha="center", fontsize=8, color=SOFT)
        for i in range(SHOWN):
            part = Rectangle((1.95 + 0.1 * i, 1.95 - 0.11 * i), 0.62, 0.42, ec="white", lw=1.5, fc=PALETTE[i])
            axis.add_patch(part)
            axis.add_patch(Rectangle((1.98, 0.87 - 0.105 * i), 0.92, 0.09, fc=PALETTE[i], ec="none"))
        for tail, tip in ARROWS:
            axis.annotate("", tip, tail, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1})
        for x, y, words in IDEA:
            axis.text(x, y, words, ha="left", va="center", fontsize=8)
    frame = pd.DataFrame(
        [(str(problem), core, shape.cluster, shape.queries, shape.width)],
        columns=["problem", "core", "cluster", "queries", "width"],
    )
    return Plot(
        "v8-idea",
        figure,
        f"The tiling chosen for {problem} on {target}; {SHOWN} of {shape.cluster} slices are drawn. K is "
        "rotated once for each tile of queries. Steps 2 and 4 go from shared memory to shared memory; no score and no "
        "rotated value goes through global memory.",
        f"Diagram: Q, K and V are cut along the head dim, a slice for each of {shape.cluster} blocks. Each block "
        "multiplies its slices of Q and K; the parts are summed by the owners of the rows, and the weights go to all.",
        frame,
        computed("drawn; its numbers by the rule that chooses the shape"),
    )


# What the warps of a block do, one after the other: name, start, length, color. Lengths are not to scale.
WARPS = (
    ("load Q,\nrotate it", 0.0, 1.7, ROTATE),
    ("Q·K, rotating K\non the way", 2.2, 2.3, ROTATE),
    ("softmax of\nown rows", 5.1, 1.5, WORK),
    ("weights·V", 7.2, 1.6, WORK),
    ("store", 8.8, 0.9, COPY),
)
WAITS = ((1.7, 0.5), (4.5, 0.6), (6.6, 0.6))  # for K, for parts, for V and weights
COPIES = (("copy K", 0.2, 1.95, COPY), ("copy V", 4.5, 2.6, COPY))
SENT = (("parts of scores\nto the owners", 4.5, 5.05), ("weights\nto all", 6.55, 7.15))
COSTS = (  # where they stand, the part left out, what it is called
    (0.95, "no_embedding", "rotation,\nof Q and K"),
    (3.35, "no_scores", "products\nof Q and K"),
    (8.0, "no_output", "products\nwith V"),
)


def v8_tile(parts: pd.DataFrame, gpu: str, source: Source) -> Plot:
    """What one block does with a tile of keys. `parts`: of `steps.cuts`, at one problem; may be empty."""
    us = parts.set_index("part")["median_us"]
    soft: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 8, "color": SOFT}
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    sent = {"arrowstyle": "-|>", "color": PALETTE[3], "lw": 1.2, "connectionstyle": "arc3,rad=0.9"}
    with canvas("One block, one tile: when it works, when it waits", height=3.4) as (figure, (axis,)):
        axis.set(xlim=(-1.6, 9.8), ylim=(-2.4, 3.0))
        axis.axis("off")
        for lane, y, boxes in (("copies from\nmemory", 2.1, COPIES), ("warps", 0.8, WARPS)):
            axis.text(-0.15, y + 0.35, lane, **soft)
            for name, start, length, color in boxes:
                axis.add_patch(Rectangle((start, y), length, 0.75, fc=color, ec=INK, lw=0.8))
                axis.text(start + length / 2, y + 0.37, name, linespacing=1.05, **middle)
        for start, length in WAITS:
            axis.add_patch(Rectangle((start, 0.8), length, 0.75, fc="white", ec=SOFT, lw=0.8, hatch="////", alpha=0.6))
        axis.text(-0.15, -0.2, "to other\nblocks", **soft)
        for name, start, end in SENT:
            axis.annotate("", (end, 0.75), (start, 0.75), arrowprops=sent)
            axis.text((start + end) / 2, -0.2, name, color=PALETTE[3], **middle)
        axis.axhline(-0.75, color="0.85", lw=0.8)
        if "the kernel" in us:
            axis.text(-0.15, -1.3, "µs saved\nwithout it", **soft)
            for x, cut, name in COSTS:
                if CUTS[cut] in us:
                    text = f"{name}\n{us['the kernel'] - us[CUTS[cut]]:.2f}"
                    axis.text(x, -1.3, text, **{**middle, "fontsize": 7.5})
            if CUTS["copies_alone"] in us:
                left = f"{us[CUTS['copies_alone']]:.1f} of {us['the kernel']:.1f} µs, {gpu}"
                axis.text(4.6, -2.1, f"copies and exchanges alone: {left}", **{**middle, "fontsize": 8})
    return Plot(
        "v8-tile",
        figure,
        "Drawn from the order of the kernel, left to right, not to scale. Hatched: waiting, for K, for the parts of "
        "the scores, for V and the weights. Below: how much shorter the whole kernel is without a part.",
        "Timeline of one block: load and rotate Q while K is copied, multiply Q and K, send parts of the scores, "
        "softmax of its own rows, send the weights, multiply them by V, store. It waits three times: for K, for the "
        "parts, for V and the weights.",
        parts,
        computed("drawn") + (Source() if parts.empty else source),
    )
