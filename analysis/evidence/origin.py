"""Where the numbers of a figure or table are from: measured, computed or published, on which card and in which runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..record import published
from .evidence import Evidence

Kind = Literal["measured", "computed", "published"]
STAMP = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)T")  # how a run's name and a time of measuring begin


@dataclass(frozen=True)
class Run:
    """A measuring run, or rows that were measured at one commit and have no run. What is not known is empty."""

    name: str = ""
    commit: str = ""
    measured_at: str = ""

    @property
    def date(self) -> str:
        """The day, `"2026-11-22"`, which the run's name holds."""
        found = STAMP.match(self.measured_at or self.name)
        return "-".join(found.groups()) if found else ""

    def __str__(self) -> str:
        return ", ".join(f"{word} {value}" for word, value in (("run", self.name), ("commit", self.commit)) if value)


@dataclass(frozen=True)
class Part:
    """Numbers of one kind. `words` says what they are; the card is empty where no card is involved."""

    kind: Kind
    words: str
    card: str = ""
    runs: tuple[Run, ...] = ()

    def __str__(self) -> str:
        return ", ".join([self.words, " and ".join(map(str, self.runs))] if any(map(str, self.runs)) else [self.words])

    @property
    def brief(self) -> str:
        """As it is said inside an image: the card, and the run or, of several, between which days."""
        if self.kind != "measured":
            return self.words
        days = sorted({run.date for run in self.runs} - {""})
        if len(self.runs) == 1 and self.runs[0].name:
            return f"{self.words}, run {self.runs[0].name}"
        return ", ".join([self.words, *([" to ".join(dict.fromkeys((days[0], days[-1])))] if days else [])])


@dataclass(frozen=True)
class Source:
    """The parts that the numbers of a figure or table are from; `a + b` joins two, and each part is named once."""

    parts: tuple[Part, ...] = ()

    def __add__(self, other: Source) -> Source:
        return Source(tuple(dict.fromkeys(self.parts + other.parts)))

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))

    @property
    def brief(self) -> str:
        return "; ".join(part.brief for part in self.parts)

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(dict.fromkeys(run for part in self.parts for run in part.runs))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(part.kind for part in self.parts))


def _measured(card: str, runs: Iterable[Mapping[str, Any]], words: str) -> Source:
    first: dict[tuple[str, str], str] = {}  # of rows measured at one commit, the day of the first
    for run in runs:
        key, at = (str(run.get("run") or ""), str(run.get("commit") or "")), str(run.get("measured_at") or "")
        first[key] = min(first.get(key, at), at)
    return Source((Part("measured", words, card, tuple(Run(*key, at) for key, at in sorted(first.items()))),))


def measured_on(card: str, runs: Iterable[Mapping[str, Any]]) -> Source:
    """Measured on a card. `runs` are rows of runs.csv, or other rows with a commit and a time of measuring."""
    return _measured(card, runs, f"measured on {card}")


def measured(e: Evidence, *studies: str) -> Source:
    """Measured on a card, in the latest complete runs of these studies."""
    return measured_on(e.card, [study.run for name in studies if (study := e.study(name))])


def counters_of(evidence: Evidence, runs: Iterable[str] = ()) -> Source:
    """Hardware counters of a card, read in these runs."""
    return _measured(evidence.card, [{"run": run} for run in dict.fromkeys(runs)], f"counters of {evidence.card}")


def published_on(family: str) -> Source:
    """Published by the documents for the card of a family."""
    return published_for(published.card(family))


def published_for(card: str) -> Source:
    """Published by the documents for a card; nothing where none is named."""
    return Source((Part("published", f"published for {card}", card),) if card else ())


def computed(words: str) -> Source:
    """Neither measured nor published: counted, fitted, drawn."""
    return Source((Part("computed", words),))


COUNTED = computed("counted in the emulator")
DECIDED = computed("decided by one rule from all that is recorded of the card")
