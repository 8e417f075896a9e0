"""Where the numbers of a figure or table are from: measured, computed or published, on which card and in which runs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..record import published
from .evidence import Evidence

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
    """Numbers of one kind: measured, computed or published. The card is empty where no card is involved."""

    kind: str
    words: str
    card: str = ""
    runs: tuple[Run, ...] = ()

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.words, " and ".join(filter(None, map(str, self.runs))))))

    @property
    def brief(self) -> str:
        """As it is said inside an image: the card, and the run or, of several, between which days."""
        if self.kind != "measured":
            return self.words
        if len(self.runs) == 1 and self.runs[0].name:
            return f"{self.words}, run {self.runs[0].name}"
        days = sorted({run.date for run in self.runs} - {""})
        return ", ".join([self.words, *([" to ".join(dict.fromkeys((days[0], days[-1])))] if days else [])])


@dataclass(frozen=True)
class Source:
    """The parts that the numbers of a figure or table are from; `a + b` joins two, and each part is named once."""

    parts: tuple[Part, ...] = ()

    def __add__(self, other: "Source") -> "Source":
        return Source(tuple(dict.fromkeys(self.parts + other.parts)))

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))

    @property
    def brief(self) -> str:
        return "; ".join(part.brief for part in self.parts)

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(dict.fromkeys(run for part in self.parts for run in part.runs))


def measured_on(card: str, runs: Iterable[Mapping[str, Any]], words: str = "") -> Source:
    """Measured on a card. `runs` are rows of runs, or other rows with a commit and a time of measuring."""
    first: dict[tuple[str, str], str] = {}  # of rows measured at one commit, the day of the first
    for run in runs:
        key, at = (str(run.get("run") or ""), str(run.get("commit") or "")), str(run.get("measured_at") or "")
        first[key] = min(first.get(key, at), at)
    found = tuple(Run(*key, at) for key, at in sorted(first.items()))
    return Source((Part("measured", words or f"measured on {card}", card, found),))


def measured(e: Evidence, *studies: str) -> Source:
    """Measured on a card, in the latest complete runs of these studies."""
    return measured_on(e.card, [study.run for name in studies if (study := e.study(name))])


def counters_of(e: Evidence, runs: Iterable[str] = ()) -> Source:
    """Hardware counters of a card, read in these runs."""
    return measured_on(e.card, [{"run": run} for run in runs], f"counters of {e.card}")


def published_on(family: str) -> Source:
    """Published by the documents for the card of a family; nothing where none is named."""
    card = published.card(family)
    return Source((Part("published", f"published for {card}", card),) if card else ())


def computed(words: str) -> Source:
    """Neither measured nor published: counted, fitted, drawn."""
    return Source((Part("computed", words),))


COUNTED = computed("counted in the emulator")
DECIDED = computed("decided by one rule from all that is recorded of the card")
