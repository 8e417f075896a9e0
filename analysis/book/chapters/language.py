"""How much of a ratio is the language: every port beside its control, the same kernels in CUDA C++."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernels import VERSIONS, Problem
from kernels.checking.check import supports

from ...measure.studies import study
from ...records.interval import Ratio
from ...records.measured import Measured
from ...records.published import main_problems
from ...tables.table import NOTHING, Missing, Table, compared, lines, link, small

ALIKE = 1.1  # a port and its control whose times are nearer than this owe nothing to the language
WHY_UNLIKE = {
    "rope_v3": """\
Their loops have the same statements in the same order; what makes them differ is not known.

<div class="reference-card">

On the reference card, NVIDIA H200, a control that loaded a pair of K before it computed the pair's sine and cosine was
faster than this version.

</div>""",
}


def controls() -> dict[str, str]:
    """The control of each port that has one, in log order."""
    found = {version.control_of: version.id for version in VERSIONS.values() if version.control_of}
    return {name: found[name] for name in VERSIONS if name in found}


def shapes(port: str) -> dict[int, Problem]:
    """The published problem a head dim that a port takes: with RoPE the published rotary dim where it takes that."""
    version = VERSIONS[port]
    problems = (problem for problem in study("control").problems if problem.family == version.family)
    return {problem.hdim: problem for problem in main_problems(p for p in problems if supports(version, p))}


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


class Alike(NamedTuple):
    """How many problems were timed of a port and its control, and at how many the two are within 10 %."""

    timed: int
    alike: int

    @property
    def most(self) -> bool | None:
        """Whether at least nine in ten are; None where none was timed."""
        return self.alike >= 0.9 * self.timed if self.timed else None


def alike(evidence: Measured | None) -> Alike:
    ratios = [ratio for port in controls() for ratio in _ratios(evidence, port)] if evidence else []
    return Alike(len(ratios), sum(map(_alike, ratios)))


def _ratios(evidence: Measured, port: str) -> list[Ratio]:
    problems = shapes(port).values()
    return [ratio for problem in problems if (ratio := evidence.ratio(controls()[port], port, problem))]


def _alike(ratio: Ratio) -> bool:
    return 1 / ALIKE < ratio.value < ALIKE
