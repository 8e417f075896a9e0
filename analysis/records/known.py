"""What is known of a version on a problem on one card: the one place that tells a refusal, a failure and no row apart.

    ok            it runs, and its result is right
    wrong         it runs, and its result is wrong as it declares
    infeasible    a block needs more shared memory than it could get
    unsupported   the version, or the card, does not take the problem
    failed        it should have run and did not, or its result is not what it declares: `error` in the data
    not measured  it could run here, and there is no row of it

Tables, figures and sentences ask here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

from kernels import VERSIONS, Problem, Unsupported
from kernels.runtime.compile import require_target

from .current import current
from .files import RESOURCES, read_records
from .measured import Measured

OK, WRONG, INFEASIBLE, UNSUPPORTED, FAILED, NOT_MEASURED = WORDS = (
    "ok", "wrong", "infeasible", "unsupported", "failed", "not measured",
)  # fmt: skip
RAN = (OK, WRONG)
REFUSED = (INFEASIBLE, UNSUPPORTED)


class Known(NamedTuple):
    """One of `WORDS`, and why, where that has a reason."""

    word: str
    reason: str = ""

    @property
    def ran(self) -> bool:
        return self.word in RAN


def word(status: str) -> str:
    """What the book calls a status of the data."""
    return FAILED if status == "error" else status


def known(evidence: Measured, version: str, problem: Problem) -> Known:
    """What is known: what the check found, and where there is none, what the version's plan for this card says."""
    check = evidence.check(version, problem)
    return Known(word(check.status), check.reason) if check else _planned(version, problem, evidence.target)


@functools.cache
def _assembled() -> dict[str, set[str]]:
    """The targets that the code of a version is known to be assembled for, as it stands: to ask again takes minutes."""
    targets: dict[str, set[str]] = {}
    for row in current(read_records(RESOURCES, "resources")):
        targets.setdefault(row["version"], set()).add(row["target"])
    return targets


@functools.cache
def _planned(version: str, problem: Problem, target: str) -> Known:
    if version not in VERSIONS or VERSIONS[version].is_peer:
        return Known(NOT_MEASURED)
    try:
        plan = VERSIONS[version](problem, target)
        if target not in _assembled().get(version, ()):
            for launch in plan.launches:
                require_target(launch, target)
    except Unsupported as refusal:
        return Known(refusal.status, str(refusal))
    return Known(NOT_MEASURED)


def best(evidence: Measured, version: str, problems: Iterable[Problem]) -> Known:
    """What is known at the problem of which most is: where a version runs at none, why it does not."""
    found = [known(evidence, version, problem) for problem in problems]
    return min(found, key=lambda each: WORDS.index(each.word), default=Known(NOT_MEASURED))
