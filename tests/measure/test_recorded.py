"""What is recorded without a GPU is what today's code gives."""

from __future__ import annotations

import multiprocessing
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from analysis.measure.static import counts, resources
from analysis.records.current import is_current, outdated
from analysis.records.files import COUNTS, RESOURCES, problem_columns, read_table
from kernels import VERSIONS, Problem
from kernels.device import mark

SMALL = Problem("rope", 1, 1, seq_q=16, hdim=8192, rotary_dim=128)
OWN = {version.id for version in VERSIONS.values() if not version.is_peer}


@pytest.mark.parametrize(("file", "table"), [(COUNTS, "counts"), (RESOURCES, "resources")])
def test_every_version_is_recorded_as_it_is_today(file, table: str) -> None:
    frame = read_table(file, table)
    assert set(frame["version"]) == OWN
    stale = set(frame.loc[outdated(frame), "version"])
    assert not stale, f"python -m analysis {table} brings these up to date: {stale}"


@pytest.fixture(scope="module")
def with_marks():
    """Calls a function in a process whose kernels are compiled with marks."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), mark.enable) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def events(name: str, problem: Problem, blocks: int | None) -> list[dict[str, int]]:
    launches = counts.work(VERSIONS[name](problem), blocks)
    return [{counter: n for counter, n in launch.items() if counter.startswith("event.")} for launch in launches]


MARKED = [pytest.param(name, marks=pytest.mark.deep) for name in ("rope_v3", "rope_v6b", "sinusoidal_v3")]


@pytest.mark.parametrize("name", ["rope_v7", "sinusoidal_v5", *MARKED])
def test_events_of_one_block_times_the_blocks_are_those_of_all(with_marks, name: str) -> None:
    family = VERSIONS[name].family
    rotary_dim = 0 if family == "sinusoidal" else 32 if name == "rope_v3" else 16
    problem = Problem(family, 1, 2, seq_q=8, hdim=32, rotary_dim=rotary_dim)
    one, every = (with_marks(events, name, problem, blocks) for blocks in (1, None))
    assert one == every
    assert any(launch for launch in one)


def recorded_again(file: Path, table: str, key: tuple[str, str], again: list[dict[str, Any]]) -> None:
    """The recorded rows of `rope_v7` on `SMALL`, of resources on their targets, are these, all of them."""
    frame = read_table(file, table)
    frame = frame[frame["version"] == "rope_v7"]
    if table == "resources":
        frame = frame[frame["target"].isin([row["target"] for row in again])]
    for name, value in problem_columns(SMALL).items():
        frame = frame[frame[name] == value]
    recorded = {tuple(row[k] for k in key): row for row in frame.to_dict("records")}
    assert len(again) == len(recorded) == len(frame) > 0 and not outdated(frame).any()
    for row in again:
        assert is_current("rope_v7", row.pop("source_hash"))
        assert row == {name: recorded[tuple(row[k] for k in key)][name] for name in row}


def test_recorded_counts_come_out_again(with_marks) -> None:
    again = counts.count("rope_v7", SMALL) + with_marks(counts.count, "rope_v7", SMALL)
    recorded_again(COUNTS, "counts", ("launch", "counter"), again)


def test_resources_of_one_study_leave_those_of_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / RESOURCES.name
    shutil.copy(RESOURCES, copy)
    monkeypatch.setattr(resources, "RESOURCES", copy)
    monkeypatch.setattr(resources, "own_pairs", lambda names: [("rope_v7", SMALL)])
    assert resources.main([]) == 0
    assert sorted(copy.read_text().splitlines()) == sorted(RESOURCES.read_text().splitlines())


def test_recorded_resources_come_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "TARGETS", ("sm_75", "sm_90"))
    recorded_again(RESOURCES, "resources", ("launch", "target"), resources.report("rope_v7", SMALL))
