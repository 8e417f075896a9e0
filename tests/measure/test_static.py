"""Records made without a GPU equal those of today's code: counts, resources, and a digest of every kernel."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from analysis.evidence.current import current, outdated, today
from analysis.measure import static
from analysis.record import files
from analysis.record.files import problem_columns, problem_of, read_records, read_table, write_table
from kernels import VERSIONS, Problem
from kernels.runtime.compile import compile_ptx
from tests.sampling import swept

CALL = "attention_multi_query", Problem("attention", seq_q=3, hdim=1128)
TODAYS = current(read_records(files.LAUNCHES, "launches"))
LOG = {version.id for version in VERSIONS.values() if not (version.beyond or version.is_peer)}
V2 = next(row for row in TODAYS if row["version"] == "rope_v2")


@pytest.mark.parametrize("table", ["counts", "resources"])
def test_every_version_is_recorded_as_it_is_today(table: str) -> None:
    frame = read_table(files.DATA / f"{table}.csv", table)
    assert set(frame["version"]) == {version.id for version in VERSIONS.values() if not version.is_peer}
    stale = set(frame.loc[outdated(frame), "version"])
    assert not stale, f"python -m analysis {table} brings these up to date: {stale}"


OTHERS = ("sinusoidal_v5", "rope_v3", "rope_v6b", "sinusoidal_v3")


@pytest.mark.parametrize("name", ["rope_v7", *(pytest.param(name, marks=pytest.mark.deep) for name in OTHERS)])
def test_events_of_one_block_times_the_blocks_are_those_of_all(counted_events: Callable, name: str) -> None:
    family = VERSIONS[name].family
    rotary_dim = 0 if family == "sinusoidal" else 32 if name == "rope_v3" else 16
    problem = Problem(family, 1, 2, seq_q=8, hdim=32, rotary_dim=rotary_dim)
    one, every = (counted_events(name, problem, blocks) for blocks in (1, None))
    assert one == every and any(one)


def test_stale_rows_are_made_again_as_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recorded = read_records(files.RESOURCES, "resources")
    planted = [
        {**row, "source_hash": "0" * 16} if (row["version"], problem_of(row)) == CALL else row for row in recorded
    ]
    assert planted != recorded
    write_table(tmp_path / "resources.csv", "resources", planted)
    monkeypatch.setattr(files, "DATA", tmp_path)
    monkeypatch.setattr(static, "ProcessPoolExecutor", lambda *_: ThreadPoolExecutor(1))
    assert static.resources([]) == 0
    again = read_records(tmp_path / "resources.csv", "resources")
    assert current(again) == again
    assert [{**row, "source_hash": ""} for row in again] == [{**row, "source_hash": ""} for row in recorded]


def test_version_is_counted_as_recorded() -> None:
    recorded = [row for row in read_records(files.COUNTS, "counts") if (row["version"], problem_of(row)) == CALL]
    counted = [row for row in recorded if not row["counter"].startswith("event.")]
    assert static.count(*CALL) == [{**row, "source_hash": today(CALL[0])} for row in counted]


# ---------------------------------------------------------------- kernels are what they were when they were recorded


IN_LOG = [row for row in TODAYS if row["version"] in LOG]  # V8's take seconds each
RECORDED = [*swept(zip(IN_LOG), 6, 0), *swept(zip(TODAYS), 0, 40)]


def test_every_version_of_the_log_has_a_kernel_of_todays_code() -> None:
    lacking = LOG - {row["version"] for row in TODAYS}
    assert not lacking, f"python -m analysis launches records what was changed on purpose: {lacking}"


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["version"])
def test_kernel_is_the_recorded_one(row: dict[str, Any]) -> None:
    assert not static.differing([row])


def test_kernel_that_differs_is_another_versions_or_is_new_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(static.differing([V2 | {"ptx": "0" * 16}, V2 | {"version": "rope_v3"}])) == 2
    monkeypatch.setattr(static, "recorded_pairs", lambda: [("rope_v2", problem_of(V2))])
    (added,) = static.record([])
    assert {**added, "source_hash": V2["source_hash"]} == {**V2, **problem_columns(problem_of(V2))}
    monkeypatch.setattr(static, "ptx_of", lambda version, problem: pytest.fail("compiled again"))
    assert static.record([added]) == [added]


def test_ptx_is_compared_without_the_names_of_modules() -> None:
    ptx = compile_ptx(VERSIONS["rope_v2"](problem_of(V2)).launches[0].kernel)
    bare = static.without_names(ptx)
    assert "kernels" in ptx and "kernels" not in bare and ".entry name0(" in bare
    assert static.without_names(re.sub("7kernels4rope", "5house6rotary", ptx)) == bare
    assert static.without_names(ptx.replace("ex2.approx", "lg2.approx")) != bare
    of_cuda_12 = re.sub(r"release .*", "release 12.8, V12.8.93", re.sub(r"\.version .*", ".version 8.7", ptx))
    assert static.without_names(of_cuda_12) == bare


def test_old_hash_leads_to_one_of_today_in_one_step() -> None:
    rows = read_table(files.HASHES, "hashes")
    assert not set(rows["old"]) & set(rows["new"]) and rows["old"].is_unique
    assert rows.groupby("new")["version"].nunique().eq(1).all()
