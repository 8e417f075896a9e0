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

from ..book.sources import known
from ..records.text import number
from .moves import VERBS, Change, Stage, Wait, changes, moves, plan_of
from .style import COUNTED, STYLE, WIDTH, Plot, Source, computed, short

INK, SOFT, MEMORY, KERNEL, EMBED, WAIT = "#1b2733", "#56646f", "#e9edf1", "#d7e6f5", "#b35f00", "#b3402a"
LINE, SIZE, LETTER = 0.135, 7.2, 0.056  # inches between lines, points, inches a letter takes
CHIP, GAP, WAITING, AGAIN = 0.19, 0.26, 0.32, 0.3  # inches: height of a buffer, an arrow, width of a wait, of "64×"
LESS = "#1f5f99"
STRIP = 0.62  # inches: height of what is counted
SAME, FAR = math.log2(1.03), 6.0  # doublings: no difference, and the most that is drawn
MOST = 5  # arrows drawn for one buffer


# ---------------------------------------------------------------- primitives, in inches


def sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure whose coordinates are inches from its lower left corner."""
    figure = Figure(figsize=(width, height))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.axis("off")
    return figure, axis


def box(axis: Axes, left: float, low: float, width: float, height: float, colour: str, edge: str = "none") -> None:
    style = "round,pad=0,rounding_size=0.05"
    axis.add_patch(FancyBboxPatch((left, low), width, height, boxstyle=style, fc=colour, ec=edge, lw=0.8))


def write(axis: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """One line of text, by default in the middle of x and y."""
    axis.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": SIZE, "color": INK, **style})


def wide(name: str) -> float:
    """The width of a buffer's chip."""
    return max(0.26, LETTER * len(name) + 0.1)


def buffer(axis: Axes, x: float, low: float, name: str) -> None:
    """Global memory: a grey chip with the buffer's name."""
    width = wide(name)
    box(axis, x - width / 2, low, width, CHIP, MEMORY)
    write(axis, x, low + CHIP / 2, name, fontweight="bold")


def arrows(axis: Axes, tail: tuple[float, float], tip: tuple[float, float], times: int, colour: str) -> None:
    """As many arrows as something happens, up to `MOST`; their tips side by side."""
    count = min(times, MOST)
    for place in range(count):
        end = (tip[0] + 0.09 * (place - (count - 1) / 2), tip[1])
        axis.add_patch(FancyArrowPatch(tail, end, arrowstyle="-|>", mutation_scale=6, lw=0.8, color=colour,
                                       shrinkA=0, shrinkB=0))  # fmt: skip


def kernel(axis: Axes, left: float, low: float, width: float, height: float, lines: Sequence[str], extra: str) -> None:
    """A launch: its name, what is known of it, and in colour how often it embeds."""
    box(axis, left, low, width, height, KERNEL, INK)
    shown = [(each, {"fontweight": "bold"} if not place else {"fontsize": SIZE - 0.5})
             for place, each in enumerate(lines)]  # fmt: skip
    shown += [(extra, {"color": EMBED, "fontweight": "bold"})] if extra else []
    top = low + height / 2 + LINE * (len(shown) - 1) / 2
    for place, (text, style) in enumerate(shown):
        write(axis, left + width / 2, top - LINE * place, text, **style)


def waiting(axis: Axes, tail: tuple[float, float], end: tuple[float, float]) -> None:
    axis.plot(*zip(tail, end), color=WAIT, lw=1.1, ls=(0, (3, 2)))


def strip(axis: Axes, low: float, parent: str, found: Sequence[Change]) -> None:
    """A cell for each thing counted, from `low` up: how often as much as the parent does, as a bar and a number."""
    room = WIDTH / len(found)
    longest = max([abs(_doublings(each)) for each in found] + [1.0])
    write(axis, 0.04, low + STRIP - LINE / 2, f"counted, over {short(parent)}:", ha="left", color=SOFT)
    for place, each in enumerate(found):
        middle, doublings = room * (place + 0.5), _doublings(each)
        colour = SOFT if abs(doublings) < SAME else EMBED if doublings > 0 else LESS
        reach = (room / 2 - 0.12) * doublings / longest
        axis.add_patch(Rectangle((middle, low + 0.15), reach, 0.1, fc=colour, ec="none"))
        axis.plot([middle, middle], [low + 0.11, low + 0.29], color=INK, lw=0.8)
        write(axis, middle, low + 0.36, f"{each.what} {_told(each)}", color=colour if colour != SOFT else INK)


def _doublings(change: Change) -> float:
    """The binary logarithm of how many times as much, at most `FAR` and that too where the parent does none."""
    if not change.before or not change.now:
        return FAR if change.now else -FAR
    return max(-FAR, min(FAR, math.log2(change.now / change.before)))


def _told(change: Change) -> str:
    if not change.before:
        return "(none before)"
    return (
        number(change.now / change.before, "×", None if change.now >= change.before / 10 else 3)
        if change.now
        else "none"
    )


# ---------------------------------------------------------------- words


def label(name: str) -> str:
    """`"k_rotated"` to `"K rotated"`."""
    first, _, rest = name.partition("_")
    return " ".join(filter(None, (first.upper() if first in ("q", "k", "v") else first, rest.replace("_", " "))))


def times(stage: Stage, verb: str) -> str:
    """How often a launch embeds each vector of K and of Q: `"rotates K 64×, Q once"`."""
    parts = [
        f"{what} {'once' if often == 1 else number(often) + '×'}"
        for what, often in (("K", stage.keys), ("Q", stage.queries))
        if often
    ]
    return f"{verb} {', '.join(parts)}" if parts else ""


def size(stage: Stage) -> str:
    """`"256 blocks of 256 threads"`."""
    launch = stage.launch
    blocks = math.prod(launch.grid)
    clusters = f", clusters of {launch.cluster}" if launch.cluster > 1 else ""
    return f"{blocks:,} block{'s' * (blocks > 1)} of {math.prod(launch.block)} threads{clusters}"


def keeps(stage: Stage) -> str:
    """What a block holds in shared memory: `"keeps scores, query: 8.4 KB"`."""
    if not stage.keeps:
        return ""
    names = ", ".join(each.replace("_", " ") for each in stage.keeps)
    held = stage.launch.shared_bytes
    return f"keeps {names}: {number(held / 1024, 'KB') if held >= 1024 else number(held, 'B')}"


def about(problem: Problem) -> str:
    rotated = f", {problem.rotary_dim} dims rotated" if problem.rotary_dim else ""
    heads = problem.batch * problem.heads
    mask = ", causal" if problem.causal else ""
    return (
        f"{heads} head{'s' * (heads > 1)}, {problem.seq_q} queries, {problem.seq_k} keys, "
        f"head dim {problem.hdim}{rotated}{mask}"
    )


# ---------------------------------------------------------------- one version


def flow(name: str, hdim: int | None = None) -> Plot:
    """One call of a version: its launches with what each reads, keeps, embeds and writes, and where the host waits.

    At the documents' shape of head dim 2048, or of the largest below it that the version takes; or at `hdim`.

    Raises: DataError for a version that there is not, that is a peer, or that is not counted at `hdim`.
    """
    plan = plan_of(name, hdim)
    steps = moves(name, plan)
    verb = VERBS.get(plan.problem.family, "embeds")
    stages = [step for step in steps if isinstance(step, Stage)]
    embeds = {id(stage): times(stage, verb) for stage in stages}
    needs = [
        max(sum(_room(stage, each) for each in stage.reads), 1.25 * LETTER * len(embeds[id(stage)])) + 0.1
        for stage in stages
    ]
    scale = (WIDTH - WAITING * (len(steps) - len(stages))) / sum(needs)
    shares = dict(zip(map(id, stages), (scale * need for need in needs)))
    widths = {key: min(share - 0.1, 3.6) for key, share in shares.items()}
    told = {
        id(stage): [stage.name, *(line for text in (size(stage), keeps(stage)) if text
                                  for line in textwrap.wrap(text, int(widths[id(stage)] / LETTER) - 1))]
        for stage in stages
    }  # fmt: skip
    deep = LINE * (max(len(told[id(each)]) + bool(embeds[id(each)]) for each in stages) + 0.6)
    found = changes(name, plan.problem)
    base = (STRIP + 0.1) * bool(found)
    low = base + CHIP + GAP
    high = low + deep
    with mpl.rc_context(STYLE):
        figure, axis = sheet(WIDTH, high + GAP + CHIP + 0.24)
        write(axis, 0.04, high + GAP + CHIP + 0.14, f"{short(name)}: {about(plan.problem)}", ha="left", color=SOFT)
        left = 0.0
        for step in steps:
            if isinstance(step, Wait):
                middle = left + WAITING / 2
                waiting(axis, (middle, base + 0.02), (middle, high + GAP + CHIP))
                write(axis, middle + 0.09, low + deep / 2, "host waits", color=WAIT, rotation=90)
                left += WAITING
                continue
            share, width = shares[id(step)], widths[id(step)]
            start = left + (share - width) / 2
            kernel(axis, start, low, width, deep, told[id(step)], embeds[id(step)])
            rooms = [_room(step, each) for each in step.reads]
            spare = (width - sum(rooms)) / len(rooms)
            edge = start
            for each, room in zip(step.reads, rooms):
                again = _again(step, each)
                x = edge + (room + spare - AGAIN * (again > 1)) / 2
                edge += room + spare
                colour = EMBED if each == "k" and (step.keys or 0) > 1 else INK
                buffer(axis, x, high + GAP, label(each))
                arrows(axis, (x, high + GAP), (x, high), again, colour)
                if again > 1:
                    write(axis, x + 0.17, high + 0.6 * GAP, f"{again}×", ha="left", color=colour)
            for place, each in enumerate(step.writes):
                x = start + width * (place + 0.5) / len(step.writes)
                arrows(axis, (x, low), (x, base + CHIP), 1, INK)
                buffer(axis, x, base, label(each))
            left += share
        if found:
            strip(axis, 0.0, known(name).parent or "", found)
    return Plot(
        f"flow-{name.replace('_', '-')}",
        figure,
        "Above a launch what it reads, below what it writes; × is how often a head's keys and values are read."
        + " Bars: the counts of a call, divided by those of the version named there; global memory in sectors of 32 "
        "bytes, shared memory in wavefronts (passes over its 32 banks)." * bool(found),
        described(name, plan.problem, steps, verb) + _compared(name, found),
        table(steps),
        computed(f"drawn from the plan of {name}") + (COUNTED if found or any(embeds.values()) else Source()),
        f"One call of {name}: what each launch reads, keeps and writes",
    )


def _again(stage: Stage, name: str) -> int:
    """How often a launch reads a buffer: keys and values once for each tile of queries."""
    return stage.passes if stage.attends and name[0] in "kv" else 1


def _room(stage: Stage, name: str) -> float:
    """The width that a buffer takes above a launch."""
    return wide(label(name)) + 0.06 + AGAIN * (_again(stage, name) > 1)


def described(name: str, problem: Problem, steps: Sequence[Stage | Wait], verb: str) -> str:
    parts = []
    for step in steps:
        if isinstance(step, Wait):
            parts.append("the host waits")
            continue
        told = (
            f"{step.name} ({size(step)}) reads {', '.join(map(label, step.reads))}",
            keeps(step),
            times(step, verb),
            f"writes {', '.join(map(label, step.writes))}",
        )
        parts.append(", ".join(filter(None, told)))
    return f"Diagram of one call of {name} at {about(problem)}. {'; '.join(parts)}."


def _compared(name: str, found: Sequence[Change]) -> str:
    told = ", ".join(f"{each.what} {_told(each)}" for each in found)
    return f" Counted, over {known(name).parent}: {told}." if told else ""


def table(steps: Sequence[Stage | Wait]) -> pd.DataFrame:
    """A row a launch or wait."""
    rows: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, Wait):
            rows.append({"step": "host waits"})
            continue
        launch = step.launch
        rows.append(
            {
                "step": step.name,
                "grid": "x".join(map(str, launch.grid)),
                "block": "x".join(map(str, launch.block)),
                "cluster": launch.cluster,
                "shared_bytes": launch.shared_bytes,
                "keeps": " ".join(step.keeps),
                "reads": " ".join(step.reads),
                "writes": " ".join(step.writes),
                "passes": step.passes,
                "query_embedded": step.queries,
                "key_embedded": step.keys,
            }
        )
    return pd.DataFrame(rows)
