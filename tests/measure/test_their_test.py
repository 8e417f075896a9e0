"""What the documents' test counts in the rebuilt kernels is recorded as it is today, and NaN it never counts."""

import numpy as np
import pytest

from analysis.evidence.current import outdated
from analysis.measure import their_test
from analysis.record import files
from analysis.record.files import problem_of, read_records, read_table
from kernels import Problem

SMALLEST = their_test.PROBLEMS[3]
SAMPLE = [("attention_online", SMALLEST), ("attention_register_tiling", SMALLEST)]


def test_every_attention_kernel_that_runs_is_recorded_as_it_is_today() -> None:
    frame = read_table(files.THEIR_TEST, "their_test")
    stale = set(frame.loc[outdated(frame), "version"])
    assert not stale, f"python -m analysis their_test brings these up to date: {stale}"
    assert {"attention_online", "attention_online_fixed", "attention_baseline"} < set(frame["version"])
    assert set(frame["version"]) <= {name for name, _ in their_test.pairs()}


@pytest.mark.parametrize(("version", "problem"), SAMPLE, ids=lambda value: str(value))
def test_row_is_made_again_as_recorded(version: str, problem: Problem) -> None:
    (recorded,) = [
        row
        for row in read_records(files.THEIR_TEST, "their_test")
        if (row["version"], problem_of(row)) == (version, problem)
    ]
    (again,) = their_test.tested(version, problem)
    same = {"source_hash": "", "largest": pytest.approx(again["largest"], 1e-4)}
    assert {**again, "source_hash": ""} == {**recorded, **same}


def test_difference_above_the_tolerance_is_counted_and_nan_is_not() -> None:
    expected = np.full(5, 0.5)
    found = their_test.judged(np.array([0.5, 0.54, 1.0, np.nan, np.nan]), expected)
    assert found == {"elements": 5, "nan": 2, "counted": 1, "largest": 0.5, "ratio": 2.0}
    assert their_test.judged(np.array([0.5, *[np.nan] * 4]), expected)["counted"] == 0


def test_inputs_are_those_of_the_programs_in_their_order() -> None:
    first, *_ = their_test.inputs().values()
    drawn = first["q"].flatten()[:3]  # C's rand() after srand(42)
    assert drawn == pytest.approx([2 * n / their_test.RAND_MAX - 1 for n in (71876166, 708592740, 1483128881)])
