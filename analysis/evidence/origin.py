"""Where the numbers of a figure or table are from: measured, computed or published, on which card and in which runs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..record import published
from ..record.text import short_commit
from .evidence import Evidence


class Run(NamedTuple):
    """A measuring run, whose name begins with its day; the commit is empty where it is not known."""

    name: str
    commit: str = ""

    @property
    def date(self) -> str:
        return f"{self.name[:4]}-{self.name[4:6]}-{self.name[6:8]}"

    def __str__(self) -> str:
        return f"run {self.name}" + f", commit {self.commit}" * bool(self.commit)


class Part(NamedTuple):
    """Numbers of one kind. Measured ones have a card and runs."""

    words: str
    card: str = ""
    runs: tuple[Run, ...] = ()
    studies: tuple[tuple[str, float], ...] = ()  # with the seconds that each took

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.words, " and ".join(map(str, self.runs)))))

    @property
    def brief(self) -> str:
        """As it is said inside an image: with the day or, of several runs, the first and the last."""
        days = sorted({run.date for run in self.runs})
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
    """Measured on a card. `runs` are rows of runs, or other rows with a run and, where it is known, a commit."""
    found = sorted({Run(str(run["run"]), short_commit(str(run.get("commit") or ""))) for run in runs})
    return Source((Part(words or f"measured on {card}", card, tuple(found)),))


def measured(e: Evidence, *studies: str, of: Collection[str] = ()) -> Source:
    """Measured on a card, in the complete runs of these studies whose rows, `of` these versions or of all, count."""
    found = dict.fromkeys(name for name in studies if e.study(name))
    (part,) = measured_on(e.card, [run for name in found for run in e.study(name).counted(of)]).parts
    return Source((part._replace(studies=tuple((name, float(e.study(name).run["seconds"])) for name in found)),))


def counters_of(e: Evidence, runs: Iterable[str] = ()) -> Source:
    """Hardware counters of a card, read in these runs."""
    return measured_on(e.card, [{"run": run} for run in runs], f"counters of {e.card}")


def published_on(family: str) -> Source:
    """Published by the documents for the card of a family; nothing where none is named."""
    card = published.card(family)
    return Source((Part(f"published for {card}"),) if card else ())


def computed(words: str) -> Source:
    """Neither measured nor published: counted, fitted, drawn."""
    return Source((Part(words),))


COUNTED = computed("counted in the emulator")
DECIDED = computed("decided by one rule from all that is recorded of the card")
