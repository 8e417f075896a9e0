"""The three versions of one core that the map compares, and which of them is the fastest where all were timed."""

from kernels import Problem

from ..evidence import Estimate, Evidence
from ..measure.studies import FUSIONS

FULL, HYBRID, SEPARATE = FUSIONS
WORDS = {FULL: "full fusion", HYBRID: "hybrid", SEPARATE: "separate"}


def right(e: Evidence, study: str, problem: Problem, *versions: str) -> bool:
    """Whether the results of all these versions are right on a problem of a study."""
    checks = (e.study(study).check(version, problem) for version in versions)
    return all(check and check.status == "ok" for check in checks)


def times(e: Evidence, problem: Problem, study: str = "map") -> dict[str, Estimate]:
    """Microseconds of each of the family; empty where not all of it was timed, or is right."""
    found = {version: e.time(version, study=study, problem=problem)[problem] for version in FUSIONS}
    return found if all(found.values()) and right(e, study, problem, *FUSIONS) else {}


def problems(e: Evidence, study: str = "map") -> list[Problem]:
    """The problems of a study on which the whole family was timed."""
    return [problem for problem in e.study(study).problems("rope") if times(e, problem, study)]


def winners(e: Evidence, problem: Problem, study: str = "map") -> set[str]:
    """Of the family the fastest, and what ties with it."""
    taken = times(e, problem, study)
    if not taken:
        return set()
    least = min(taken, key=lambda version: taken[version].value)
    over = {version: us / taken[least] for version, us in taken.items() if version != least}
    return {least, *(version for version, ratio in over.items() if not ratio.side)}
