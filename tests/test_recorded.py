"""What is recorded without a GPU is what today's code gives."""

from __future__ import annotations

import pytest

from analysis import counts, resources
from analysis.data import COUNTS, RESOURCES, problem_columns, read_table
from kernels import VERSIONS, Problem
from kernels.runtime.identity import source_hash

SMALL = Problem("rope", 1, 1, seq_q=16, hdim=8192, rotary_dim=128)
OWN = {version.id for version in VERSIONS.values() if not version.is_peer}


@pytest.mark.parametrize(("file", "table"), [(COUNTS, "counts"), (RESOURCES, "resources")])
def test_every_version_is_recorded_as_it_is_today(file, table: str) -> None:
    frame = read_table(file, table)
    assert set(frame["version"]) == OWN
    stale = {row.version for row in frame.itertuples() if row.source_hash != source_hash(VERSIONS[row.version])}
    assert not stale, f"python -m analysis {table} brings these up to date: {stale}"


@pytest.mark.parametrize(
    ("make", "file", "table"),
    [(counts.count, COUNTS, "counts"), (resources.report, RESOURCES, "resources")],
)
def test_recorded_rows_come_out_again(make, file, table: str) -> None:
    frame = read_table(file, table)
    mine = frame[frame["version"] == "rope_v7"]
    for name, value in problem_columns(SMALL).items():
        mine = mine[mine[name] == value]
    again = make("rope_v7", SMALL)
    assert len(again) == len(mine) > 0
    key = ["launch", "counter"] if table == "counts" else ["launch", "target"]
    recorded = {tuple(row[k] for k in key): row for row in mine.to_dict("records")}
    for row in again:
        assert row == {name: recorded[tuple(row[k] for k in key)][name] for name in row}
