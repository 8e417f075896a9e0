"""Questions of the chapters: what the data of a GPU say to them, and the written answer that follows.

data/questions.yml holds each question with what is measured for it, its answers with their conditions, and the reasons;
its head describes the words.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

from kernels import VERSIONS

from ..records import published
from ..records.files import DATA, DataError, gpu_folder, is_reference
from ..records.interval import Ratio
from ..records.measured import Measured
from ..records.text import beside, number, span
from . import claims
from .expressions import check_expression, evaluate, measure, names_in, rows_in, versions_in
from .facts import Facts
from .rule import NotMeasured, Undecided, interval

QUESTIONS = DATA / "questions.yml"
CHAPTERS = ("contradictions", "causes")
NOT_YET = "not measured on this GPU yet"
OPEN = f"Open: {NOT_YET}"
DIFFERS = "Differs from the reference: no answer with a condition holds here, and the table has what was measured"
OF_A_CARD = ("timings", "checks", "counters")  # how evidence of one card is named
FORMATS = ("", "printed", "as")  # what may stand behind the colon of an item in a sentence

T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """One thing measured. `printed` is what the documents print for it; `dims` its head dims, if not the question's."""

    what: str
    measure: str
    unit: str = "×"
    printed: str = ""
    dims: Sequence[int] = ()
    each: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Answer:
    """A written answer and the condition that makes it true; without one it always is."""

    says: str
    when: str = ""


@dataclass(frozen=True)
class Question:
    """A question, what is measured for it, its answers, the reasons, and the claims that it is about."""

    id: str
    chapter: str
    question: str
    dims: Sequence[int]
    items: Mapping[str, Item]
    answers: Sequence[Answer]
    because: Sequence[str]
    claims: Sequence[str] = ()
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """What was measured for an item, by head dim: values with intervals, what is printed, why a value is missing."""

    unit: str = "×"
    values: Mapping[int, Ratio] = field(default_factory=dict)
    printed: Mapping[int, float] = field(default_factory=dict)
    undecided: Mapping[int, str] = field(default_factory=dict)  # the reasons
    not_measured: Sequence[int] = ()
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.values)

    def __format__(self, spec: str) -> str:
        values = [value.value for value in self.values.values()]
        if spec == "printed":
            return span(self.printed.values(), self.unit)
        return beside(values) if spec == "as" else span(values, self.unit)


Results = Mapping[str, Result]


def ends(value: Ratio) -> tuple[float, float]:
    """The interval of a value, which a single process does not give: then the value itself."""
    return (value.value, value.value) if math.isnan(value.low) else (value.low, value.high)


# ---------------------------------------------------------------- what conditions may call


def _intervals(results: Iterable[Result]) -> list[tuple[float, float]]:
    return [ends(value) for result in results for value in result.values.values()]


def above(*arguments: Any) -> bool:
    """Whether something was measured for the results and all of it lies above the bound, which comes last."""
    intervals = _intervals(arguments[:-1])
    return bool(intervals) and all(low > arguments[-1] for low, _ in intervals)


def below(*arguments: Any) -> bool:
    """Whether something was measured for the results and all of it lies below the bound, which comes last."""
    intervals = _intervals(arguments[:-1])
    return bool(intervals) and all(high < arguments[-1] for _, high in intervals)


def known(*results: Result) -> bool:
    """Whether something was measured for one of the results."""
    return any(results)


def at(result: Result, *hdims: Any) -> Result:
    """What was measured at some head dims, or at those of a list."""
    (dims,) = hdims if isinstance(hdims[0], list) else (hdims,)

    def only(by_hdim: Mapping[int, T]) -> dict[int, T]:
        return {hdim: by_hdim[hdim] for hdim in dims if hdim in by_hdim}

    absent = [hdim for hdim in dims if hdim in result.not_measured]
    return Result(result.unit, only(result.values), only(result.printed), only(result.undecided), absent, result.name)


def _values(arguments: Iterable[Any]) -> list[float]:
    """The values of results, and numbers as they are."""
    each = ([v.value for v in one.values.values()] if isinstance(one, Result) else [one] for one in arguments)
    return [value for values in each for value in values]


def least(*arguments: Any) -> float:
    """The least of results and numbers; not a number where there is none."""
    return min(_values(arguments), default=math.nan)


def largest(*arguments: Any) -> float:
    """The largest of results and numbers; not a number where there is none."""
    return max(_values(arguments), default=math.nan)


def as_printed(result: Result, share: float) -> bool:
    """Whether every value is within a share of what the documents print for it."""
    printed = result.printed
    return bool(result) and all(abs(v.value / printed[hdim] - 1) < share for hdim, v in result.values.items())


def dims_above(result: Result, bound: float) -> list[int]:
    """The head dims at which a result lies above a bound."""
    return [hdim for hdim in result.values if above(at(result, hdim), bound)]


def dims_below(result: Result, bound: float) -> list[int]:
    """The head dims at which a result lies below a bound."""
    return [hdim for hdim in result.values if below(at(result, hdim), bound)]


def names_above(*arguments: Any) -> list[str]:
    """The names of those results, of the ones known, that lie above the bound, which comes last."""
    return [result.name for result in arguments[:-1] if result and above(result, arguments[-1])]


def names_not_above(*arguments: Any) -> list[str]:
    """The names of the other results that are known."""
    return [result.name for result in arguments[:-1] if result and not above(result, arguments[-1])]


CONDITIONS: Mapping[str, Callable[..., Any]] = {
    "above": above,
    "below": below,
    "known": known,
    "at": at,
    "min": least,
    "max": largest,
    "abs": abs,
    "as_printed": as_printed,
    "dims_above": dims_above,
    "dims_below": dims_below,
    "names_above": names_above,
    "names_not_above": names_not_above,
}


# ---------------------------------------------------------------- sentences


def places(text: str) -> list[tuple[str, str]]:
    """The places of a sentence: what stands there and how it is written. Raises: ValueError."""
    return [(place, spec or "") for _, place, spec, _ in Formatter().parse(text) if place is not None]


def write(text: str, results: Results) -> str:
    """A sentence with its values."""
    parts = []
    for literal, place, spec, _ in Formatter().parse(text):
        parts.append(literal)
        if place:
            value = evaluate(place, results, CONDITIONS.__getitem__)
            if isinstance(value, list):
                parts.append(" and ".join(map(str, value)))
            else:
                parts.append(format(value, spec or "") if isinstance(value, Result) else number(value, spec or ""))
    return "".join(parts)


# ---------------------------------------------------------------- loading


def load(path: Path = QUESTIONS) -> tuple[Question, ...]:
    """The questions of a file. Raises: DataError naming the file, the question and what is allowed."""
    return _load(path, path.stat().st_mtime_ns if path.exists() else 0)


def chapter(name: str) -> dict[str, Question]:
    """The questions of a chapter by their ids."""
    return {question.id: question for question in load() if question.chapter == name}


@functools.cache
def _load(path: Path, changed: int) -> tuple[Question, ...]:
    content = claims.check_fields(claims.read_yaml(path), str(path), ("questions",), ())
    stated, argued = set(published.load()["id"]), {claim.id for claim in claims.load()}
    questions: dict[tuple[str, str], Question] = {}
    for place, entry in enumerate(content["questions"], start=1):
        name = entry.get("id", f"question {place}") if isinstance(entry, dict) else f"question {place}"
        what = f"{path}, {name}"
        required = ("id", "chapter", "question", "dims", "claims", "items", "answers", "because")
        claims.check_fields(entry, what, required, ("needs",))
        if entry["chapter"] not in CHAPTERS:
            raise DataError(f"{what}: chapter is {entry['chapter']!r}; allowed: {', '.join(CHAPTERS)}")
        if (entry["chapter"], name) in questions:
            raise DataError(f"{what}: the id is taken in the chapter {entry['chapter']}")
        unknown = [each for each in entry["claims"] if each not in argued]
        if unknown:
            raise DataError(f"{what}: there is no claim {unknown[0]!r}")
        items = {
            str(key): _item(each, entry["dims"], f"{what}, item {key}", stated) for key, each in entry["items"].items()
        }
        for each in entry.get("needs", ()):
            if each not in items:
                raise DataError(f"{what}: it needs {each!r}; items are: {', '.join(items)}")
        questions[entry["chapter"], name] = Question(
            name,
            entry["chapter"],
            entry["question"],
            tuple(entry["dims"]),
            items,
            tuple(_answers(entry["answers"], items, what)),
            tuple(_sentence(text, items, what) for text in entry["because"]),
            tuple(entry["claims"]),
            tuple(entry.get("needs", ())),
        )
    return tuple(questions.values())


def _item(entry: Any, dims: Sequence[int], what: str, stated: set[str]) -> Item:
    claims.check_fields(entry, what, ("what", "measure"), ("unit", "printed", "dims", "each", "name"))
    item = Item(**{**entry, "measure": str(entry["measure"]), "printed": str(entry.get("printed", ""))})
    dims = item.dims or dims
    for name, values in item.each.items():
        if not isinstance(values, list) or len(values) != len(dims):
            raise DataError(f"{what}: {name} of each is a list of {len(dims)}, one for every head dim")
    for text in (item.measure, item.printed):
        check_expression(text, ("hdim", *item.each), what)
        for names in _names(item, dims):
            for version in versions_in(text, names) - set(VERSIONS):
                if version not in claims.wanted():
                    raise DataError(f"{what}: {version!r} is neither registered nor listed under wanted")
            for row in rows_in(text, names) - stated:
                raise DataError(f"{what}: published.csv has no row {row}")
    return item


def _names(item: Item, dims: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The names of an item's expressions with their values, for every head dim."""
    for place, hdim in enumerate(dims):
        yield {"hdim": hdim, **{name: values[place] for name, values in item.each.items()}}


def _answers(entries: Any, items: Mapping[str, Item], what: str) -> Iterator[Answer]:
    if not entries:
        raise DataError(f"{what}: it has no answer")
    for place, entry in enumerate(entries, start=1):
        here = f"{what}, answer {place}"
        claims.check_fields(entry, here, ("says",), ("when",))
        answer = Answer(_sentence(entry["says"], items, here), str(entry.get("when", "")))
        if not answer.when and place < len(entries):
            raise DataError(f"{here}: only the last answer may do without a condition")
        check_expression(answer.when, items, here, CONDITIONS, condition=True)
        if answer.when and not names_in(answer.when):
            raise DataError(f"{here}: {answer.when!r} names no item; items are: {', '.join(items)}")
        yield answer


def _sentence(text: str, items: Mapping[str, Item], what: str) -> str:
    try:
        named = places(text)
    except ValueError as error:
        raise DataError(f"{what}: {text!r}: {error}") from None
    for place, spec in named:
        check_expression(place, items, what, CONDITIONS)
        if place in items and spec not in FORMATS:
            raise DataError(f"{what}: {{{place}:{spec}}}; allowed: {', '.join(filter(None, FORMATS))}, or no colon")
        if spec == "printed" and place in items and not items[place].printed:
            raise DataError(f"{what}: nothing is printed for {place}")
    return text


# ---------------------------------------------------------------- settling


@dataclass(frozen=True)
class Settled:
    """A question with what the data of one GPU say to it, and the tables that this is from."""

    question: Question
    results: Results
    evidence: str
    written_for: bool = True  # whether its answers without a condition are: on the reference, or of no card

    @property
    def answer(self) -> str:
        """The first written answer whose condition holds, or that there is none, or that the question is open."""
        answer = self._answer()
        return write(answer.says, self.results) if answer else DIFFERS if self.differs else OPEN

    @property
    def open(self) -> bool:
        """Whether the question waits for a measurement."""
        return self._answer() is None and not self.differs

    @property
    def differs(self) -> bool:
        """Whether what it needs was measured on another card, and no answer with a condition holds there."""
        known = all(self.results[name] for name in self.question.needs) and any(self.results.values())
        return known and not self.written_for and self._answer() is None

    def _answer(self) -> Answer | None:
        if not all(self.results[name] for name in self.question.needs):
            return None
        for answer in self.question.answers:
            if not answer.when and not self.written_for:
                continue
            if not answer.when or evaluate(answer.when, self.results, CONDITIONS.__getitem__):
                return answer
        return None

    @property
    def because(self) -> str:
        """The sentences whose values were measured, then what was not."""
        complete = [
            write(text, self.results)
            for text in self.question.because
            if all(self.results[name] for place, _ in places(text) for name in names_in(place))
            and (self.written_for or self._answer())
        ]
        items = self.question.items.items()
        absent = [item.what for key, item in items if self.results[key].not_measured and not self.results[key]]
        return " ".join([*complete, *([f"N{NOT_YET[1:]}: {'; '.join(absent)}."] if absent else [])])


def _result(item: Item, dims: Sequence[int], facts: Facts) -> Result:
    values: dict[int, Ratio] = {}
    printed: dict[int, float] = {}
    undecided: dict[int, str] = {}
    not_measured: list[int] = []
    for names in _names(item, item.dims or dims):
        hdim = names["hdim"]
        if item.printed:
            printed[hdim] = float(measure(item.printed, facts, names))
        try:
            value = interval(measure(item.measure, facts, names), facts.pools)
        except NotMeasured:
            not_measured.append(hdim)
        except Undecided as why:
            undecided[hdim] = str(why)
        except ZeroDivisionError:
            undecided[hdim] = "it divides by a count of zero"
        else:
            if math.isnan(value.value):
                undecided[hdim] = "it has no value"
            else:
                values[hdim] = value
    return Result(item.unit, values, printed, undecided, not_measured, item.name)


def settle(question: Question, facts: Facts) -> Settled:
    """What the data of a GPU say to a question. Raises: DataError when an expression is wrong or a file is damaged."""
    facts.used, facts.stale = {}, {}
    results = {key: _result(item, question.dims, facts) for key, item in question.items.items()}
    stale = f" Stale, since the code has changed: {', '.join(facts.stale)}." if facts.stale else ""
    measured = any(name.startswith(OF_A_CARD) for name in facts.used)
    written_for = not measured or is_reference(facts.folder.name, facts.identity)
    return Settled(question, results, f"From {', '.join(facts.used) or 'the shapes alone'}.{stale}", written_for)


def settle_chapter(name: str, evidence: Measured) -> dict[str, Settled]:
    """The questions of a chapter, by their ids, with what the data of a GPU say to them."""
    facts = Facts(gpu_folder(evidence.slug))
    return {key: settle(question, facts) for key, question in chapter(name).items()}
