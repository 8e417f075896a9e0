"""Tables and figures show what was measured beside what was published, and say what is missing."""

from pathlib import Path

from analysis import tables
from analysis.evidence import Evidence
from analysis.tables import versions
from analysis.tables.table import Missing
from kernels import VERSIONS
from tests.evidence.made_up import TWO, add_run, folder

__all__ = ["folder"]


def test_a_version_shows_what_was_published_and_how_the_two_compare(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 21.0], [10.0, 10.0]))))
    ((_, table),) = versions.times(Evidence.load(folder), VERSIONS["rope_v7"])
    html = table._repr_html_()
    assert "0.047" in html and "1.45×" in html and "2.05×" in html


def test_what_could_not_run_says_why() -> None:
    e = Evidence.load("nvidia-h200")
    refused = e.study("log").checks.query("status == 'infeasible'")
    assert len(refused)
    for version, rows in refused.groupby("version"):
        told = {text for _, text, _ in versions.reasons(e, VERSIONS[version])[0]}
        assert set(rows["reason"]) <= told


def test_repeatability_compares_the_last_two_complete_runs(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([90.0], [10.0]), strict=True)))
    assert isinstance(tables.repeatability(Evidence.load(folder)), Missing)
    add_run(folder, "2", dict(zip(TWO, ([20.0], [10.0]), strict=True)))
    add_run(folder, "3", dict(zip(TWO, ([50.0], [10.0]), strict=True)), complete=False)
    add_run(folder, "4", dict(zip(TWO, ([21.0], [10.0]), strict=True)))
    table = tables.repeatability(Evidence.load(folder))
    assert table.rows == [("the log's kernels", "device_warm", "1", "5.0 %", "5.0 %")]
    assert table.caption == "Against run 2."
    add_run(folder, "5", dict(zip(TWO, ([35.0], [10.0]), strict=True)))
    add_run(folder, "6", dict(zip(TWO, ([90.0], [10.0]), strict=True)), source_hash="0" * 16)
    assert isinstance(tables.repeatability(Evidence.load(folder)), Missing)  # another code, and no measure of repeating
