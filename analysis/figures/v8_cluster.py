"""A drawing of a cluster of V8, whose blocks share a tile of queries; its ladder, and where its lead ends."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from kernels import VERSIONS, Problem
from kernels.flash.cluster import CLUSTERS_SINCE
from kernels.limits import EMULATED_TARGET, capability

from ..evidence import Evidence, computed, measured
from ..findings.v8 import RUNGS, SHORT
from ..models.rivals import HYBRID, SEPARATE, V8
from ..studies import MAIN
from ..tables.table import missing
from .style import FUSED, LIBRARY, Plot, canvas, legend, time_bars

SHOWN = 4  # slices that are drawn of a head dim
LOOKS = {"part": ("w", "some of its dims rotated"), "all": (FUSED, "all of its dims rotated")}
BLOCKS = ("#123f63", "#1f6ba8", "#5fa2d3", "#a9cfea")  # a shade a block
INK, SOFT = "0.15", "0.4"
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
        axis.add_patch(Rectangle((x + 0.3 * i, y), 0.3, height, fc=BLOCKS[i], ec="white", lw=1.5))
    _name(axis, x, y + height, name)


def _name(axis: Axes, x: float, y: float, words: str) -> None:
    axis.text(x, y + 0.04, words, ha="left", va="bottom", fontsize=8.5, color=INK)


def v8_idea(e: Evidence) -> Plot:
    """How the blocks of a cluster share the head dim: drawn, not measured; its numbers are those of the shape.

    That is what the card gets for the main shape; where its kernel has no cluster, the emulated target.
    """
    target = e.target if capability(e.target) >= CLUSTERS_SINCE else EMULATED_TARGET
    shape, problem = VERSIONS["rope_v8_mma"](MAIN, target).launches[-1].shape, MAIN
    title = f"The second step: {shape.cluster} blocks share {shape.queries} queries"
    with canvas(title, height=5.6) as (figure, (axis,)):
        axis.set(xlim=(-0.2, 3.4), ylim=(-2.6, 3.4))
        axis.axis("off")
        axis.add_patch(Rectangle((-0.15, -1.0), 3.5, 4.35, fill=False, ec=SOFT, lw=1.2, ls="--"))
        axis.text(-0.05, -0.95, "one cluster; a shade is a block", va="bottom", fontsize=8.5, color=SOFT)
        _matrix(axis, 0.0, 2.45, 0.4, f"Q, {shape.queries} rows")
        _matrix(axis, 0.0, 1.2, 0.85, f"K, {problem.seq_k} rows")
        axis.plot([1.28, 1.34, 1.34, 1.28], [2.85, 2.85, 1.2, 1.2], color=INK, lw=1.2)
        _matrix(axis, 0.0, -0.6, 0.85, f"V, {problem.seq_k} rows")
        _matrix(axis, 2.0, -0.55, 0.4, f"output, {shape.queries} rows")
        for i in range(SHOWN):
            part = Rectangle((2.0 + 0.1 * i, 2.38 - 0.1 * i), 0.62, 0.42, ec="white", lw=1.5, fc=BLOCKS[i])
            axis.add_patch(part)
            axis.add_patch(Rectangle((2.0, 1.25 - 0.2 * i), 0.92, 0.16, fc=BLOCKS[i], ec="white", lw=0.8))
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


def v8_ladder(e: Evidence) -> Plot | str:
    """The time of a call at the main shape, from the authors' separate kernels to V8, and of V8 with RoPE moved out."""
    found = [(words, name, e.time(name, "beyond", problem=MAIN)[MAIN]) for name, words in RUNGS.items()]
    rows = [(words, name, us.value, us.low, us.high) for words, name, us in found if us]
    if not rows:
        return missing("beyond")
    frame = pd.DataFrame(rows, columns=["step", "version", "us", "low", "high"])
    alone = frame[frame["version"].isin((V8, HYBRID, SEPARATE))]  # those with V8's attention
    shares = {"height_ratios": [len(frame), max(len(alone), 1)]}
    with canvas("Three steps, and then RoPE fused or not", 2, height=4.2, gridspec_kw=shares) as (figure, axes):
        for axis, mine in zip(axes, (frame, alone)):
            fused = mine["version"].str.startswith(V8)
            time_bars(axis, mine["step"], mine["us"], [FUSED if each else LIBRARY for each in fused])
        axes[0].set_xlabel("")
    return Plot(
        "v8-ladder",
        figure,
        "Their shape, head dim 2048, on the GPU alone. Blue: RoPE is fused; grey: kernels in front rotate. The steps "
        "are whole kernels, and from one to the next more changes than its name says. Below, on a scale of its own: "
        "the last three, all with V8's attention.",
        "Bars of time. The authors' separate kernels take longest by far; a tile of queries, a cluster with tensor "
        "cores, and wgmma make the fused kernel faster step by step. With RoPE in front V8's attention is slower.",
        frame,
        measured(e, "beyond", of=RUNGS),
    )


def v8_heads(e: Evidence) -> Plot | str:
    """V8's speedup over the hybrid by heads of all sequences, at shapes with up to 128 queries."""
    rows = [
        (problem.batch * problem.heads, str(problem), _rotated(problem), gain.value, gain.low, gain.high)
        for study in ("map", "heldout")
        for problem, gain in e.speedup(V8, HYBRID, study, problem=_short(e, study)).known.items()
    ]
    if not rows:
        return missing("map")
    frame = pd.DataFrame(rows, columns=["heads", "problem", "rotated", "speedup", "low", "high"])
    with canvas("From 1 to 128 heads, V8 seldom loses to the hybrid", height=3.0) as (figure, (axis,)):
        _dots(axis, frame, "heads")
        axis.set_ylabel("speedup of V8")
        axis.set_xlabel("heads of all sequences", loc="left")
        legend(figure, [axis], size=8.5)
    return Plot(
        "v8-heads",
        figure,
        "A dot is a shape with up to 128 queries a head, chosen or drawn at random; whole card, the GPU alone. "
        "Above the line fusing wins.",
        "Dots of V8's speedup over the hybrid by heads. Nearly all lie above 1, at every number of heads.",
        frame,
        measured(e, "map", "heldout", of=(V8, HYBRID)),
    )


def _short(e: Evidence, study: str) -> list[Problem]:
    return [problem for problem in e.study(study).problems("rope") if problem.seq_q <= SHORT]


def _rotated(problem: Problem) -> str:
    return "part" if problem.rotary_dim < problem.hdim else "all"


def _dots(axis: Axes, frame: pd.DataFrame, by: str) -> None:
    """Dots of speedups by a column, side by side: open where some dims are rotated, full where all are."""
    axis.axhline(1, color="black", lw=1)
    for side, (rotated, (fill, label)) in enumerate(LOOKS.items()):
        mine = frame[frame["rotated"] == rotated]
        look: dict[str, Any] = {"color": FUSED, "mfc": fill, "ms": 5, "label": label}
        axis.plot(mine[by] * 1.08 ** (2 * side - 1), mine["speedup"], "o", **look)
    axis.set_xscale("log", base=2)
    ticks = [2**n for n in range(12) if frame[by].min() <= 2**n <= frame[by].max()]
    axis.set_xticks(ticks, list(map(str, ticks)), fontsize=7.5)


def v8_tokens(e: Evidence) -> Plot | str:
    """V8's speedup over the hybrid and over separate kernels with its attention, by the tokens of a prompt."""
    prompts = [p for p in e.study("map").problems("rope") if p.seq_q == p.seq_k and p.kv_heads == p.heads]
    rows = [
        (problem.seq_q, str(problem), _rotated(problem), over, gain.value, gain.low, gain.high)
        for over in (HYBRID, SEPARATE)
        for problem, gain in e.speedup(V8, over, "map", problem=prompts).known.items()
    ]
    if not rows:
        return missing("map")
    frame = pd.DataFrame(rows, columns=["tokens", "problem", "rotated", "over", "speedup", "low", "high"])
    panels = {HYBRID: "over the hybrid", SEPARATE: "over separate kernels"}
    with canvas("The lead ends at a few hundred tokens", 1, 2, height=3.2, sharey=True) as (figure, axes):
        for axis, (over, words) in zip(axes, panels.items()):
            _dots(axis, frame[frame["over"] == over], "tokens")
            axis.set_title(words, loc="left", fontsize=9)
        axes[0].set_ylabel("speedup of V8")
        axes[0].set_xlabel("tokens of a head", loc="left")
        legend(figure, [axes[0]], size=8.5)
    return Plot(
        "v8-tokens",
        figure,
        "A dot is a shape: as many queries as keys, each head with its own K, head dims from 64 to 4096. All with V8's "
        "attention, on the GPU alone. Above the line fusing wins; within 3 % of it the text counts a tie.",
        "Dots of V8's speedup by tokens. Up to 128 tokens all lie above 1, from 256 on they scatter around it.",
        frame,
        measured(e, "map", of=(V8, HYBRID, SEPARATE)),
    )
