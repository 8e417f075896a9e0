"""What several chapters ask of the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernels import VERSIONS

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..measure.studies import STUDIES
from ..models.fusion import right as right
from ..record import published


def versions(e: Evidence, family: str, study: str = "log") -> list[str]:
    """The measured versions of a family, in log order."""
    return e.study(study).versions(family)


def times(gain: Estimates) -> Estimates:
    """The same as prose has it: `{gain:.1} as fast`, "1.4 times as fast"."""
    return gain.measured_in("times")


def across(e: Evidence, version: str, over: str, study: str = "", hdim: Sequence[int] = ()) -> Estimates:
    """How many times as fast as a version on another problem a version is, each at its own of the documents' shapes."""
    slow, fast = (e.time(name, study=study, hdim=hdim) for name in (over, version))
    return slow / fast


def printed(version: str, over: str | None = None, hdim: Sequence[int] = ()) -> Estimates:
    """The speedups over a version, its baseline by default, that the documents and their logs print, by head dim."""
    family, over = VERSIONS[version].family, over or VERSIONS[version].baseline
    problems = published.main_problems(p for p in STUDIES["log"].problems if p.family == family)
    found = {p.hdim: published.speedup(version, over, p) for p in problems}
    exact = {key: Estimate.exact(each.value) for key, each in found.items() if each}
    return Estimates(exact, "×").at(*(hdim or exact))


class Peer(NamedTuple):
    """The fastest of PyTorch's ways, and how many times as fast as it a version is, by head dim."""

    name: str
    over: Estimates


def fastest_peer(e: Evidence, version: str, hdim: int, study: str = "log") -> Peer:
    """The fastest peer with a right result, at the documents' shape. Raises: NotMeasured where none was timed."""
    found, problem = e.study(study), e.study(study).shapes(version).get(hdim)
    if problem is None:
        raise NotMeasured(f"{version} was not measured at head dim {hdim}")
    names = found.versions(VERSIONS[version].family, peers=True)
    names = [name for name in names if right(e, study, problem, name)]
    times = {name: us.value for name in names if (us := e.time(name, study=study, problem=problem)[problem])}
    if not times:
        raise NotMeasured(f"no peer of {version} was timed at head dim {hdim}")
    name = min(times, key=times.__getitem__)
    over = e.speedup(version, over=name, study=study, problem=problem)
    return Peer(name, Estimates({hdim: over[problem]}, over.unit))
