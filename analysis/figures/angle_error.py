"""How far the sine of an angle is off, by position."""

from __future__ import annotations

import pandas as pd

from ..evidence.origin import computed
from ..models.angles import HALF_TURNS, RADIANS, ROTARY_DIM
from .style import PALETTE, Plot, canvas, log_ticks

LABELS = {RADIANS: ("angle in float32", PALETTE[1], "s"), HALF_TURNS: ("half turns, V8", PALETTE[0], "o")}


def angle_error(frame: pd.DataFrame) -> Plot:
    """The largest errors of `angles.errors_by_position`."""
    frame = frame.assign(error=[float(f"{error:.3g}") for error in frame["error"]])  # as on every machine
    with canvas("An angle in float32 drifts with position; half turns do not", height=3.4) as (figure, (axis,)):
        for way, (label, color, marker) in LABELS.items():
            mine = frame[frame["way"] == way]
            axis.plot(mine["position"], mine["error"], color=color, marker=marker, ms=4)
            place = tuple(mine.iloc[len(mine) // 2][["position", "error"]])
            axis.annotate(label, place, (0, 12), textcoords="offset points", ha="right", color=color, fontsize=9)
        log_ticks(axis, "x", 1, frame["position"].max())
        log_ticks(axis, "y", frame["error"].min(), frame["error"].max())
        axis.set(xlabel="position", ylabel="largest error of sin or cos")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return Plot(
        "angle-error",
        figure,
        f"Computed against float64, over the {ROTARY_DIM // 2} pairs of a rotary dim of {ROTARY_DIM}. Angle in "
        "float32: position times frequency, as the log's versions and float32 tables have it; their sines add errors "
        "of their own. Half turns: the function of V8's kernel, run in the emulator.",
        "Lines of the largest error by position, up to a million: that of angles in float32 grows with position.",
        frame,
        computed("computed against float64"),
    )
