"""Building the book: what it refuses, what it says is wrong, and when it builds again. .ci/run builds it in full."""

import hashlib
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from analysis import findings
from analysis.book import saving
from analysis.book.site import build, check
from analysis.book.site.execute import BuildError, execute
from analysis.book.site.place import Place
from analysis.evidence import Evidence
from analysis.record import files
from analysis.record.files import REFERENCE


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """A notebook that knows one GPU."""
    parameters = nbformat.v4.new_code_cell(f"gpu, source = '{REFERENCE}', 'live'", metadata={"tags": ["parameters"]})
    shown = f"if gpu != '{REFERENCE}':\n    raise ValueError(f'no GPU called {{gpu!r}}')\nprint(gpu, source)"
    path = tmp_path / "small.ipynb"
    about = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python"}}
    cells = [parameters, nbformat.v4.new_code_cell(shown)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=about), path)
    return path


def test_a_notebook_is_executed_with_its_parameters_and_stops_with_its_error(notebook: Path) -> None:
    output = notebook.with_name("out.ipynb")
    with pytest.raises(BuildError, match=r"small\.ipynb, cell \d+: ValueError: no GPU called 'abacus'"):
        execute(notebook, output, "abacus")
    assert not output.exists()
    execute(notebook, output, REFERENCE)
    executed = nbformat.read(output, as_version=4)
    assert executed.cells[-1].outputs[0]["text"] == f"{REFERENCE} recorded\n"
    assert not any("papermill" in each.metadata for each in (executed, *executed.cells))
    assert str(notebook.parent) not in output.read_text()


def test_a_second_build_and_a_folder_that_cannot_be_written_are_one_line_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "of", lambda gpu: Place(tmp_path / "a book"))
    monkeypatch.setattr(build, "execute_all", lambda gpu: pytest.fail("it began"))
    with build.alone(Place.of(REFERENCE)):
        assert build.main([]) == 1
    shutil.rmtree(tmp_path / "a book")
    (tmp_path / "a book").write_text("a file")
    assert build.main([]) == 1
    assert [line.partition(str(tmp_path))[0] for line in capsys.readouterr().err.splitlines()] == [
        "build: another build writes to ",
        "build: ",
    ]


def test_what_cannot_be_built_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["--gpu", "abacus"]) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert build.main(["--source", "live"]) == 1
    unknown, live = capsys.readouterr().err.splitlines()
    assert "'abacus'" in unknown and REFERENCE in unknown and live.startswith("build: ") and "GPU" in live
    folder = tmp_path / REFERENCE
    shutil.copytree(files.MEASURED / REFERENCE, folder)
    (folder / "gpu.json").write_text("{")
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    assert build.main(["--gpu", REFERENCE]) == 1
    assert re.fullmatch(r"build: .*gpu\.json.*\n", capsys.readouterr().err)


def test_the_book_is_built_again_when_something_that_it_reads_has_changed(tmp_path: Path) -> None:
    wanted = {"published.csv", "timings.csv.gz", "gpu.json", "rope.ipynb", "table.py", "version.md", "v7_hybrid.py"}
    assert wanted <= {path.name for path in build.inputs(REFERENCE)}
    source, record = tmp_path / "a", tmp_path / "record"
    source.write_text("1")
    record.write_text(key := build.content_key(REFERENCE, files=[source]))
    assert build.is_current(record, key, [source]) and not build.is_current(record, key, [tmp_path / "b"])
    source.write_text("2")
    assert not build.is_current(record, build.content_key(REFERENCE, files=[source]), [])


def test_a_strict_build_fails_on_findings_and_figures_of_the_reference_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = (Evidence.load(slug) for slug in (REFERENCE, "nvidia-h100-80gb-hbm3"))
    monkeypatch.setattr(findings, "broken", lambda: ["f1 does not hold"])
    monkeypatch.setattr(findings, "report", lambda e: [f"findings on {e.slug}"])
    monkeypatch.setattr(saving, "differing", lambda where: ["changed.csv", "missing.csv"])
    with pytest.raises(BuildError) as error:
        build.tell(here, strict=True)
    assert "f1 does not hold" in str(error.value) and "changed.csv, missing.csv" in str(error.value)
    build.tell(here, strict=False)
    build.tell(there, strict=True)  # there it is an answer


def test_the_csvs_of_figures_are_compared_with_the_recorded_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
