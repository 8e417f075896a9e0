"""Figures and tables: equal bytes for equal data, a true source, and a citation that holds what is known."""

import re
import tomllib
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import matplotlib as mpl
import pandas as pd
import pytest
import yaml
from PIL import Image

from analysis import figures
from analysis.book import citing, edition, saving
from analysis.evidence import Evidence, origin
from analysis.figures import style
from analysis.record.files import REFERENCE, ROOT, DataError
from analysis.tables.table import Table
from tests.cards import write

MEASURED = origin.measured_on("a card", [{"run": "20261122T130720Z", "commit": "abc"}])


def drawn() -> style.Plot:
    with style.canvas("A title & more", height=2) as (figure, (axis,)):
        axis.plot([1, 2], [1 / 3, 3], marker="o", label="series")
        style.log_ticks(axis, "y", 0.1, 10, "×")
    return style.Plot("figure", figure, "Caption.", "Alt.", pd.DataFrame({"y": [1 / 3, 3]}), MEASURED)


def test_figure_is_the_same_bytes_again_and_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, time in (("a", "1"), ("b", "1000000000")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", time)
        saving.save(drawn(), tmp_path / where)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [f"figure.{suffix}" for suffix in ("csv", "png", "svg")]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)
    assert (tmp_path / "a" / "figure.csv").read_text() == "y\n0.333333\n3\n"
    told = {
        "svg": " ".join(ElementTree.parse(tmp_path / "a" / "figure.svg").getroot().find("{*}metadata").itertext()),
        "png": " ".join(Image.open(tmp_path / "a" / "figure.png").text.values()),
        "page": unescape(saving.to_html(drawn(), tmp_path / "a")),
    }
    facts = ("a card", "20261122T130720Z", "abc", "CC BY 4.0", "A title & more")
    assert [(format, fact) for format, text in told.items() for fact in facts if fact not in text] == []


def test_figure_ignores_the_users_matplotlibrc(tmp_path: Path) -> None:
    saving.save(drawn(), tmp_path / "plain")
    theirs = {"text.usetex": True, "font.family": "serif", "text.color": "red", "lines.linewidth": 9, "savefig.dpi": 50}
    with mpl.rc_context(theirs):
        saving.save(drawn(), tmp_path / "theirs")
    for path in (tmp_path / "plain").iterdir():
        assert path.read_bytes() == (tmp_path / "theirs" / path.name).read_bytes()


def test_source_names_each_run_once() -> None:
    rows = [{"run": f"2026112{day}T130720Z", "commit": "abc"} for day in (2, 1, 3, 2)]
    found = origin.measured_on("a card", rows)
    assert [run.date for run in found.runs] == ["2026-11-21", "2026-11-22", "2026-11-23"]
    assert str(MEASURED + origin.COUNTED + MEASURED) == f"{MEASURED}; counted in the emulator"


def test_citation_fields_reach_bibtex_and_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fields(entry: str) -> dict[str, str]:
        return dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))

    this = edition.edition()
    entry = fields(citing.bibtex("figure-x", "A title", MEASURED))
    assert (entry["author"], entry["year"], entry["version"]) == (this.authors, this.year, this.version)
    assert "run 20261122T130720Z, commit abc" in entry["note"] and not {"url", "doi"} & {*entry}
    people = [{"family-names": "Roe", "given-names": "Jane"}, {"family-names": "Doe", "given-names": "Jo"}]
    filled = {**yaml.safe_load(edition.CITATION.read_text()), "authors": people, "doi": "10.1/x"}
    filled |= {"url": "https://book.test/", "repository-code": "https://code.test/x"}
    (tmp_path / "filled.cff").write_text(yaml.safe_dump(filled))
    hosted = edition.edition(tmp_path / "filled.cff")
    monkeypatch.setattr(citing, "edition", lambda: hosted)
    entry = fields(citing.bibtex("figure-x", "A title", MEASURED, "book/figures/x.svg"))
    assert (entry["author"], entry["doi"]) == ("Roe, Jane and Doe, Jo", "10.1/x")
    assert entry["url"] == "https://book.test/book/figures/x.svg"
    assert f"https://code.test/x/tree/{citing.this_commit()}/kernels/op" in citing.to_file("kernels/op")
    (tmp_path / "lacking.cff").write_text("title: x\nauthors: []")
    with pytest.raises(DataError, match="lacks 'version'"):
        edition.edition(tmp_path / "lacking.cff")


def test_codecheck_files_exist_and_package_has_the_version_of_the_edition() -> None:
    checked = yaml.safe_load((ROOT / "codecheck.yml").read_text())
    assert checked["paper"]["title"] == edition.edition().title
    assert all((ROOT / one["file"]).exists() and "`make " in one["comment"] for one in checked["manifest"])
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == edition.edition().version


def test_table_can_be_downloaded_and_cited() -> None:
    table = Table(("version", "time, µs"), [("<code>a_<wbr>b</code>", "12.3"), ("c", "–")])
    html = citing.table(table, MEASURED, table.anchor())
    (address,) = re.findall(r"href='data:text/csv;charset=utf-8,([^']+)'", html)
    assert unquote(address).splitlines() == ['version,"time, µs"', "a_b,12.3", "c,–"]
    assert "measured on a card, run 20261122T130720Z" in unescape(html)
    own = citing.table(replace(table, source=origin.COUNTED), MEASURED, "x")
    assert "counted in the emulator" in own and "a card" not in own


def test_figure_draws_its_csv_and_says_of_which_card_its_title_is(tmp_path: Path) -> None:
    plot = figures.fusing(Evidence.load(REFERENCE))
    bars = [1 + bar.get_width() for axis in plot.figure.axes for bar in axis.patches]
    drawn = plot.data[["published", "clock", "slice", "alone"]].stack().dropna()
    assert bars == pytest.approx([*drawn]) and len(bars) == 19
    other = figures.loads(Evidence.load(write("8.9", tmp_path, ("log",))))
    head = " ".join(text.get_text() for text in other.figure.texts)
    assert "the title is of the NVIDIA H100 80GB HBM3" in " ".join(head.split())


def test_figure_says_how_to_make_it_again_and_how_long_its_rows_took(e: Evidence) -> None:
    with citing.page_with([], "analysis/notebooks/wave.ipynb"):
        told = unescape(re.sub("<[^>]+>", "", citing.again(origin.measured(e, "log", "waves") + origin.COUNTED)))
    assert "papermill analysis/notebooks/wave.ipynb out.ipynb" in told
    seconds = sum(e.study(name).run["seconds"] for name in ("log", "waves"))
    assert f"make measure NEW_RUN=1 STUDY=log,waves, {seconds / 60:.0f} minutes" in told
    assert "make book" in (drawn_only := citing.again(origin.COUNTED)) and "measure" not in drawn_only
