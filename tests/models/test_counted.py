"""Stall reasons from hardware counters."""

import itertools
from pathlib import Path

import pytest

from analysis import figures
from analysis.evidence import Evidence
from analysis.evidence.current import today
from analysis.figures.style import Plot
from analysis.findings.answer import WAITS
from analysis.record.files import problem_columns
from analysis.studies import MAIN, STALL, STALLS
from analysis.tables.table import missing
from kernels import Problem
from tests.rows import add_rows

SMALL = Problem("attention", 1, 4, seq_q=64, hdim=512)


def put_counters(folder: Path, version: str, problem: Problem, stalls: dict[str, float], launch: int = 0) -> None:
    """How long a warp of a launch waits, by reason."""
    row = {"run": "1", "study": "log", "version": version, **problem_columns(problem), "launch": launch}
    row |= {"kernel": "attention", "source_hash": today(version)}
    rows = [{**row, "metric": STALL.format(reason), "value": value} for reason, value in stalls.items()]
    add_rows(folder, "counters", rows)


NONE = dict.fromkeys(STALLS, 0.0)
IDLE = {**NONE, "selected": 1.0, "barrier": 6.0, "long_scoreboard": 3.0}


def test_warps_time_is_shared_out_among_what_it_waits_for(folder: Path) -> None:
    put_counters(folder, "attention_online", SMALL, IDLE)
    e = Evidence.load(folder)
    shares = {name: e.stalled("attention_online", *reasons, hdim=512)[512].value for name, reasons in WAITS.items()}
    assert shares["other warps at a barrier"] == pytest.approx(0.6)
    assert shares["global or local memory"] == pytest.approx(0.3) and sum(shares.values()) == pytest.approx(1)
    assert sorted(itertools.chain(*WAITS.values())) == sorted(STALLS)  # each reason counts once, in one group


def test_stalls_are_of_the_last_launch_and_the_published_rotation(folder: Path) -> None:
    for rotary_dim in (512, 128):
        for launch in range(3):
            problem = Problem("rope", 1, 4, seq_q=64, hdim=512, rotary_dim=rotary_dim)
            barrier = float(rotary_dim == 128 and launch == 2)
            put_counters(folder, "rope_separate", problem, {**NONE, "selected": 1.0, "barrier": barrier}, launch)
    waits = Evidence.load(folder).stalled("rope_separate", "barrier", hdim=(512, 2048))
    assert waits[512].value == 0.5 and not waits[2048]


def test_counters_of_other_head_dims_than_those_shown_are_no_answer(folder: Path) -> None:
    put_counters(folder, "attention_online", SMALL, IDLE)
    e = Evidence.load(folder)
    assert figures.warp_waits(e) == missing(command="make counters")


def test_stall_reasons_are_shown_for_every_version_read(folder: Path) -> None:
    put_counters(folder, "rope_v7", MAIN, IDLE)
    put_counters(folder, "rope_separate", MAIN, IDLE)
    whole = figures.warp_waits(Evidence.load(folder))
    assert isinstance(whole, Plot) and set(whole.data["version"]) == {"rope_v7", "rope_separate"}
