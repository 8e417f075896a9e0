"""A step of a ladder: its picture is its plan, its table has every published number, its diff is of the sources."""

from __future__ import annotations

import math
import re
from functools import cache

import pandas as pd
import pytest
from IPython.display import Markdown

from analysis import figures
from analysis.book import notebook
from analysis.evidence import Evidence
from analysis.models import moves
from analysis.record import published
from analysis.record.files import COUNTS, REFERENCE, DataError, problem_of
from analysis.tables import speeds, steps
from analysis.tables.table import has_page
from kernels import VERSIONS
from tests.rows import read_table

OWN = [version.id for version in VERSIONS.values() if has_page(version)]


@pytest.fixture(scope="module")
def e() -> Evidence:
    return Evidence.load(REFERENCE)


@cache
def table() -> pd.DataFrame:
    return read_table(COUNTS, "counts")


def counted(name: str) -> pd.DataFrame:
    """What the launches of the plan that is drawn do, as data/counts.csv has it."""
    problem = moves.plan_of(name).problem
    frame = table()[table()["version"] == name]
    return frame[[problem_of(row) == problem for row in frame.to_dict("records")]]


@pytest.mark.parametrize("name", OWN)
def test_the_picture_of_a_version_is_its_plan_and_what_was_counted(name: str) -> None:
    plan, plot = moves.plan_of(name), figures.flow(name)
    (axis,) = plot.figure.axes
    texts = [text.get_text() for text in axis.texts]
    assert texts.count("host waits") == len(plan.steps) - len(plan.launches)
    drawn = " ".join(texts)
    for launch in plan.launches:
        assert f"{math.prod(launch.grid):,} block" in drawn and f"{math.prod(launch.block)} threads" in drawn
        assert all(kept.replace("_", " ") in drawn for kept in launch.shared if launch.shared.sizes[kept])
    grids = ["x".join(map(str, launch.grid)) for launch in plan.launches]
    assert [row["grid"] for row in plot.data.to_dict("records") if row["step"] != "host waits"] == grids
    mine = counted(name)
    for place, stage in enumerate(filter(None, moves.moves(name, plan))):
        rows = mine[mine["launch"] == place]["counter"]
        for way, told in (("read", stage.reads), ("write", stage.writes)):
            found = {each.rpartition(".")[2] for each in rows if each.startswith(f"global.{way}.sectors.")}
            assert found - ({*stage.writes} if way == "read" else set()) == {*told}, (way, place)
    if plan.problem.family == "rope":
        often = {what: 0.0 for what in "KQ"}
        _, heads, keys, _ = plan.problem.kv_shape
        vectors = {"K": plan.problem.batch * heads * keys, "Q": math.prod(plan.problem.q_shape[:3])}
        for told in filter(re.compile("rotates").match, texts):
            for what, number in re.findall(r"([KQ]) (once|[\d.]+×)", told):
                often[what] += 1 if number == "once" else float(number[:-1])
        rotations = mine.query("counter == 'event.rotation'")["value"].sum()
        embedded = sum(often[what] * count for what, count in vectors.items())
        assert embedded * plan.problem.rotary_dim / 2 == rotations


def test_what_cannot_be_drawn_or_shown_says_so(e: Evidence) -> None:
    for name, hdim, says in (
        ("torch_sdpa", None, "'torch_sdpa' is another's library"),
        ("rope_v0", None, "no version is called 'rope_v0'"),
        ("rope_v4", 96, "'rope_v4' is not counted at head dim 96"),
    ):
        with pytest.raises(DataError, match=says):
            figures.flow(name, hdim)
    with pytest.raises(DataError, match="there is no claim 'A-99'"):
        notebook.claimed(e, "A-01", "A-99")
    with pytest.raises(DataError, match="there is no version 'rope_v0'"):
        speeds(e, "rope_v0")


def test_a_step_has_every_time_and_speedup_that_a_document_prints_of_its_version(e: Evidence) -> None:
    frame = published.load()
    frame = frame[frame["source_document"].isin(published.DOCUMENTS) & frame["hdim"].notna()]
    frame = frame[frame["version"].isin(VERSIONS) & frame["family"].isin(("rope", "sinusoidal"))]
    seen = 0
    for row in frame[frame["quantity"].isin(("time_ms", "speedup"))].to_dict("records"):
        base = row["baseline"] if isinstance(row["baseline"], str) else VERSIONS[row["version"]].baseline or ""
        problem = next((p for p in e.study("log").problems(row["family"]) if published.states(row, p)), None)
        if problem is None or (row["quantity"] == "speedup" and base not in VERSIONS):
            continue
        said = steps.stated(row["version"], base, problem)
        value = 1 / row["value"] if row["unit"] == "x_slower" else row["value"]
        shown = [each.ms if row["quantity"] == "time_ms" else each.speedup for each in said]
        assert any(each == pytest.approx(value, abs=0.005) for each in shown if each), row["id"]
        seen += 1
    assert seen > 80


def test_the_estimated_time_of_a_part_is_not_a_time_of_the_version(e: Evidence) -> None:
    (said,) = steps.stated("fp16_phase4", "fp16_minimal", e.study("fp16").shapes("fp16_phase4")[64])
    assert said.ms == 1.028 and said.speedup == 2.79


def test_a_step_says_where_its_result_is_right(e: Evidence) -> None:
    log = e.study("log")
    assert steps.right_where(log, "rope_v1c") == "right at 128, 512, 2048, 4096, 8192"
    assert steps.right_where(log, "rope_v1a").startswith("wrong at 128, 512, 2048, 4096, 8192 (warps beyond")
    assert "; infeasible at 4096, 8192 (hdim 4096 needs 57,728 B" in steps.right_where(log, "rope_v4")
    assert steps.right_where(e.study("no such study"), "rope_v4") == "not measured"
    assert "; with the matched load wrong at 8192 too" in speeds(e, "rope_v7").caption


def test_a_step_shows_the_speedup_of_the_recorded_times_also_over_another_mask(e: Evidence) -> None:
    problem = e.study("log").shapes("rope_v4")[2048]
    slow, fast = (e.study("log").medians(name, problem, "device_warm") for name in ("rope_separate", "rope_v4"))
    at = {row[0].split()[0]: row for row in speeds(e, "rope_v4").plain().rows}
    assert at["2048"][3].startswith(f"{math.exp((slow / fast).map(math.log).mean()):.2f}× ±")
    assert set(at["4096"][2:]) == {"infeasible"}
    half = e.study("fp16")
    (row,) = speeds(e, "fp16_phase6_iter2", over="fp16_phase4").rows
    plain, causal = (next(p for p in half.problems("fp16") if (p.hdim, p.causal) == (64, mask)) for mask in (0, 1))
    ratio = half.medians("fp16_phase4", plain, "device_warm") / half.medians("fp16_phase6_iter2", causal, "device_warm")
    assert row[2].startswith(f"{ratio.mean():.2f}×")


def test_a_diff_shows_the_marked_lines_of_both_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Markdown] = []
    monkeypatch.setattr(notebook, "display", shown.append)
    notebook.changed("rope_v4", gone=[("exponent =", "inv_freq =")], new=("pair = tid", "pair += THREADS"))
    lines = str(shown[0].data).splitlines()
    assert [line[0] for line in lines[1:-1]] == ["-", "-", "+", "+", "+", "+", "+"]
    assert lines[1].startswith("-exponent =") and lines[3] == "+pair = tid"
    with pytest.raises(DataError, match="no lines from 'nobody wrote this'"):
        notebook.changed("rope_v4", new="nobody wrote this")
    with pytest.raises(DataError, match="marked lines; allowed: 1 to 12"):
        notebook.changed("rope_v4")
