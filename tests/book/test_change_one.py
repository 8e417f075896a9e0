"""Change one measured number in a copy of the data: what depends on it changes, and nothing else.

The notebooks' cells are run here on both copies, their tables and figures caught before they are drawn or saved. A cell
depends on the number if it asks for it, reads the verdicts, or uses a name that such a cell has set.
"""

import ast
import csv
import functools
import importlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import nbformat
import pandas as pd
import pytest

from analysis.book import style, tables
from analysis.book.site import build
from analysis.records import files
from analysis.records.files import read_table, write_table
from analysis.records.measured import Measured
from analysis.verdicts import claims, printed
from analysis.verdicts.facts import Facts
from kernels import Problem

pytestmark = pytest.mark.deep  # it runs all chapters twice

GPU = "nvidia-h200"
VERSION = "rope_v7"
PROBLEM = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
TIMER = "device_warm"
PROCESS = "3"
FACTOR = 3.0
NAMES = (VERSION, "V7")  # what rows about it call it
VALUES = ("claim_id", "condition", "measured", "low", "high")  # of a test, not what follows from several
ROWS = ("version", "claim", "section", "source")  # first headers of tables whose rows say whose they are
OF_THE_VERSION = ("rope-savings",)  # figures about it alone, whose rows need not name it


class Cell(NamedTuple):
    notebook: str
    source: str
    shown: tuple[Any, ...]  # texts, tables and plots
    depends: bool


class Book(NamedTuple):
    cells: list[Cell]
    tests: list[tuple[dict[str, Any], bool]]  # of the claims, and whether each asked for the number
    verdicts: dict[str, str]
    numbers: dict[str, printed.Beside]


def same(what: Any) -> Any:
    """What is shown, as something that can be compared."""
    if isinstance(what, style.Plot):
        return what.id, what.figure.get_suptitle(), what.caption, what.alt, what.data.to_csv()
    return what._repr_html_() if isinstance(what, tables.Table) else what


def copy_latest(source: Path, folder: Path) -> None:
    """A GPU's folder with the latest run alone: what the book reads, and quickly read."""
    folder.mkdir(parents=True)
    runs = read_table(source / "runs.csv", "runs")
    latest = runs[runs["complete"].astype(bool)].groupby("study")["run"].max()
    for path in filter(Path.is_file, source.glob("*")):
        if path.name not in ("timings.csv", "checks.csv", "runs.csv"):
            (folder / path.name).write_bytes(path.read_bytes())
            continue
        with open(path, encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        run, study = header.index("run"), header.index("study")
        kept = [row for row in rows if latest.get(row[study]) == row[run]]
        with open(folder / path.name, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *kept])


def change(folder: Path) -> None:
    """One process's median of one version on one problem becomes `FACTOR` times itself."""
    path = folder / "timings.csv"
    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    wanted = {"study": "log", "version": VERSION, "timer": TIMER, "process": PROCESS}
    wanted |= {"hdim": str(PROBLEM.hdim), "rotary_dim": str(PROBLEM.rotary_dim)}
    found = [row for row in rows if all(row[header.index(name)] == value for name, value in wanted.items())]
    assert len(found) == 1
    place = header.index("median_us")
    found[0][place] = f"{FACTOR * float(found[0][place]):.6g}"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


@functools.cache
def read_once(content: bytes, suffix: str, table: str) -> pd.DataFrame:
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(content)
        file.flush()
        return read_table(Path(file.name), table)


class Watch:
    """Whether the number, or what was decided with it, has been asked for since `asked` was last set to False."""

    asked = False
    shown: ClassVar[list[Any]] = []

    def display(self, what: Any, **_: Any) -> None:
        self.shown.append(what.data)

    def medians(self, real: Callable) -> Callable:
        def medians(found: Measured, version: str, problem: Problem, timer: str) -> pd.Series:
            self.asked |= (found.run["study"], version, problem, timer) == ("log", VERSION, PROBLEM, TIMER)
            return real(found, version, problem, timer)

        return medians

    def judge(self, real: Callable) -> Callable:
        def judge(*given: Any) -> dict[str, Any]:
            self.asked = False
            row = real(*given)
            return {**row, "asked": self.asked}

        return judge

    def beside(self, numbers: dict[str, printed.Beside]) -> Callable:
        def beside(slug: str) -> list[printed.Beside]:
            self.asked = True
            return list(numbers.values())

        return beside

    def read_table(self, path: Path, table: str) -> pd.DataFrame:
        self.asked |= table == "verdicts"
        return read_once(path.read_bytes(), path.suffix, table).copy()


def run_cells(path: Path, watch: Watch) -> Iterator[Cell]:
    """Run the code of a notebook; yield what its cells would show."""
    shown: list[Any] = []
    names: dict[str, Any] = {}
    dependent: set[str] = set()
    catch = {
        "say": lambda text, **values: shown.append(text.format(**values)),
        "show": lambda what, found: shown.append(what),
        "fold": lambda summary, what, found: shown.append(what),
    }
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        tree = ast.parse(cell.source)
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        shown.clear()
        watch.shown = shown
        watch.asked = any(node.id in dependent for node in uses)
        exec(compile(tree, path.name, "exec"), names)
        names |= {name: caught for name, caught in catch.items() if name in names}
        if watch.asked:
            dependent |= {node.id for node in uses if isinstance(node.ctx, ast.Store)}
        yield Cell(path.stem, cell.source, tuple(shown), watch.asked)


def read_book(folder: Path, patch: pytest.MonkeyPatch) -> Book:
    """Everything that the book says of the measurements in `folder`."""
    watch = Watch()
    patch.setattr(files, "MEASURED", folder.parent)
    patch.setattr(Measured, "medians", watch.medians(Measured.medians))
    patch.setattr(Measured, "read", functools.cache(Measured.read))
    for path in (build.ROOT / "analysis").glob("[a-z]*/**/[a-z]*.py"):
        module = importlib.import_module(".".join(path.relative_to(build.ROOT).with_suffix("").parts))
        for name in ("read_table", "display"):
            if hasattr(module, name):
                patch.setattr(module, name, getattr(watch, name))
    facts = Facts(folder)
    patch.setattr(claims, "judge", watch.judge(claims.judge))
    rows = claims.verdicts(folder)
    tests = [(row, row.pop("asked")) for row in rows]
    verdicts = {row["claim_id"]: row["verdict"] for row in rows}
    write_table(folder / "verdicts.csv", "verdicts", rows)
    numbers = {one.row["id"]: one for one in printed.stand_all(facts)}
    patch.setattr(printed, "beside", watch.beside(numbers))
    cells = [cell for path in sorted(build.NOTEBOOKS.glob("*.ipynb")) for cell in run_cells(path, watch)]
    return Book(cells, tests, verdicts, numbers)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, Book]:
    """The book from the recorded data, and from a copy in which one number is another."""
    found = []
    for name in ("before", "after"):
        folder = tmp_path_factory.mktemp(name) / GPU
        copy_latest(files.MEASURED / GPU, folder)
        if name == "after":
            change(folder)
        with pytest.MonkeyPatch.context() as patch:
            found.append(read_book(folder, patch))
    return found[0], found[1]


def test_the_tests_of_the_claims_change_that_ask_for_the_number_and_no_others(books: tuple[Book, Book]) -> None:
    before, after = books
    changed = {
        (row["claim_id"], row["test"])
        for (row, _), (other, _) in zip(before.tests, after.tests, strict=True)
        if any(row.get(name) != other.get(name) for name in VALUES)
    }
    assert changed == {(row["claim_id"], row["test"]) for row, asked in before.tests if asked}
    assert "C-18" in {claim for claim, _ in changed} and len(changed) < len(before.tests) / 10
    moved = {claim for claim in before.verdicts if before.verdicts[claim] != after.verdicts[claim]}
    assert moved <= {claim for claim, _ in changed}


def test_the_published_numbers_change_that_stand_beside_it_and_no_others(books: tuple[Book, Book]) -> None:
    before, after = books
    changed = {row for row, one in before.numbers.items() if one != after.numbers[row]}
    assert {"N006", "N008", "N200", "N201", "N373", "N375"} <= changed  # its time and speedup, in three documents
    for row in changed:
        assert VERSION in (before.numbers[row].row["version"], before.numbers[row].row["baseline"])
        assert before.numbers[row].row["hdim"] in (None, PROBLEM.hdim)


def rows_of(what: Any) -> list[tuple[str, ...]]:
    """A table's rows, or those of a figure's data."""
    if isinstance(what, style.Plot):
        return [tuple(map(str, row)) for row in what.data.itertuples(index=False)]
    return [tuple(row) for row in what.rows]


def says_whose(what: Any) -> bool:
    """Whether the rows of a table or figure name the version that they are about."""
    if isinstance(what, style.Plot):
        return what.id not in OF_THE_VERSION
    return isinstance(what, tables.Table) and what.header[0] in ROWS


def test_cells_of_the_book_change_only_if_they_depend_on_the_number(books: tuple[Book, Book]) -> None:
    before, after = books
    changed = [
        (cell, other)
        for cell, other in zip(before.cells, after.cells, strict=True)
        if [same(what) for what in cell.shown] != [same(what) for what in other.shown]
    ]
    for cell, _ in changed:
        assert cell.depends, f"{cell.notebook} changes without having asked for the number:\n{cell.source}"
    assert {"index", "rope", "published", "claims"} <= {cell.notebook for cell, _ in changed}
    assert not {"sinusoidal", "fp16", "baseline"} & {cell.notebook for cell, _ in changed}
    kinds = {type(what) for cell, _ in changed for what in cell.shown}
    assert {str, tables.Table, style.Plot} <= kinds  # prose, tables and figures


def test_rows_of_tables_and_figures_change_only_if_they_name_the_version(books: tuple[Book, Book]) -> None:
    before, after = books
    moved = {row["claim_id"] for (row, _), (other, _) in zip(before.tests, after.tests) if row != other}
    named = {*NAMES, *moved, *(row for row, one in before.numbers.items() if one != after.numbers[row])}
    seen = 0
    for cell, other in zip(before.cells, after.cells, strict=True):
        for what, now in zip(cell.shown, other.shown):
            if not says_whose(what):
                continue
            for row, row_now in zip(rows_of(what), rows_of(now), strict=True):
                if row != row_now:
                    seen += 1
                    assert any(name in " ".join(row) for name in named), f"{cell.notebook}: {row}"
    assert seen > 10
