"""The one rule by which a measured number is held against a published one, and a claim gets its verdict.

README, chapters, ledger and figures ask here. A published ratio, or the range that was published, is

    reproduced       the interval lies within 10 % of it, and not beyond a tie on the other side of 1
    same direction   the interval lies on its side of 1, more than 3 % away
    no difference    one is published, and the interval lies within 3 % of 1
    not faster, not slower   one is published, and the interval reaches from a tie to the other side
    a difference     a tie is published, and the interval lies more than 3 % from 1
    opposite         the interval lies on the other side of 1, more than 3 % away
    undecided        the interval straddles these bounds, or there is none

A threshold holds, does not hold, or is straddled. A claim holds where every test of it holds, does not hold where none
does, and else holds in part; what is undecided takes "holds" to "holds in part". Two roles decide less. A `premise` is
what a claim takes for granted, such as the effect that it explains: where no premise holds, the claim does not. A
`figure` is a number stated along with it. Premises and figures that do not hold take "holds" to "holds in part"; alone
they do not make a claim hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from ..records.interval import TIE, Ratio, geometric_mean, mean

AGREE = 1.10  # within this factor of a published ratio it is reproduced

REPRODUCED, SAME_DIRECTION, NO_DIFFERENCE = "reproduced", "same direction", "no difference"
NOT_FASTER, NOT_SLOWER, A_DIFFERENCE, OPPOSITE = "not faster", "not slower", "a difference", "opposite"
UNTOLD = "undecided"

HOLDS, IN_PART, FAILS, UNDECIDED = VERDICTS = ("holds", "holds in part", "does not hold", "cannot be decided")
OUTCOMES = {  # of a comparison with a published ratio: what it says of a claim that states it
    REPRODUCED: HOLDS, SAME_DIRECTION: IN_PART, NO_DIFFERENCE: FAILS, NOT_FASTER: FAILS, NOT_SLOWER: FAILS,
    A_DIFFERENCE: FAILS, OPPOSITE: FAILS, UNTOLD: UNDECIDED,
}  # fmt: skip


class Undecided(Exception):
    """What is asked for cannot be had; the message says why."""


class NotMeasured(Undecided):
    """What is asked for could be had, and is not measured, counted or recorded yet."""


def interval(value: float | pd.Series) -> Ratio:
    """The mean over the processes and its 95 % interval; an exact number is its own.

    Raises: Undecided where no process has a value.
    """
    if not isinstance(value, pd.Series):
        return Ratio(*(float(value),) * 3)
    values = value.dropna().to_numpy(dtype=float)
    if not len(values):
        raise Undecided("no process measured all of it")
    return geometric_mean(values) if (values > 0).all() else mean(values)


def compare(low: float, high: float, measured: Ratio) -> str:
    """How a measured ratio stands to a published one, or to the range [low, high] that was published: see above."""
    if not measured.known:
        return UNTOLD
    faster, slower = low > TIE, high < 1 / TIE
    if (faster and measured.high < 1 / TIE) or (slower and measured.low > TIE):
        return OPPOSITE
    if low / AGREE <= measured.low and measured.high <= high * AGREE:
        return REPRODUCED
    if (faster and measured.low > TIE) or (slower and measured.high < 1 / TIE):
        return SAME_DIRECTION
    if not (faster or slower):
        return A_DIFFERENCE if measured.low > TIE or measured.high < 1 / TIE else UNTOLD
    if 1 / TIE <= measured.low and measured.high <= TIE:
        return NO_DIFFERENCE
    if faster and measured.high <= TIE:
        return NOT_FASTER
    return NOT_SLOWER if slower and measured.low >= 1 / TIE else UNTOLD


def stands(published: float | None, measured: Ratio | None) -> str:
    """How a measured speedup stands to a published one; empty where either is not there."""
    return "" if published is None or measured is None else compare(published, published, measured)


def within(low: float, high: float, measured: Ratio) -> str:
    """Whether an interval lies in [low, high]."""
    if not measured.known:
        return UNDECIDED
    if low <= measured.low and measured.high <= high:
        return HOLDS
    return FAILS if measured.high < low or measured.low > high else UNDECIDED


def _rounded(value: float, digits: int | None) -> float:
    return value if digits is None else float(f"{value:.{digits - 1}e}")


def decide(rule: str, bounds: Sequence[float], measured: Ratio, digits: int | None = None) -> str:
    """The outcome of one test, by the name of its rule: published, least, most, between or equals."""
    low, high = bounds[0], bounds[-1]
    if rule == "published":
        return OUTCOMES[compare(low, high, measured)]
    if rule == "equals":
        return within(low, high, Ratio(*(_rounded(value, digits) for value in measured)))
    return within(-math.inf if rule == "most" else low, math.inf if rule == "least" else high, measured)


def combine(outcomes: Iterable[tuple[str, str]]) -> str:
    """The verdict of a claim from the outcomes and the roles of its tests."""
    outcomes = list(outcomes)
    decided = [(outcome, role) for outcome, role in outcomes if outcome != UNDECIDED]
    premises = {outcome for outcome, role in decided if role == "premise"}
    tests = {outcome for outcome, role in decided if role == "test"}
    if premises == {FAILS} or tests == {FAILS}:
        return FAILS
    if not tests:
        return UNDECIDED
    return HOLDS if {outcome for outcome, _ in outcomes} == {HOLDS} else IN_PART
