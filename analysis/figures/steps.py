"""Strips of small pictures of what moves where in one call, a version each, all on one scale.

They are drawn from the plans of the versions and from what is counted of them, never by hand. In a picture a call runs
downwards: global memory, the launches that embed, where the host waits, the launch that attends. The bars below compare
what is counted of a call with the first version of the strip.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from kernels import Plan

from ..evidence import COUNTED, computed
from ..models.moves import Stage, moves, plan_of, work
from ..record.files import DataError
from ..record.text import number
from ..studies import MAIN
from ..tables.steps import SHOWN, ladder
from ..tables.table import family_title, short
from .style import Plot, styled

INK, SOFT, MEMORY, KERNEL, EMBED, WAIT, LESS = (
    "#1b2733", "#56646f", "#e9edf1", "#d7e6f5", "#b35f00", "#b3402a", "#1f5f99",
)  # fmt: skip
ACROSS = 3  # pictures in a row
WIDE, HIGH, BAR = 1.2, 1.4, 0.13  # inches: of a picture, and of a bar below it
TOP, MAKER, ATTENTION, DEEP = 1.02, 0.68, 0.1, 0.34  # inches: memory, what embeds, what attends, how high that is
COLUMNS = {"q": 0.19, "k": 0.57, "v": 0.92}  # inches from the left of a picture
SIZE = 6.6  # points
MOST = 4  # arrows
DOUBLING, LEAST = 0.035, -6  # inches of a bar, and the least doublings that are drawn
VERBS = {"rope": "rotates", "sinusoidal": "embeds"}
TITLES = {  # the edition's
    "attention": "With float4 a kernel reads a third of the sectors",
    "sinusoidal": "V1 to V5 embed each key 64 times, the hybrids once",
    "rope": "V1 to V6 rotate each key for every query or every four, V7 once",
    "fp16": "Tiles spare global memory, and shared memory pays for it",
}
SAME = ("attention_online", "rope_v1a", "rope_v1b")  # which move what their next step moves
PIPELINES = {
    "Separate": "rope_separate",
    "Hybrid (V7)": "rope_v7",
    "Full fusion (V1)": "rope_v1c",
    "Over a cluster (V8)": "rope_v8",
}


def steps(family: str) -> Plot:
    """One call of each step of a ladder, at the head dim that its table shows; not of those that are not counted."""
    hdim, plans = SHOWN.get(family, MAIN.hdim), {}
    for version in ladder(family):
        with contextlib.suppress(DataError):
            plans.update({} if version.id in SAME else {version.id: plan_of(version.id, hdim)})
    first, *_ = plans
    return _pictures(
        f"{family}-steps",
        TITLES.get(family, family_title(family)),
        plans,
        [short(name) for name in plans],
        " Bars, on one logarithmic scale: what is counted of a call, divided by that of "
        f"{short(first)}; global memory in sectors of 32 bytes, shared memory in wavefronts.",
        {name: work(name, plan.problem) for name, plan in plans.items()},
    )


def pipelines() -> Plot:
    """Four ways to rotate Q and K for four heads of 64 queries and 64 keys."""
    title = "Who rotates K, and how often, for 4 heads of 64 tokens"
    plans = {name: plan_of(name, MAIN.hdim) for name in PIPELINES.values()}
    about = " V8, ours, returns without a wait."
    return _pictures("pipelines", title, plans, [*PIPELINES], about, {}, across=2)


def _pictures(
    id: str, title: str, plans: Mapping[str, Plan], names: Sequence[str], about: str,
    done: Mapping[str, dict[str, float]], across: int = ACROSS,
) -> Plot:  # fmt: skip
    """A picture of each plan, and below it bars of what is `done` in a call over what the first does."""
    first = next(iter(done.values()), {})
    shown = [what for what, amount in first.items() if amount]
    high, rows, width = HIGH + BAR * len(shown) + 0.2, math.ceil(len(plans) / across), WIDE * across + 0.1
    embeds = {plan.problem.family for plan in plans.values()} & VERBS.keys()
    orange = " Orange: embedded inside the attention kernel." if embeds else ""
    tables = []
    with styled():
        figure = Figure(figsize=(width, rows * high))
        axis = figure.add_axes((0, 0, 1, 1))
        axis.set(xlim=(0, width), ylim=(0, rows * high))
        axis.axis("off")
        for place, ((name, plan), words) in enumerate(zip(plans.items(), names)):
            left, low = 0.05 + WIDE * (place % across), high * (rows - 1 - place // across)
            found = moves(name, plan)
            _picture(axis, left, low + high - HIGH - 0.05, words, found, VERBS.get(plan.problem.family, "embeds"))
            counts = {what: done[name][what] for what in shown} if done.get(name) else {}
            for line, (what, amount) in enumerate(counts.items()):
                _bar(axis, left, low + BAR * (len(shown) - line), what, amount / first[what])
            tables.append(table(name, found).assign(**counts))
    return Plot(
        id,
        figure,
        "Boxes are launches, and dashed lines are where the host waits. Beside an arrow: how often keys are read."
        f"{orange}{about}",
        f"Small diagrams of one call of {', '.join(names)}: launches, waits, and how often each reads"
        f"{' and embeds' if embeds else ''} keys.",
        pd.concat(tables, ignore_index=True),
        computed(f"drawn from the plans of {', '.join(plans)}") + COUNTED,
        title,
    )


def _picture(axis: Axes, left: float, low: float, words: str, steps: Sequence[Stage | None], verb: str) -> None:
    """Global memory, launches and waits of one call."""
    write(axis, left, low + HIGH - 0.12, words, ha="left", fontsize=8, fontweight="bold")
    axis.add_patch(Rectangle((left, low + TOP), WIDE - 0.12, 0.18, fc=MEMORY, ec="none"))
    for each, x in COLUMNS.items():
        write(axis, left + x, low + TOP + 0.09, each.upper(), fontweight="bold")
    stages = [step for step in steps if step]
    makers, attention = [each for each in stages if not each.attends], next(each for each in stages if each.attends)
    made = {}
    for stage in makers:
        source = next((each for each in stage.reads if each in COLUMNS), "k")
        made[source] = x = left + COLUMNS[source]
        box(axis, x - 0.17, low + MAKER, 0.34, 0.18, verb.removesuffix("s"))
        arrows(axis, (x, low + TOP), (x, low + MAKER + 0.18), 1, INK)
    launch, blocks = attention.launch, math.prod(attention.launch.grid)
    blocks, unit = (blocks, "block") if launch.cluster == 1 else (blocks // launch.cluster, "cluster")
    told = [f"{blocks:,} {unit}{'s' * (blocks > 1)}{f' of {launch.cluster}' * (launch.cluster > 1)}"]
    told.append(_often(attention, verb))
    box(axis, left, low + ATTENTION, WIDE - 0.12, DEEP, *filter(None, told))
    for each, x in COLUMNS.items():
        again = attention.passes if each != "q" else 1
        own = each == "k" and (attention.keys or 0) > 1
        tail = low + (MAKER if each in made else TOP)
        arrows(axis, (left + x, tail), (left + x, low + ATTENTION + DEEP), again, EMBED if own else INK)
        if each == "k" and again > 1:
            y, behind = low + ATTENTION + DEEP + 0.11, {"fc": "white", "ec": "none", "pad": 0.2}
            write(axis, left + x - 0.19, y, f"read\n{again}×", color=SOFT, bbox=behind, linespacing=0.95)
    for place in (place for place, step in enumerate(steps) if step is None):
        y = low + (0.04 if place == len(steps) - 1 else MAKER - 0.04)
        axis.plot([left, left + WIDE - 0.12], [y, y], color=WAIT, lw=1.0, ls=(0, (3, 2)))


def _often(stage: Stage, verb: str) -> str:
    """How often a launch embeds each vector of K, or else of Q: `"rotates K 64×"`."""
    what, times = ("K", stage.keys) if stage.keys else ("Q", stage.queries)
    return f"{verb} {what} {'once' if times == 1 else number(times) + '×'}" if times else ""


def write(axis: Axes, x: float, y: float, text: str, **style: Any) -> None:
    axis.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": SIZE, "color": INK, **style})


def box(axis: Axes, left: float, low: float, width: float, height: float, *lines: str) -> None:
    """A launch; its second line, in colour, says what it embeds."""
    style = "round,pad=0,rounding_size=0.05"
    axis.add_patch(FancyBboxPatch((left, low), width, height, boxstyle=style, fc=KERNEL, ec=INK, lw=0.8))
    for place, text in enumerate(lines):
        y = low + height / 2 + 0.12 * ((len(lines) - 1) / 2 - place)
        look = {"color": EMBED, "fontweight": "bold"} if place else {}
        write(axis, left + width / 2, y, text, **look)


def arrows(axis: Axes, tail: tuple[float, float], tip: tuple[float, float], times: int, colour: str) -> None:
    """One arrow, and one more for each fourfold, up to `MOST`."""
    count = min(1 + round(math.log(times, 4)), MOST)
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 5, "lw": 0.8, "shrinkA": 0, "shrinkB": 0}
    for place in range(count):
        end = (tip[0] + 0.05 * (place - (count - 1) / 2), tip[1])
        axis.add_patch(FancyArrowPatch(tail, end, color=colour, **style))


def _bar(axis: Axes, left: float, y: float, what: str, ratio: float) -> None:
    """A ratio as a bar on a logarithmic scale that all pictures share."""
    middle, doublings = left + 0.62, max(LEAST, math.log2(ratio) if ratio else LEAST)
    colour = SOFT if abs(doublings) < math.log2(1.03) else EMBED if doublings > 0 else LESS
    write(axis, left, y, what, ha="left", color=SOFT)
    axis.add_patch(Rectangle((middle, y - 0.04), DOUBLING * doublings, 0.08, fc=colour, ec="none"))
    axis.plot([middle, middle], [y - 0.06, y + 0.06], color=INK, lw=0.6)
    text = number(ratio, "×", 0 if ratio >= 10 else 2 if ratio >= 0.1 else 3) if ratio else "none"
    write(axis, left + WIDE - 0.12, y, text, ha="right", color=colour)


def table(name: str, steps: Sequence[Stage | None]) -> pd.DataFrame:
    """A row a launch or wait."""
    return pd.DataFrame(
        {
            "version": name,
            "step": step.name,
            "grid": "x".join(map(str, step.launch.grid)),
            "block": "x".join(map(str, step.launch.block)),
            "cluster": step.launch.cluster,
            "shared_bytes": step.launch.shared_bytes,
            "reads": " ".join(step.reads),
            "writes": " ".join(step.writes),
            "passes": step.passes,
            "query_embedded": step.queries,
            "key_embedded": step.keys,
        }
        if step
        else {"version": name, "step": "host waits"}
        for step in steps
    )
