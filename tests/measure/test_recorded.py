"""What is recorded without a GPU is what today's code gives."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from analysis.measure import counts, resources
from analysis.records.files import COUNTS, RESOURCES, problem_columns, read_table
from kernels import VERSIONS, Problem
from kernels.device import mark
from kernels.runtime.identity import source_hash

SMALL = Problem("rope", 1, 1, seq_q=16, hdim=8192, rotary_dim=128)
OWN = {version.id for version in VERSIONS.values() if not version.is_peer}


@pytest.mark.parametrize(("file", "table"), [(COUNTS, "counts"), (RESOURCES, "resources")])
def test_every_version_is_recorded_as_it_is_today(file, table: str) -> None:
    frame = read_table(file, table)
    assert set(frame["version"]) == OWN
    stale = {row.version for row in frame.itertuples() if row.source_hash != source_hash(VERSIONS[row.version])}
    assert not stale, f"python -m analysis {table} brings these up to date: {stale}"


def with_marks(function, *arguments):
    """What `function` returns in a process whose kernels are compiled with marks."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), mark.enable) as pool:
        return pool.submit(function, *arguments).result()


def count(name: str, problem: Problem) -> list[dict]:
    return counts.count(name, problem) + with_marks(counts.count, name, problem)


def events(name: str, problem: Problem, blocks: int | None) -> list[dict[str, int]]:
    launches = counts.work(VERSIONS[name](problem), blocks)
    return [{counter: n for counter, n in launch.items() if counter.startswith("event.")} for launch in launches]


@pytest.mark.parametrize("name", ["rope_v3", "rope_v6b", "rope_v7", "sinusoidal_v3", "sinusoidal_v5"])
def test_events_of_one_block_times_the_blocks_are_those_of_all(name: str) -> None:
    family = VERSIONS[name].family
    rotary_dim = 0 if family == "sinusoidal" else 32 if name == "rope_v3" else 16
    problem = Problem(family, 1, 2, seq_q=8, hdim=32, rotary_dim=rotary_dim)
    one, every = (with_marks(events, name, problem, blocks) for blocks in (1, None))
    assert one == every
    assert any(launch for launch in one)


@pytest.mark.parametrize(
    ("make", "file", "table"),
    [(count, COUNTS, "counts"), (resources.report, RESOURCES, "resources")],
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
