"""What the hybrid saves, in microseconds, under each timer."""

from __future__ import annotations

import pandas as pd

from kernels import Problem

from ..evidence import Estimate, Evidence
from ..evidence.origin import measured
from ..measure.studies import TIMERS
from .style import HATCHES, PALETTE, Plot, by_process, canvas, legend, place_of, shape_ticks

COLOURS = (PALETTE[0], PALETTE[9], PALETTE[1])


def saved(e: Evidence, problem: Problem, timer: str) -> Estimate:
    """How many microseconds less a call of V7 takes than one of separate kernels."""
    separate, hybrid = (e.time(name, "log", timer, problem=problem) for name in ("rope_separate", "rope_v7"))
    return (separate - hybrid)[problem]


def rope_savings(e: Evidence) -> Plot:
    """What the hybrid saves over separate kernels, in microseconds a call, under each timer."""
    timed = e.time("rope_v7", "log", "device_warm", problem=e.study("log").problems("rope", partial=True))
    problems, rows = [*timed.values_known], []
    for problem in problems:
        for timer in TIMERS:
            less = saved(e, problem, timer)
            shape = (problem.hdim, problem.rotary_dim, problem.heads, problem.seq_q)
            rows.append((*shape, timer, *by_process(less)))
    names = ["hdim", "rotary_dim", "heads", "seq", "timer", "saved_us", "low_us", "high_us"]
    frame = pd.DataFrame(rows, columns=names)
    title = "At published shapes V7 saves time only where launches are timed"
    with canvas(title, height=4) as (figure, (axis,)):
        axis.axhline(0, color="0.2", lw=1)
        for place, (timer, color, hatch) in enumerate(zip(TIMERS, COLOURS, HATCHES)):
            mine = frame[frame["timer"] == timer]
            x = [place_of(problems, hdim) + 0.27 * (place - 1) for hdim in mine["hdim"]]
            axis.bar(x, mine["saved_us"], 0.25, color=color, hatch=hatch, edgecolor="white", label=timer)
        axis.set_ylabel("µs saved a call")
        shape_ticks(axis, problems)
        legend(figure, [axis], columns=3)
    return Plot(
        "rope-savings",
        figure,
        "Time of rope_separate minus time of rope_v7; below zero V7 is slower. Device time is in all timers. The "
        "authors' own (launched) also includes launches and host waits: three launches and two waits for separate "
        "kernels, two launches and one wait for V7.",
        "Bars of the microseconds that V7 saves at each head dim, for three timers.",
        frame,
        measured(e, "log"),
    )
