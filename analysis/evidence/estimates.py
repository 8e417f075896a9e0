"""A measured number with its 95 % interval, and such numbers by head dim or problem, with which to calculate.

A time is a `Sample`: values by process, and how each moves with the time of each version in it. Sums, products and
quotients of samples are formed process by process, and how they move follows by the chain rule. Between runs, a time
varies by half of what the ratio of two does, so the variance of any result follows from how it moves with the times.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..record.text import span
from ..record.timers import timer_of
from .compare import TIE, Comparison, every
from .interval import Pool, half_width, pool_of
from .known import NOT_MEASURED, UNDECIDED, Known

Numbers = TypeVar("Numbers", "Estimate", "Estimates")
Key = Any  # of a number: a head dim, a problem, or what else tells it from the others


class About(NamedTuple):
    """Sources of an estimate: tables, versions whose code has changed since, the versions and rows of published.csv
    that were asked about, and the problems, by their names."""

    sources: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __or__(self, other: About) -> About:
        return About(*(tuple(dict.fromkeys(mine + theirs)) for mine, theirs in zip(self, other)))


NOTHING = About()


@dataclass(frozen=True, eq=False)
class Sample:
    """Values by process of one or more runs, of the times of some versions; NaN where a process has none.

    `runs` names them; each has as many places in `values`.
    `moves` is the derivative of each value by the logarithm of the time of each version; `logs` are the mean logarithms
    of all the times.
    """

    runs: tuple[str, ...]
    values: np.ndarray
    moves: Mapping[str, np.ndarray]
    logs: tuple[float, ...]
    timer: str
    pools: Mapping[str, Pool]
    share: bool = False  # of a gap: may be near 0, or below, so that no logarithm is taken

    @property
    def measured(self) -> np.ndarray:
        """Whether each process has a value."""
        return ~np.isnan(self.values)

    def bounds(self) -> tuple[float, float, float]:
        """The mean of the runs and its interval: of logarithms where all values are positive and no shares."""
        pool = pool_of(self.pools, self.timer, math.exp(sum(self.logs) / len(self.logs)))
        there = self.values[self.measured]
        positive = bool((there > 0).all()) and not self.share
        values = np.where(self.measured, np.log(self.values) if positive else self.values, np.nan)
        by_run = [run[~np.isnan(run)] for run in values.reshape(len(self.runs), -1)]
        by_run = [run for run in by_run if len(run)]
        scale = there if positive else 1.0
        gain = sum(float((move[self.measured] / scale).mean()) ** 2 for move in self.moves.values()) / 2
        means, n, runs = np.array([run.mean() for run in by_run]), len(there), len(by_run)
        centre, half = float(means.mean()), math.nan
        if n > runs:
            variance = sum(((run - mean) ** 2).sum() for run, mean in zip(by_run, means)) / (n - runs)
            seen = means.var(ddof=1) if runs > 1 else 0.0
            half = float(half_width(variance, n, pool, gain, runs, seen))
        ends = centre, centre - half, centre + half
        return (math.exp(ends[0]), math.exp(ends[1]), math.exp(ends[2])) if positive else ends


Operation = Callable[[Any, Any], Any]
DERIVATIVES: Mapping[Operation, Callable[[Any, Any], tuple[Any, Any]]] = {  # of x and y: by x, and by y
    operator.add: lambda x, y: (1.0, 1.0),
    operator.sub: lambda x, y: (1.0, -1.0),
    operator.mul: lambda x, y: (y, x),
    operator.truediv: lambda x, y: (1.0 / y, -x / (y * y)),
    np.maximum: lambda x, y: (x >= y, x < y),
}


def _joined(operation: Operation, left: Sample | float, right: Sample | float) -> Sample:
    """The operation process by process, and its derivatives by the chain rule; of different runs, nothing has a value.
    """
    samples = [each for each in (left, right) if isinstance(each, Sample)]
    if len({each.runs for each in samples}) > 1:
        return replace(samples[0], runs=("",), values=np.array([np.nan]))
    x, y = (each.values if isinstance(each, Sample) else each for each in (left, right))
    moves: dict[str, np.ndarray] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        values = operation(x, y)
        for each, derivative in zip((left, right), DERIVATIVES[operation](x, y)):
            for version, move in each.moves.items() if isinstance(each, Sample) else ():
                moves[version] = moves.get(version, 0.0) + derivative * move
    return replace(
        samples[0],
        values=values,
        moves=moves,
        logs=tuple(log for each in samples for log in each.logs),
        timer=samples[0].timer if len({each.timer and timer_of(each.timer).pool for each in samples}) == 1 else "",
    )


def _calculates(operation: Operation, swap: bool = False) -> Callable[[Any, Any], Any]:
    return lambda self, other: self._with(operation, other, swap)


def _compares(above: bool, equal: bool = False) -> Callable[[Any, Any], Comparison]:
    return lambda self, bound: self._compared(bound, above, equal)


class Arithmetic:
    """Sums, products, quotients and comparisons, of a number or of several, by `_with` and `_compared`."""

    __add__, __radd__ = _calculates(operator.add), _calculates(operator.add, swap=True)
    __sub__, __rsub__ = _calculates(operator.sub), _calculates(operator.sub, swap=True)
    __mul__, __rmul__ = _calculates(operator.mul), _calculates(operator.mul, swap=True)
    __truediv__, __rtruediv__ = _calculates(operator.truediv), _calculates(operator.truediv, swap=True)
    __gt__, __ge__ = _compares(above=True), _compares(above=True, equal=True)
    __lt__, __le__ = _compares(above=False), _compares(above=False, equal=True)


@dataclass(frozen=True, eq=False)
class Estimate(Arithmetic):
    """A number and its 95 % interval, which is the number itself where it is exact; or NaN, and `why` there is none.

    Of a single process `low` and `high` are NaN.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    why: Known | None = None
    about: About = NOTHING
    sample: Sample | None = field(default=None, repr=False)

    @property
    def side(self) -> int:
        """Of a ratio: 1 above 1, -1 below it, and 0 of a tie, within 3 % of 1 or with an interval that reaches it."""
        tie = 1 / TIE <= self.value <= TIE or self.low <= 1 <= self.high
        return 0 if tie else 1 if self.value > 1 else -1

    @classmethod
    def exact(cls, value: float, *sources: str, **about: Any) -> Estimate:
        return cls(float(value), float(value), float(value), None, About(sources, **about))

    @classmethod
    def count(cls, value: float, of: Iterable[Estimate]) -> Estimate:
        """An exact number found in others, such as how many of them are above 1; it is from their tables."""
        about = functools.reduce(operator.or_, (each.about for each in of), NOTHING)
        return replace(cls.exact(value), about=about._replace(names=(), problems=()))

    @classmethod
    def none(cls, why: Known, about: About = NOTHING) -> Estimate:
        return cls(math.nan, why=why, about=about)

    @classmethod
    def of(cls, sample: Sample, about: About = NOTHING) -> Estimate:
        """From values by process."""
        if not sample.measured.any():
            return cls(math.nan, why=Known(UNDECIDED, "no process measured all of it"), about=about)
        value, low, high = sample.bounds()
        why = Known(UNDECIDED, "it has no value") if math.isnan(value) else None
        return cls(value, low, high, why, about, sample)

    def __bool__(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)

    @property
    def known(self) -> bool:
        """Whether it has an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    @property
    def as_share(self) -> Estimate:
        """The same as a share, which may be near 0 or below: no logarithm is taken of its values."""
        return Estimate.of(replace(self.sample, share=True), self.about) if self.sample else self

    def _with(self, operation: Operation, other: Any, swap: bool = False) -> Estimate:
        one = other if isinstance(other, Estimate) else Estimate.exact(other)
        left, right = (one, self) if swap else (self, one)
        about = left.about | right.about
        for each in (left, right):
            if each.why:
                return Estimate.none(each.why, about)
        if left.sample is None and right.sample is None:
            try:
                value = float(operation(left.value, right.value))
            except ZeroDivisionError:
                return Estimate.none(Known(UNDECIDED, "it divides by a count of zero"), about)
            return Estimate(value, value, value, None, about)
        return Estimate.of(_joined(operation, left.sample or left.value, right.sample or right.value), about)

    def _compared(self, bound: Any, above: bool, equal: bool = False) -> Comparison:
        other = bound if isinstance(bound, Estimate) else Estimate.exact(bound)
        if self.why or other.why:
            return Comparison(None, None, None)

        def beyond(mine: float, limit: float) -> bool:
            return (mine > limit if above else mine < limit) or (equal and mine == limit)

        intervals = beyond(self.low, other.high) if above else beyond(self.high, other.low)
        reach, limit = (self.high, other.low) if above else (-self.low, -other.high)
        possible = not (reach < limit or (reach == limit and not equal))
        held = beyond(self.value, other.value)
        return Comparison(held, intervals, possible, () if held else (self._against(other, above),))

    def _against(self, other: Estimate, above: bool) -> str:
        """A comparison that does not hold, with what it found, for a reader."""
        told = f"{' and '.join(self.about.names)} at {self.about.problems[-1]}: " if self.about.problems else ""
        return f"{told}{self.value:.3g}, not {'above' if above else 'below'} {other.value:.3g}"

    def __format__(self, spec: str) -> str:
        return format(Estimates({"": self}), spec)


def maximum(*values: Numbers) -> Numbers:
    """The largest of some numbers, process by process, and key by key of several."""
    return functools.reduce(lambda left, right: left._with(np.maximum, right), values)


class Estimates(Arithmetic, dict[Key, Estimate]):
    """Numbers by head dim or problem; `unit` is theirs, for prose: "×", "%" (of shares from 0 to 1), "µs", "".

    Sums, products, quotients and comparisons are formed key by key, with a number or with Estimates of the same keys. A
    key that is not there is not measured.
    """

    def __init__(self, by_key: Mapping[Key, Estimate], unit: str = "", why: Known | None = None) -> None:
        super().__init__(by_key)
        self.unit = unit
        self._why = why

    def __missing__(self, key: Key) -> Estimate:
        return Estimate.none(self._why or Known(NOT_MEASURED))

    def __bool__(self) -> bool:
        """Whether there is any value."""
        return bool(self.values_known)

    @property
    def values_known(self) -> dict[Key, float]:
        return {key: each.value for key, each in self.items() if each}

    @property
    def why(self) -> Known | None:
        """Why there is no value, of the first that has none; None where all have."""
        return next((each.why for each in self.values() if each.why), None if len(self) else self._why)

    def at(self, *keys: Key) -> Estimates:
        return Estimates({key: self[key] for key in keys}, self.unit, self._why)

    @property
    def known(self) -> Estimates:
        """Those that have a value."""
        return Estimates({key: each for key, each in self.items() if each}, self.unit, self.why)

    @property
    def slowest(self) -> Estimates:
        return self._extreme(min)

    @property
    def fastest(self) -> Estimates:
        return self._extreme(max)

    def _extreme(self, pick: Callable[..., Key]) -> Estimates:
        known = self.values_known
        return self.at(pick(known, key=known.__getitem__)) if known else self

    def _with(self, operation: Operation, other: Any, swap: bool = False) -> Estimates:
        unit = self._unit(operation, other, swap)
        if not isinstance(other, Estimates):
            return Estimates({key: each._with(operation, other, swap) for key, each in self.items()}, unit, self._why)
        if set(other) != set(self) and len(self) and len(other):
            raise ValueError(f"different keys: {', '.join(map(str, self))} and {', '.join(map(str, other))}")
        found = {key: self[key]._with(operation, other[key], swap) for key in self}
        return Estimates(found, unit, self._why or other._why)

    def _unit(self, operation: Operation, other: Any, swap: bool) -> str:
        if operation is operator.mul and isinstance(other, Estimates):
            return ""
        if operation is operator.truediv and isinstance(other, Estimates):
            return "×" if other.unit == self.unit else ""
        return "" if operation is operator.truediv and swap and self.unit != "×" else self.unit

    def measured_in(self, unit: str) -> Estimates:
        return Estimates(self, unit, self._why)

    def _compared(self, bound: Any, above: bool, equal: bool = False) -> Comparison:
        """Key by key, or each with each where the keys differ."""
        if isinstance(bound, Estimates) and set(bound) == set(self):
            pairs = [(each, bound[key]) for key, each in self.items()]
        else:
            bounds = list(bound.values()) if isinstance(bound, Estimates) else [bound]
            pairs = [(each, one) for each in self.values() for one in bounds]
        words = [next((w.word for w in (getattr(each, "why", None) for each in pair) if w), "") for pair in pairs]
        counted = [pair for pair, word in zip(pairs, words) if word in ("", NOT_MEASURED)]
        return every(*(one._compared(other, above, equal) for one, other in counted))

    def within(self, share: float, other: Any) -> Comparison:
        """Whether each value is within a share of another, such as of what is published."""
        ratio = self / other
        return every(ratio > 1 - share, ratio < 1 + share)

    def __format__(self, spec: str) -> str:
        """The range of the values with their unit, "0.75–0.95×"; why there is none where there is none.

        "slower" is how much longer a speedup says it takes, "6–34 %", "faster" how much faster, "%" per cent of a share
        and ".1" the number of decimals.
        """
        values = list(self.values_known.values())
        if not values:
            return (self.why or Known(NOT_MEASURED)).word
        if spec == "slower":
            return span([100 / value - 100 for value in values], "%", 0)
        if spec == "faster":
            return span([100 * value - 100 for value in values], "%", 0)
        digits = int(spec[1:]) if spec.startswith(".") else None
        if self.unit == "%" or spec == "%":
            return span([100 * value for value in values], "%", digits or 0)
        return span(values, self.unit, 2 if self.unit == "×" and digits is None else digits)
