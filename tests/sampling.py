"""Sweeps that would take minutes: a sample that is the same every time, and all of a sweep on demand.

A sweep lists all of its cases. `make test` runs a few of them, `make test-deep` more, `make test-deep WHOLE=1` all.
"""

import random
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

SEED = 39


def sample(
    cases: Iterable[tuple], count: int, seed: int = SEED, by: Callable[[tuple], Hashable] | None = None
) -> list[tuple]:
    """`count` of the cases in a random order: one case of each group `by` first, where that is given."""
    order = list(cases)
    random.Random(seed).shuffle(order)
    if by:
        first: dict[Hashable, int] = {}
        for place, case in enumerate(order):
            first.setdefault(by(case), place)
        order = [order[place] for place in first.values()] + [
            case for place, case in enumerate(order) if first[by(case)] != place
        ]
    return order[:count]


def swept(cases: Iterable[tuple], quick: int, deep: int, by: Callable[[tuple], Hashable] | None = None) -> list[Any]:
    """Parameters of a test: of a sample, the first `quick` cases run by default, `deep` more with -m deep."""
    order = sample(cases, 10**9, by=by)
    marks = [()] * quick + [pytest.mark.deep] * deep + [(pytest.mark.deep, pytest.mark.whole)] * len(order)
    return [pytest.param(*case, marks=mark) for case, mark in zip(order, marks)]


def named(item: object) -> str:
    """The id of a parameter: that of a version, else its text."""
    return getattr(item, "id", str(item))
