"""A question about the documents: what is measured for it, the written answer, and the comparisons that it makes.

    @question("contradictions", "baseline", asks="...", about=("B-07",), answer="... runs at {scalar} ...")
    def baseline(e):
        scalar = item("V5 over ...", e.speedup(...), printed=stated(DIMS, "N332", "N335", "N338"))
        return {"scalar": scalar}, every(scalar > 1.03)

Answers are written for the reference card. Their places: {item} is the range over the head dims with its unit,
{item[512]} the value at one, {item:printed} what the documents print, {card} the card.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..evidence import Comparison, Estimate, Estimates, Evidence
from ..evidence.known import NOT_MEASURED, Known
from ..record.text import span


@dataclass(frozen=True)
class Item:
    """One thing measured, by head dim, in a unit; and what the documents print for it."""

    what: str
    measured: Estimates
    unit: str = "×"
    printed: Estimates | None = None

    def __getitem__(self, hdim: int) -> Item:
        return self.at(hdim)

    def at(self, *hdims: int) -> Item:
        """The same at some head dims."""
        return Item(self.what, self.measured.at(*hdims), self.unit, self.printed and self.printed.at(*hdims))

    def near(self, share: float) -> Comparison:
        """Whether every value is within a share of what the documents print for it."""
        near = self.measured.within(share, self.printed).values
        return Comparison(near, near)

    def __gt__(self, other: float | Item) -> Comparison:
        return self.measured > (other.measured if isinstance(other, Item) else other)

    def __lt__(self, other: float | Item) -> Comparison:
        return self.measured < (other.measured if isinstance(other, Item) else other)

    def __format__(self, spec: str) -> str:
        shown = self.printed if spec == "printed" else self.measured
        if not shown:
            return (shown.why if shown is not None and shown.why else Known(NOT_MEASURED)).word
        return span(shown.values_known.values(), self.unit)


Items = dict[str, Item]


@dataclass(frozen=True)
class Settled:
    """A question with what the data of one card say to it."""

    question: Question
    e: Evidence
    items: Items
    holds: Comparison

    @property
    def numbers(self) -> dict[str, Any]:
        """What stands in the places of the answer."""
        return {"card": self.e.card, **self.items}

    @property
    def evidence(self) -> str:
        """The tables that it is from, for a caption."""
        about = [each.measured.about for each in self.items.values()]
        sources = dict.fromkeys(source for each in about for source in each.sources)
        stale = dict.fromkeys(version for each in about for version in each.stale)
        told = f" Stale, since the code has changed: {', '.join(stale)}." if stale else ""
        return f"From {', '.join(sources) or 'the shapes alone'}.{told}"


@dataclass(frozen=True)
class Question:
    """A question of a chapter, the claims that it is about, and the answer: one sentence, and the paragraph behind."""

    chapter: str
    id: str
    asks: str
    about: Sequence[str]
    answer: str
    because: str
    ask: Callable[[Evidence], tuple[Items, Comparison]]

    def settle(self, e: Evidence) -> Settled:
        items, holds = self.ask(e)
        return Settled(self, e, items, holds)


QUESTIONS: dict[tuple[str, str], Question] = {}
Ask = Callable[[Evidence], tuple[Items, Comparison]]


def question(
    chapter: str, id: str, *, asks: str, about: Sequence[str], answer: str, because: str
) -> Callable[[Ask], Ask]:
    """Register a question by its chapter and id."""

    def register(ask: Ask) -> Ask:
        QUESTIONS[chapter, id] = Question(chapter, id, asks, about, answer, because, ask)
        return ask

    return register


def item(
    what: str,
    measured: Estimates | Estimate | float,
    unit: str = "×",
    printed: Estimates | Estimate | None = None,
    hdim: int = 0,
) -> Item:
    """One thing measured; of a number `hdim` is where the table shows it, and what is printed may be one for all."""
    measured = measured if isinstance(measured, Estimates) else _fixed((hdim,), measured)
    stated = _fixed(measured, printed) if isinstance(printed, Estimate) else printed
    return Item(what, measured, unit, stated)


def _fixed(hdims: Sequence[int] | Mapping[int, Any], value: Estimate | float) -> Estimates:
    one = value if isinstance(value, Estimate) else Estimate.exact(value)
    return Estimates(dict.fromkeys(hdims, one))


def settle(chapter: str, e: Evidence) -> dict[str, Settled]:
    """The questions of a chapter, by their ids, with what the data of a card say to them."""
    return {id: each.settle(e) for (of, id), each in QUESTIONS.items() if of == chapter}
