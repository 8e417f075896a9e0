"""The three versions of one core that the map compares, and which of them is the fastest where all were timed."""

from __future__ import annotations

from kernels import Problem

from ..measure.studies import FUSIONS
from ..records.interval import TIE
from ..records.measured import Measured

FULL, HYBRID, SEPARATE = FUSIONS
WORDS = {FULL: "full fusion", HYBRID: "hybrid", SEPARATE: "separate"}
ALONE, TIES, LOSES = "full fusion is fastest", "full fusion ties", "hybrid or separate is faster"


def times(evidence: Measured, problem: Problem) -> dict[str, float]:
    """Microseconds of each of the family whose result is right; empty where not all of it was timed."""
    found = {}
    for version in FUSIONS:
        check, taken = evidence.check(version, problem), evidence.time(version, problem)
        if check and check.status == "ok" and taken:
            found[version] = taken.us
    return found if len(found) == len(FUSIONS) else {}


def problems(evidence: Measured) -> list[Problem]:
    """Problems on which the whole family was timed."""
    return [problem for problem in evidence.problems("rope") if times(evidence, problem)]


def winners(evidence: Measured, problem: Problem) -> set[str]:
    """Of the family the fastest, and what ties with it: within 3 %, or with an interval of the ratio that reaches 1.

    Nothing where not all of it was timed in one process.
    """
    taken = {version: evidence.time(version, problem) for version in FUSIONS}
    timed = {version: each.us for version, each in taken.items() if each}
    if len(timed) < len(FUSIONS):
        return set()
    best = min(timed, key=lambda version: timed[version])
    ratios = {version: evidence.ratio(version, best, problem) for version in FUSIONS}
    if not all(ratios.values()):
        return set()
    return {version for version, ratio in ratios.items() if ratio and (ratio.value < TIE or ratio.low <= 1)}


def outcome(fastest: set[str]) -> str:
    """How full fusion does where these versions are the fastest, ties among them."""
    return LOSES if FULL not in fastest else ALONE if fastest == {FULL} else TIES


def regime(problem: Problem) -> str:
    """What kind of problem it is, for tables."""
    if problem.seq_q <= 16:
        return "few queries"
    if problem.seq_q >= 256:
        return "many queries"
    return "short, many heads" if problem.batch * problem.heads >= 32 else "short, few heads"


REGIMES = ("few queries", "short, few heads", "short, many heads", "many queries")
