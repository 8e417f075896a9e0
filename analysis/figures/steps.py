"""Strips of one call of each version of a ladder: what is launched, where the host waits, how often keys are embedded.

They are drawn from the plans of the versions. At the right is the work of a call, over that of the first: as the
card's counters have it where they were read, else as the emulator counts it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from kernels import Plan

from ..evidence import COUNTED, Evidence, Source, computed
from ..models.moves import Stage, moves, plan_of
from ..record.text import number
from ..studies import MAIN
from ..tables.steps import SHOWN, done
from ..tables.table import family_title, short
from .style import Plot, styled

INK, SOFT, KERNEL, EMBED, LESS = "#1b2733", "#56646f", "#d7e6f5", "#b35f00", "#1f5f99"
HIGH, HEAD, WIDE = 0.42, 0.32, 4.5  # inches: of a strip, of the line above all, and from left to right
LAUNCH, MAKES, ATTENDS = 1.04, 0.44, 1.12  # inches: where launches begin; how long one is that embeds, and that attends
COUNTS = 3.3  # inches: where counts begin
HEADS = {"global": "global\nsectors", "shared": "shared\nwavefr.", "instr.": "warp\ninstr."}
SIZE = 8.0  # points
VERBS = {"rope": "rotates", "sinusoidal": "embeds"}
TITLES = {  # the edition's
    "sinusoidal": "V1 to V5 embed each key 64 times, the hybrids once",
    "rope": "Most of V1 to V6 rotate a key 64 times, V3 16, V8 three",
    "fp16": "Tiles spare global memory, and shared memory pays for it",
}
ABOUT = {"rope": " The attention of V7 reads K as often as that of Separate."}
BOXES = "Boxes are launches in their order; their widths are no times. Dashed: the host waits."
PIPELINES = {
    "Separate": "rope_separate",
    "Hybrid (V7)": "rope_v7",
    "Full fusion (V1)": "rope_v1c",
}


def steps(e: Evidence, family: str) -> Plot:
    """One call of each step of a ladder, at the head dim that its table shows; not of those that are not counted."""
    hdim, found = SHOWN.get(family, MAIN.hdim), done(e, family)
    names = [short(name).removesuffix(" 227k") for name in found.plans]
    return _strips(
        f"{family}-steps",
        TITLES.get(family, family_title(family)),
        found.plans,
        names,
        f"One call of each version at head dim {hdim}. {BOXES}",
        f"{ABOUT.get(family, '')} At the right: its work over that of {names[0]}; bold is more, blue less, and grey "
        f"nearly the same. {found.counted}",
        found.work,
        found.source,
    )


def pipelines() -> Plot:
    """Three ways to rotate Q and K for four heads of 64 queries and 64 keys."""
    title = "Who rotates K, and how often, for 4 heads of 64 tokens"
    plans = {name: plan_of(name, MAIN.hdim) for name in PIPELINES.values()}
    about = f"One call of each at head dim {MAIN.hdim}. {BOXES}"
    return _strips("pipelines", title, plans, [*PIPELINES], about, "", {})


def _strips(
    id: str, title: str, plans: Mapping[str, Plan], names: Sequence[str], boxes: str, about: str,
    done: Mapping[str, dict[str, float]], source: Source = COUNTED,
) -> Plot:  # fmt: skip
    """A strip for each plan, and at its end what is `done` in a call over what the first does."""
    first = next(iter(done.values()), {})
    shown = [what for what, amount in first.items() if amount]
    embeds = {plan.problem.family for plan in plans.values()} & VERBS.keys()
    orange = " Orange: embedded inside the attention kernel." if embeds else ""
    height, tables = HIGH * len(plans) + HEAD * bool(shown), []
    with styled():
        figure = Figure(figsize=(WIDE, height))
        axis = figure.add_axes((0, 0, 1, 1))
        axis.set(xlim=(0, WIDE), ylim=(0, height))
        axis.axis("off")
        places = {what: COUNTS + (WIDE - COUNTS) * (at + 0.5) / len(shown) for at, what in enumerate(shown)}
        for what, x in places.items():
            write(axis, x, height - HEAD / 2, HEADS[what], color=SOFT, fontsize=7)
        for place, ((name, plan), words) in enumerate(zip(plans.items(), names)):
            middle = HIGH * (len(plans) - place - 0.5)
            found = moves(name, plan)
            write(axis, 0.02, middle, words.replace(" 227k", ""), ha="left", fontweight="bold")
            _launches(axis, middle, found, VERBS.get(plan.problem.family, "embeds"))
            counts = {what: done[name][what] for what in shown} if done.get(name) else {}
            for what, amount in counts.items():
                _ratio(axis, places[what], middle, amount / first[what])
            tables.append(table(name, found).assign(**counts))
    return Plot(
        id,
        figure,
        f"{boxes}{orange}{about}",
        f"Strips of one call of {', '.join(names)}: launches, waits, and how often each reads"
        f"{' and embeds' if embeds else ''} keys.",
        pd.concat(tables, ignore_index=True),
        computed(f"drawn from the plans of {', '.join(plans)}") + source,
        title,
    )


def _launches(axis: Axes, middle: float, steps: Sequence[Stage | None], verb: str) -> None:
    """The launches and waits of one call."""
    left = LAUNCH
    for step in steps:
        if step is None:
            axis.plot([left, left], [middle - 0.19, middle + 0.19], color=SOFT, lw=1.2, ls=(0, (2, 1.5)))
            left += 0.05
            continue
        launch, blocks = step.launch, math.prod(step.launch.grid)
        told = [verb.removesuffix("s"), next((each for each in step.reads if each in "qk"), "k").upper()]
        if step.attends:
            often = _often(step, verb) or f"reads K {number(step.passes)}×"
            groups, what = blocks // launch.cluster, "block" if launch.cluster == 1 else "cluster"
            told = [f"{groups:,} {what}{'s' * (groups > 1)}", often]
        width = ATTENDS if step.attends else MAKES
        box(axis, left, middle - 0.17, width, 0.34, *told, embeds=bool(step.attends and _often(step, verb)))
        left += width + 0.05


def _often(stage: Stage, verb: str) -> str:
    """How often a launch embeds each vector of K, or else of Q: `"rotates K 64×"`."""
    what, times = ("K", stage.keys) if stage.keys else ("Q", stage.queries)
    return f"{verb} {what} {'once' if times == 1 else number(times) + '×'}" if times else ""


def write(axis: Axes, x: float, y: float, text: str, **style: Any) -> None:
    axis.text(x, y, text, **{"ha": "center", "va": "center", "fontsize": SIZE, "color": INK, **style})


def box(axis: Axes, left: float, low: float, width: float, height: float, *lines: str, embeds: bool) -> None:
    """A launch; its second line is in colour where it says what it embeds."""
    style = "round,pad=0,rounding_size=0.05"
    axis.add_patch(FancyBboxPatch((left, low), width, height, boxstyle=style, fc=KERNEL, ec=INK, lw=0.8))
    for place, text in enumerate(lines):
        y = low + height / 2 + 0.145 * ((len(lines) - 1) / 2 - place)
        look = {"color": EMBED, "fontweight": "bold"} if place and embeds else {}
        write(axis, left + width / 2, y, text, **{"fontsize": 7.5, **look})


def _told(ratio: float) -> str:
    if not ratio:
        return "none"
    return f"1/{1 / ratio:,.0f}" if ratio < 0.095 else number(ratio, "×", 0 if ratio >= 10 else 2)


def _ratio(axis: Axes, x: float, y: float, ratio: float) -> None:
    """A ratio, blue where it is less than the first's and bold where it is more."""
    look: dict[str, Any] = {"color": SOFT}
    if abs(math.log2(ratio or 1e-9)) > math.log2(1.03):
        look = {"color": INK, "fontweight": "bold"} if ratio > 1 else {"color": LESS}
    write(axis, x, y, _told(ratio), fontsize=7.2, **look)


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
