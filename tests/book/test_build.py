"""Building the book: what it refuses, and what it says is wrong. .ci/run builds it in full."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from analysis import __main__ as command_line
from analysis import findings
from analysis.book import build, check, numbers, saving
from analysis.book.execute import BuildError, execute, side_by_side
from analysis.evidence import Evidence
from analysis.record import files
from analysis.record.files import REFERENCE


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A notebook that knows one GPU."""
    parameters = nbformat.v4.new_code_cell(f"gpu, source = '{REFERENCE}', 'live'", metadata={"tags": ["parameters"]})
    empty = nbformat.v4.new_code_cell("nothing = gpu", metadata={"tags": ["hide-input"]})
    shown = f"if gpu != '{REFERENCE}':\n    raise ValueError(f'no GPU called {{gpu!r}}')\nprint(gpu, source)"
    path = tmp_path / "small.ipynb"
    about = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python"}}
    cells = [parameters, empty, nbformat.v4.new_code_cell(shown)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=about), path)
    return path


def test_a_notebook_is_executed_with_its_parameters_and_stops_with_its_error(notebook: Path) -> None:
    output = notebook.with_name("out.ipynb")
    with pytest.raises(BuildError, match=r"small\.ipynb, cell \d+: ValueError: no GPU called 'abacus'"):
        execute(notebook, output, "abacus")
    assert not output.exists()
    execute(notebook, output, REFERENCE)
    executed = nbformat.read(output, as_version=4)
    empty, shown = executed.cells[-2:]
    assert "remove-cell" in empty.metadata.tags and "tags" not in shown.metadata
    assert shown.outputs[0]["text"] == f"{REFERENCE} recorded\n"
    assert str(notebook.parent) not in output.read_text()


def test_what_cannot_be_built_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["build", "--gpu", "abacus"]) == 1
    assert "'abacus'" in (said := capsys.readouterr().err) and REFERENCE in said and said.count("\n") == 1
    for module in (build, saving):
        monkeypatch.setattr(module, "BUILD", tmp_path / "a file")
    (tmp_path / "a file").write_text("")
    monkeypatch.setattr(build, "execute_all", lambda e, source: source.mkdir(parents=True))
    assert command_line.main(["build"]) == 1
    folder = tmp_path / REFERENCE
    folder.mkdir()
    (folder / "gpu.json").write_text("{")
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    assert command_line.main(["build"]) == 1
    refused, damaged = capsys.readouterr().err.splitlines()
    assert "a file" in refused and "gpu.json" in damaged and {refused[:7], damaged[:7]} == {"build: "}


TOC = """format: jb-book
root: book/chapters/index
parts:
  - caption: All
    chapters:
      - file: book/chapters/decode
      - file: book/glossary
"""
SLIPS = [
    ("chapters/decode", "chapters/decod", "the entry book/chapters/decod has no analysis/notebooks/decod.ipynb"),
    ("book/glossary", "book/glossar", "the entry book/glossar has no book/glossar.md"),
    ("chapters/index", "chapters/indx", "the entry book/chapters/indx has no analysis/notebooks/indx.ipynb"),
    ("book/glossary", "book/chapters/decode", "document file used multiple times: 'book/chapters/decode'"),
    ("parts:", "part:", "Unknown keys found: {'part'}"),
    ("root:", "root: [", "_toc.yml"),
]


@pytest.mark.parametrize(("old", "new", "says"), SLIPS)
def test_a_slip_in_the_contents_ends_the_build_at_once_with_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, says: str
) -> None:
    for place in ("analysis", "book"):
        (tmp_path / place).symlink_to(build.ROOT / place)
    monkeypatch.setattr(build, "NOTEBOOKS", tmp_path / build.NOTEBOOKS.relative_to(build.ROOT))
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / build.TOC).write_text(TOC)
    assert build.contents() == ["book/chapters/index", "book/chapters/decode", "book/glossary"]
    (tmp_path / build.TOC).write_text(TOC.replace(old, new))
    monkeypatch.setattr(build, "load", lambda gpu: pytest.fail("the record is read first"))
    with pytest.raises(BuildError, match=f"^{build.TOC}.*{re.escape(says.removeprefix(build.TOC))}"):
        build.build(REFERENCE)


@pytest.mark.parametrize("content", ["title: [", "3", "title: A title", ""])
def test_a_slip_in_what_is_cited_is_named_with_its_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "CITATION.cff").write_text(content)
    with pytest.raises(files.DataError, match=r"CITATION\.cff"):
        build.edition.edition(tmp_path / "CITATION.cff")


def test_tasks_run_side_by_side_and_the_first_that_fails_says_why() -> None:
    def fails() -> None:
        raise BuildError("it cannot be")

    tasks: dict[str, Any] = {name: lambda: None for name in "abc"}
    assert sorted(side_by_side(tasks)) == ["a", "b", "c"]
    with pytest.raises(BuildError, match="it cannot be"):
        list(side_by_side({"wrong": fails, **tasks}))
    with pytest.raises(BuildError, match="was ended"):
        list(side_by_side({"gone": lambda: os._exit(3)}))


def test_a_strict_build_fails_on_findings_numbers_and_figures_of_the_reference_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, there = (Evidence.load(slug) for slug in (REFERENCE, "nvidia-h200"))
    monkeypatch.setattr(findings, "broken", lambda: ["f1 does not hold"])
    monkeypatch.setattr(findings, "report", lambda e: [f"findings on {e.slug}"])
    monkeypatch.setattr(saving, "differing", lambda where: ["changed.csv", "missing.csv"])
    monkeypatch.setattr(numbers, "NUMBERS", tmp_path / "none.csv")
    with pytest.raises(BuildError) as error:
        build.verify(here, strict=True)
    for said in ("f1 does not hold", "changed.csv, missing.csv", "numbers.csv"):
        assert said in str(error.value)
    build.verify(here, strict=False)
    build.verify(there, strict=True)  # there it is an answer


def test_csvs_of_figures_are_compared_with_recorded_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("same", "changed", "new"):
        (tmp_path / f"{name}.csv").write_text("x\n1\n")
    digest = hashlib.sha256(b"x\n1\n").hexdigest()
    sums = tmp_path / "sums"
    sums.write_text(f"{digest}  same.csv\n{'0' * 64}  changed.csv\n{digest}  missing.csv\n")
    monkeypatch.setattr(saving, "CHECKSUMS", sums)
    assert saving.differing(tmp_path) == ["changed.csv", "missing.csv", "new.csv"]


# ---------------------------------------------------------------- what Sphinx does not check


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A book of two pages without a fault."""
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "x.js").write_text("")
    (tmp_path / "_static" / "x.css").write_text("body { background: url(data:image/png;base64,AA) }")
    (tmp_path / "_static" / "template.html").write_text('<a href="{{ pathto() }}">a template of the theme</a>')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two words.html").write_text("<h1 id='here'>B</h1>")
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">a link may leave</a><script src="_static/x.js?v=1"></script>'
        '<link href="_static/x.css" rel="stylesheet"><a href="b/two%20words.html#here">B</a>'
        f"<a href='#top' id='top'>up</a><img src='data:image/svg+xml;base64,{'A' * check.LARGEST}' alt='a figure'>"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('<link rel="stylesheet" href="https://example.org/x.css">', "loads https://example.org/x.css"),
        ('<img src="//example.org/x.png">', "loads //example.org/x.png"),
        ('<a href="c.html">C</a>', "c.html is not there"),
        ('<img src="_static/x.png">', "_static/x.png is not there"),
        ('<a href="b/two words.html#there">B</a>', "b/two words.html#there has no such anchor"),
        ('<a href="#nowhere">here</a>', "#nowhere has no such anchor"),
        ("x" * (check.LARGEST + 1), "without its images; the most is 1,500,000 B"),
    ],
)
def test_a_fault_of_a_page_is_named_and_a_site_without_has_none(site: Path, text: str, says: str) -> None:
    assert check.faults(site) == []
    (site / "a.html").write_text(text)
    (found,) = check.faults(site)
    assert found.startswith("a.html") and says in found
    (site / "_static" / "x.css").write_text("@import 'https://example.org/y.css'; a { background: url(//b.org/z.png) }")
    assert len(check.faults(site)) == 3
