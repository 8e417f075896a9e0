"""Swap the times of two versions at one problem in a copy of the data: what depends on them changes, and nothing else.

The cells of a few chapters are run on both copies, what they show caught before it is drawn. Each question for a
measured number is noted, with the run that answered it: what is shown depends on the times, and must cite the run, if
it asks for them or uses a name that a statement has set that does.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

from analysis.book import findings, notebook
from analysis.book.chapters import questions
from analysis.book.findings import NOTEBOOKS, RECORDED
from analysis.book.origin import DECIDED
from analysis.claims import judge
from analysis.figures.style import Plot
from analysis.record import records
from analysis.records import files
from analysis.records.files import REFERENCE
from analysis.records.measured import Measured
from analysis.tables.table import Table

CHAPTERS = ("rope", "sinusoidal")
SWAPPED = ("rope_v7", "rope_v6b")
NAMES = (*SWAPPED, "V7", "V6b", "V6")  # what rows about them call them
HDIM, ROTARY = "512", "128"
ROWS = ("version", "claim")  # first headers of tables whose rows say whose they are


class Shown(NamedTuple):
    """What a statement shows: rows of a table or figure, or text; the id of a finding; the runs asked and cited."""

    chapter: str
    rows: list[str]
    finding: str
    named: bool  # its rows say whose they are
    asked: frozenset[str]
    cited: frozenset[str] | None
    depends: bool


def copy(folder: Path, swap: bool) -> Path:
    """The reference's latest runs, with or without the times of the two versions swapped."""
    source, place = files.MEASURED / REFERENCE, folder / REFERENCE
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("verdicts.csv"))
    timings = records(source, "timings")
    chosen: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in timings if swap else ():
        problem = (row["study"], str(row["hdim"]), str(row["rotary_dim"]))
        if problem == ("log", HDIM, ROTARY) and row["version"] in SWAPPED and row["median_us"]:
            key = (row["run"], row["process"], row["timer"])
            chosen.setdefault(key, {})[row["version"]] = row
    for pair in chosen.values():
        if len(pair) == 2:
            one, other = pair.values()
            for name in ("p20_us", "median_us", "p80_us"):
                one[name], other[name] = other[name], one[name]
    files.write_table(place / "timings.csv", "timings", timings)
    return place


class Watch:
    """Runs the statements of notebooks and catches what they show and what they ask for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: set[str] = set()  # runs
        self.touched = False
        self.shown: list[tuple[Any, Any, str]] = []
        for name in ("medians", "check"):
            patch.setattr(Measured, name, self.noting(getattr(Measured, name)))
        patch.setattr(notebook, "show", lambda what, evidence: self.shown.append((what, evidence, "")))
        patch.setattr(notebook, "fold", lambda title, what, evidence: self.shown.append((what, evidence, "")))
        for module in (notebook, findings, questions):
            patch.setattr(module, "display", self.display)

    def display(self, what: Any, metadata: dict[str, Any] | None = None) -> None:
        self.shown.append((what, None, (metadata or {}).get(RECORDED, {}).get("id", "")))

    def noting(self, real: Any) -> Any:
        def noting(evidence: Measured, version: str, *given: Any, **named: Any) -> Any:
            found = real(evidence, version, *given, **named)
            if found is not None and len(found):
                self.asked.add(str(evidence.run["run"]))
                self.touched |= evidence.run["study"] == "log" and version in SWAPPED
            return found

        return noting

    def run(self, path: Path) -> Iterator[Shown]:
        names: dict[str, Any] = {}
        behind: dict[str, tuple[set[str], bool]] = {}
        for cell in nbformat.read(path, as_version=4).cells:
            for statement in ast.parse(cell.source).body if cell.cell_type == "code" else ():
                uses = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
                before = [behind[node.id] for node in uses if node.id in behind]
                self.asked, self.touched = set().union(*(runs for runs, _ in before)), any(each for _, each in before)
                self.shown.clear()
                exec(compile(ast.Module([statement], []), path.name, "exec"), names)
                behind |= {n.id: (self.asked, self.touched) for n in uses if isinstance(n.ctx, ast.Store)}
                for what, evidence, finding in self.shown:
                    yield self.of(path.stem, what, evidence, finding)

    def of(self, chapter: str, what: Any, evidence: Any, finding: str) -> Shown:
        rows, named, cited = [str(getattr(what, "data", what))], False, None
        if isinstance(what, Plot):
            rows = [what.caption, what.alt, *what.data.to_csv().splitlines()]
            cited = frozenset(run.name for run in what.source.runs)
        elif isinstance(what, Table):
            rows, named = ["\t".join(row) for row in what.plain().rows], what.header[0] in ROWS
            source = what.source or notebook.source_of(evidence)
            cited = None if source == DECIDED or not rows else frozenset(run.name for run in source.runs)
        return Shown(chapter, rows, finding, named, frozenset(self.asked), cited, self.touched)


class Book(NamedTuple):
    shown: list[Shown]
    verdicts: dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, Book]:
    """Before and after."""
    recorded, found = judge.recorded(REFERENCE), []
    judged = [claim for claim in judge.claims() if claim.id.startswith("C")]
    for name in ("before", "after"):
        place = copy(tmp_path_factory.mktemp(name), name == "after")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "MEASURED", place.parent)
            patch.setattr(judge, "claims", lambda: judged)
            rows = {(row["claim_id"], row["test"]): row for row in judge.verdicts(place)}
            patch.undo()
            patch.setattr(files, "MEASURED", place.parent)
            patch.setattr(judge, "recorded", lambda slug: recorded)
            watch = Watch(patch)
            found.append(Book([each for n in CHAPTERS for each in watch.run(NOTEBOOKS / f"{n}.ipynb")], rows))
    return found[0], found[1]


def test_the_findings_and_texts_change_that_ask_for_the_times_and_no_others(books: tuple[Book, Book]) -> None:
    before, after = (book.shown for book in books)
    changed = [one for one, other in zip(before, after, strict=True) if one.rows != other.rows]
    assert [(one.chapter, one.rows) for one in changed if not one.depends] == []
    assert any(one.finding for one in changed) and len(changed) < len(before) / 2
    assert {one.chapter for one in changed} == {"rope"}


def test_rows_of_tables_change_only_where_they_name_one_of_the_two(books: tuple[Book, Book]) -> None:
    before, after = (book.shown for book in books)
    seen = 0
    for one, other in zip(before, after, strict=True):
        for row, now in zip(one.rows, other.rows, strict=True) if one.named else ():
            if row != now:
                seen += 1
                assert any(name in row for name in NAMES), row
    assert seen


def test_the_tests_of_claims_change_that_name_one_of_the_two_and_no_others(books: tuple[Book, Book]) -> None:
    before, after = (book.verdicts for book in books)
    values = ("measured", "low", "high", "outcome")
    changed = {key for key, row in before.items() if any(row.get(name) != after[key].get(name) for name in values)}
    naming = {claim for claim, names in judge.named(REFERENCE).items() if names & {*SWAPPED}}
    assert "C-18" in {claim for claim, _ in changed} <= naming and len(changed) < len(before) / 2


def test_figures_and_tables_cite_the_runs_that_their_numbers_are_from(books: tuple[Book, Book]) -> None:
    shown = [each for each in books[0].shown if each.cited is not None]
    assert len(shown) > 20
    assert [(each.chapter, each.rows[:2]) for each in shown if not each.asked <= each.cited] == []
