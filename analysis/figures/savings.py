"""What the hybrid saves, in microseconds, under each timer."""

from __future__ import annotations

import math

import pandas as pd

from kernels import Problem

from ..measure.studies import TIMERS
from ..records.measured import Measured
from ..verdicts.rule import interval
from .style import HATCHES, PALETTE, Plot, canvas, legend, measured_in, place_of, shape_ticks


def saved(evidence: Measured, problem: Problem, timer: str) -> pd.Series:
    """How many microseconds less a call of V7 takes than one of separate kernels, in each process that timed both."""
    separate, hybrid = (evidence.medians(name, problem, timer) for name in ("rope_separate", "rope_v7"))
    return (separate - hybrid).dropna()


def rope_savings(evidence: Measured) -> Plot:
    """What the hybrid saves over separate kernels, in microseconds a call, under each timer."""
    rows = []
    problems = [problem for problem in evidence.problems("rope", partial=True) if evidence.time("rope_v7", problem)]
    for problem in problems:
        for timer in TIMERS:
            less = saved(evidence, problem, timer)
            value = math.nan if less.empty else interval(less, {}).value
            shape = (problem.hdim, problem.rotary_dim, problem.heads, problem.seq_q)
            rows.append((*shape, timer, value, less.min(), less.max()))
    names = ["hdim", "rotary_dim", "heads", "seq", "timer", "saved_us", "low_us", "high_us"]
    frame = pd.DataFrame(rows, columns=names)
    by_timer = {timer: frame[frame["timer"] == timer]["saved_us"] for timer in TIMERS}
    card = evidence.card.removeprefix("NVIDIA ")
    title = f"What RoPE V7 saves a call on the {card}"
    if by_timer["device_warm"].max() < 0 < by_timer["launched"].max():
        title = f"At published shapes V7 saves time only where launches are timed ({card})"
    with canvas(title, height=4) as (figure, (axis,)):
        axis.axhline(0, color="0.2", lw=1)
        for place, timer in enumerate(TIMERS):
            mine = frame[frame["timer"] == timer]
            x = [place_of(problems, row.hdim) + 0.27 * (place - 1) for row in mine.itertuples()]
            colour = {"device_warm": PALETTE[0], "device_cold": PALETTE[9], "launched": PALETTE[1]}[timer]
            axis.bar(x, mine["saved_us"], 0.25, color=colour, hatch=HATCHES[place], edgecolor="white", label=timer)
        axis.set_ylabel("µs saved a call")
        shape_ticks(axis, problems)
        legend(figure, [axis], columns=3)
    return Plot(
        "rope-savings",
        figure,
        "Time of rope_separate minus time of rope_v7; below zero V7 is slower. Device time is in all timers. The "
        "authors' own (launched) also includes launches and host waits: three launches and two waits for separate "
        "kernels, two launches and one wait for V7.",
        "; ".join(f"{row.timer} at {row.hdim}: {row.saved_us:.1f} µs saved" for row in frame.itertuples()),
        frame,
        measured_in(evidence),
    )
