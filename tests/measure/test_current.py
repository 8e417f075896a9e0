"""Which rows are of the code as it stands, and which run of a study is read."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.evidence import current as recorded
from analysis.evidence.current import current, is_current, outdated, today

ROWS = [
    {"version": "rope_v4", "source_hash": today("rope_v4")},
    {"version": "rope_v4", "source_hash": today("rope_v7")},
    {"version": "rope_v0_gone", "source_hash": today("rope_v7")},
    {"version": "rope_v7", "source_hash": today("rope_v7")},
]


def test_rows_of_changed_code_and_of_versions_that_are_gone_are_outdated() -> None:
    assert current(ROWS) == [ROWS[0], ROWS[3]]
    frame = pd.DataFrame(ROWS, index=[7, 5, 3, 1])
    assert outdated(frame).to_dict() == {7: False, 5: True, 3: True, 1: False}
    assert outdated(frame.head(0)).tolist() == []


def test_the_rows_of_a_table_of_one_version_are_compared_with_that_version() -> None:
    rows = [{"source_hash": row["source_hash"]} for row in ROWS]
    assert current(rows, "rope_v7") == rows[1:]


def test_no_hash_is_that_of_a_version_that_is_gone() -> None:
    assert today("rope_v0_gone") == "" and not is_current("rope_v0_gone", today("rope_v4"))


def test_what_was_recorded_under_an_older_name_of_the_same_code_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = {"version": "rope_v4", "source_hash": "0" * 16}
    assert not is_current("rope_v4", renamed["source_hash"])
    monkeypatch.setattr(recorded, "_later_hashes", lambda: {"0" * 16: today("rope_v4")})
    assert current([renamed]) == [renamed] and not is_current("rope_v7", renamed["source_hash"])
