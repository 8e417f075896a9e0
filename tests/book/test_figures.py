"""Figures: equal bytes for equal data, and a true source. The build draws them all."""

import re
from pathlib import Path

import pandas as pd
import pytest

from analysis.book import figures, style
from analysis.models import roofline


def test_a_figure_is_saved_as_the_same_bytes_at_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, time in (("a", "1"), ("b", "1000000000")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", time)
        with style.canvas("A title", height=2) as (figure, (axis,)):
            axis.plot([1, 2], [1 / 3, 3], marker="o", label="series")
            style.log_ticks(axis, "y", 0.1, 10, "×")
            style.legend(figure, [axis])
        plot = style.Plot("figure", figure, "Caption.", "Alt.", pd.DataFrame({"y": [1 / 3, 3]}), "measured on a card")
        style.save(plot, tmp_path / where)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == [f"figure.{suffix}" for suffix in ("csv", "pdf", "png", "svg")]
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert (tmp_path / "a" / "figure.csv").read_text() == "y\n0.333333\n3\n"


def test_a_source_names_each_run_once() -> None:
    runs = [{"run": "2", "commit": "b"}, {"run": "1", "commit": "a", "study": "x"}, {"run": "2", "commit": "b"}]
    assert style.measured_on("a card", runs) == "measured on a card, run 2, commit b and run 1, commit a"
    assert style.measured_on("a card", [{"commit": "a"}]) == "measured on a card, commit a"


def test_published_times_are_not_called_measured(tmp_path: Path) -> None:
    frame = pd.DataFrame([{"family": "attention", "flop_per_byte": 4.0, "tflops": 0.2, "percent_of_roof": 13.9}])
    plot = figures.roofline_published(frame)
    style.save(plot, tmp_path)
    cited = style.to_html(plot, tmp_path).partition("Cite this figure")[2]
    assert "published" in cited and roofline.RTX_4000_ADA.name in cited and "counted in the emulator" in cited
    assert not re.search("measured|H200", cited, re.IGNORECASE)
