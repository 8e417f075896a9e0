"""What moves where in one call: drawn from a version's plan and from what is counted of it, never by hand.

A call runs from left to right. What a launch reads stands above it, what it writes below; K and V, which every tile of
queries reads again, come with as many arrows as fit; a dashed line is where the host waits.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from kernels import Problem

from ..evidence.origin import COUNTED, Source, computed
from ..models.moves import Stage, changes, known, moves, plan_of
from ..record.text import number
from ..tables.table import short
from .style import STYLE, WIDTH, Plot

INK, SOFT, MEMORY, KERNEL, EMBED, WAIT, LESS = (
    "#1b2733", "#56646f", "#e9edf1", "#d7e6f5", "#b35f00", "#b3402a", "#1f5f99",
)  # fmt: skip
LINE, SIZE, LETTER = 0.135, 7.2, 0.056  # inches between lines, points, inches a letter takes
CHIP, GAP, WAITING, STRIP = 0.19, 0.26, 0.32, 0.72  # inches: a buffer, an arrow, a wait, what is counted
FAR = 6.0  # doublings, the most that is drawn
MOST = 5  # arrows drawn for one buffer
VERBS = {"rope": "rotates", "sinusoidal": "embeds"}


# ---------------------------------------------------------------- primitives, in inches


def sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure whose coordinates are inches from its lower left corner."""
    figure = Figure(figsize=(width, height))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.axis("off")
    return figure, axis


def write(axis: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """One line of text, by default in the middle of x and y."""
    axis.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": SIZE, "color": INK, **style})


def box(axis: Axes, left: float, low: float, width: float, height: float, colour: str, edge: str = "none") -> None:
    style = "round,pad=0,rounding_size=0.05"
    axis.add_patch(FancyBboxPatch((left, low), width, height, boxstyle=style, fc=colour, ec=edge, lw=0.8))


def wide(name: str) -> float:
    """The width of a buffer's chip."""
    return max(0.26, LETTER * len(label(name)) + 0.1)


def buffer(axis: Axes, x: float, low: float, name: str) -> None:
    """Global memory: a grey chip with the buffer's name."""
    box(axis, x - wide(name) / 2, low, wide(name), CHIP, MEMORY)
    write(axis, x, low + CHIP / 2, label(name), fontweight="bold")


def arrows(axis: Axes, tail: tuple[float, float], tip: tuple[float, float], times: int = 1, colour: str = INK) -> None:
    """As many arrows as something happens, up to `MOST`; their tips side by side."""
    count = min(times, MOST)
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 6, "lw": 0.8, "shrinkA": 0, "shrinkB": 0}
    for place in range(count):
        end = (tip[0] + 0.09 * (place - (count - 1) / 2), tip[1])
        axis.add_patch(FancyArrowPatch(tail, end, color=colour, **style))


def kernel(axis: Axes, left: float, low: float, width: float, height: float, lines: Sequence[str], extra: str) -> None:
    """A launch: its name, what is known of it, and in colour how often it embeds."""
    box(axis, left, low, width, height, KERNEL, INK)
    texts = [*lines, *filter(None, [extra])]
    for place, text in enumerate(texts):
        style = {"fontweight": "bold"} if place in (0, len(lines)) else {"fontsize": SIZE - 0.5}
        y = low + height / 2 + LINE * ((len(texts) - 1) / 2 - place)
        write(axis, left + width / 2, y, text, color=EMBED if place == len(lines) else INK, **style)


def waiting(axis: Axes, tail: tuple[float, float], end: tuple[float, float]) -> None:
    axis.plot(*zip(tail, end), color=WAIT, lw=1.1, ls=(0, (3, 2)))


# ---------------------------------------------------------------- words


def label(name: str) -> str:
    """`"k_rotated"` to `"K rotated"`."""
    first, *rest = name.split("_")
    return " ".join([first.upper() if first in ("q", "k", "v") else first, *rest])


def often(stage: Stage, verb: str) -> str:
    """How often a launch embeds each vector of K and of Q: `"rotates K 64×, Q once"`."""
    counted = (("K", stage.keys), ("Q", stage.queries))
    parts = [f"{what} {'once' if times == 1 else number(times) + '×'}" for what, times in counted if times]
    return f"{verb} {', '.join(parts)}" if parts else ""


def told(stage: Stage, width: float) -> list[str]:
    """Name, blocks and threads, and what a block keeps in shared memory, in lines of so many inches."""
    launch, blocks = stage.launch, math.prod(stage.launch.grid)
    clusters = f", clusters of {launch.cluster}" if launch.cluster > 1 else ""
    texts = [f"{blocks:,} block{'s' * (blocks > 1)} of {math.prod(launch.block)} threads{clusters}"]
    if stage.keeps:
        held = launch.shared_bytes
        size = number(held / 1024, "KB") if held >= 1024 else number(held, "B")
        texts.append(f"keeps {', '.join(stage.keeps).replace('_', ' ')}: {size}")
    return [stage.name, *(line for text in texts for line in textwrap.wrap(text, int(width / LETTER) - 1))]


def about(problem: Problem) -> str:
    rotated = f", {problem.rotary_dim} dims rotated" if problem.rotary_dim else ""
    heads = problem.batch * problem.heads
    return (
        f"{heads} head{'s' * (heads > 1)}, {problem.seq_q} queries, {problem.seq_k} keys, "
        f"head dim {problem.hdim}{rotated}{', causal' * problem.causal}"
    )


def table(steps: Sequence[Stage | None]) -> pd.DataFrame:
    """A row a launch or wait."""
    return pd.DataFrame(
        {
            "step": step.name,
            "grid": "x".join(map(str, step.launch.grid)),
            "block": "x".join(map(str, step.launch.block)),
            "cluster": step.launch.cluster,
            "shared_bytes": step.launch.shared_bytes,
            "keeps": " ".join(step.keeps),
            "reads": " ".join(step.reads),
            "writes": " ".join(step.writes),
            "passes": step.passes,
            "query_embedded": step.queries,
            "key_embedded": step.keys,
        }
        if step
        else {"step": "host waits"}
        for step in steps
    )


# ---------------------------------------------------------------- one version


def flow(name: str, hdim: int | None = None) -> Plot:
    """One call of a version: its launches with what each reads, keeps, embeds and writes, and where the host waits.

    At the documents' shape of head dim 2048, or of the largest below it that the version takes; or at `hdim`.

    Raises: DataError for a version that there is not, that is a peer, or that is not counted at `hdim`.
    """
    plan = plan_of(name, hdim)
    steps, counted = moves(name, plan), changes(name, plan.problem)
    stages = [step for step in steps if step]
    embeds = [often(stage, VERBS.get(plan.problem.family, "embeds")) for stage in stages]
    needs = [
        max(sum(_room(stage, each) for each in stage.reads), 1.25 * LETTER * len(words)) + 0.1
        for stage, words in zip(stages, embeds)
    ]
    scale = (WIDTH - WAITING * (len(steps) - len(stages))) / sum(needs)
    widths = [min(scale * need - 0.1, 3.6) for need in needs]
    texts = [told(stage, width) for stage, width in zip(stages, widths)]
    deep = LINE * (max(len(lines) + bool(words) for lines, words in zip(texts, embeds)) + 0.6)
    base = STRIP * bool(counted)
    low = base + CHIP + GAP
    high = low + deep
    top = high + GAP + CHIP
    with mpl.rc_context(STYLE):
        figure, axis = sheet(WIDTH, top + 0.24)
        write(axis, 0.04, top + 0.14, f"{short(name)}: {about(plan.problem)}", ha="left", color=SOFT)
        left, place = 0.0, 0
        for step in steps:
            if step is None:
                waiting(axis, (left + WAITING / 2, base + 0.02), (left + WAITING / 2, top))
                write(axis, left + WAITING / 2 + 0.09, low + deep / 2, "host waits", color=WAIT, rotation=90)
                left += WAITING
                continue
            start = left + (scale * needs[place] - widths[place]) / 2
            kernel(axis, start, low, widths[place], deep, texts[place], embeds[place])
            _buffers(axis, step, start, widths[place], low, high, base)
            left += scale * needs[place]
            place += 1
        if counted:
            _strip(axis, known(name).parent or "", counted)
    return Plot(
        f"flow-{name.replace('_', '-')}",
        figure,
        "Above a launch what it reads, below what it writes; × is how often a head's keys and values are read."
        + " Bars: the counts of a call, divided by those of the version named there; global memory in sectors of 32 "
        "bytes, shared memory in wavefronts (passes over its 32 banks)." * bool(counted),
        f"Diagram of one call of {name} at {about(plan.problem)}: its launches and waits in order, with the buffers "
        "that each reads and writes.",
        table(steps),
        computed(f"drawn from the plan of {name}") + (COUNTED if counted or any(embeds) else Source()),
        f"One call of {name}: what each launch reads, keeps and writes",
    )


def _room(stage: Stage, name: str) -> float:
    """The width that a buffer takes above a launch, with the number behind its arrows."""
    return wide(name) + 0.06 + 0.3 * (stage.times(name) > 1)


def _buffers(axis: Axes, stage: Stage, left: float, width: float, low: float, high: float, base: float) -> None:
    """What a launch reads above it and what it writes below, with arrows."""
    spare = (width - sum(_room(stage, each) for each in stage.reads)) / len(stage.reads)
    edge = left
    for each in stage.reads:
        again, room = stage.times(each), _room(stage, each) + spare
        x = edge + (room - 0.3 * (again > 1)) / 2
        edge += room
        colour = EMBED if each == "k" and (stage.keys or 0) > 1 else INK
        buffer(axis, x, high + GAP, each)
        arrows(axis, (x, high + GAP), (x, high), again, colour)
        if again > 1:
            write(axis, x + 0.17, high + 0.6 * GAP, f"{again}×", ha="left", color=colour)
    for place, each in enumerate(stage.writes):
        x = left + width * (place + 0.5) / len(stage.writes)
        arrows(axis, (x, low), (x, base + CHIP))
        buffer(axis, x, base, each)


def _strip(axis: Axes, parent: str, counted: dict[str, tuple[float, float]]) -> None:
    """A cell for each thing counted: how often as much as the parent does, as a bar on a logarithmic scale."""
    room = WIDTH / len(counted)
    doublings = [
        max(-FAR, min(FAR, math.log2(now / before))) if now and before else math.copysign(FAR, now - before)
        for now, before in counted.values()
    ]
    longest = max([*map(abs, doublings), 1.0])
    write(axis, 0.04, STRIP - 0.1 - LINE / 2, f"counted, over {short(parent)}:", ha="left", color=SOFT)
    for place, ((what, (now, before)), more) in enumerate(zip(counted.items(), doublings)):
        middle = room * (place + 0.5)
        same = abs(more) < math.log2(1.03)
        colour = SOFT if same else EMBED if more > 0 else LESS
        axis.add_patch(Rectangle((middle, 0.15), (room / 2 - 0.12) * more / longest, 0.1, fc=colour, ec="none"))
        axis.plot([middle, middle], [0.11, 0.29], color=INK, lw=0.8)
        ratio = number(now / before, "×", None if now >= before / 10 else 3) if now and before else "none"
        text = f"{what} {ratio if before else '(none before)'}"
        write(axis, middle, 0.36, text, color=INK if same else colour)
