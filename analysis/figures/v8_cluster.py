"""Drawings of a cluster of V8: the blocks that share a tile of queries, and the timeline of one of them."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from kernels import VERSIONS
from kernels.flash.cluster import CLUSTERS_SINCE
from kernels.limits import EMULATED_TARGET, capability

from ..evidence import Evidence, computed
from ..studies import MAIN
from .style import PALETTE, Plot, canvas

SHOWN = 4  # slices that are drawn of a head dim
INK, SOFT = "0.15", "0.4"
COPY, WORK, ROTATE = "#d9dde1", "#d7e6f5", "#f3cf9b"  # what boxes of the timeline are filled with
ARROW = {"arrowstyle": "-|>", "color": INK, "lw": 1.2}
STEPS = (  # where a number stands, its arrow, what it means
    ((1.64, 2.1), ((1.36, 2.1), (1.95, 2.1)), "Rotate the slices of Q and K, multiply them."),
    ((2.45, 1.7), ((2.45, 1.95), (2.45, 1.45)), "Send parts of scores to the owner of the row."),
    ((3.12, 0.98), None, "Owner: add the parts, compute the softmax."),
    ((1.62, 0.2), ((1.95, 0.5), (1.3, -0.05)), "Owner: send the weights to all blocks."),
    ((1.62, -0.35), ((1.3, -0.35), (1.95, -0.35)), "Multiply them by the slice of V, and store."),
)


def _matrix(axis: Axes, x: float, y: float, height: float, name: str) -> None:
    """A matrix cut along the head dim: a slice for each block."""
    for i in range(SHOWN):
        axis.add_patch(Rectangle((x + 0.3 * i, y), 0.3, height, fc=PALETTE[i], ec="white", lw=1.5))
    _name(axis, x, y + height, name)


def _name(axis: Axes, x: float, y: float, words: str) -> None:
    axis.text(x, y + 0.04, words, ha="left", va="bottom", fontsize=8.5, color=INK)


def v8_idea(e: Evidence) -> Plot:
    """How the blocks of a cluster share the head dim: drawn, not measured; its numbers are those of the shape.

    That is what the card gets for the main shape; where its kernel has no cluster, the emulated target.
    """
    target = e.target if capability(e.target) >= CLUSTERS_SINCE else EMULATED_TARGET
    shape, problem = VERSIONS["rope_v8"](MAIN, target).launches[-1].shape, MAIN
    title = f"{shape.cluster} blocks share {shape.queries} queries"
    with canvas(title, height=4.9) as (figure, (axis,)):
        axis.set(xlim=(-0.2, 3.4), ylim=(-2.6, 3.4))
        axis.axis("off")
        axis.add_patch(Rectangle((-0.15, -1.0), 3.5, 4.35, fill=False, ec=SOFT, lw=1.2, ls="--"))
        axis.text(-0.05, -0.95, "one cluster; a colour is a block", va="bottom", fontsize=8.5, color=SOFT)
        _matrix(axis, 0.0, 2.45, 0.4, f"Q, {shape.queries} rows")
        _matrix(axis, 0.0, 1.2, 0.85, f"K, {problem.seq_k} rows")
        axis.plot([1.28, 1.34, 1.34, 1.28], [2.85, 2.85, 1.2, 1.2], color=INK, lw=1.2)
        _matrix(axis, 0.0, -0.6, 0.85, f"V, {problem.seq_k} rows")
        _matrix(axis, 2.0, -0.55, 0.4, f"output, {shape.queries} rows")
        for i in range(SHOWN):
            part = Rectangle((2.0 + 0.1 * i, 2.38 - 0.1 * i), 0.62, 0.42, ec="white", lw=1.5, fc=PALETTE[i])
            axis.add_patch(part)
            axis.add_patch(Rectangle((2.0, 1.25 - 0.2 * i), 0.92, 0.16, fc=PALETTE[i], ec="white", lw=0.8))
        _name(axis, 2.0, 2.8, "parts of scores")
        axis.text(2.0, 0.58, "scores, then weights", va="top", fontsize=8.5, color=INK)
        for number, (at, arrow, words) in enumerate(STEPS, 1):
            if arrow:
                axis.annotate("", arrow[1], arrow[0], arrowprops=ARROW)
            for x, y in (at, (-0.08, -1.0 - 0.3 * number)):
                axis.text(x, y, str(number), ha="center", va="center", fontsize=8, color="white", fontweight="bold",
                          bbox={"boxstyle": "circle,pad=0.2", "fc": INK, "ec": "none"})  # fmt: skip
            axis.text(0.08, -1.0 - 0.3 * number, words, va="center", fontsize=9)
    frame = pd.DataFrame(
        [(str(problem), shape.core, shape.cluster, shape.queries, shape.width)],
        columns=["problem", "core", "cluster", "queries", "width"],
    )
    return Plot(
        "v8-idea",
        figure,
        f"Each block holds {shape.width} dims; only {SHOWN} slices are drawn. Q is rotated once, and K once in each "
        "cluster. Scores and weights go from shared memory to shared memory.",
        f"Diagram: Q, K and V are cut along the head dim, a slice for each of {shape.cluster} blocks. Each block "
        "multiplies its slices of Q and K; the parts are summed by the owners of the rows, and the weights go to all.",
        frame,
        computed("drawn; its numbers by the rule that chooses the shape"),
    )


# Phases of the warps of a block, in order: name, start, length, color. Lengths are not to scale.
WARPS = (
    ("load Q, rotate it", 0.0, 1.7, ROTATE),
    ("Q·K, rotating K", 2.4, 2.0, ROTATE),
    ("softmax of own rows", 5.1, 1.3, WORK),
    ("weights·V", 7.1, 1.7, WORK),
    ("store", 8.8, 0.9, COPY),
)
WAITS = (("waits for K", 1.7, 0.7), ("waits for parts", 4.4, 0.7), ("waits for V, weights", 6.4, 0.7))
COPIES = (("copy K", 0.2, 2.2, COPY), ("copy V", 4.4, 2.7, COPY))
SENT = (("parts of scores,\nto their owners", 4.4), ("weights, to all", 6.4))


def v8_tile() -> Plot:
    """Timeline of one block, and the data that it sends to others: drawn, not measured."""
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.5}
    with canvas("A block waits three times", height=4.4) as (figure, (axis,)):
        axis.set(xlim=(0, 4), ylim=(9.8, -0.9))
        axis.axis("off")
        for lane, x, width, boxes in (("copies", 0, 0.8, COPIES), ("warps", 0.9, 1.55, WARPS)):
            axis.text(x + width / 2, -0.4, lane, color=SOFT, **middle)
            for name, start, length, color in boxes:
                axis.add_patch(Rectangle((x, start), width, length, fc=color, ec=INK, lw=0.8))
                axis.text(x + width / 2, start + length / 2, name, **middle)
        for name, start, length in WAITS:
            axis.add_patch(Rectangle((0.9, start), 1.55, length, fc="white", ec="0.75", lw=0.8, hatch="////"))
            axis.text(1.68, start + length / 2, name, bbox={"fc": "white", "ec": "none", "pad": 1}, **middle)
        axis.text(2.6, -0.4, "to other blocks", va="center", fontsize=8.5, color=SOFT)
        for name, start in SENT:
            axis.annotate("", (2.85, start), (2.45, start), arrowprops={**ARROW, "color": PALETTE[3]})
            axis.text(2.9, start, name, va="center", fontsize=8.5, color=PALETTE[3])
    parts = pd.DataFrame([*WARPS, *COPIES], columns=["step", "start", "length", "color"])
    return Plot(
        "v8-tile",
        figure,
        "One tile, downwards. Orange boxes rotate.",
        "Timeline of one block: load and rotate Q while K is copied, multiply Q and K, send parts of the scores, "
        "softmax of its own rows, send the weights, multiply them by V, store. It waits three times: for K, for the "
        "parts, for V and the weights.",
        parts[["step", "start", "length"]],
        computed("drawn from the order of the kernel, not to scale"),
    )
