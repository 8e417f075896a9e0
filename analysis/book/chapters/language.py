"""How much of a ratio is the language: every port beside its control, the same kernels in CUDA C++."""

from __future__ import annotations

from kernels import VERSIONS, Problem
from kernels.checking.check import supports

from ...measure.studies import study
from ...records.measured import Measured
from ...records.published import main_problems
from ..table import NOTHING, Missing, Table, compared, lines, link, small


def controls() -> dict[str, str]:
    """The control of each port that has one, in log order."""
    found = {version.control_of: version.id for version in VERSIONS.values() if version.control_of}
    return {name: found[name] for name in VERSIONS if name in found}


def shapes(port: str) -> dict[int, Problem]:
    """The published problem a head dim that a port takes: with RoPE the published rotary dim where it takes that."""
    version = VERSIONS[port]
    problems = (problem for problem in study("control").problems if problem.family == version.family)
    return {problem.hdim: problem for problem in main_problems(p for p in problems if supports(version, p))}


def language(evidence: Measured) -> Table | Missing:
    """The speed of each port over its control at each head dim, or that no control is measured."""
    control_of = controls()
    ports = {port: shapes(port) for port in control_of}
    timed = any(evidence.time(control_of[port], problem) for port in ports for problem in ports[port].values())
    if not timed:
        return Missing.study("control")
    dims = sorted({hdim for problems in ports.values() for hdim in problems})

    def cell(port: str, problem: Problem | None) -> str:
        if problem is None:
            return NOTHING
        control = control_of[port]
        launched = evidence.ratio(control, port, problem, "launched")
        on_device = compared(evidence, control, port, problem)
        return lines(on_device, small(f"launched {launched.value:.2f}×") if launched else "")

    rows = [
        (lines(link(port), small(f"over {link(control_of[port])}")), *(cell(port, problems.get(hdim)) for hdim in dims))
        for port, problems in ports.items()
    ]
    header = ("version", *map(str, dims))
    caption = "Speed of each version over its control in CUDA C++ by head dim, on the device; above 1 is faster."
    return Table(header, rows, numbers=header[1:], caption=caption)
