"""A step of a ladder: its picture is its plan, its table has every published number, its diff is of the sources."""

from __future__ import annotations

import math
import re
from functools import cache

import pandas as pd
import pytest
from IPython.display import Markdown
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch

from analysis import figures
from analysis.book import notebook
from analysis.book.chapters import story
from analysis.figures.flow import KERNEL
from analysis.figures.style import Plot
from analysis.models import moves
from analysis.records import published
from analysis.records.files import COUNTS, REFERENCE, DataError, problem_of, read_table
from analysis.records.measured import Measured
from analysis.tables import steps
from analysis.tables.table import has_page
from kernels import VERSIONS
from kernels.version import Launch

OWN = [version.id for version in VERSIONS.values() if has_page(version)]


@cache
def counted(name: str) -> pd.DataFrame:
    """What the launches of the plan that is drawn do, as data/counts.csv has it."""
    problem = moves.plan_of(name).problem
    frame = table()[table()["version"] == name]
    return frame[[problem_of(row) == problem for row in frame.to_dict("records")]]


@cache
def table() -> pd.DataFrame:
    return read_table(COUNTS, "counts")


def texts(plot: Plot) -> list[str]:
    (axis,) = plot.figure.axes
    return [text.get_text() for text in axis.texts]


def kernels(plot: Plot) -> int:
    (axis,) = plot.figure.axes
    boxes = [patch for patch in axis.patches if isinstance(patch, FancyBboxPatch)]
    return sum(patch.get_facecolor() == to_rgba(KERNEL) for patch in boxes)


@pytest.mark.parametrize("name", OWN)
def test_the_picture_of_a_version_has_every_launch_and_wait_of_its_plan(name: str) -> None:
    plan, plot = moves.plan_of(name), figures.flow(name)
    assert kernels(plot) == len(plan.launches)
    assert texts(plot).count("host waits") == len(plan.steps) - len(plan.launches)
    drawn = " ".join(texts(plot))
    for launch in plan.launches:
        assert f"{math.prod(launch.grid):,} block" in drawn and f"{math.prod(launch.block)} threads" in drawn
        assert all(kept.replace("_", " ") in drawn for kept in launch.shared if launch.shared.sizes[kept])
    order = ["host waits" if not isinstance(each, Launch) else each.grid for each in plan.steps]
    rows = plot.data.to_dict("records")
    assert len(rows) == len(order)
    for row, expected in zip(rows, order):
        assert (row["step"] if expected == "host waits" else row["grid"]) == (
            expected if expected == "host waits" else "x".join(map(str, expected))
        )


@pytest.mark.parametrize("name", OWN)
def test_a_launch_reads_and_writes_in_the_picture_what_it_does_in_the_emulator(name: str) -> None:
    stages = [each for each in moves.moves(name, moves.plan_of(name)) if each]
    for place, stage in enumerate(stages):
        rows = counted(name)[counted(name)["launch"] == place]["counter"]
        for way, told in (("read", stage.reads), ("write", stage.writes)):
            found = {each.rpartition(".")[2] for each in rows if each.startswith(f"global.{way}.sectors.")}
            assert found - ({*stage.writes} if way == "read" else set()) == {*told}, (way, place)


@pytest.mark.parametrize("name", [name for name in OWN if VERSIONS[name].family == "rope"])
def test_the_rotations_in_the_picture_are_those_counted(name: str) -> None:
    problem = moves.plan_of(name).problem
    often = {what: 0.0 for what in "KQ"}
    for told in texts(figures.flow(name)):
        if told.startswith("rotates"):
            for what, number in re.findall(r"([KQ]) (once|[\d.]+×)", told):
                often[what] += 1 if number == "once" else float(number[:-1])
    vectors = problem.batch * problem.heads * problem.seq_q
    rotations = counted(name).query("counter == 'event.rotation'")["value"].sum()
    assert (often["K"] + often["Q"]) * vectors * problem.rotary_dim / 2 == rotations
    assert often["K"] == {"rope_v4": 64, "rope_v3": 16, "rope_v7": 1, "rope_v8": 3}.get(name, often["K"])


def test_what_cannot_be_drawn_says_so() -> None:
    with pytest.raises(DataError, match="'torch_sdpa' is another's library"):
        figures.flow("torch_sdpa")
    with pytest.raises(DataError, match="no version is called 'rope_v0'"):
        figures.flow("rope_v0")
    with pytest.raises(DataError, match="'rope_v4' is not counted at head dim 96"):
        figures.flow("rope_v4", 96)


# ---------------------------------------------------------------- numbers


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured.load(REFERENCE)


def test_a_step_has_every_time_and_speedup_that_a_document_prints_of_its_version(measured: Measured) -> None:
    frame = published.load()
    frame = frame[frame["source_document"].isin(published.DOCUMENTS) & frame["hdim"].notna()]
    frame = frame[frame["version"].isin(VERSIONS) & frame["family"].isin(("rope", "sinusoidal"))]
    seen = 0
    for row in frame[frame["quantity"].isin(("time_ms", "speedup"))].to_dict("records"):
        base = row["baseline"] if isinstance(row["baseline"], str) else VERSIONS[row["version"]].baseline or ""
        problem = next((p for p in measured.problems(row["family"]) if published.states(row, p)), None)
        if problem is None or (row["quantity"] == "speedup" and base not in VERSIONS):
            continue
        said = steps.stated(row["version"], base, problem)
        value = 1 / row["value"] if row["unit"] == "x_slower" else row["value"]
        shown = [each.ms if row["quantity"] == "time_ms" else each.speedup for each in said]
        assert any(each == pytest.approx(value, abs=0.005) for each in shown if each), row["id"]
        seen += 1
    assert seen > 80


def test_the_estimated_time_of_a_part_is_not_a_time_of_the_version() -> None:
    half = Measured.load(REFERENCE, "fp16")
    (said,) = steps.stated("fp16_phase4", "fp16_minimal", half.shapes("fp16_phase4")[64])
    assert said.ms == 1.028 and said.speedup == 2.79


def test_a_step_says_where_its_result_is_right(measured: Measured) -> None:
    assert steps.right_where(measured, "rope_v1c") == "right at 128, 512, 2048, 4096, 8192"
    assert steps.right_where(measured, "rope_v1a").startswith("wrong at 128, 512, 2048, 4096, 8192 (warps beyond")
    assert "; infeasible at 4096, 8192 (hdim 4096 needs 57,728 B" in steps.right_where(measured, "rope_v4")
    nothing = Measured.nothing(REFERENCE, "log")
    assert steps.right_where(nothing, "rope_v4") == "not measured"
    told = {name: steps.speeds(measured, name).caption for name in ("rope_v7", "rope_v1a", "rope_v1c")}
    assert "; with the matched load wrong at 8192 too" in told["rope_v7"]  # several heads of fewer than 64 tokens
    assert "matched load wrong" not in told["rope_v1a"] + told["rope_v1c"], "said once, or right"


def test_a_mask_that_differs_is_compared_as_published() -> None:
    half = Measured.load(REFERENCE, "fp16")
    table = steps.speeds(half, "fp16_phase6_iter2", over="fp16_phase4")
    (row,) = table.rows  # no document prints it at head dim 128, which it refuses
    assert table.header[1:3] == ["published", "device"], "the study has no times by the authors' harness"
    (plain,) = (p for p in half.problems("fp16") if p.hdim == 64 and not p.causal)
    (causal,) = (p for p in half.problems("fp16") if p.hdim == 64 and p.causal)
    ratio = half.medians("fp16_phase4", plain, "device_warm") / half.medians("fp16_phase6_iter2", causal, "device_warm")
    assert row[2].startswith(f"{ratio.mean():.2f}×")


# ---------------------------------------------------------------- lines, claims


def test_a_diff_shows_the_marked_lines_of_both_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Markdown] = []
    monkeypatch.setattr(notebook, "display", shown.append)
    notebook.changed("rope_v4", gone=[("exponent =", "inv_freq =")], new=("pair = tid", "pair += THREADS"))
    lines = str(shown[0].data).splitlines()
    assert lines[0] == "```diff" and lines[-1] == "```" and len(lines) == 9
    assert [line[0] for line in lines[1:-1]] == ["-", "-", "+", "+", "+", "+", "+"]
    assert lines[1].startswith("-exponent =") and lines[3] == "+pair = tid"
    notebook.changed("rope_v1b")  # whole, where it is short
    with pytest.raises(DataError, match="no lines from 'nobody wrote this'"):
        notebook.changed("rope_v4", new="nobody wrote this")
    with pytest.raises(DataError, match="marked lines; allowed: 1 to 12"):
        notebook.changed("rope_v4")


def test_what_a_step_asks_for_and_is_not_there_fails(measured: Measured) -> None:
    with pytest.raises(DataError, match="there is no claim 'A-99'"):
        notebook.claimed(measured, "A-01", "A-99")
    with pytest.raises(DataError, match="there is no version 'rope_v0'"):
        steps.speeds(measured, "rope_v0")


def test_the_work_of_a_version_is_counted_by_calls_in_millions(measured: Measured) -> None:
    """V3 of sinusoidal calls a sine and a cosine apart, V5 both at once: each once for each element of Q and K."""
    table = story.work(measured, "sinusoidal", 2048).plain()
    calls = {row[0]: row[1] for row in table.rows}
    assert table.header[1].startswith("calls of sine") and table.header[-2] == "barriers, thousands"
    assert calls["sinusoidal_v3"] == calls["sinusoidal_v5"] == f"{2 * 4 * 64 * 64 * 2048 / 1e6:.1f}"
    assert calls["sinusoidal_v1"] == "–"


def test_a_step_shows_the_speedup_of_the_recorded_times(measured: Measured) -> None:
    problem = measured.shapes("rope_v4")[2048]
    slow, fast = (measured.medians(name, problem, "device_warm") for name in ("rope_separate", "rope_v4"))
    speedup = math.exp((slow / fast).map(math.log).mean())
    at = {row[0].split()[0]: row for row in steps.speeds(measured, "rope_v4").plain().rows}
    assert at["2048"][3].startswith(f"{speedup:.2f}× ±") and set(at["4096"][2:]) == {"infeasible"}
