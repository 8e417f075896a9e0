"""Which rows are of the code as it stands, and which run of a study is read."""

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
    assert outdated(frame.head(0)).tolist() == [] and today("rope_v0_gone") == ""


def test_rows_under_an_older_hash_of_the_same_code_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = {"version": "rope_v4", "source_hash": "0" * 16}
    assert not is_current("rope_v4", renamed["source_hash"])
    monkeypatch.setattr(recorded, "_later_hashes", lambda: {"0" * 16: today("rope_v4")})
    assert current([renamed]) == [renamed] and not is_current("rope_v7", renamed["source_hash"])
