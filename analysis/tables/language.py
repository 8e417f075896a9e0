"""How much of a ratio is the language: every port beside its control, the same kernels in CUDA C++."""

from __future__ import annotations

from collections.abc import Iterable

from kernels import Problem

from ..evidence import Evidence
from ..findings.language import ALIKE, controls, shapes
from .table import NOTHING, Table, lines, small, speedup_cell

WHY_UNLIKE = {
    "rope_v3": """\
Their loops have the same statements in the same order; what makes them differ is not known.

<div class="reference-card">

On the reference card, NVIDIA H200, a control that loaded a pair of K before it computed the pair's sine and cosine was
faster than this version.

</div>""",
}


def _timed(e: Evidence, ports: Iterable[str]) -> bool:
    control_of = controls()
    return any(e.time(control_of[port], "control", problem=[*shapes(port).values()]) for port in ports)


def _cell(e: Evidence, port: str, problem: Problem | None) -> str:
    if problem is None:
        return NOTHING
    control = controls()[port]
    launched = e.speedup(port, control, "control", "launched", problem=problem)[problem]
    return lines(
        speedup_cell(e, port, control, problem, "control"),
        small(f"launched {launched.value:.2f}×") if launched else "",
    )


def beside_control(e: Evidence, port: str) -> Table | None:
    """The speed of one port over its control by head dim; None where neither is measured."""
    if port not in controls() or not _timed(e, [port]):
        return None
    header = tuple(map(str, shapes(port)))
    row = tuple(_cell(e, port, problem) for problem in shapes(port).values())
    caption = "Speed over the control, on the device, by head dim; above 1 is faster."
    return Table(header, [row], numbers=header, caption=caption)


def why_unlike(e: Evidence, port: str) -> str:
    """Why a port is more than 10 % faster or slower than its control somewhere; nothing where it is not."""
    if port not in controls():
        return ""
    found = e.speedup(port, controls()[port], "control", "device_warm", problem=[*shapes(port).values()])
    if all(1 / ALIKE < ratio < ALIKE for ratio in found.values_known.values()):
        return ""
    return WHY_UNLIKE.get(port, "Why the two differ by more than 10 % is not explained.")
