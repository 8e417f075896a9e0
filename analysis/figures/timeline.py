"""What happens when during one call: kernels, and the host that waits and launches again."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from kernels import VERSIONS, Problem
from kernels.version import Launch

from ..evidence import Evidence
from ..evidence.origin import computed, counters_of, measured
from ..measure.studies import SOURCE_TIMER
from ..tables.table import Missing
from .style import NARROW, PALETTE, Plot, canvas

PAIR = {"separate": "rope_separate", "hybrid V7": "rope_v7"}
CLOCKS = {SOURCE_TIMER: "the authors' clock", "device_warm": "the GPU alone"}
DIMS = (128, 2048)
WAIT = "host waits, launches again"
COLORS = {"attention": PALETTE[9], "kernels": PALETTE[9], "rotation": PALETTE[1], WAIT: "0.9"}
COLUMNS = ("hdim", "version", "timer", "what", "start_us", "end_us")


def timeline(e: Evidence) -> Plot | Missing:
    """Separate kernels and V7 at two head dims, as the authors' loop times them and as the GPU does.

    The device's time is shared among the kernels of a call as under the profiler; what the loop takes longer is the
    host's, shared evenly among its waits.
    """
    rows = []
    for hdim in DIMS:
        for version in PAIR.values():
            problem = e.study("log").shapes(version).get(hdim)
            for timer in CLOCKS:
                at = 0.0
                for what, us in _parts(e, version, problem, timer) if problem else ():
                    rows.append((hdim, version, timer, what, at, at + us))
                    at += us
    frame = pd.DataFrame(rows, columns=COLUMNS)
    drawn = [hdim for hdim in DIMS if hdim in set(frame["hdim"])]
    if not drawn:
        return Missing.study("log")
    title = "V7 saves a wait, but no GPU time"
    with canvas(title, len(drawn), height=0.6 + 1.9 * len(drawn), width=NARROW) as (figure, axes):
        for axis, hdim in zip(axes, drawn):
            _draw(axis, frame[frame["hdim"] == hdim])
            axis.set_title(f"head dim {hdim}", loc="left", fontweight="bold", fontsize=9)
        axes[-1].set_xlabel("µs of one call; Q and K: the kernels that rotate them", loc="left")
    return Plot(
        "timeline",
        figure,
        "One call of separate kernels and of V7, at their shapes. Grey: the host waits and launches again, which the "
        "authors' clock includes; their sum is measured, and drawn as equal parts. Replayed as a CUDA graph, the "
        "kernels run back to back.",
        "Timeline of one call of separate kernels and of V7: kernels in order, and the gaps in which the host waits.",
        frame,
        measured(e, "log") + counters_of(e) + computed("order by the plan"),
    )


def _parts(e: Evidence, version: str, problem: Problem, timer: str) -> Iterator[tuple[str, float]]:
    """What one call does, in order, and for how long; nothing where it was not timed."""
    device, total = (e.time(version, "log", each, problem=problem)[problem] for each in ("device_warm", timer))
    if not (device and total):
        return
    host = total.value - device.value
    steps = VERSIONS[version](problem, e.target).steps
    launches = [step for step in steps if isinstance(step, Launch)]
    under = [
        e.counter(version, "gpu__time_duration.sum", place, problem=problem)[problem] for place in range(len(launches))
    ]
    if not all(under):  # not profiled: all kernels as one, and all waits
        yield "kernels", device.value
        if host > 0:
            yield WAIT, host
        return
    shares = iter([each.value / sum(one.value for one in under) for each in under])
    for step in steps:
        if isinstance(step, Launch):
            rotates = step.kernel.name == "rotate_tokens"
            yield (f"rotation {str(step.args[0]).upper()}" if rotates else "attention"), device.value * next(shares)
        elif host > 0 and timer == SOURCE_TIMER:
            yield WAIT, host / (len(steps) - len(launches))


def _draw(axis: Axes, frame: pd.DataFrame) -> None:
    rows = [(timer, name) for timer in CLOCKS for name in PAIR]
    longest = frame["end_us"].max()
    for y, (timer, name) in enumerate(rows):
        mine = frame[(frame["timer"] == timer) & (frame["version"] == PAIR[name])]
        for part in mine.itertuples():
            color = next(color for word, color in COLORS.items() if part.what.startswith(word))
            width, words = part.end_us - part.start_us, part.what.removeprefix("rotation ")
            axis.barh(y, width, left=part.start_us, height=0.72, color=color, edgecolor="white", lw=0.8)
            if len(words) < 44 * width / longest:
                axis.text(part.start_us + width / 2, y, words, ha="center", va="center", fontsize=7)
        if len(mine):
            end = mine["end_us"].max()
            axis.text(end, y, f" {end:.3g} µs", va="center", fontsize=8.5, fontweight="bold")
    axis.set_yticks(range(len(rows)), [f"{name},\n{CLOCKS[timer]}" for timer, name in rows], fontsize=7.5)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, longest * 1.17)
    axis.grid(visible=False)
