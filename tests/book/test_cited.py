"""Cite blocks against data: every figure and table of the chapters names the runs whose rows it is made from.

The notebooks' cells are run here, what they show caught before it is drawn, and every question for a measured or
published number noted with the run that answered it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import pytest

from analysis.book import findings, notebook, step
from analysis.book.chapters import questions
from analysis.book.origin import DECIDED, Source
from analysis.book.site import build
from analysis.book.style import TITLE_WORDS, Plot
from analysis.book.table import Table
from analysis.records import published
from analysis.records.measured import Measured

pytestmark = pytest.mark.deep  # it runs all chapters

PUBLISHED = "published"


class Shown(NamedTuple):
    chapter: str
    what: Plot | Table
    source: Source
    asked: frozenset[str]  # runs that answered, and "published"

    @property
    def cited(self) -> set[str]:
        return {run.name for run in self.source.runs} | {PUBLISHED} & set(self.source.kinds)

    def __str__(self) -> str:
        name = self.what.id if isinstance(self.what, Plot) else self.what.anchor()
        return f"{self.chapter}, {name}: cites {sorted(self.cited)}, made from {sorted(self.asked)}"


class Watch:
    """What is shown, and what was asked for it: the runs that answered, and "published"."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: set[str] = set()
        self.before: set[str] = set()  # for the names that the cell uses
        self.shown: list[Shown] = []
        self.chapter = ""
        for name in ("medians", "check"):
            patch.setattr(Measured, name, self.noting(getattr(Measured, name)))
        for name in ("published", "speedup"):
            patch.setattr(published, name, self.noting_published(getattr(published, name)))
        patch.setattr(notebook, "show", self.show)
        patch.setattr(notebook, "fold", lambda title, what, evidence: self.show(what, evidence))
        for module in (notebook, findings, questions, step):
            patch.setattr(module, "display", lambda *what, **how: None)

    def noting(self, real: Any) -> Any:
        def noting(evidence: Measured, *given: Any, **named: Any) -> Any:
            found = real(evidence, *given, **named)
            if found is not None and len(found):
                self.asked.add(str(evidence.run["run"]))
            return found

        return noting

    def noting_published(self, real: Any) -> Any:
        def noting(*given: Any, **named: Any) -> Any:
            found = real(*given, **named)
            self.asked |= {PUBLISHED} if found else set()
            return found

        return noting

    def show(self, what: Any, evidence: Any) -> None:
        if isinstance(what, Plot) or (isinstance(what, Table) and what.rows):
            source = what.source or notebook.source_of(evidence)
            self.shown.append(Shown(self.chapter, what, source, frozenset(self.asked | self.before)))
        self.asked.clear()

    def run(self, path: Path) -> None:
        """Run the cells of a notebook."""
        names: dict[str, Any] = {}
        behind: dict[str, set[str]] = {}
        self.chapter = path.stem
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type != "code":
                continue
            for statement in ast.parse(cell.source).body:
                uses = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
                self.before = set().union(*(behind.get(node.id, set()) for node in uses))
                self.asked.clear()
                exec(compile(ast.Module([statement], []), path.name, "exec"), names)
                behind |= {node.id: self.asked | self.before for node in uses if isinstance(node.ctx, ast.Store)}


@pytest.fixture(scope="module")
def shown() -> Iterator[list[Shown]]:
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch(patch)
        for path in sorted(build.NOTEBOOKS.glob("*.ipynb")):
            watch.run(path)
        yield watch.shown


def test_a_figure_cites_the_runs_that_its_numbers_are_from(shown: list[Shown]) -> None:
    plots = [one for one in shown if isinstance(one.what, Plot)]
    assert len(plots) > 20
    wrong = [one for one in plots if not one.asked <= one.cited or not one.cited - {PUBLISHED} <= one.asked]
    assert [str(one) for one in wrong if one.asked] == []


def test_a_table_cites_the_runs_that_its_numbers_are_from(shown: list[Shown]) -> None:
    tables = [one for one in shown if isinstance(one.what, Table)]
    assert len(tables) > 50
    decided = [one for one in tables if one.source == DECIDED]  # by one rule, from all that is recorded
    assert [str(one) for one in tables if not one.asked <= one.cited and one not in decided] == []


def test_a_title_has_at_most_twelve_words(shown: list[Shown]) -> None:
    titles = {one.what.id: one.what.title for one in shown if isinstance(one.what, Plot)}
    assert {id: title for id, title in titles.items() if len(title.split()) > TITLE_WORDS} == {}
