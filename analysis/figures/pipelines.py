"""Separate, hybrid, full fusion and V8 side by side: who rotates K, and how often."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from ..evidence.origin import COUNTED, computed
from ..models.moves import Stage, moves, plan_of
from ..record.text import number
from .flow import EMBED, INK, LINE, SIZE, WAIT, arrows, buffer, kernel, label, sheet, table, waiting, write
from .style import STYLE, Plot

PIPELINES = {
    "Separate": "rope_separate",
    "Hybrid (V7)": "rope_v7",
    "Full fusion (V1)": "rope_v1c",
    "Over a cluster (V8)": "rope_v8",
}
WIDE, HIGH, COLUMN = 7.6, 3.1, 1.72  # inches: of the figure, and the width of a version
COLUMNS = {"q": 0.33, "k": 1.0, "v": 1.53}  # inches, of what goes into attention
INPUTS, MAKERS, ATTENTION = 2.34, (1.55, 0.42), (0.62, 0.62)  # inches: where they stand, and how high they are


def pipelines() -> Plot:
    """Four ways to rotate Q and K for 64 queries and 64 keys: launches, waits and rotations, from plans and counts."""
    frames = []
    title = "Who rotates K, and how often, for 64 queries and 64 keys"
    with mpl.rc_context(STYLE):
        figure, axis = sheet(WIDE, HIGH)
        write(axis, 0.04, HIGH - 0.16, title, ha="left", fontsize=11, fontweight="bold")
        for place, (words, name) in enumerate(PIPELINES.items()):
            steps = moves(name, plan_of(name))
            _version(axis, 0.06 + place * (WIDE - COLUMN - 0.12) / 3, words, steps)
            frames.append(table(steps).assign(version=name))
    return Plot(
        "pipelines",
        figure,
        "Boxes are launches, dashed lines are where the host waits. Separate and hybrid store rotated keys in global "
        "memory; full fusion rotates each key again for every query (V3 for every four), V8 once for each tile of "
        "queries.",
        "Diagram of four ways to compute RoPE attention: the launches of each, and how often each rotates a key.",
        pd.concat(frames, ignore_index=True),
        computed(f"drawn from the plans of {', '.join(PIPELINES.values())}") + COUNTED,
        "Separate, hybrid and full fusion: who rotates K, and how often",
    )


def _version(axis: Axes, left: float, title: str, steps: list[Stage | None]) -> None:
    write(axis, left, 2.7, title, ha="left", fontsize=9, fontweight="bold")
    for each, x in COLUMNS.items():
        buffer(axis, left + x, INPUTS, each)
    stages = [step for step in steps if step]
    *makers, attention = stages
    low, high = MAKERS
    for stage in makers:
        (source,) = (each for each in stage.reads if each in COLUMNS)
        x = left + COLUMNS[source]
        once = "once" if 1 in (stage.queries, stage.keys) else ""
        kernel(axis, x - 0.3, low, 0.6, high, [f"rotate {label(source)}"], once)
        arrows(axis, (x, INPUTS), (x, low + high))
    embeds = " and ".join(what for what, often in (("Q", attention.queries), ("K", attention.keys)) if often)
    shape, (floor, height) = attention.launch.shape, ATTENTION
    told = [f"{attention.passes} tiles of {shape.queries} queries,", f"{shape.width} dims a block"] if shape else []
    kernel(axis, left, floor, COLUMN, height, ["attention", *told], f"rotates {embeds}" if embeds else "")
    for each in attention.reads:
        if each[0] in COLUMNS:
            x, own = left + COLUMNS[each[0]], each == "k" and bool(attention.keys)
            tail = (x, INPUTS if each in COLUMNS else low)
            arrows(axis, tail, (x, floor + height), attention.passes if own else 1, EMBED if own else INK)
    for place in (place for place, step in enumerate(steps) if step is None):
        last = place == len(steps) - 1
        y = floor - 0.1 if last else low - 0.12
        waiting(axis, (left, y), (left + COLUMN, y))
        if not last:
            write(axis, left + 0.66, y - 0.09, "host waits", color=WAIT, fontsize=SIZE - 0.5)
    often, waits = sum(stage.keys or 0 for stage in stages), len(steps) - len(stages)
    rotated = f"each key rotated {'once' if often == 1 else number(often) + '×'}"
    launches = f"{len(stages)} launch{'es' * (len(stages) > 1)}, {waits or 'no'} wait{'s' * (waits > 1)}"
    write(axis, left, 0.36, rotated, ha="left", color=EMBED, fontweight="bold")
    write(axis, left, 0.36 - LINE, launches, ha="left")
