"""Figures: equal bytes for equal data, and a true source. The build draws them all."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from analysis.book import citing, figures, origin, saving, style
from analysis.measure.studies import CONDITIONS
from analysis.models import roofline
from analysis.records.files import REFERENCE
from analysis.records.measured import Measured
from kernels import VERSIONS, Problem

MEASURED = style.measured_on("a card", [{"run": "20261122T130720Z", "commit": "abc"}])


def test_a_figure_is_saved_as_the_same_bytes_at_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, time in (("a", "1"), ("b", "1000000000")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", time)
        with style.canvas("A title", height=2) as (figure, (axis,)):
            axis.plot([1, 2], [1 / 3, 3], marker="o", label="series")
            style.log_ticks(axis, "y", 0.1, 10, "×")
            style.legend(figure, [axis])
        plot = style.Plot("figure", figure, "Caption.", "Alt.", pd.DataFrame({"y": [1 / 3, 3]}), MEASURED)
        saving.save(plot, tmp_path / where)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == [f"figure.{suffix}" for suffix in ("csv", "pdf", "png", "svg")]
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert (tmp_path / "a" / "figure.csv").read_text() == "y\n0.333333\n3\n"


@pytest.mark.parametrize("spoiled", ["png", "pdf"])
def test_what_stands_beside_the_same_svg_is_kept_and_any_other_drawn_again(spoiled: str, tmp_path: Path) -> None:
    def save(data: list[int]) -> bytes:
        with style.canvas("A title", height=2) as (figure, (axis,)):
            axis.plot(data)
        saving.save(style.Plot("figure", figure, "Caption.", "Alt.", pd.DataFrame(), MEASURED), tmp_path)
        return path.read_bytes()

    path = tmp_path / f"figure.{spoiled}"
    drawn = save([1, 2])
    path.write_bytes(b"kept")
    assert save([1, 2]) == b"kept"
    assert save([2, 1]) not in (b"kept", drawn)
    path.unlink()
    assert save([1, 2]) == drawn


def test_a_figure_without_a_title_inside_needs_a_name_to_be_cited_by() -> None:
    given = "figure", Figure(), "Caption.", "Alt.", pd.DataFrame(), MEASURED
    with pytest.raises(ValueError, match="figure has neither a title nor a name"):
        style.Plot(*given)
    assert style.Plot(*given, "A name").title == "A name"
    flow = figures.flow("rope_v7")
    assert flow.title == "One call of rope_v7: what each launch reads, keeps and writes"
    assert citing.bibtex("figure-flow", flow.title, flow.source).count(flow.title) == 1


def test_a_source_names_each_run_once() -> None:
    runs = [{"run": "2", "commit": "b"}, {"run": "1", "commit": "a", "study": "x"}, {"run": "2", "commit": "b"}]
    assert str(style.measured_on("a card", runs)) == "measured on a card, run 1, commit a and run 2, commit b"
    assert str(style.measured_on("a card", [{"commit": "a"}])) == "measured on a card, commit a"
    assert str(MEASURED + style.COUNTED + MEASURED) == f"{MEASURED}; counted in the emulator"


def test_the_day_of_measuring_is_the_run_s_or_the_first_of_its_rows() -> None:
    assert MEASURED.runs[0].date == "2026-11-22"
    times = ["2026-11-23T09:00:00Z", "2026-11-21T09:00:00Z"]
    rows = style.measured_on("a card", [{"commit": "a", "measured_at": at} for at in times])
    assert [run.date for run in rows.runs] == ["2026-11-21"]
    assert style.measured_on("a card", [{"commit": "a"}]).runs[0].date == ""


def test_card_run_commit_and_licence_are_inside_every_file(tmp_path: Path) -> None:
    with style.canvas("A title & more", height=2) as (figure, (axis,)):
        axis.plot([1, 2])
    plot = style.Plot("figure", figure, "Caption.", "Alt.", pd.DataFrame(), MEASURED)
    saving.save(plot, tmp_path)
    drawing = ElementTree.parse(tmp_path / "figure.svg").getroot()
    told = {
        "svg": " ".join(drawing.find("{*}metadata").itertext()),
        "png": " ".join(Image.open(tmp_path / "figure.png").text.values()),
        "pdf": (tmp_path / "figure.pdf").read_text(encoding="latin-1"),
    }
    for format, text in told.items():
        for fact in ("a card", "20261122T130720Z", "abc", "CC BY 4.0", "A title & more"):
            assert fact in text, (format, fact)
    assert "Measured on a card, run 20261122T130720Z" in [text.get_text() for text in figure.texts]


def test_published_times_are_not_called_measured(tmp_path: Path) -> None:
    frame = pd.DataFrame([{"family": "attention", "flop_per_byte": 4.0, "tflops": 0.2, "percent_of_roof": 13.9}])
    plot = figures.roofline_published(frame)
    saving.save(plot, tmp_path)
    cited = saving.to_html(plot, tmp_path).partition("class='cite'")[2]
    assert "published" in cited and roofline.RTX_4000_ADA.name in cited and "counted in the emulator" in cited
    assert not re.search("measured|H200", cited, re.IGNORECASE)


def distances(**factors: list[float]) -> pd.DataFrame:
    """Rows as those of `compare.distance.distances`, by condition; of others there is one without a number."""
    given = {name: factors.get(name.replace(" ", "_"), [float("nan")]) for name in CONDITIONS}
    return pd.DataFrame([{"condition": name, "factor": value} for name, values in given.items() for value in values])


def texts(plot: style.Plot) -> list[str]:
    (axis,) = plot.figure.axes
    return [text.get_text() for text in axis.texts]


def test_the_distance_of_published_speedups_names_what_is_not_measured() -> None:
    plot = figures.published_distance(distances(as_timed=[1.0, 1.5, 4.0], device=[1.2]), "NVIDIA Card", MEASURED)
    assert plot.alt.endswith(
        "on the NVIDIA Card: as timed 1.50 (of 3), device 1.20 (of 1), matched not measured, matched launched not "
        "measured."
    )
    assert plot.alt.count(". ") == 1 and texts(plot).count("not measured") == 2
    assert {"1.50×\nof 3", "1.20×\nof 1"} <= set(texts(plot))
    (axis,) = plot.figure.axes
    assert "measured: Card; published: RTX 4000 Ada or L4" in axis.get_xlabel()
    nothing = figures.published_distance(distances(), "NVIDIA Card", MEASURED)
    assert texts(nothing).count("not measured") == len(CONDITIONS)


@pytest.mark.parametrize("nearest", CONDITIONS)
def test_its_title_says_under_which_condition_speedups_come_nearest(nearest: str) -> None:
    factors = {name.replace(" ", "_"): [1.1 if name == nearest else 1.4] for name in CONDITIONS}
    titles = {
        key: figures.published_distance(distances(**given), "Card", origin.Source())
        .figure.get_suptitle()
        .replace("\n", " ")
        for key, given in (("all", factors), ("part", {"device": [1.1], "as_timed": [1.4]}))
    }
    assert all(len(title.split()) <= 12 for title in titles.values())
    words = {
        "as timed": "Timed as",
        "device": "Device",
        "matched": "load, speed",
        "matched launched": "load and timing",
    }
    assert [name for name, word in words.items() if word in titles["all"]] == [nearest]
    assert "nearest" not in titles["part"]


def test_bars_of_the_phases_say_what_padding_does_and_what_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = Measured.load(REFERENCE, "ablation")
    plot = figures.phases(ablation)
    assert "Padded rows close most of Phase 6's gap" in plot.figure.get_suptitle().replace("\n", " ")
    bars = [bar.get_width() for axis in plot.figure.axes for bar in axis.patches]
    assert bars == list(plot.data["us"]) and len(bars) == 14
    ratio = Measured.ratio
    monkeypatch.setattr(Measured, "ratio", lambda self, a, b, *rest: ratio(self, b, a, *rest))
    assert figures.phases(ablation).figure.get_suptitle().startswith("Phases 4 and 6 with one thing changed")
    nothing = figures.phases(Measured.nothing(REFERENCE, "ablation"))
    words = [text.get_text() for axis in nothing.figure.axes for text in axis.texts]
    assert words == 14 * ["not measured"]


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
