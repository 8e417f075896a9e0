"""Kernels are what they were when they were recorded, wherever their code lies today."""

from __future__ import annotations

import re

import pytest

from analysis.measure.static import launches
from analysis.records.current import outdated
from analysis.records.files import HASHES, LAUNCHES, problem_of, read_table
from kernels import VERSIONS
from kernels.runtime.compile import compile_ptx

ROWS = read_table(LAUNCHES, "launches")
TODAYS = ROWS[~outdated(ROWS)]
LOG = {version.id for version in VERSIONS.values() if not (version.beyond or version.is_peer)}
SEED = 39
QUICK = TODAYS[TODAYS["version"].isin(LOG)].sample(6, random_state=SEED)  # V8's take seconds each
DEEP = TODAYS.drop(QUICK.index).sample(40, random_state=SEED)  # all of them: `python -m analysis launches --check`


def test_every_version_of_the_log_has_a_row_of_todays_code() -> None:
    assert set(TODAYS["version"]) >= LOG, "python -m analysis launches records what was changed on purpose"


@pytest.mark.parametrize("place", range(len(QUICK)))
def test_a_kernel_is_the_recorded_one(place: int) -> None:
    assert not launches.differing(QUICK.iloc[[place]])


@pytest.mark.deep
@pytest.mark.parametrize("place", range(len(DEEP)))
def test_more_kernels_are_the_recorded_ones(place: int) -> None:
    assert not launches.differing(DEEP.iloc[[place]])


def test_a_kernel_that_differs_or_is_anothers_shows() -> None:
    row = TODAYS[TODAYS["version"] == "rope_v2"].head(1)
    assert len(launches.differing(row.assign(ptx="0" * 16))) == 1
    assert len(launches.differing(row.assign(version="rope_v3"))) == 1


def test_a_kernel_that_is_not_recorded_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    row = TODAYS[TODAYS["version"] == "rope_v2"].to_dict("records")[0]
    monkeypatch.setattr(launches, "recorded_pairs", lambda: [("rope_v2", problem_of(row))])
    monkeypatch.setattr(launches, "read_records", lambda path, table: [])
    (added,) = launches.record()
    assert (added["version"], added["ptx"], added["source_hash"]) == ("rope_v2", row["ptx"], launches.today("rope_v2"))
    monkeypatch.setattr(launches, "read_records", lambda path, table: [added])
    monkeypatch.setattr(launches, "ptx_of", lambda version, problem: pytest.fail("compiled again"))
    assert launches.record() == [added]


def test_ptx_is_compared_without_the_names_of_modules() -> None:
    row = TODAYS[TODAYS["version"] == "rope_v2"].iloc[0]
    ptx = compile_ptx(VERSIONS["rope_v2"](problem_of(row)).launches[0].kernel)
    bare = launches.without_names(ptx)
    assert "kernels" in ptx and "kernels" not in bare and ".entry name0(" in bare
    assert launches.without_names(re.sub("7kernels4rope", "5house6rotary", ptx)) == bare
    assert launches.without_names(ptx.replace("ex2.approx", "lg2.approx")) != bare
    of_cuda_12 = re.sub(r"release .*", "release 12.8, V12.8.93", re.sub(r"\.version .*", ".version 8.7", ptx))
    assert launches.without_names(of_cuda_12) == bare


def test_old_hashes_lead_to_todays_one_to_one() -> None:
    rows = read_table(HASHES, "hashes")
    assert not set(rows["old"]) & set(rows["new"]) and rows["old"].is_unique
    assert len(rows.groupby(["version", "new"])) == len(rows)
