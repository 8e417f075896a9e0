"""The rules of when to fuse: how much faster full fusion is than its relatives, on some of the map's problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kernels import Problem

from ...models.advice import many_heads
from ...models.fusion import ALONE, FULL, LOSES, TIES, outcome, winners
from ...records.interval import TIE, Condition
from ...records.known import NOT_MEASURED
from ...records.measured import Measured
from ..findings import Speedups, why_none


class Gains(Speedups):
    """Speedups over one version by the problem's place."""

    @property
    def never_much_slower(self) -> Condition:
        """Whether it takes at most 6 % longer everywhere."""
        return self._all(lambda ratio: ratio.value > 1 / 1.06)

    @property
    def lost(self) -> int:
        """On how many this is slower, interval included."""
        return sum(ratio.high < 1 / TIE for ratio in self.by_hdim.values())

    @property
    def some_lost(self) -> bool | None:
        return self.lost > 0 if self.by_hdim else None

    @property
    def mostly_lost(self) -> bool | None:
        return 2 * self.lost > len(self) if self.by_hdim else None

    @property
    def worst(self) -> str:
        """The speedup of the other where this is slowest."""
        return f"{1 / min(ratio.value for ratio in self.by_hdim.values()):.2f}×" if self.by_hdim else self.why.word

    @property
    def problems(self) -> int:
        return len(self)

    def __len__(self) -> int:
        return len(self.by_hdim)


def gains(measured: Measured | None, over: str, of: Callable[[Problem], bool], version: str = FULL) -> Gains:
    """How much faster full fusion, or another version, is than one of its core, where both were timed right."""
    problems = [problem for problem in measured.problems("rope") if of(problem)] if measured else []
    found = {
        place: ratio
        for place, problem in enumerate(problems)
        if measured
        and all(check and check.status == "ok" for check in (measured.check(v, problem) for v in (over, version)))
        if (ratio := measured.ratio(over, version, problem))
    }
    return Gains(found) if found else Gains(why=why_none(measured, version))


class Outcomes(NamedTuple):
    """On how many problems full fusion is fastest, ties with the fastest, and loses, as the map's figure draws it."""

    won: int = 0
    tied: int = 0
    lost: int = 0

    def __str__(self) -> str:
        told = f"fastest on {self.won}, ties on {self.tied}, slower on {self.lost}"
        return told if self.problems else NOT_MEASURED

    @property
    def problems(self) -> int:
        return sum(self)

    @property
    def all_won(self) -> bool | None:
        return self.won == self.problems if self.problems else None

    @property
    def as_often_lost(self) -> bool | None:
        return self.lost >= self.won if self.problems else None

    @property
    def more_won(self) -> bool | None:
        return self.won > self.lost if self.problems else None

    @property
    def more_lost(self) -> bool | None:
        return self.lost > self.won if self.problems else None


def outcomes(measured: Measured | None, of: Callable[[Problem], bool]) -> Outcomes:
    """How full fusion does against the hybrid and separate kernels of its core, on some of the map's problems."""
    if measured is None:
        return Outcomes()
    fastest = [winners(measured, problem) for problem in measured.problems("rope") if of(problem)]
    counted = Counter(outcome(each) for each in fastest if each)
    return Outcomes(*(counted[each] for each in (ALONE, TIES, LOSES)))


def prefill(problem: Problem) -> bool:
    """Whether it has many heads, and more queries and keys than where full fusion is fastest."""
    return many_heads(problem) and problem.seq_q > 64 and max(problem.seq_q, problem.seq_k) > 256
