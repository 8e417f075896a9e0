"""Questions of the chapters: what the data of a GPU say to them, and whether the written answer holds there.

data/questions.yml holds each question with what is measured for it, its answer and the condition; its head describes
the words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

from kernels import VERSIONS

from ..records import published
from ..records.files import DATA, DataError, gpu_folder, per_file
from ..records.interval import LIKELY, Condition, Ratio
from ..records.known import FAILED, REFUSED, Known, best
from ..records.measured import Measured
from ..records.text import span
from . import claims
from .expressions import check_expression, evaluate, measure, names_in, rows_in, versions_in
from .facts import Facts
from .rule import NotMeasured, Undecided, interval

QUESTIONS = DATA / "questions.yml"
CHAPTERS = ("contradictions", "causes")
PRINTED = "printed"  # what may stand behind the colon of an item in a sentence

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


@dataclass(frozen=True)
class Question:
    """A question, what is measured for it, the written answer with its condition, and the claims that it is about."""

    id: str
    chapter: str
    question: str
    dims: Sequence[int]
    items: Mapping[str, Item]
    holds: str
    answer: str
    because: str
    claims: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """What was measured for an item, by head dim: values with intervals, what is printed, why a value is missing.

    Compared with a number or with another result it lies above or below with all its values, intervals included.
    """

    unit: str = "×"
    values: Mapping[int, Ratio] = field(default_factory=dict)
    printed: Mapping[int, float] = field(default_factory=dict)
    undecided: Mapping[int, str] = field(default_factory=dict)  # the reasons
    not_measured: Sequence[int] = ()

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def points(self) -> Result:
        """The values as if they were certain."""
        return replace(self, values={hdim: value.point for hdim, value in self.values.items()})

    def __gt__(self, other: float | Result) -> bool:
        most = max(high for _, high in other._intervals()) if isinstance(other, Result) else other
        return all(low > most for low, _ in self._intervals())

    def __lt__(self, other: float | Result) -> bool:
        least = min(low for low, _ in other._intervals()) if isinstance(other, Result) else other
        return all(high < least for _, high in self._intervals())

    def _intervals(self) -> list[tuple[float, float]]:
        if not self.values:
            raise NotMeasured("no value to compare")
        return [ends(value) for value in self.values.values()]

    def __getitem__(self, hdim: int) -> Result:
        return at(self, hdim)

    def __format__(self, spec: str) -> str:
        if spec == PRINTED:
            return span(self.printed.values(), self.unit)
        return span([value.value for value in self.values.values()], self.unit)


Results = Mapping[str, Result]


def ends(value: Ratio) -> tuple[float, float]:
    """The interval of a value, which a single process does not give: then the value itself."""
    return (value.value, value.value) if math.isnan(value.low) else (value.low, value.high)


# ---------------------------------------------------------------- what conditions may call


def at(result: Result, *hdims: int) -> Result:
    """What was measured at some head dims."""

    def only(by_hdim: Mapping[int, T]) -> dict[int, T]:
        return {hdim: by_hdim[hdim] for hdim in hdims if hdim in by_hdim}

    absent = [hdim for hdim in hdims if hdim in result.not_measured]
    return Result(result.unit, only(result.values), only(result.printed), only(result.undecided), absent)


def near(result: Result, share: float) -> bool:
    """Whether every value is within a share of what the documents print for it."""
    if not result:
        raise NotMeasured("no value to compare")
    return all(abs(value.value / result.printed[hdim] - 1) < share for hdim, value in result.values.items())


CONDITIONS: Mapping[str, Callable[..., Any]] = {"at": at, "near": near}


# ---------------------------------------------------------------- loading


def load(path: Path = QUESTIONS) -> tuple[Question, ...]:
    """The questions of a file. Raises: DataError naming the file, the question and what is allowed."""
    return _load(path)


def chapter(name: str) -> dict[str, Question]:
    """The questions of a chapter by their ids."""
    return {question.id: question for question in load() if question.chapter == name}


@per_file
def _load(path: Path) -> tuple[Question, ...]:
    content = claims.check_fields(claims.read_yaml(path), str(path), ("questions",), ())
    stated, argued = set(published.load()["id"]), {claim.id for claim in claims.load()}
    questions: dict[tuple[str, str], Question] = {}
    for place, entry in enumerate(content["questions"], start=1):
        name = entry.get("id", f"question {place}") if isinstance(entry, dict) else f"question {place}"
        what = f"{path}, {name}"
        required = ("id", "chapter", "question", "dims", "claims", "items", "holds", "answer", "because")
        claims.check_fields(entry, what, required, ())
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
        check_expression(str(entry["holds"]), items, f"{what}, holds", CONDITIONS, condition=True)
        if not names_in(str(entry["holds"])):
            raise DataError(f"{what}: {entry['holds']!r} names no item; items are: {', '.join(items)}")
        for text in (entry["answer"], entry["because"]):
            _check_places(text, items, entry["dims"], what)
        questions[entry["chapter"], name] = Question(**{**entry, "items": items})
    return tuple(questions.values())


def _item(entry: Any, dims: Sequence[int], what: str, stated: set[str]) -> Item:
    claims.check_fields(entry, what, ("what", "measure"), ("unit", "printed", "dims", "each"))
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


def _check_places(text: str, items: Mapping[str, Item], dims: Sequence[int], what: str) -> None:
    """Raises: DataError for a place of a sentence that names no item, no head dim of it, or what is not printed."""
    try:
        named = [(place, spec or "") for _, place, spec, _ in Formatter().parse(text) if place is not None]
    except ValueError as error:
        raise DataError(f"{what}: {text!r}: {error}") from None
    for place, spec in named:
        name, _, hdim = place.rstrip("]").partition("[")
        if name == "card":
            continue
        if name not in items:
            raise DataError(f"{what}: {{{place}}}: items are: {', '.join(items)}")
        known = items[name].dims or dims
        if hdim and hdim not in map(str, known):
            raise DataError(f"{what}: {{{place}}}: head dims of {name} are: {', '.join(map(str, known))}")
        if spec not in ("", PRINTED):
            raise DataError(f"{what}: {{{place}:{spec}}}; allowed: {PRINTED}, or no colon")
        if spec == PRINTED and not items[name].printed:
            raise DataError(f"{what}: nothing is printed for {name}")


# ---------------------------------------------------------------- settling


@dataclass(frozen=True)
class Settled:
    """A question with what the data of one GPU say to it, and the tables that this is from."""

    question: Question
    results: Results
    evidence: str
    card: str = ""
    why: Known | None = None  # what keeps a version from running on this GPU, if that is why a value is missing

    @property
    def holds(self) -> Condition:
        """Whether the written answer does; None where something that its condition names was not measured."""
        values = {name: result.points for name, result in self.results.items()}
        try:
            sure, likely = (
                evaluate(self.question.holds, results, CONDITIONS.__getitem__) for results in (self.results, values)
            )
        except NotMeasured:
            return None
        return True if sure else LIKELY if likely else False

    @property
    def numbers(self) -> dict[str, Any]:
        """What stands in the places of the answer and the reasons."""
        text = f"{self.question.answer} {self.question.because}"
        names = dict.fromkeys(place.partition("[")[0] for _, place, *_ in Formatter().parse(text) if place)
        return {"card": self.card} | {name: self.results[name] for name in names if name != "card"}


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
    return Result(item.unit, values, printed, undecided, not_measured)


def settle(question: Question, facts: Facts, card: str = "", why: Known | None = None) -> Settled:
    """What the data of a GPU say to a question. Raises: DataError when an expression is wrong or a file is damaged."""
    facts.used, facts.stale = {}, {}
    results = {key: _result(item, question.dims, facts) for key, item in question.items.items()}
    stale = f" Stale, since the code has changed: {', '.join(facts.stale)}." if facts.stale else ""
    return Settled(question, results, f"From {', '.join(facts.used) or 'the shapes alone'}.{stale}", card, why)


def settle_chapter(name: str, evidence: Measured) -> dict[str, Settled]:
    """The questions of a chapter, by their ids, with what the data of a GPU say to them."""
    facts = Facts(gpu_folder(evidence.slug))
    return {key: settle(each, facts, evidence.card, why_missing(each, evidence)) for key, each in chapter(name).items()}


def why_missing(question: Question, evidence: Measured) -> Known | None:
    """Why the versions that decide a question did not run on a GPU, where one of them ran at none of its problems."""
    for name in sorted(names_in(question.holds)):
        item = question.items[name]
        for names in _names(item, item.dims or question.dims):
            for version in sorted(versions_in(item.measure, names) & set(VERSIONS)):
                found = best(evidence, version, evidence.problems(VERSIONS[version].family))
                if found.word in (*REFUSED, FAILED):
                    return found
    return None
