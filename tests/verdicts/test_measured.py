"""The reading side: which run counts, what a ratio and its interval are, what the documents state."""

import json
import math
from html import escape
from pathlib import Path

import pytest

from analysis import tables
from analysis.evidence import Evidence
from analysis.figures.speedups import rows as speedup_rows
from analysis.records import published
from analysis.records.current import today
from analysis.records.files import DataError, append_rows, problem_columns
from analysis.records.interval import Ratio
from analysis.records.measured import CEILINGS, Check, Measured
from analysis.tables.language import language
from analysis.tables.table import Missing
from analysis.verdicts.rule import stands
from kernels import Problem
from kernels.checking.reference import INPUTS

PROBLEM = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=128)
TWO = ("rope_separate", "rope_v7")


def add_run(
    folder: Path,
    run: str,
    times: dict[str, list[float]],
    complete: bool = True,
    source_hash: str = "",
    study: str = "log",
) -> None:
    """A run in which each version took `times` microseconds, a process each."""
    words = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit")
    entry = dict.fromkeys((*words, "started_at", "finished_at"), "x")
    row = {"run": run, "study": study, "complete": complete, "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    append_rows(folder / "runs.csv", "runs", [{**entry, **row}])
    common = {"run": run, "study": study, **problem_columns(PROBLEM), "measured_at": run}
    for version, values in times.items():
        mine = {**common, "version": version, "source_hash": source_hash or today(version), "status": "ok"}
        check = {"max_abs_err": 1e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0}
        append_rows(folder / "checks.csv", "checks", [{**mine, **check, "inputs": i} for i in ("uniform", "sharp")])
        timed = [{**mine, "process": i, "timer": "device_warm", "median_us": t} for i, t in enumerate(values, 1)]
        append_rows(folder / "timings.csv", "timings", timed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    gpu = {
        "name": "Test GPU",
        "slug": "test-gpu",
        "compute_capability": "9.0",
        "sms": 132,
        "ceilings": dict.fromkeys(CEILINGS, 1.0),
    }
    (tmp_path / "gpu.json").write_text(json.dumps(gpu))
    return tmp_path


def test_the_latest_complete_run_counts_not_the_fastest(folder: Path) -> None:
    add_run(folder, "20260101", {"rope_v7": [10.0, 10.0]})
    add_run(folder, "20260102", {"rope_v7": [30.0, 32.0, 31.0]})
    add_run(folder, "20260103", {"rope_v7": [5.0]}, complete=False)
    assert Measured.read(folder).time("rope_v7", PROBLEM) == pytest.approx(((30 * 31 * 32) ** (1 / 3), 30.0, 32.0))
    assert Measured.read(folder).run["run"] == "20260102"


def test_a_ratio_is_within_a_process_and_its_interval_over_them(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 40.0, 90.0], [10.0, 20.0, 30.0]))))
    found = Measured.read(folder).ratio(*TWO, PROBLEM)
    # by hand: logs ln 2, ln 2, ln 3; mean 0.82829, deviation 0.23410, t(0.975, 2 degrees) = 4.30265
    assert found is not None
    half = 4.30265 * 0.23410 / math.sqrt(3)
    assert found == pytest.approx((12 ** (1 / 3), math.exp(0.82829 - half), math.exp(0.82829 + half), 1), rel=1e-4)


def test_two_times_divide_to_their_ratio(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 40.0, 90.0], [10.0, 20.0, 30.0]))))
    found = Measured.read(folder)
    over, under = (found.time(name, PROBLEM) for name in TWO)
    assert over and under and over.us / under.us == pytest.approx(found.ratio(*TWO, PROBLEM).value)


def test_a_process_that_timed_only_one_of_the_two_is_left_out(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 20.0, 20.0], [10.0, 10.0]))))
    assert Measured.read(folder).ratio(*TWO, PROBLEM) == pytest.approx((2.0, 2.0, 2.0, 1))
    assert Measured.read(folder).ratio("rope_v1c", "rope_v7", PROBLEM) is None


def test_a_ratio_is_within_one_study(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0], [10.0]))))
    add_run(folder, "2", dict(zip(TWO, ([90.0], [10.0]))), study="controlled")
    assert Measured.read(folder).ratio(*TWO, PROBLEM).value == pytest.approx(2.0)
    assert Measured.read(folder, "controlled").ratio(*TWO, PROBLEM).value == pytest.approx(9.0)


def test_a_changed_kernel_is_stale_and_shown_so(folder: Path) -> None:
    add_run(folder, "1", {"rope_v7": [10.0]}, source_hash="0" * 16)
    found = Measured.read(folder)
    assert found.stale("rope_v7", PROBLEM) and found.stale_versions() == ["rope_v7"]
    assert ">stale<" in tables.times(Evidence.load(folder), "rope")._repr_html_()
    add_run(folder, "1", {"rope_v7": [11.0]})  # the run goes on with today's code: only those rows count
    found = Measured.read(folder)
    assert not found.stale_versions()
    assert found.time("rope_v7", PROBLEM) == pytest.approx((11.0, 11.0, 11.0))
    assert ">stale<" not in tables.times(Evidence.load(folder), "rope")._repr_html_()


def test_the_worse_of_the_two_inputs_decides(folder: Path) -> None:
    """The error that counts is the larger share of what its input allows; that which is shown, the larger number."""
    add_run(folder, "1", {"rope_separate": [10.0]})
    ok = {"status": "ok", "reason": None, "max_abs_err": 3e-7, "allowed_abs_err": 9e-7, "nan_share": 0.0}
    wrong = {"status": "wrong", "reason": "one warp", "max_abs_err": 2e-7, "allowed_abs_err": 1e-7, "nan_share": 0.25}
    small = {**ok, "max_abs_err": 6e-9, "allowed_abs_err": 7e-9}
    for version, found in (("rope_v3", (ok, wrong)), ("rope_v7", (wrong, ok)), ("rope_v4", (small, ok))):
        common = {"run": "1", "study": "log", "version": version, "source_hash": today(version), "measured_at": "1"}
        rows = [{**common, **problem_columns(PROBLEM), "inputs": i, **row} for i, row in zip(INPUTS, found)]
        append_rows(folder / "checks.csv", "checks", rows)
    measured = Measured.read(folder)
    assert measured.check("rope_v3", PROBLEM) == measured.check("rope_v7", PROBLEM) == Check(**wrong, excess=2.0)
    assert measured.check("rope_v4", PROBLEM) == Check(**{**ok, "reason": ""}, excess=6e-9 / 7e-9)


def test_the_core_that_ran_is_the_recorded_one_or_that_of_the_emulated_target(folder: Path) -> None:
    names = ("rope_v8", "rope_v7", "rope_v8_mma", "rope_separate_v8", "rope_hybrid_v8")
    add_run(folder, "1", {name: [10.0] for name in names[:2]})
    for name, row in zip(
        names[2:], ({"status": "unsupported"}, {"status": "ok", "core": "portable"}, {"status": "wrong"})
    ):
        common = {"run": "1", "study": "log", "version": name, "source_hash": today(name), "measured_at": "1"}
        append_rows(folder / "checks.csv", "checks", [{**common, **problem_columns(PROBLEM), "inputs": "sharp", **row}])
    measured = Measured.read(folder)
    assert [measured.core(name, PROBLEM) for name in names] == ["wgmma", "", "", "portable", "wgmma"]
    assert measured.core("rope_v8_portable", PROBLEM) == ""  # not measured


def test_no_complete_run_and_no_such_gpu_are_one_clear_message(folder: Path) -> None:
    add_run(folder, "1", {"rope_v7": [1.0]}, complete=False)
    with pytest.raises(DataError, match=r"runs\.csv: no run of study 'log' is complete"):
        Measured.read(folder)
    with pytest.raises(DataError, match=r"no GPU called 'abacus'.*nvidia-h200"):
        Measured.load("abacus")
    gpu = json.loads((folder / "gpu.json").read_text())
    (folder / "gpu.json").write_text(json.dumps({**gpu, "ceilings": {}}))
    with pytest.raises(DataError, match=r"gpu\.json: ceiling 'read_gb_s' is missing"):
        Measured.read(folder)


@pytest.mark.parametrize(
    ("said", "measured", "word"),
    [
        (1.40, Ratio(1.45, 1.41, 1.49), "reproduced"),
        (1.40, Ratio(1.10, 1.08, 1.12), "same direction"),
        (1.40, Ratio(1.00, 0.98, 1.02), "no difference"),
        (1.40, Ratio(0.90, 0.88, 0.92), "opposite"),
        (0.60, Ratio(0.90, 0.88, 0.92), "same direction"),
        (1.40, Ratio(1.10, 0.70, 1.80), "undecided"),
        (1.00, Ratio(1.20, 1.19, 1.21), "a difference"),
        (1.00, Ratio(1.01, 1.00, 1.02), "reproduced"),
        (1.05, Ratio(1.01, 1.00, 1.02), "no difference"),  # within 10 %, but a tie
        (1.05, Ratio(1.02, 1.00, 1.05), "undecided"),
        (1.05, Ratio(0.96, 0.96, 0.965), "opposite"),  # within 10 %, but slower where faster is published
        (1.40, Ratio(0.98, 0.90, 1.02), "no difference"),
        (0.60, Ratio(1.05, 0.99, 1.20), "no difference"),
        (1.40, Ratio(1.40, math.nan, math.nan), "undecided"),  # a single process
        (1.40, None, ""),
    ],
)
def test_verdicts_follow_the_interval(said: float, measured: Ratio | None, word: str) -> None:
    assert stands(said, measured) == word


def test_published_numbers_are_joined_by_version_and_shape() -> None:
    found = published.published("rope_v7", PROBLEM)
    assert found == (0.047, 0.047, 0.048, published.WRITE_UP)
    assert published.published("rope_v7", Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=512)) is None
    assert published.speedup("rope_v7", "rope_separate", PROBLEM)[:3] == (1.45, 1.42, 1.45)
    slower = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=512)
    assert published.speedup("rope_v1c", "rope_separate", slower).value == pytest.approx(1 / 2.65)
    from_times = published.speedup(
        "sinusoidal_v5", "sinusoidal_separate_float4", Problem("sinusoidal", 1, 4, seq_q=64, hdim=512)
    )
    assert from_times is not None and from_times.value == pytest.approx(0.062 / 0.057)
    beside = published.speedup("rope_v3", "rope_separate", Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=2048))
    assert beside is not None and beside.value == pytest.approx(0.234 / 0.313), "both of one run"


def test_tables_never_hide_what_was_published(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 21.0], [10.0, 10.0]))))
    assert "0.047" in tables.times(Evidence.load(folder), "rope")._repr_html_()
    html = tables.speedups(Evidence.load(folder), "rope")._repr_html_()
    assert "1.45×" in html and "2.05×" in html


def test_figures_give_speedups_over_the_baseline(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 20.0], [10.0, 10.0]))))
    rows = speedup_rows(Evidence.load(folder), "rope_v7", "rope_separate")
    assert {row["series"]: row["speedup"] for row in rows} == pytest.approx({"published": 1.45, "device_warm": 2.0})


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
    table = language(Measured.read(folder, "control"))
    assert table.header == ("version", "64", "128", "512", "2048", "4096", "8192") and len(table.rows) == 10

    def row(version: str) -> dict[str, str]:
        (found,) = (row for row in table.rows if f"versions/{version}.html" in row[0])
        return dict(zip(table.header, found))

    hybrid, half = row("rope_v7"), row("fp16_phase4")
    assert "versions/rope_v7.html#control_rope_v7" in hybrid["version"]
    assert "0.25×" in hybrid["512"] and "launched 0.67×" in hybrid["512"]
    assert "not measured" in hybrid["2048"] and "×" not in hybrid["2048"]
    assert "not measured" in half["64"] and "measured" not in half["512"]
