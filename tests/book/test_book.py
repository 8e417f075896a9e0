"""The notebooks run and the build refuses bad input. The whole book is built by .ci/run."""

import re
import shutil
from html import escape, unescape
from pathlib import Path

import nbformat
import pandas as pd
import papermill
import pytest
from jinja2 import UndefinedError
from matplotlib.figure import Figure

from analysis.book import notebook, origin, saving, style, tables
from analysis.book.site import build, check
from analysis.book.site.place import CHAPTERS
from analysis.book.table import Format, Table
from analysis.book.tables import claims as claims_table
from analysis.book.templates import render
from analysis.records import files, published
from analysis.records.files import DataError
from analysis.records.measured import Measured
from analysis.verdicts import claims, rule

NOTEBOOKS = sorted(build.NOTEBOOKS.glob("*.ipynb"))
GPU = "nvidia-h200"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_takes_a_gpu_and_a_source(path: Path) -> None:
    taken = papermill.inspect_notebook(str(path))
    own = {"gpus": '""'} if path.stem == "compare" else {}
    found = {name: one["default"] for name, one in taken.items()}
    assert found == {"gpu": f'"{GPU}"', "source": '"recorded"', **own}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_notebook_types_a_measured_number(path: Path) -> None:
    """Numbers with decimals in prose come from data; a quotation may have them, and code."""
    for cell in nbformat.read(path, as_version=4).cells:
        prose = re.sub(r'"[^"\n]*"|`[^`\n]*`', "", cell.source) if cell.cell_type == "markdown" else ""
        prose += "".join(re.findall(r'"""(.*?)"""', cell.source, re.DOTALL))
        assert not re.search(r"\d\.\d|\d ?(%|×|µs|ms)", prose), prose


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook that begins as those of the book do and knows one GPU; the build executes the real ones."""
    written = nbformat.read(build.NOTEBOOKS / "environment.ipynb", as_version=4)
    start, parameters = (cell for cell in written.cells[:3] if cell.cell_type == "code")
    start.source = start.source.partition("from analysis")[0] + "import analysis"
    shown = f"if gpu != '{GPU}':\n    raise ValueError(f'no GPU called {{gpu!r}}')\nprint(gpu, source)"
    written.cells = [start, parameters, nbformat.v4.new_code_cell(shown)]
    path = tmp_path_factory.mktemp("notebooks") / "small.ipynb"
    nbformat.write(written, path)
    return path


@pytest.mark.parametrize("folder", [build.NOTEBOOKS, build.ROOT], ids=["notebooks", "root"])
def test_a_notebook_executes_from_its_own_folder_and_from_the_root(folder: Path, small: Path, tmp_path: Path) -> None:
    output = tmp_path / "small.ipynb"
    if folder == build.ROOT:
        build.execute(small, output, GPU)
    else:
        papermill.execute_notebook(str(small), str(output), {"gpu": GPU}, cwd=str(folder), progress_bar=False)
    cells = nbformat.read(output, as_version=4).cells
    (injected,) = [cell for cell in cells if "injected-parameters" in cell.metadata.get("tags", [])]
    assert ("remove-cell" in injected.metadata["tags"]) == (folder == build.ROOT)
    assert cells[-1].outputs[0]["text"] == f"{GPU} recorded\n"


def test_a_failed_notebook_stops_with_its_error(small: Path, tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match=r"small\.ipynb, cell \d+: ValueError: no GPU called 'abacus'"):
        build.execute(small, tmp_path / "out.ipynb", "abacus")
    assert not (tmp_path / "out.ipynb").exists()


def test_an_unknown_gpu_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--gpu", "abacus"]) == 1
    said = capsys.readouterr()
    assert re.fullmatch(r"build: no GPU called 'abacus' has been measured; there is: .*nvidia-h200.*\n", said.err)


def test_damaged_data_is_one_line_and_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(files.MEASURED / GPU, tmp_path / GPU)
    timings = tmp_path / GPU / "timings.csv"
    timings.chmod(0o644)
    timings.write_bytes(timings.read_bytes()[:-30])
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    assert build.main(["--gpu", GPU]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and re.match(r"build: .*timings\.csv, line \d+: ", said)


def test_the_key_changes_with_what_a_notebook_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.content_key(GPU)
    assert build.content_key(GPU) == before
    read = {path.name for path in build.inputs(GPU)}
    assert {"published.csv", "timings.csv", "gpu.json", "rope.ipynb", "table.py", "version.md", "v7_hybrid.py"} <= read
    extra = build.ROOT / "analysis" / "book" / "table.py"
    changed = tmp_path / "table.py"
    changed.write_bytes(extra.read_bytes() + b"\n")
    swapped = [changed if path == extra else path for path in build.inputs(GPU)]
    monkeypatch.setattr(build, "inputs", lambda gpu: swapped)
    monkeypatch.setattr(build, "ROOT", Path("/"))  # both the changed file and the others lie below it
    assert build.content_key(GPU) != before


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(DataError, match="source is 'memory'; allowed: recorded, live"):
        notebook.load(GPU, "memory")


def test_measuring_live_without_a_gpu_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert build.main(["--source", "live"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("build: ") and "GPU" in said and "Traceback" not in said


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
        '<a href="#top" id="top">up</a>'
    )
    return tmp_path


def test_a_site_without_faults_has_none(site: Path) -> None:
    assert check.faults(site) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('<link rel="stylesheet" href="https://example.org/x.css">', "loads https://example.org/x.css"),
        ('<img src="//example.org/x.png">', "loads //example.org/x.png"),
        ('<script src="http://example.org/x.js"></script>', "loads http://example.org/x.js"),
        ('<a href="c.html">C</a>', "c.html is not there"),
        ('<a href="../b.html">B</a>', "../b.html is not there"),
        ('<img src="_static/x.png">', "_static/x.png is not there"),
        ('<a href="b/two words.html#there">B</a>', "b/two words.html#there has no such anchor"),
        ('<a href="#nowhere">here</a>', "#nowhere has no such anchor"),
        ("x" * (check.LARGEST + 1), "without its images; the most is 1,500,000 B"),
    ],
)
def test_a_fault_of_a_page_is_named(site: Path, text: str, says: str) -> None:
    (site / "a.html").write_text(text)
    (found,) = check.faults(site)
    assert found.startswith("a.html") and says in found


def test_a_style_sheet_may_not_ask_the_network_either(site: Path) -> None:
    (site / "_static" / "x.css").write_text("@import 'https://example.org/y.css'; a { background: url(//b.org/z.png) }")
    assert len(check.faults(site)) == 2


def test_images_in_a_page_do_not_weigh(site: Path) -> None:
    (site / "a.html").write_text(f"<img src='data:image/svg+xml;base64,{'A' * check.LARGEST}' alt='a figure'>")
    assert check.faults(site) == []


def test_what_the_theme_gets_wrong_is_mended(site: Path) -> None:
    page = site / "a.html"
    page.write_text(
        '<script>const THEBE_JS_URL = "https://example.org"; const x = 1</script><p>kept</p>'
        '<script async="async" src="_static/sphinx-thebe.js?v=1"></script>'
        '<button class="btn search-button-field x" title="Search" aria-label="Search">Search Ctrl+K</button>'
        '<i class="theme-switch fa-solid" data-mode="light" title="Light"></i>'
        '<a href="#t" id="t">Every version</a><details><summary><span class="toctree-toggle"></span></summary>'
        '<div role="list" class="citation-list">'
    )
    check.mend(site)
    text = page.read_text()
    assert "thebe" not in text.lower() and "<p>kept</p>" in text
    assert 'title="Search"' in text and 'aria-label="Search' not in text and "Light" not in text
    assert "<summary aria-label='Every version: pages'>" in text and "role=" not in text


def test_a_table_shows_the_named_columns_and_a_dash_where_a_number_is_missing() -> None:
    frame = pd.DataFrame({"version": ["a<b", "c"], "us": [12.345, None], "run": [1, 2]})
    columns: dict[str, tuple[str, Format]] = {"version": ("version", escape), "us": ("time, µs", "{:.1f}")}
    table = Table.from_frame(frame, columns, slice(1, None), "Of <b>one</b> run.")
    assert table.rows == [("a&lt;b", "12.3"), ("c", tables.NOTHING)]
    html = table._repr_html_()
    assert (
        re.search("<td class='number' data-label='[^']+'>12.3</td>", html)
        and 'scope="row' in html
        and "Of <b>one</b> run." in html
    )
    assert "run</th>" not in html and table.plain().caption == "Of one run."


def test_a_page_lacks_no_value_and_shows_no_empty_section() -> None:
    with pytest.raises(UndefinedError, match="'overview' is undefined"):
        render("family.md", title="RoPE", tables={})
    empty, full = Table(("version",), ()), Table(("version",), [("rope_v1a",)])
    page = render("family.md", title="RoPE", overview=full, tables={"Speed": empty, "Checks": full})
    assert page.startswith("# RoPE: every version\n\n<div") and page.endswith("</div>\n")
    assert "## Checks\n\n<div" in page and "## Speed" not in page


def test_no_test_of_a_claim_that_fails_is_folded_away() -> None:
    evidence = Measured.load(GPU)
    recorded = claims.recorded(GPU)
    rows = {
        re.search(r"id='([^']+)'", row[0])[1]: row[1] for each in "ABCDE" for row in tables.ledger(evidence, each).rows
    }
    assert rows.keys() == recorded.keys()
    for name, cell in rows.items():
        shown, _, folded = cell.partition("<details>")
        failing = {test["outcome"] for test in recorded[name]} & set(rule.FALLS)
        assert all(f"<b>{outcome}</b>" in shown for outcome in failing), name
        assert not any(f"<b>{outcome}</b>" in folded for outcome in rule.FALLS), name


def test_the_summary_of_claims_counts_each_once_and_says_what_its_verdict_means() -> None:
    rows = tables.verdict_summary(Measured.load(GPU)).rows
    assert sum(int(re.sub("<[^>]+>", "", row[1])) for row in rows) == len(claims.load())
    assert set(claims_table.MEANS) == set(rule.VERDICTS)


def test_every_claim_has_an_address_and_its_documents_in_the_ledger() -> None:
    ledger = "".join(tables.ledger(Measured.load(GPU), letter)._repr_html_() for letter in "ABCDE")
    anchors = re.findall(r"<a id='([A-E]-\d\d)' href='#\1' data-documents='([^']+)'>", ledger)
    assert [name for name, _ in anchors] == [claim.id for claim in claims.load()]
    for name, documents in anchors:
        assert set(map(unescape, documents.split("|"))) <= set(published.DOCUMENTS), name
    assert set(re.findall(r"href='#([^']+)'", ledger)) <= {name for name, _ in anchors}
    counts = notebook.verdict_counts(Measured.load(GPU))
    for side, word in (("stand", "all that stand"), ("fall", "all that fall")):  # as the front page links to them
        assert str(ledger.count(f"data-status='{word}'")) == counts[side]
    index = (build.NOTEBOOKS / "index.ipynb").read_text(encoding="utf-8")
    linked = re.findall(r"claims\.html\?verdict=([^)]+)\)", index)
    assert {name.replace("+", " ") for name in linked} == {*claims_table.SIDES}


def test_links_of_a_figure_are_the_files_that_the_book_publishes() -> None:
    source = origin.measured_on("a card", [{"run": "20261122T130720Z", "commit": "abc"}])
    plot = style.Plot("rope-savings", Figure(), "A caption.", "A figure.", pd.DataFrame(), source, "A name")
    html = saving.to_html(plot, saving.FOLDER)
    links = [link for link in re.findall(r"href='([^']+)'", html) if not link.startswith(("https:", "#"))]
    assert len(links) == 4 and "run 20261122T130720Z, commit abc, 2026-11-22" in html
    assert "href='#figure-rope-savings'" in html and "id='figure-rope-savings'" in html
    for link in links:
        assert (build.ROOT / CHAPTERS / link).resolve().is_file()
