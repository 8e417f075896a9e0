"""How a figure, a table and the edition are cited: one source of the facts, and nothing that is not published."""

import re
import tomllib
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
import yaml

from analysis.book import citing, edition, origin
from analysis.book.site import made, pdf
from analysis.book.site.imprint import footer
from analysis.book.site.place import MADE, Place
from analysis.book.table import Table
from analysis.records.files import ROOT, DataError
from analysis.records.measured import Measured

SOURCE = origin.measured_on("a card", [{"run": "20261122T130720Z", "commit": "abc"}])
HOSTED = {"url": "https://book.test/", "repository": "https://code.test/x", "doi": "10.1/x"}


@pytest.fixture
def hosted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[edition.Edition]:
    """The edition, as if it were published."""
    settings = tmp_path / "settings.yml"
    settings.write_text(yaml.safe_dump(HOSTED))
    found = edition.edition(settings=settings)
    monkeypatch.setattr(citing, "edition", lambda: found)
    yield found


def test_citation_settings_package_and_changelog_agree() -> None:
    cited = yaml.safe_load(edition.CITATION.read_text())
    this, preferred = edition.edition(), cited["preferred-citation"]
    assert (preferred["version"], str(preferred["date-released"])) == (this.version, this.date)
    assert (preferred["title"], preferred["authors"]) == (cited["title"], cited["authors"])
    assert str(preferred["year"]) == this.year
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == this.version
    assert f"## {this.version}, {this.date}" in (ROOT / "CHANGELOG.md").read_text()
    assert (cited.get("url", ""), cited.get("repository-code", ""), cited.get("doi", "")) == (
        this.url,
        this.repository,
        this.doi,
    )
    assert (cited["license"], preferred["license"]) == ("MIT", "CC-BY-4.0")


def test_an_entry_is_what_latex_prints() -> None:
    entry = citing.bibtex("figure-x", "50 % of rope_v8 & {more} \\ than~1 < 2^3", SOURCE)
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
    assert fields["title"] == (
        r"{50 \% of rope\_v8 \& \{more\} \textbackslash{} than\textasciitilde{}1 \textless{} 2\textasciicircum{}3}"
    )
    assert not re.search(r"(?<!\\)[&%$#_]", entry)


def test_an_entry_has_author_year_version_and_its_own_facts() -> None:
    entry = citing.bibtex("figure-x", "A title", SOURCE)
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
    this = edition.edition()
    assert (fields["author"], fields["year"], fields["version"]) == (this.authors, this.year, this.version)
    assert fields["title"] == "{A title}" and "run 20261122T130720Z, commit abc" in fields["note"]
    assert set(fields) == {"title", "author", "year", "version", "howpublished", "note"}  # nothing is hosted


def test_the_whole_edition_has_an_entry_of_its_own(hosted: edition.Edition) -> None:
    entry = citing.bibtex_of_edition()
    fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
    assert entry.startswith("@misc{fused-positional-embeddings,\n") and fields["title"] == f"{{{hosted.title}}}"
    assert (fields["year"], fields["version"], fields["doi"]) == (hosted.year, hosted.version, "10.1/x")
    assert fields["url"] == "https://book.test/index.html"


def test_keys_of_entries_are_short_and_tell_tables_apart() -> None:
    anchors = [f"table-{'every-problem-timed-beside-pytorch-' * 6}{last}" for last in ("a", "b")]
    keys = [re.match(r"@misc\{([a-z0-9-]+),\n", citing.bibtex(each, "A title", SOURCE))[1] for each in anchors]
    assert len({*keys}) == 2 and max(map(len, keys)) <= 90
    assert citing.bibtex("figure-rope-savings", "A title", SOURCE).startswith(
        "@misc{fused-positional-embeddings-figure-rope-savings,"
    )


def test_runs_are_cited_in_the_order_of_their_names_however_they_come() -> None:
    rows = [{"run": f"2026112{day}T130720Z", "commit": "abc"} for day in (2, 1, 3)]
    assert origin.measured_on("a card", rows) == origin.measured_on("a card", rows[::-1])
    assert [run.date for run in origin.measured_on("a card", rows).runs] == ["2026-11-21", "2026-11-22", "2026-11-23"]


def test_a_hosted_edition_is_cited_by_its_address(hosted: edition.Edition) -> None:
    entry = citing.bibtex("figure-x", "A title", SOURCE, "book/figures/x.svg")
    assert "url = {https://book.test/book/figures/x.svg}" in entry and "doi = {10.1/x}" in entry
    about = footer(Measured.load("nvidia-h200"), "abc", hosted)
    assert "https://code.test/x" in about and "https://doi.org/10.1/x" in about


def test_the_foot_of_a_page_names_version_commit_card_date_and_licence() -> None:
    evidence = Measured.load("nvidia-h200")
    run = str(evidence.run["run"])
    about = footer(evidence, "abc")
    for fact in (edition.edition().version, "commit abc", evidence.card, f"{run[:4]}-{run[4:6]}-{run[6:8]}", "CC BY"):
        assert fact in about
    assert re.findall(r'href="([^"]+)"', about) == [edition.LICENSE_URL]


@pytest.mark.parametrize(("text", "says"), [("url: x", "it takes url, repository, doi"), ("[]", "not a mapping")])
def test_bad_settings_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "settings.yml"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        edition.edition(settings=path)


def test_a_table_can_be_downloaded_and_cited() -> None:
    table = Table(("version", "time, \u00b5s"), [("<code>a_<wbr>b</code>", "1.5&nbsp;<small>\u00b1 0.1</small>")])
    html = table.cited(SOURCE, table.anchor())
    (address,) = re.findall(r"href='data:text/csv;charset=utf-8,([^']+)'", html)
    assert unquote(address).splitlines() == ['version,"time, \u00b5s"', "a_b,1.5\xa0\u00b1 0.1"]
    assert "id='table-version-time-s'" in html and "href='#table-version-time-s'" in html
    assert "measured on a card, run 20261122T130720Z" in unescape(html)
    own = Table(table.header, table.rows, source=origin.COUNTED, id="counts")
    assert "counted in the emulator" in own.cited(SOURCE, own.anchor()) and own.anchor() == "table-counts"
    assert "a card" not in own.cited(SOURCE, own.anchor())


def test_each_figure_stands_once_in_the_index_where_it_is_shown_first(tmp_path: Path) -> None:
    def chapter(name: str, *ids: str) -> None:
        shown = "".join(f"<figure class='evidence' id='figure-{i}'><p class='figure-title'>{i} &lt; 1</p>" for i in ids)
        cell = nbformat.v4.new_code_cell("", outputs=[nbformat.v4.new_output("display_data", {"text/html": shown})])
        cells = [nbformat.v4.new_markdown_cell(f"# Chapter {name}"), cell]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")

    chapter("one", "a", "b")
    chapter("two", "b", "c")
    found = [(each.id, each.chapter, each.heading, each.title) for each in made.entries(tmp_path, ("one", "two"))]
    assert [entry[:2] for entry in found] == [("a", "one"), ("b", "one"), ("c", "two")]
    assert found[0][2:] == ("Chapter one", "a < 1")
    assert set(made.PAGES) == set(MADE)


def test_the_printed_book_links_within_itself_and_leaves_out_what_serves_on_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    chapters = place.html / pdf.CHAPTERS
    chapters.mkdir(parents=True)
    body = (
        "<head><title>x</title></head><article><h1>One</h1><p id='here'><a href='two.html#there'>two</a>"
        "<a href='../versions/v.html'>a version</a><a href='one.html#here'>here</a><a href='two.html'>all</a></p>"
        "<details class='cite'>cite</details><details><p>kept</p></details></article>"
    )
    for name in ("one", "two"):
        (chapters / f"{name}.html").write_text(body.replace("id='here'", "id='there'") if name == "two" else body)
    monkeypatch.setattr(pdf, "story", lambda: ["one", "two"])
    text = pdf.assemble(place, "the imprint")
    links, anchors = set(re.findall(r'href=.#([^"\']+)', text)), set(re.findall(r'id=.([^"\']+)', text))
    assert {"one", "two", "two-there"} <= links <= anchors
    assert f"<title>{edition.edition().title}</title>" in text
    assert "cite</details>" not in text and 'open=""' in text and "v.html" not in text and "a version" in text
    (chapters / "two.html").unlink()
    with pytest.raises(DataError, match=r"two\.html is not there; run `make book` first"):
        pdf.assemble(place, "")


def test_without_a_browser_printing_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert pdf.main([]) == 1
    assert "there is no browser on the PATH; one of chromium" in capsys.readouterr().err
