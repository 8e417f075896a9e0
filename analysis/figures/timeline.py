"""Timeline of one call: kernels, and the host that waits and launches again."""

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes

from kernels import VERSIONS, Problem
from kernels.version import Launch

from ..evidence import Evidence, counters_of, measured
from ..studies import SOURCE_TIMER
from ..tables.table import missing
from .style import EMBEDS, FUSED, SPARE, Plot, canvas, key

PAIR = {"separate": "rope_separate", "hybrid V7": "rope_v7"}
CLOCKS = {SOURCE_TIMER: "the authors' clock", "device_warm": "the GPU alone"}
DIMS = (128, 2048)
WAIT = "host waits, launches again"
COLORS = {"rotation": EMBEDS, "attention": FUSED, "host waits": SPARE}
WORDS = {"rotation": "rotates Q or K", "host waits": "the host waits"}
COLUMNS = ("hdim", "version", "timer", "what", "start_us", "end_us")


def timeline(e: Evidence) -> Plot | str:
    """Separate kernels and V7 at two head dims, as the authors' loop times them and as the GPU does.

    The device's time is shared among the kernels of a call as under the profiler; what the loop takes longer is the
    host's, shared evenly among its waits.
    """
    frame = _calls(e)
    drawn = [hdim for hdim in DIMS if hdim in set(frame["hdim"])]
    if not drawn:
        return missing(command="make counters")
    title = "V7 saves a wait and takes longer on the GPU"
    with canvas(title, len(drawn), height=0.8 + 1.6 * len(drawn)) as (figure, axes):
        for axis, hdim in zip(axes, drawn):
            _draw(axis, frame[frame["hdim"] == hdim])
            axis.set_title(f"head dim {hdim}", loc="left", fontweight="bold", fontsize=9)
        axes[-1].set_xlabel("µs of one call", loc="left")
        parts = [word for word in COLORS if frame["what"].str.startswith(word).any()]
        key(figure, {WORDS.get(word, word): {"color": COLORS[word]} for word in parts})
    return Plot(
        "timeline",
        figure,
        "One call of separate kernels and of V7, at their shapes, on the whole card. Grey: the host waits and launches "
        "again, which the authors' clock includes. The sum of these waits was measured; the figure splits it equally. "
        "On the GPU alone the kernels run back to back, as a CUDA graph.",
        "Timeline of one call of separate kernels and of V7: kernels in order, and the gaps in which the host waits.",
        frame,
        measured(e, "log", of=PAIR.values()) + counters_of(e),
        true_of=e.card,
    )


def _calls(e: Evidence) -> pd.DataFrame:
    """A row for each part of each call, with when it starts and ends."""
    rows = []
    for hdim in DIMS:
        for version in PAIR.values():
            problem = e.study("log").shapes(version).get(hdim)
            for timer in CLOCKS:
                at = 0.0
                for what, us in _parts(e, version, problem, timer) if problem else ():
                    rows.append((hdim, version, timer, what, at, at + us))
                    at += us
    return pd.DataFrame(rows, columns=COLUMNS)


def _parts(e: Evidence, version: str, problem: Problem, timer: str) -> Iterator[tuple[str, float]]:
    """Steps of one call, in order, with their times; nothing where it was not timed, or not profiled."""
    device, total = (e.time(version, "log", each, problem=problem)[problem] for each in ("device_warm", timer))
    if not (device and total):
        return
    host = total.value - device.value
    steps = VERSIONS[version](problem, e.target).steps
    launches = [step for step in steps if isinstance(step, Launch)]
    under = [
        e.counter(version, "gpu__time_duration.sum", place, problem=problem)[problem] for place in range(len(launches))
    ]
    if not all(under):
        return
    shares = iter([each.value / sum(one.value for one in under) for each in under])
    for step in steps:
        if isinstance(step, Launch):
            rotates = step.kernel.name == "rotate_tokens"
            yield (f"rotation {str(step.args[0]).upper()}" if rotates else "attention"), device.value * next(shares)
        elif host > 0 and timer == SOURCE_TIMER:
            yield WAIT, host / (len(steps) - len(launches))


def _draw(axis: Axes, frame: pd.DataFrame) -> None:
    places = {(timer, name): 3.2 * i + j for i, timer in enumerate(CLOCKS) for j, name in enumerate(PAIR)}
    longest = frame["end_us"].max()
    for (timer, name), y in places.items():
        mine = frame[(frame["timer"] == timer) & (frame["version"] == PAIR[name])]
        for part in mine.itertuples():
            color = next(color for word, color in COLORS.items() if part.what.startswith(word))
            length = part.end_us - part.start_us
            axis.barh(y, length, left=part.start_us, height=0.72, color=color, edgecolor="white", lw=0.8)
        if len(mine):
            end = mine["end_us"].max()
            axis.text(end, y, f" {end:.3g} µs", va="center", fontsize=8.5, fontweight="bold")
        if name == next(iter(PAIR)):
            axis.text(0, y - 0.6, CLOCKS[timer], va="bottom", fontsize=8.5, color="0.35")
    axis.set_yticks(list(places.values()), [name for _, name in places], fontsize=8.5)
    axis.set_ylim(max(places.values()) + 0.5, -1.3)
    axis.set_xlim(0, longest * 1.25)
    axis.grid(visible=False)
