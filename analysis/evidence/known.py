"""Why there is no value, and the status of a version on a problem on one card, which is decided here alone.

    ok            it runs, and its result is right
    wrong         it runs, and its result is wrong as it declares
    infeasible    a block needs more shared memory than it could get
    unsupported   the version, or the card, does not take the problem
    failed        it should have run and did not, or its result is not what it declares: `error` in the data
    not measured  it could run here, and there is no row of it

A number that was measured and says nothing, such as a share of a gap that is none, is `undecided`.
"""

import functools
from typing import NamedTuple

from kernels import VERSIONS, Problem, Unsupported

OK, WRONG, INFEASIBLE, UNSUPPORTED, FAILED, NOT_MEASURED = WORDS = (
    "ok", "wrong", "infeasible", "unsupported", "failed", "not measured",
)  # fmt: skip
UNDECIDED = "undecided"
RAN = (OK, WRONG)
REFUSED = (INFEASIBLE, UNSUPPORTED)


class Known(NamedTuple):
    """One of `WORDS`, and why, where that has a reason."""

    word: str
    reason: str = ""

    @property
    def ran(self) -> bool:
        return self.word in RAN

    def __str__(self) -> str:
        return self.reason or self.word


class Undecided(Exception):
    """There is no such value; the message says why."""

    def __init__(self, reason: str, word: str = UNDECIDED) -> None:
        super().__init__(reason)
        self.why = Known(word, reason)


class NotMeasured(Undecided):
    """The value exists, and is not measured, counted or recorded yet."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, NOT_MEASURED)


def word(status: str) -> str:
    """The book's word for a status of the data."""
    return FAILED if status == "error" else status


@functools.cache
def planned(version: str, problem: Problem, target: str) -> Known:
    """The status of a version's plan for a target: refused, or not measured yet."""
    if version not in VERSIONS or VERSIONS[version].is_peer:
        return Known(NOT_MEASURED)
    try:
        VERSIONS[version](problem, target)
    except Unsupported as refusal:
        return Known(refusal.status, str(refusal))
    return Known(NOT_MEASURED)
