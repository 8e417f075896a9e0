"""Tables and figures show what was measured beside what was published, and say what is missing."""

from html import escape
from pathlib import Path

from analysis import tables
from analysis.evidence import Evidence
from analysis.evidence.current import today
from analysis.record.files import problem_columns
from analysis.tables.language import beside_control
from analysis.tables.table import Missing
from tests.evidence.made_up import PROBLEM, TWO, add_run, folder
from tests.rows import append_rows

__all__ = ["folder"]


def test_tables_never_hide_what_was_published(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 21.0], [10.0, 10.0]))))
    assert "0.047" in tables.times(Evidence.load(folder), "rope")._repr_html_()
    html = tables.speedups(Evidence.load(folder), "rope")._repr_html_()
    assert "1.45×" in html and "2.05×" in html


def test_what_could_not_run_says_why() -> None:
    e = Evidence.load("nvidia-h200")
    refused = e.study("log").checks.query("status == 'infeasible'")
    assert len(refused)
    for family, rows in refused.groupby("family"):
        html = tables.checks(e, family)._repr_html_()
        assert all(escape(reason) in html for reason in rows["reason"])


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


def test_a_version_is_shown_over_its_control_and_what_is_not_measured_is_said(folder: Path) -> None:
    add_run(folder, "1", {"rope_v7": [40.0], "control_rope_v7": [10.0]}, study="control")
    common = {"run": "1", "study": "control", "measured_at": "1", "status": "ok", "timer": "launched", "process": 1}
    for version, us in (("rope_v7", 30.0), ("control_rope_v7", 20.0)):
        mine = {"version": version, "source_hash": today(version), "median_us": us}
        append_rows(folder / "timings.csv", "timings", [{**common, **problem_columns(PROBLEM), **mine}])
    table = beside_control(Evidence.load(folder), "rope_v7")
    assert table is not None
    shown = dict(zip(table.header, table.rows[0]))
    assert "0.25×" in shown["512"] and "launched 0.67×" in shown["512"]
    assert "not measured" in shown["2048"] and "×" not in shown["2048"]
