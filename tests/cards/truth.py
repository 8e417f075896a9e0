"""What must be true of another card's book, asked of its chapters, its pages of the versions and its rendered pages."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from analysis.book.table import microseconds
from analysis.measure.studies import TIMERS
from analysis.records.files import DATA, REFERENCE, problem_of, read_records
from analysis.records.measured import Measured
from kernels import VERSIONS, Problem

from .reading import words

NAMES = re.compile(r"\bH200\b|nvidia-h200", re.IGNORECASE)
RAN = ("ok", "wrong")
NO_NUMBER = re.compile(r"(?<![\w`'])(?:nan|None)(?![\w`'])|\bno number\b|\bKeyError\b")
RIGHT = re.compile(r"status ok[^>]*>(?!confirmed)")  # a badge of what ran; "confirmed" is of what is counted without it
SAMPLED = ("log", "beyond")
FIGURES = 5  # digits of a time and its spread, from which on they are not the same by chance


def names_of_the_reference(pages: Mapping[str, str]) -> list[str]:
    """Where pages name the reference's card, outside of what is marked as its."""
    return [
        f"{page}: {text[max(found.start() - 60, 0) : found.end() + 60]}"
        for page, html in pages.items()
        for text in [words(html, code=False)]
        for found in NAMES.finditer(text)
    ]


@functools.cache
def _numbers() -> frozenset[str]:
    """Times of the reference with their spreads, as a table writes them."""
    found = set()
    for study in SAMPLED:
        measured = Measured.read(DATA / "measured" / REFERENCE, study)
        pairs = set(zip(measured.timings["version"], measured.timings["problem"], strict=True))
        for (version, problem), timer in itertools.product(pairs, TIMERS):
            cell = microseconds(measured.time(version, problem, timer))
            if sum(map(str.isdigit, cell)) >= FIGURES:
                found.add(words(cell))
    return frozenset(found)


CELL = re.compile(r"\d[\d,]*\.\d ± \d+\.\d")


def numbers_of_the_reference(pages: Mapping[str, str], own: Iterable[str] = ()) -> list[str]:
    """Where pages show a time that the reference's card took; `own` are the times of the card itself."""
    known = _numbers() - set(own)
    return [f"{page}: {cell}" for page, html in pages.items() for cell in CELL.findall(words(html)) if cell in known]


def statuses(folder: Path) -> dict[str, dict[Problem, set[str]]]:
    """Of each version what its checks in a folder found, by problem."""
    found: dict[str, dict[Problem, set[str]]] = {name: {} for name in VERSIONS}
    for row in read_records(folder / "checks.csv", "checks"):
        found[row["version"]].setdefault(problem_of(row), set()).add(row["status"])
    return found


def never_ran(folder: Path) -> list[str]:
    """Versions that ran on no problem of a folder: unsupported, infeasible, failed or not measured."""
    return [
        name
        for name, by_problem in statuses(folder).items()
        if not any(each in RAN for found in by_problem.values() for each in found)
    ]


def own_times(folder: Path) -> set[str]:
    """The times of a folder's card as a table writes them."""
    found = set()
    for study in {row["study"] for row in read_records(folder / "timings.csv", "timings")}:
        measured = Measured.read(folder, study)
        for (version, problem), timer in itertools.product(
            set(zip(measured.timings["version"], measured.timings["problem"], strict=True)), TIMERS
        ):
            found.add(words(microseconds(measured.time(version, problem, timer))))
    return found


ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
FIRST = re.compile(r"<th\b.*?</th>", re.DOTALL)


def right_though_it_never_ran(pages: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Rows of tables whose first cell names a version that never ran, and that say "ok" of it."""
    absent = set(never_ran(folder))
    for page, html in pages.items():
        for row in ROW.findall(html):
            first = FIRST.search(row)
            named = set(re.findall(r"versions/(\w+)\.(?:html|md)|<code>(\w+)</code>", first[0])) if first else set()
            for name in {name for pair in named for name in pair} & absent:
                if RIGHT.search(row):
                    yield f"{page}: {name}: {words(row)[:160]}"


def page_of_a_version_that_never_ran(text: str) -> list[str]:
    """What the page of such a version may not have: a result that is right or a time of this card."""
    measured = text.partition("## Claims that name it")[0].partition("## Declared hazards")[0]
    return [*RIGHT.findall(measured), *CELL.findall(words(measured))]


def without_a_number(pages: Mapping[str, str]) -> list[str]:
    """Where pages show what code makes of a number that is not there."""
    return [
        f"{page}: {text[max(found.start() - 60, 0) : found.end() + 30]}"
        for page, html in pages.items()
        for text in [words(html, code=False)]
        for found in NO_NUMBER.finditer(text)
    ]
