"""How a cluster of V8 shares a tile of queries, and what one of its blocks does when: drawings."""

from __future__ import annotations

import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from kernels import Problem

from ..evidence.origin import Source, computed
from ..models.steps import CUTS
from .style import NARROW, PALETTE, Plot, canvas

SHOWN = 4  # slices that are drawn of a head dim
INK, SOFT, TURNED = "0.15", "0.45", "#a35c00"
COPY, WORK, ROTATE = "#d9dde1", "#d7e6f5", "#f3cf9b"  # what boxes of the timeline are filled with
STEPS = (  # where a number stands, its arrow, what it means
    (
        (1.62, 2.35),
        ((1.3, 2.35), (1.95, 2.35)),
        "rotate own slices of Q and K, and multiply them: a part of all scores",
    ),
    ((2.55, 1.6), ((2.55, 1.9), (2.55, 1.25)), "send the parts to the block that owns the row"),
    ((1.95, 0.25), None, "sum them, softmax"),
    ((1.62, -0.35), ((1.95, 0.0), (1.3, -0.35)), "send the weights to all; each block weighs its own slice of V"),
)


def _matrix(axis: Axes, y: float, height: float, name: str, rotated: bool = False) -> None:
    """A matrix cut along the head dim: a slice for each block."""
    for i in range(SHOWN):
        axis.add_patch(Rectangle((0.3 * i, y), 0.3, height, fc=PALETTE[i], ec="white", lw=1.5))
    words = f"{name}, rotated once a tile" if rotated else name
    axis.text(0.0, y + height + 0.04, words, ha="left", va="bottom", fontsize=7.5, color=TURNED if rotated else INK)


def v8_idea(core: str, shape: Any, problem: Problem, target: str) -> Plot:
    """How the blocks of a cluster share the head dim: drawn, not measured; its numbers are those of the shape."""
    title = f"{shape.cluster} blocks share {shape.queries} queries"
    with canvas(title, height=3.9, width=NARROW) as (figure, (axis,)):
        axis.set(xlim=(-0.2, 4.6), ylim=(-1.25, 3.3))
        axis.axis("off")
        axis.add_patch(Rectangle((-0.12, -1.0), 3.2, 4.2, fill=False, ec=SOFT, lw=1.2, ls="--"))
        axis.text(3.0, 3.12, "one cluster", ha="right", va="top", fontsize=8, color=SOFT)
        _matrix(axis, 2.4, 0.4, f"Q, {shape.queries} rows", rotated=True)
        _matrix(axis, 1.05, 0.85, f"K, {problem.seq_k} rows", rotated=True)
        _matrix(axis, -0.75, 0.85, f"V, {problem.seq_k} rows")
        axis.text(0.0, -0.95, "a colour is a block", ha="left", va="bottom", fontsize=7.5, color=SOFT)
        for i in range(SHOWN):
            part = Rectangle((2.0 + 0.1 * i, 2.2 - 0.1 * i), 0.62, 0.42, ec="white", lw=1.5, fc=PALETTE[i])
            axis.add_patch(part)
            axis.add_patch(Rectangle((2.05, 1.05 - 0.2 * i), 0.92, 0.16, fc=PALETTE[i], ec="white", lw=0.8))
        axis.text(2.05, 0.28, "rows of scores,\nan owner each", va="top", fontsize=7.5, color=SOFT)
        for number, (at, arrow, words) in enumerate(STEPS, 1):
            if arrow:
                axis.annotate("", arrow[1], arrow[0], arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.2})
            for x, y in (at, (3.25, 3.05 - 1.0 * number + 0.5)):
                axis.text(x, y, str(number), ha="center", va="center", fontsize=8, color="white", fontweight="bold",
                          bbox={"boxstyle": "circle,pad=0.2", "fc": INK, "ec": "none"})  # fmt: skip
            axis.text(3.4, 3.05 - 1.0 * number + 0.5, "\n".join(textwrap.wrap(words, 20)), va="center", fontsize=7.5)
    frame = pd.DataFrame(
        [(str(problem), core, shape.cluster, shape.queries, shape.width)],
        columns=["problem", "core", "cluster", "queries", "width"],
    )
    return Plot(
        "v8-idea",
        figure,
        f"Each block holds {shape.width} of {problem.hdim} dims; {SHOWN} of {shape.cluster} slices are drawn. Scores "
        "and weights go from shared memory to shared memory. In short sequences nothing rotated goes through global "
        "memory.",
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
    soft: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 7, "color": SOFT}
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6}
    sent = {"arrowstyle": "-|>", "color": PALETTE[3], "lw": 1.2, "connectionstyle": "arc3,rad=0.9"}
    with canvas("A tile waits three times", height=3.1, width=NARROW) as (figure, (axis,)):
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
                    axis.text(x, -1.3, text, **{**middle, "fontsize": 6.5})
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
