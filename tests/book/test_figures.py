"""Figures and tables: equal bytes for equal data, a true source, and a citation that holds what is known."""

import re
import tomllib
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pandas as pd
import pytest
import yaml
from PIL import Image

from analysis import figures
from analysis.book import citing, edition, origin, saving
from analysis.evidence import Evidence
from analysis.figures import style
from analysis.models import roofline
from analysis.records.files import ROOT, DataError
from analysis.tables.table import Table
from kernels import VERSIONS, Problem
from tests.cards import write

MEASURED = origin.measured_on("a card", [{"run": "20261122T130720Z", "commit": "abc"}])
HOSTED = {"url": "https://book.test/", "repository": "https://code.test/x", "doi": "10.1/x"}


def drawn() -> style.Plot:
    with style.canvas("A title & more", height=2) as (figure, (axis,)):
        axis.plot([1, 2], [1 / 3, 3], marker="o", label="series")
        style.log_ticks(axis, "y", 0.1, 10, "×")
        style.legend(figure, [axis])
    return style.Plot("figure", figure, "Caption.", "Alt.", pd.DataFrame({"y": [1 / 3, 3]}), MEASURED)


def test_a_figure_is_saved_as_the_same_bytes_at_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, time in (("a", "1"), ("b", "1000000000")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", time)
        saving.save(drawn(), tmp_path / where)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [f"figure.{suffix}" for suffix in ("csv", "png", "svg")]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert (tmp_path / "a" / "figure.csv").read_text() == "y\n0.333333\n3\n"


def test_card_run_commit_and_licence_are_inside_every_file_and_in_the_citation(tmp_path: Path) -> None:
    plot = drawn()
    saving.save(plot, tmp_path)
    drawing = ElementTree.parse(tmp_path / "figure.svg").getroot()
    told = {
        "svg": " ".join(drawing.find("{*}metadata").itertext()),
        "png": " ".join(Image.open(tmp_path / "figure.png").text.values()),
        "page": unescape(saving.to_html(plot, tmp_path)),
    }
    for format, text in told.items():
        for fact in ("a card", "20261122T130720Z", "abc", "CC BY 4.0", "A title & more"):
            assert fact in text, (format, fact)
    assert re.search("<code>make book</code> at commit [0-9a-f]{7,}", told["page"])


def test_published_times_are_not_called_measured(tmp_path: Path) -> None:
    frame = pd.DataFrame([{"family": "attention", "flop_per_byte": 4.0, "tflops": 0.2, "percent_of_roof": 13.9}])
    plot = figures.roofline_published(frame)
    saving.save(plot, tmp_path)
    cited = saving.to_html(plot, tmp_path).partition("class='cite'")[2]
    assert "published" in cited and roofline.RTX_4000_ADA.name in cited
    assert not re.search("measured|H200", cited, re.IGNORECASE)


def test_a_source_names_each_run_once_in_the_order_of_their_names() -> None:
    rows = [{"run": f"2026112{day}T130720Z", "commit": "abc"} for day in (2, 1, 3, 2)]
    found = origin.measured_on("a card", rows)
    assert found == origin.measured_on("a card", rows[::-1]) and len(found.runs) == 3
    assert [run.date for run in found.runs] == ["2026-11-21", "2026-11-22", "2026-11-23"]
    assert str(MEASURED + origin.COUNTED + MEASURED) == f"{MEASURED}; counted in the emulator"


def test_an_entry_has_what_is_published_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fields(entry: str) -> dict[str, str]:
        return dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))

    this = edition.edition()
    entry = fields(citing.bibtex("figure-x", "A title", MEASURED))
    assert (entry["author"], entry["year"], entry["version"]) == (this.authors, this.year, this.version)
    assert "run 20261122T130720Z, commit abc" in entry["note"] and not {"url", "doi"} & {*entry}
    (tmp_path / "settings.yml").write_text(yaml.safe_dump(HOSTED))
    hosted = edition.edition(settings=tmp_path / "settings.yml")
    monkeypatch.setattr(citing, "edition", lambda: hosted)
    entry = fields(citing.bibtex("figure-x", "A title", MEASURED, "book/figures/x.svg"))
    assert (entry["url"], entry["doi"]) == ("https://book.test/book/figures/x.svg", "10.1/x")
    anchors = [f"table-{'every-problem-timed-beside-pytorch-' * 6}{last}" for last in ("a", "b")]
    keys = {citing.bibtex(each, "A title", MEASURED).splitlines()[0] for each in anchors}
    assert len(keys) == 2 and max(map(len, keys)) <= 100


def test_citation_package_and_changelog_agree() -> None:
    cited, this = yaml.safe_load(edition.CITATION.read_text()), edition.edition()
    preferred = cited["preferred-citation"]
    assert (preferred["version"], str(preferred["date-released"])) == (this.version, this.date)
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == this.version
    assert f"## {this.version}, {this.date}" in (ROOT / "CHANGELOG.md").read_text()


def test_bad_settings_are_named(tmp_path: Path) -> None:
    (tmp_path / "settings.yml").write_text("url: x")
    with pytest.raises(DataError, match="it takes url, repository, doi"):
        edition.edition(settings=tmp_path / "settings.yml")


def test_a_table_can_be_downloaded_and_cited() -> None:
    table = Table(("version", "time, \u00b5s"), [("<code>a_<wbr>b</code>", "1.5&nbsp;<small>\u00b1 0.1</small>")])
    html = citing.table(table, MEASURED, table.anchor())
    (address,) = re.findall(r"href='data:text/csv;charset=utf-8,([^']+)'", html)
    assert unquote(address).splitlines() == ['version,"time, \u00b5s"', "a_b,1.5\xa0\u00b1 0.1"]
    assert "measured on a card, run 20261122T130720Z" in unescape(html)
    own = Table(table.header, table.rows, source=origin.COUNTED, id="counts")
    assert "counted in the emulator" in citing.table(own, MEASURED, "x") and "a card" not in citing.table(
        own, MEASURED, "x"
    )


def test_a_table_shows_a_dash_where_a_number_is_missing() -> None:
    frame = pd.DataFrame({"version": ["a", "c"], "us": [12.345, None]})
    table = Table.from_frame(frame, {"version": ("version", str), "us": ("time, µs", "{:.1f}")})
    assert table.rows == [("a", "12.3"), ("c", "–")]


def test_a_figure_draws_its_csv_and_says_what_is_not_measured(tmp_path: Path) -> None:
    plot = figures.phases(Evidence.load("nvidia-h200"))
    bars = [bar.get_width() for axis in plot.figure.axes for bar in axis.patches]
    assert bars == list(plot.data["us"]) and len(bars) == 14
    folder = write("8.9", tmp_path, ("log",))
    nothing = figures.phases(Evidence.load(folder))
    assert {text.get_text() for axis in nothing.figure.axes for text in axis.texts} == {"not measured"}
    assert "the title is of the NVIDIA H200" in " ".join(
        text.get_text() for text in figures.rope_savings(Evidence.load(folder)).figure.texts
    ).replace("\n", " ")


def test_the_threads_drawn_for_a_version_are_those_of_its_launches() -> None:
    """Versions that share a panel work alike, at every head dim unless one is named."""
    drawn = figures.score_threads().data.set_index("name")
    assert len(drawn) == 4
    for name, row in drawn.iterrows():
        named, _, hdim = str(name).partition(", head dim ")
        for version in named.split(", "):
            for port in (each for each in VERSIONS if re.fullmatch(f"rope_{version.lower()}[a-c]?", each)):
                for dim in (int(hdim),) if hdim else (128, 512, 2048):
                    launch = VERSIONS[port](Problem("rope", heads=4, hdim=dim, rotary_dim=dim)).launches[-1]
                    keys = min(64, launch.shared.sizes["scores"])
                    assert (launch.block[0], keys, 64 // keys) == (row["threads"], row["keys"], row["tiles"]), port
