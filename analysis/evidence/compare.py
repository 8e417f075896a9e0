"""Comparisons of numbers with bounds, by their values and by their intervals; within 3 % of 1 a ratio is a tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TIE = 1.03  # ratios this near to 1 are no difference


@dataclass(frozen=True)
class Comparison:
    """How numbers compare with a bound: whether all of their values lie beyond it, whether all intervals do, and
    whether it is possible, as no interval lies on the other side.

    None where one of them is not measured and no other contradicts; one that cannot be, such as of a version that is
    refused, counts only where there is no other. `failed` tells of those whose values do not.
    """

    values: bool | None
    intervals: bool | None
    possible: bool | None
    failed: tuple[str, ...] = ()

    @classmethod
    def exact(cls, held: bool | None) -> Comparison:
        """Of numbers without an interval."""
        return cls(held, held, held)

    def __bool__(self) -> bool:
        raise TypeError("a comparison is joined by every(), and asked for its values or intervals")


def every(*comparisons: Comparison) -> Comparison:
    """Whether all of them hold."""

    def joint(found: Sequence[bool | None]) -> bool | None:
        return False if False in found else None if None in found or not found else True

    return Comparison(
        joint([c.values for c in comparisons]),
        joint([c.intervals for c in comparisons]),
        joint([c.possible for c in comparisons]),
        tuple(dict.fromkeys(told for c in comparisons for told in c.failed)),
    )


# Of an estimate, or of several.


def between(low: Any, measured: Any, high: Any) -> Comparison:
    return every(measured >= low, measured <= high)


def faster(gain: Any) -> Comparison:
    return gain > TIE


def slower(gain: Any) -> Comparison:
    return gain < 1 / TIE


def not_faster(gain: Any) -> Comparison:
    return gain < TIE


def not_slower(gain: Any) -> Comparison:
    return gain > 1 / TIE


def ties(gain: Any) -> Comparison:
    return every(not_slower(gain), not_faster(gain))
