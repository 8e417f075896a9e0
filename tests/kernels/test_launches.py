"""What versions launch is what they launched when it was recorded, wherever their code lies today."""

from __future__ import annotations

import re

import pytest

from analysis.measure.static import launches
from analysis.records.current import outdated
from analysis.records.files import HASHES, LAUNCHES, problem_of, read_table
from kernels import VERSIONS
from kernels.runtime.compile import compile_ptx
from kernels.version import PROBLEM_COLUMNS

ROWS = read_table(LAUNCHES, "launches")
TODAYS = ROWS[~outdated(ROWS)]
LOG = {version.id for version in VERSIONS.values() if not version.beyond}
COMPILED = (
    "attention_online",
    "sinusoidal_v3",
    "rope_v2",
    "fp16_minimal",
    "rope_separate_one_sync",
    "rope_v2_fast_math",
)


def differences(rows, compiled: bool) -> list[str]:
    """Rows of launches.csv that today's plans contradict."""
    differ = []
    for row in rows.to_dict("records"):
        plan = launches.plan_of(row["version"], problem_of(row))
        recorded, again = [row["launches"]], [launches.launches_of(plan) if plan else launches.REFUSED]
        if compiled and plan:
            recorded.append(row["ptx"] or "")
            again.append(launches.ptx_of(plan))
        if recorded != again:
            differ.append(f"{row['version']} on {problem_of(row)}: {recorded} were {again}")
    return differ


def test_every_recorded_pair_is_in_the_log_of_launches() -> None:
    pair = ["version", *PROBLEM_COLUMNS]
    recorded = set(launches.recorded_pairs()[pair].itertuples(index=False, name=None))
    assert recorded == set(ROWS[pair].itertuples(index=False, name=None)), "python -m analysis launches adds them"
    assert set(TODAYS["version"]) >= LOG, "python -m analysis launches records what was changed on purpose"


def test_every_launch_is_the_recorded_one() -> None:
    assert not differences(TODAYS, compiled=False)


@pytest.mark.parametrize("version", COMPILED)
def test_a_kernel_is_the_recorded_one(version: str) -> None:
    rows = TODAYS[(TODAYS["version"] == version) & TODAYS["ptx"].notna()]
    assert not differences(rows.head(1), compiled=True) and len(rows)


@pytest.mark.deep
@pytest.mark.parametrize("version", sorted(set(TODAYS["version"][TODAYS["ptx"].notna()])))
def test_every_kernel_is_the_recorded_one(version: str) -> None:
    rows = TODAYS[(TODAYS["version"] == version) & TODAYS["ptx"].notna()]
    assert not differences(rows, compiled=True) and len(rows)


def test_a_launch_or_a_kernel_that_differs_shows() -> None:
    rows = TODAYS[(TODAYS["version"] == "rope_v2") & TODAYS["ptx"].notna()].head(1)
    assert len(differences(rows.assign(launches="0" * 16), compiled=False)) == 1
    assert len(differences(rows.assign(ptx="0" * 16), compiled=True)) == 1


def test_ptx_is_compared_without_the_names_of_modules() -> None:
    row = TODAYS[(TODAYS["version"] == "rope_v2") & TODAYS["ptx"].notna()].iloc[0]
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
