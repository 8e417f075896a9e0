"""V8 measured: what its parts cost, and what fusing is worth on its core."""

from __future__ import annotations

import textwrap

import pandas as pd

from ..evidence.origin import Source
from ..models import fusion
from .style import PALETTE, Plot, canvas, log_ticks

OVER = {  # baselines of full fusion that share its core
    fusion.HYBRID: ("over hybrid", PALETTE[1], "s"),
    fusion.SEPARATE: ("over separate", PALETTE[2], "^"),
}


def v8_cuts(frame: pd.DataFrame, gpu: str, source: Source) -> Plot:
    """What the kernel takes with a part left out."""
    problems, parts = list(dict.fromkeys(frame["problem"])), list(dict.fromkeys(frame["part"]))
    title = "The kernel, and the same with a part left out"
    with canvas(title, columns=len(problems), height=3.3, sharey=True) as (figure, axes):
        for axis, problem in zip(axes, problems):
            mine = frame[frame["problem"] == problem]
            places = [parts.index(part) for part in mine["part"]]
            axis.barh(places, mine["median_us"], 0.7, color=["0.35" if not place else PALETTE[0] for place in places])
            for place, us in zip(places, mine["median_us"]):
                axis.text(us, place, f" {us:.1f}", va="center", ha="left", fontsize=8)
            axis.set_xlim(0, 1.35 * mine["median_us"].max())
            axis.set_title(textwrap.fill(problem, 12), loc="left")
            axis.set_xticks([])
            axis.grid(visible=False)
        axes[0].set_yticks(range(len(parts)), parts)
        axes[0].set_ylim(len(parts) - 0.5, -0.5)
        figure.supxlabel(f"µs a call, {gpu}", fontsize=9)
    return Plot(
        "v8-cuts",
        figure,
        f"Grey: the kernel that the rule chooses. With a part left out the result is wrong and is not checked. "
        f"device_warm on the {gpu}. Parts overlap in time, so what they save does not add up.",
        "Bars of time by the part that is left out, a panel a problem.",
        frame,
        source,
    )


def v8_family(frame: pd.DataFrame, gpu: str, source: Source) -> Plot:
    """How much faster full fusion is than the hybrid and separate kernels of the same core, by kind of problem."""
    mine = frame[frame["series"].isin(OVER)]
    rows = [(kind, series) for kind in dict.fromkeys(mine["kind"]) for series in OVER]
    title = "Fusing pays up to 64 tokens, and seldom in prefill (8 heads)"
    low, high = min(mine["over_v8"].min(), 0.95), max(mine["over_v8"].max(), 1.1)
    with canvas(title, height=1.3 + 0.42 * len(rows)) as (figure, (axis,)):
        axis.axvline(1, color="0.2", lw=1)
        for place, (kind, series) in enumerate(rows):
            _, color, marker = OVER[series]
            ratios = mine[(mine["kind"] == kind) & (mine["series"] == series)]["over_v8"]
            axis.plot(ratios, [place] * len(ratios), ls="", marker=marker, ms=6, color=color, alpha=0.6)
            if len(ratios):
                axis.text(high * 1.03, place, f"{ratios.min():.2f}–{ratios.max():.2f}×", va="center", fontsize=8.5)
            if place % len(OVER) == 0 and place:
                axis.axhline(place - 0.5, color="0.7", lw=0.8)
        axis.set_yticks(range(len(rows)), [f"{kind}, {OVER[series][0]}" for kind, series in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        log_ticks(axis, "x", low, high, "×")
        axis.set_xlim(low / 1.03, high * 1.22)
        axis.set_xticks([tick for tick in (0.8, 1, 1.2, 1.4, 1.6, 2, 3) if low / 1.03 <= tick <= high * 1.05])
        axis.grid(visible=True, axis="x", color="0.93")
        axis.grid(visible=False, axis="y")
        axis.set_xlabel(f"speedup of rope_v8, {gpu}")
    return Plot(
        "v8-family",
        figure,
        f"Above 1 is faster. A mark is a problem of the study, device_warm on the {gpu}. Hybrid rotates K in a launch "
        "before, separate rotates Q and K before; all share one core. Few heads: one sequence of up to 64 tokens. Full "
        "card: 128 heads of 64 tokens. Prefill: 8 heads of 256 to 4096 tokens. Only right results.",
        "Dot plot of speedups of full fusion over its relatives, a row for each kind of problem and baseline.",
        mine.rename(columns={"over_v8": "speedup_of_v8"}),
        source,
    )
