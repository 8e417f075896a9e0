"""One study of a card: which run and rows count, and what its checks and the documents say."""

import math
from pathlib import Path

import pytest

from analysis.evidence import Check, Evidence
from analysis.evidence.current import today
from analysis.record import published
from analysis.record.files import DataError, problem_columns
from kernels import Problem
from kernels.checking.reference import INPUTS
from tests.evidence.made_up import PROBLEM, TWO, add_run
from tests.rows import add_rows


def test_complete_runs_of_todays_code_count_alike(folder: Path) -> None:
    add_run(folder, "20260101", {"rope_v7": [10.0, 10.0]})
    add_run(folder, "20260102", {"rope_v7": [30.0, 32.0, 31.0]})
    add_run(folder, "20260103", {"rope_v7": [5.0]}, complete=False)
    e = Evidence.load(folder)
    assert e.time("rope_v7")[512].value == pytest.approx((10 * (30 * 31 * 32) ** (1 / 3)) ** (1 / 2))
    assert e.study("log").run["run"] == "20260102"


def test_ratio_is_within_a_process_and_its_interval_over_them(folder: Path) -> None:
    add_run(folder, "1", dict(zip(TWO, ([20.0, 40.0, 90.0, 7.0], [10.0, 20.0, 30.0]))))
    found = Evidence.load(folder).speedup(*reversed(TWO))[512]
    # by hand: logs ln 2, ln 2, ln 3; mean 0.82829, deviation 0.23410, t(0.975, 2 degrees) = 4.30265
    half = 4.30265 * 0.23410 / math.sqrt(3)
    assert found.value == pytest.approx(12 ** (1 / 3))
    assert (found.low, found.high) == pytest.approx((math.exp(0.82829 - half), math.exp(0.82829 + half)), rel=1e-4)


def test_changed_kernel_is_stale_until_todays_is_measured(folder: Path) -> None:
    add_run(folder, "1", {"rope_v7": [10.0]}, source_hash="0" * 16)
    found = Evidence.load(folder)
    assert found.study("log").stale_versions() == ["rope_v7"] and found.time("rope_v7")[512].about.stale == ("rope_v7",)
    add_run(folder, "2", {"rope_v7": [11.0]})
    found = Evidence.load(folder)
    assert not found.study("log").stale_versions()
    assert found.time("rope_v7")[512].value == pytest.approx(11.0)


def test_version_that_never_had_a_time_is_not_stale_where_it_is_refused_today(folder: Path) -> None:
    add_run(folder, "1", {"rope_v7": [math.nan]}, source_hash="0" * 16)
    add_run(folder, "2", {"rope_v7": []})
    assert not Evidence.load(folder).study("log").stale_versions()


def test_study_without_complete_run_is_empty_and_unknown_gpu_named(folder: Path) -> None:
    add_run(folder, "1", {"rope_v7": [1.0]}, complete=False)
    assert not Evidence.load(folder).study("log")
    with pytest.raises(DataError, match=r"no GPU called 'abacus'.*nvidia-h200"):
        Evidence.load("abacus")


def test_worse_of_the_two_inputs_decides(folder: Path) -> None:
    """The error that counts is the larger share of what its input allows; that which is shown, the larger number."""
    add_run(folder, "1", {"rope_separate": [10.0]})
    ok = {"status": "ok", "reason": None, "max_abs_err": 3e-7, "allowed_abs_err": 9e-7, "nan_share": 0.0}
    wrong = {"status": "wrong", "reason": "one warp", "max_abs_err": 2e-7, "allowed_abs_err": 1e-7, "nan_share": 0.25}
    small = {**ok, "max_abs_err": 6e-9, "allowed_abs_err": 7e-9}
    for version, found in (("rope_v3", (ok, wrong)), ("rope_v7", (wrong, ok)), ("rope_v4", (small, ok))):
        common = {"run": "1", "study": "log", "version": version, "source_hash": today(version), "measured_at": "1"}
        rows = [{**common, **problem_columns(PROBLEM), "inputs": i, **row} for i, row in zip(INPUTS, found)]
        add_rows(folder, "checks", rows)
    measured = Evidence.load(folder).study("log")
    assert measured.check("rope_v3", PROBLEM) == measured.check("rope_v7", PROBLEM) == Check(**wrong, excess=2.0)
    assert measured.check("rope_v4", PROBLEM) == Check(**{**ok, "reason": ""}, excess=6e-9 / 7e-9)


def test_published_numbers_are_joined_by_version_and_shape() -> None:
    found = published.published("rope_v7", PROBLEM)
    assert found == (0.047, 0.047, 0.048)
    assert published.published("rope_v7", Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=512)) is None
    assert published.speedup("rope_v7", "rope_separate", PROBLEM) == (1.45, 1.42, 1.45)
    slower = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=512)
    assert published.speedup("rope_v1c", "rope_separate", slower).value == pytest.approx(1 / 2.65)
    from_times = published.speedup(
        "sinusoidal_v5", "sinusoidal_separate_float4", Problem("sinusoidal", 1, 4, seq_q=64, hdim=512)
    )
    assert from_times is not None and from_times.value == pytest.approx(0.062 / 0.057)
    beside = published.speedup("rope_v3", "rope_separate", Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=2048))
    assert beside is not None and beside.value == pytest.approx(0.234 / 0.313), "both of one run"
