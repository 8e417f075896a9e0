"""The example for transformers, tried with transformers itself: `make test-deep` installs it, as it is no pin."""

from pathlib import Path

import pytest

from analysis.record.files import read_rows
from tests.adapter.__main__ import RECORDED, tried

pytestmark = pytest.mark.deep


def test_models_are_right_or_refused_and_the_recorded_table_is_of_today(tmp_path: Path) -> None:
    found, recorded = read_rows(tried(tmp_path), "families"), read_rows(RECORDED, "families")
    assert all(row["refused"] or row["max_rel_err"] <= row["allowed_rel_err"] for row in recorded)
    for row in (*found, *recorded):
        del row["max_rel_err"], row["allowed_rel_err"]  # of a machine
    assert found == recorded, "python -m tests.adapter records the table anew"
