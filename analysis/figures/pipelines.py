"""Separate, hybrid, full fusion and V8 side by side: who rotates K, and how often."""

from __future__ import annotations

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from ..records.text import number
from .flow import EMBED, INK, LINE, SIZE, WAIT, arrows, buffer, kernel, label, sheet, table, waiting, write
from .moves import Stage, Wait, moves, plan_of
from .style import COUNTED, STYLE, Plot, computed

PIPELINES = {
    "Separate": "rope_separate",
    "Hybrid (V7)": "rope_v7",
    "Full fusion (V1)": "rope_v1c",
    "Over a cluster (V8)": "rope_v8",
}
WIDE, HIGH = 7.6, 3.1  # inches
COLUMN, ROW = 1.72, 0.62  # inches: width of a version, height of a launch
COLUMNS = {"q": 0.33, "k": 1.0, "v": 1.53}  # inches
ROWS = (1.55, 0.62)  # inches: where launches that make something stand, and the attention


def pipelines() -> Plot:
    """Four ways to rotate Q and K for 64 queries and 64 keys: launches, waits and rotations, from plans and counts."""
    frames = []
    with mpl.rc_context(STYLE):
        figure, axis = sheet(WIDE, HIGH)
        write(axis, 0.04, HIGH - 0.16, "Who rotates K, and how often, for 64 queries and 64 keys", ha="left",
              fontsize=11, fontweight="bold")  # fmt: skip
        for place, (title, name) in enumerate(PIPELINES.items()):
            steps = moves(name, plan_of(name))
            _version(axis, 0.06 + place * (WIDE - COLUMN - 0.12) / 3, title, steps)
            frames.append(table(steps).assign(version=name))
    frame = pd.concat(frames, ignore_index=True)
    return Plot(
        "pipelines",
        figure,
        "Boxes are launches, dashed lines are where the host waits. Separate and hybrid store rotated keys in global "
        "memory; full fusion rotates each key again for every query (V3 for every four), V8 once for each tile of "
        "queries.",
        "Diagram of four ways to compute RoPE attention. "
        + "; ".join(f"{title}: {', '.join(_notes(moves(name, plan_of(name))))}" for title, name in PIPELINES.items())
        + ".",
        frame,
        computed(f"drawn from the plans of {', '.join(PIPELINES.values())}") + COUNTED,
        "Separate, hybrid and full fusion: who rotates K, and how often",
    )


def _version(axis: Axes, left: float, title: str, steps: list[Stage | Wait]) -> None:
    write(axis, left, 2.7, title, ha="left", fontsize=9, fontweight="bold")
    stages = [step for step in steps if isinstance(step, Stage)]
    inputs = {each: left + x for each, x in COLUMNS.items()}
    for each, x in inputs.items():
        buffer(axis, x, 2.34, label(each))
    made: dict[str, float] = {}
    makers = [stage for stage in stages if not stage.attends]
    (attention,) = (stage for stage in stages if stage.attends)
    for stage in makers:
        (source,), (result,) = (each for each in stage.reads if each in inputs), stage.writes
        kernel(axis, inputs[source] - 0.3, ROWS[0], 0.6, 0.42, [f"rotate {label(source)}"],
               "once" if 1 in (stage.queries, stage.keys) else "")  # fmt: skip
        made[result] = inputs[source]
        arrows(axis, (inputs[source], 2.34), (inputs[source], ROWS[0] + 0.42), 1, INK)
    _attention(axis, left, attention)
    for each in attention.reads:
        if each in inputs or each in made:
            x = left + COLUMNS[each[0]]
            low = 2.34 if each in inputs else ROWS[0]
            own = each == "k" and bool(attention.keys)
            arrows(axis, (x, low), (x, ROWS[1] + ROW), attention.passes if own else 1, EMBED if own else INK)
    for place in (place for place, step in enumerate(steps) if isinstance(step, Wait)):
        last = not steps[place + 1 :]
        y = ROWS[1] - 0.1 if last else ROWS[0] - 0.12
        waiting(axis, (left, y), (left + COLUMN, y))
        if not last:
            write(axis, left + 0.66, y - 0.09, "host waits", color=WAIT, fontsize=SIZE - 0.5)
    for place, note in enumerate(_notes(steps)):
        style = {} if place else {"color": EMBED, "fontweight": "bold"}
        write(axis, left, 0.36 - LINE * place, note, ha="left", **style)


def _attention(axis: Axes, left: float, stage: Stage) -> None:
    shape = stage.launch.shape
    told = ["attention"]
    if shape:
        told += [f"{stage.passes} tiles of {shape.queries} queries,", f"{shape.width} dims a block"]
    extra = {(True, True): "rotates Q and K", (True, False): "rotates Q"}.get(
        (bool(stage.queries), bool(stage.keys)), ""
    )
    kernel(axis, left, ROWS[1], COLUMN, ROW, told, extra)


def _notes(steps: list[Stage | Wait]) -> list[str]:
    stages = [step for step in steps if isinstance(step, Stage)]
    waits = len(steps) - len(stages)
    often = sum(stage.keys or 0 for stage in stages)
    return [
        f"each key rotated {'once' if often == 1 else number(often) + '×'}",
        f"{len(stages)} launch{'es' * (len(stages) > 1)}, {waits or 'no'} wait{'s' * (waits > 1)}",
    ]
