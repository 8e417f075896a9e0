"""How much of a ratio is the language: every port beside its control, the same kernels in CUDA C++."""

from __future__ import annotations

from collections.abc import Iterable

from kernels import Problem

from ..findings.language import ALIKE, controls, shapes
from ..records.interval import Ratio
from ..records.measured import Measured
from .table import NOTHING, Missing, Table, compared, lines, link, small

WHY_UNLIKE = {
    "rope_v3": """\
Their loops have the same statements in the same order; what makes them differ is not known.

<div class="reference-card">

On the reference card, NVIDIA H200, a control that loaded a pair of K before it computed the pair's sine and cosine was
faster than this version.

</div>""",
}


def _timed(evidence: Measured, ports: Iterable[str]) -> bool:
    control_of = controls()
    return any(evidence.time(control_of[port], problem) for port in ports for problem in shapes(port).values())


def _cell(evidence: Measured, port: str, problem: Problem | None) -> str:
    if problem is None:
        return NOTHING
    control = controls()[port]
    launched = evidence.ratio(control, port, problem, "launched")
    return lines(
        compared(evidence, control, port, problem), small(f"launched {launched.value:.2f}×") if launched else ""
    )


def language(evidence: Measured) -> Table | Missing:
    """The speed of each port over its control at each head dim, or that no control is measured."""
    control_of = controls()
    if not _timed(evidence, control_of):
        return Missing.study("control")
    dims = sorted({hdim for port in control_of for hdim in shapes(port)})
    rows = [
        (
            lines(link(port), small(f"over {link(control)}")),
            *(_cell(evidence, port, shapes(port).get(hdim)) for hdim in dims),
        )
        for port, control in control_of.items()
    ]
    header = ("version", *map(str, dims))
    caption = (
        "Speed of each version over its control in CUDA C++ by head dim, on the device, both of study `control`; above "
        "1 is faster."
    )
    return Table(header, rows, numbers=header[1:], caption=caption)


def beside_control(evidence: Measured | None, port: str) -> Table | None:
    """The speed of one port over its control by head dim; None where neither is measured."""
    if evidence is None or port not in controls() or not _timed(evidence, [port]):
        return None
    header = tuple(map(str, shapes(port)))
    row = tuple(_cell(evidence, port, problem) for problem in shapes(port).values())
    caption = "Speed over the control, on the device, by head dim; above 1 is faster."
    return Table(header, [row], numbers=header, caption=caption)


def why_unlike(evidence: Measured | None, port: str) -> str:
    """Why a port is more than 10 % faster or slower than its control somewhere; nothing where it is not."""
    if evidence is None or port not in controls() or all(map(_alike, _ratios(evidence, port))):
        return ""
    return WHY_UNLIKE.get(port, "Why the two differ by more than 10 % is not explained.")


def _ratios(evidence: Measured, port: str) -> list[Ratio]:
    problems = shapes(port).values()
    return [ratio for problem in problems if (ratio := evidence.ratio(controls()[port], port, problem))]


def _alike(ratio: Ratio) -> bool:
    return 1 / ALIKE < ratio.value < ALIKE
