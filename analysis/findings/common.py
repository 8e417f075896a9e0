"""What several chapters ask of the evidence."""

from collections.abc import Sequence

from kernels import VERSIONS

from ..evidence import Estimate, Estimates, Evidence
from ..measure.studies import STUDIES
from ..record import published


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
