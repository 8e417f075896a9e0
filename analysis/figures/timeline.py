"""What happens when during one call: kernels, and the host that waits and launches again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from kernels import VERSIONS, Problem
from kernels.version import Launch

from ..measure.studies import SOURCE_TIMER
from ..models import profiles
from ..records.files import gpu_folder
from ..records.measured import Measured
from ..tables.table import Missing
from .style import PALETTE, Plot, canvas, computed, counters_of, measured_in

PAIR = {"separate": "rope_separate", "hybrid V7": "rope_v7"}
CLOCKS = {SOURCE_TIMER: "the authors' clock", "device_warm": "the GPU alone"}
DIMS = (128, 2048)
ROTATES = "rotate_tokens"
WAIT = "host waits, launches again"
COLORS = {"attention": PALETTE[9], "kernels": PALETTE[9], "rotation": PALETTE[1], WAIT: "0.9"}
COLUMNS = ("hdim", "version", "timer", "what", "start_us", "end_us")


class Part(NamedTuple):
    what: str  # of COLORS
    name: str  # of what is rotated, or empty
    us: float


def timeline(evidence: Measured) -> Plot | Missing:
    """Separate kernels and V7 at two head dims, as the authors' loop times them and as the GPU does.

    The device's time is shared among the kernels of a call as under the profiler; what the loop takes longer is the
    host's, shared evenly among its waits.
    """
    rows = []
    for hdim in DIMS:
        for version in PAIR.values():
            problem = evidence.shapes(version).get(hdim)
            for timer in CLOCKS:
                at = 0.0
                for part in _parts(evidence, version, problem, timer) if problem else ():
                    rows.append((hdim, version, timer, f"{part.what} {part.name}".strip(), at, at + part.us))
                    at += part.us
    frame = pd.DataFrame(rows, columns=COLUMNS)
    drawn = [hdim for hdim in DIMS if hdim in set(frame["hdim"])]
    if not drawn:
        return Missing.study(str(evidence.run["study"]))
    card = evidence.card.removeprefix("NVIDIA ")
    ends = frame.groupby(["hdim", "version", "timer"], sort=False)["end_us"].max()
    device = ends.xs("device_warm", level="timer").unstack("version").reindex(columns=list(PAIR.values())).dropna()
    title = f"One call of separate kernels and of V7 on the {card}"
    if len(device) == len(DIMS) and (device["rope_v7"] > device["rope_separate"]).all():
        title = f"At published shapes V7 saves a wait, but no GPU time ({card})"
    with canvas(title, len(drawn), height=0.5 + 1.75 * len(drawn)) as (figure, axes):
        for axis, hdim in zip(axes, drawn):
            _draw(axis, frame[frame["hdim"] == hdim])
            axis.set_title(f"head dim {hdim}", loc="left", fontweight="bold", fontsize=9)
        axes[-1].set_xlabel("µs of one call; Q and K: the kernels that rotate them", loc="left")
    alt = "; ".join(f"{version} at {hdim}, {CLOCKS[timer]}: {us:.0f} µs" for (hdim, version, timer), us in ends.items())
    return Plot(
        "timeline",
        figure,
        "One call of separate kernels and of V7. The authors' clock includes each wait of the host and the launches "
        "after it; replayed as a CUDA graph, the kernels run back to back. The time that the host adds to a call is "
        "divided equally among its waits.",
        f"Timeline of one call: kernels in order, and the gaps in which the host waits. {alt}.",
        frame,
        measured_in(evidence) + counters_of(evidence) + computed("order by the plan"),
    )


def _parts(evidence: Measured, version: str, problem: Problem, timer: str) -> Iterator[Part]:
    """What one call does, in order; nothing where it was not timed."""
    device, total = (evidence.time(version, problem, each) for each in ("device_warm", timer))
    if device is None or total is None:
        return
    steps = VERSIONS[version](problem, evidence.target).steps
    launches = [step for step in steps if isinstance(step, Launch)]
    waits = len(steps) - len(launches)
    shares = _shares(evidence, version, problem)
    if len(shares) != len(launches):  # not profiled: all kernels as one, and all waits
        yield Part("kernels", "", device.us)
        if total.us > device.us:
            yield Part(WAIT, "", total.us - device.us)
        return
    left = iter(shares)
    for step in steps:
        if isinstance(step, Launch):
            rotates = step.kernel.name == ROTATES
            yield Part("rotation" if rotates else "attention", str(step.args[0]).upper() if rotates else "",
                       device.us * next(left))  # fmt: skip
        elif total.us > device.us and timer == SOURCE_TIMER:
            yield Part(WAIT, "", (total.us - device.us) / waits)


def _shares(evidence: Measured, version: str, problem: Problem) -> list[float]:
    """Of the time of a call under the profiler, that of each launch; empty where it was not profiled."""
    profiled = profiles.launches(gpu_folder(evidence.slug))
    mine = profiled[(profiled["version"] == version) & (profiled["study"] == evidence.run["study"])]
    times = mine[mine["problem"] == problem].sort_values("launch")["duration_ns"].astype(float)
    return [] if times.empty or times.isna().any() else list(times / times.sum())


def _draw(axis: Axes, frame: pd.DataFrame) -> None:
    rows = [(timer, name) for timer in CLOCKS for name in PAIR]
    longest = frame["end_us"].max()
    for y, (timer, name) in enumerate(rows):
        mine = frame[(frame["timer"] == timer) & (frame["version"] == PAIR[name])]
        for part in mine.itertuples():
            what = next(word for word in COLORS if part.what.startswith(word))
            width = part.end_us - part.start_us
            axis.barh(y, width, left=part.start_us, height=0.72, color=COLORS[what], edgecolor="white", lw=0.8)
            words = part.what.removeprefix("rotation ") if what == "rotation" else part.what
            if len(words) < 95 * width / longest:
                axis.text(part.start_us + width / 2, y, words, ha="center", va="center", fontsize=8)
        if len(mine):
            end = mine["end_us"].max()
            axis.text(end, y, f" {end:.3g} µs", va="center", fontsize=8.5, fontweight="bold")
    axis.set_yticks(range(len(rows)), [f"{name}, {CLOCKS[timer]}" for timer, name in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, longest * 1.09)
    axis.grid(visible=False)
