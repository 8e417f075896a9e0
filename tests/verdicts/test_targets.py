"""V8's targets on made-up evidence: what is compared, what the verdicts are, and what a page says without evidence.

No time here was measured.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.book import v8 as chapter
from analysis.evidence import Evidence
from analysis.findings import DIFFERS, NOT_MEASURED, load
from analysis.findings.v8 import beside_pytorch
from analysis.measure import tune
from analysis.measure.studies import AUTOTUNED, CHOSEN, MAIN, ONE_GRAPH, STUDIES
from analysis.models import profiles, steps
from analysis.models import targets as held_to
from analysis.models.targets import BEYOND, MISSED, REACHED, UNMEASURED, UNTOLD, Target
from analysis.records import files
from analysis.records.current import today
from analysis.records.files import append_rows, problem_columns
from analysis.records.interval import TIE, Pool, Ratio
from analysis.records.measured import CEILINGS
from analysis.tables import use
from analysis.tables import v8 as targets
from analysis.tables.table import Missing, Table
from kernels import VERSIONS, Problem

GPU = {
    "compute_capability": "9.0",
    "sms": 132,
    "name": "Test GPU",
    "slug": "test-gpu",
    "l2_bytes": 60_000_000,
    "ceilings": dict(zip(CEILINGS, (4000.0, 8000.0, 60.0, 800.0, 0.5, 4.0))),
}
COMPILED, EAGER, TRITON = "torch_rope_compiled_sdpa", "torch_rope_sdpa", "triton_rope"
NOISE = (0.99, 1.0, 1.01)  # of three processes


def record(folder: Path, study: str, times: dict[tuple[str, Problem], float], wrong: tuple[str, ...] = ()) -> None:
    """A complete run in which versions took so many microseconds, within noise that all versions of a process share."""
    words = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit")
    row = {"run": "1", "study": study, "complete": True, "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    append_rows(folder / "runs.csv", "runs", [{**dict.fromkeys((*words, "started_at", "finished_at"), "x"), **row}])
    checks, timings = [], []
    for (version, problem), us in times.items():
        mine = {"run": "1", "study": study, "version": version, **problem_columns(problem), "measured_at": "1"}
        mine |= {"source_hash": today(version), "status": "wrong" if version in wrong else "ok"}
        errors = {"max_abs_err": 1.5e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0}
        checks += [{**mine, **errors, "inputs": kind} for kind in ("uniform", "sharp")]
        timings += [{**mine, "process": i, "timer": "device_warm", "median_us": us * n} for i, n in enumerate(NOISE, 1)]
    append_rows(folder / "checks.csv", "checks", checks)
    append_rows(folder / "timings.csv", "timings", timings)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    path = tmp_path / "test-gpu"
    path.mkdir()
    (path / "gpu.json").write_text(json.dumps(GPU))
    return path


def test_of_studies_that_differ_the_narrower_coverage_is_said(folder: Path) -> None:
    for study in ("beyond", "peers", "embeddings"):
        record(folder, study, {("rope_v8", MAIN): 10.0})
    evidence = held_to.read("test-gpu")
    assert list(evidence.studies) == ["beyond", "peers", "embeddings"] and evidence.covers == "within one run"
    for measured in evidence.studies.values():
        measured.pools = {"device_warm": Pool(1e-4, 3)}
    assert evidence.covers == "for another run"
    for narrower in evidence.studies:
        pools = {name: {} if name == narrower else measured.pools for name, measured in evidence.studies.items()}
        studies = {name: replace(measured, pools=pools[name]) for name, measured in evidence.studies.items()}
        assert replace(evidence, studies=studies).covers == "within one run"


def shapes(folder: Path, us: dict[str, float]) -> None:
    """Every candidate of the search at 10 us; and at some problems every recorded cut, at what is said or 8 us."""
    rows = []
    cuts = [*steps.CUTS, *(step.cut for step in steps.STEPS if step.cut)]
    for candidate in tune.candidates():
        mine = {"measured_at": "1", "commit": "abc", "source_hash": today("rope_v8"), "status": "ok"}
        rows.append(mine | candidate.columns | {"median_us": 10.0})
        if candidate.chosen and candidate.problem in (MAIN, tune.SMALL):
            rows += [rows[-1] | {"cut": cut, "median_us": us.get(cut, 8.0)} for cut in cuts]
    append_rows(folder / "shapes.csv", "shapes", rows)


def counted(folder: Path, version: str, values: dict[str, float]) -> None:
    """What was counted of a version at the main shape: 1 of everything else."""
    row = {"run": "1", "study": "beyond", "version": version, **problem_columns(MAIN), "source_hash": today(version)}
    row |= {"launch": 0, "kernel": "attention", "unit": "each"}
    rows = [{**row, "metric": metric, "value": values.get(name, 1.0)} for name, metric in profiles.METRICS.items()]
    append_rows(folder / "counters.csv", "counters", rows)


# ---------------------------------------------------------------- the floor and the verdicts


def test_the_floor_is_a_launch_and_the_larger_of_bytes_and_operations() -> None:
    least = held_to.floor(MAIN, GPU)
    # by hand: 4 tensors of 4 * 64 * 2048 floats at 8 TB/s; 134 MFLOP at 60 TFLOP/s, three times them at 400
    assert least.bytes == pytest.approx(4 * 4 * 4 * 64 * 2048 / 8e12 * 1e6)
    assert least.fp32 == pytest.approx(4 * 4 * 64 * 64 * 2048 / 60e12 * 1e6)
    assert least.tensor == pytest.approx(3 * 4 * 4 * 64 * 64 * 2048 / 400e12 * 1e6)
    assert least.us == 0.5 + max(least.bytes, least.tensor) and least.fp32_us == 0.5 + least.fp32
    large = Problem("rope", 8, 16, seq_q=64, hdim=2048, rotary_dim=128)  # 268 MB do not fit L2
    assert held_to.floor(large, GPU).bytes == pytest.approx(32 * least.bytes * 2)
    causal, whole = (Problem("rope", seq_q=4, seq_k=6, hdim=64, rotary_dim=64, causal=mask) for mask in (True, False))
    assert held_to.floor(causal, GPU).fp32 / held_to.floor(whole, GPU).fp32 == pytest.approx((3 + 4 + 5 + 6) / 24)


@pytest.mark.parametrize(
    ("rule", "found", "verdict"),
    [
        ("at least", Ratio(3.1, 3.0, 3.2), REACHED),
        ("at least", Ratio(3.1, 2.9, 3.3), UNTOLD),
        ("at least", Ratio(2.8, 2.7, 2.9), MISSED),
        ("at most", Ratio(2.9, 2.8, 3.0), REACHED),
        ("at most", Ratio(2.9, 2.7, 3.1), UNTOLD),
        ("at most", Ratio(3.2, 3.1, 3.3), MISSED),
        ("at most", Ratio(3.2, math.nan, math.nan), MISSED),
        ("at least", None, UNMEASURED),
    ],
)
def test_a_verdict_needs_the_whole_interval(rule: str, found: Ratio | None, verdict: str) -> None:
    assert Target("", "peer", rule, 3.0, ()).judge(found) == verdict  # type: ignore[arg-type]


def test_the_fastest_right_peer_of_either_study_counts(folder: Path) -> None:
    beyond = {("rope_v8", MAIN): 7.0, (COMPILED, MAIN): 70.0, ("rope_v7", MAIN): 91.0, ("rope_hybrid_v8", MAIN): 6.0}
    record(folder, "beyond", beyond)
    record(folder, "peers", {("rope_v8", MAIN): 8.0, (EAGER, MAIN): 66.0, (TRITON, MAIN): 16.0}, wrong=(TRITON,))
    evidence = held_to.read("test-gpu")
    found = {each.target.about: each for each in held_to.results(evidence) if each.problem == MAIN}
    peer, seventh = list(found.values())[:2]
    assert "the main shape, time" not in found  # 8 µs are asked of the reference's card
    assert (peer.rival, peer.verdict) == (EAGER, REACHED)  # the other takes 10 times as long
    assert peer.found and peer.found.value == pytest.approx(8.25)
    assert (seventh.rival, seventh.verdict) == ("rope_v7", REACHED)
    (other,) = (each for each in found.values() if each.target.quantity == "other")
    assert (other.rival, other.verdict) == ("rope_hybrid_v8", MISSED)
    (error,) = (each for each in found.values() if each.target.quantity == "error")
    assert error.found and error.found.value == pytest.approx(1.5) and error.verdict == REACHED
    unmeasured = held_to.result(evidence, held_to.TARGETS[-2], held_to.PREFILL_2048[0])
    assert unmeasured.verdict == UNMEASURED


def test_a_wrong_v8_reaches_nothing(folder: Path) -> None:
    record(folder, "beyond", {("rope_v8", MAIN): 1.0, (COMPILED, MAIN): 70.0}, wrong=("rope_v8",))
    evidence = held_to.read("test-gpu")
    assert {each.verdict for each in held_to.results(evidence)} == {UNMEASURED}


# ---------------------------------------------------------------- steps and shapes


def test_steps_say_which_way_they_went(folder: Path) -> None:
    shapes(folder, {"values_early": 12.5, "rows_in_turn": 15.0, "two_paths": 9.9, "first_queries_first": 9.0})
    evidence = held_to.read("test-gpu")
    found = {step.idea: step.compare(evidence.shapes) for step in steps.STEPS}
    (early,) = (ratios for idea, ratios in found.items() if "before the products" in idea)
    assert early[MAIN] == pytest.approx(0.8) and steps.held(early.values()) == "refuted"  # an idea that lost
    (rows,) = (ratios for idea, ratios in found.items() if "side by side" in idea)
    assert rows[MAIN] == pytest.approx(1.5) and steps.held(rows.values()) == "held"  # taken back
    (path,) = (ratios for idea, ratios in found.items() if "path of their own" in idea)
    assert steps.held(path.values()) == "no difference"
    assert all(found.values()), "every step has shapes to compare"
    assert steps.held([]) == UNMEASURED and steps.held([1.2, 0.9]) == "held in part"


def test_a_shape_is_compared_with_the_best_right_one_and_a_cut_with_the_kernel(folder: Path) -> None:
    shapes(folder, {"copies_alone": 4.0})
    evidence = held_to.read("test-gpu")
    evidence.shapes.loc[(evidence.shapes["problem"] == MAIN) & evidence.shapes["chosen"], "median_us"] *= 1.2
    wrong = ~evidence.shapes["chosen"] & (evidence.shapes["problem"] == tune.SMALL)
    evidence.shapes.loc[wrong, ["status", "median_us"]] = ["wrong", 1.0]
    frame = steps.searched(evidence.shapes).set_index("problem")
    assert list(frame.index) == list(tune.PROBLEMS)
    assert frame.loc[MAIN, "best_over_chosen"] == pytest.approx(1 / 1.2) and frame.loc[MAIN, "tried"] > 5
    assert frame.loc[tune.SMALL, "best_over_chosen"] == 1.0 and frame.loc[tune.SMALL, "tried"] == 1
    parts = steps.cuts(evidence.shapes).set_index(["problem", "part"])["share"]
    assert parts["B1 H4 S64 D512 R128", "only copies and exchanges"] == pytest.approx(0.4)


def test_counters_say_how_often_bytes_are_read_and_what_is_waited_for(folder: Path) -> None:
    once = 4 * 3 * 4 * 64 * 2048  # bytes of Q, K and V
    counted(folder, "rope_v8", {"l2_to_l1_bytes": 2.5 * once, "issue_percent": 40.0, "stall_barrier": 31.0})
    counted(folder, "rope_v7", {"l2_to_l1_bytes": 50.0 * once})
    evidence = held_to.read("test-gpu")
    rows = targets.counter_table(evidence).rows
    assert [row[2] for row in rows] == ["2.5×", "50.0×"] and rows[0][3] == "40"
    assert rows[0][-1].startswith("other warps at a barrier")
    told = load()["v8-counters"].on(Evidence.load(folder))
    assert told.numbers["read"] == "2.5" and told.numbers["wait"].startswith("6")
    assert told.badge == DIFFERS  # one cause takes more than half of the time


def test_a_card_with_another_core_is_told_so(folder: Path) -> None:
    gpu = {**GPU, "compute_capability": "8.9"}
    (folder / "gpu.json").write_text(json.dumps(gpu))
    evidence = held_to.read("test-gpu")
    for part in (targets.step_table, chapter.cuts):
        assert part(evidence) == Missing(why=targets.OTHER_CORE)
    assert targets.target_table(evidence) == Missing("make measure STUDY=beyond")


def test_a_version_that_its_card_refuses_is_not_called_unmeasured(folder: Path) -> None:
    record(folder, "beyond", {("rope_v7", MAIN): 5.0})
    path = folder / "checks.csv"
    refused = {"version": "rope_v8", "source_hash": today("rope_v8"), "status": "unsupported", "reason": "no clusters"}
    row = {"run": "1", "study": "beyond", **problem_columns(MAIN), "measured_at": "1", "inputs": "sharp"}
    append_rows(path, "checks", [row | refused])
    evidence = held_to.read("test-gpu")
    assert load()["v8-main"].on(Evidence.load(folder)).badge == NOT_MEASURED
    rows = {row[0]: row for row in use.beside_pytorch(evidence).plain().rows}
    assert rows[held_to.label(MAIN)][1] == "unsupported"
    assert {row[1] for name, row in rows.items() if name != held_to.label(MAIN)} == {"not measured"}


# ---------------------------------------------------------------- the page


MEASURED = (  # parts of the chapter that need measurements
    targets.target_table,
    targets.step_table,
    targets.shape_table,
    targets.embedding_table,
    targets.counter_table,
    chapter.cuts,
    chapter.family,
)


def test_what_is_not_measured_is_said_and_how_to_measure_it(folder: Path) -> None:
    evidence = held_to.read("test-gpu")
    assert evidence.lacks("beyond", "peers", "embeddings", "shapes") == ["beyond", "peers", "embeddings", "shapes"]
    for part in MEASURED:
        assert isinstance(part(evidence), Missing) and part(evidence).command.startswith("make "), part.__name__
    idea, tile = chapter.idea(evidence), chapter.tile(evidence)  # drawn, without times
    assert "measured" not in idea.source.kinds and tile.data.empty and len(targets.floor_table(evidence).rows) == 7
    assert load()["v8-cuts"].on(Evidence.load(folder)).badge == NOT_MEASURED


def test_everything_measured_is_shown_and_drawn(folder: Path) -> None:
    for study in held_to.NEEDED:
        pairs = {(v.id, p): 20.0 if v.is_peer else 5.0 for v, p in STUDIES[study].pairs()}
        record(folder, study, pairs)
    shapes(folder, {"copies_alone": 6.0, "no_embedding": 9.5})
    counted(folder, "rope_v8", {})
    evidence = held_to.read("test-gpu")
    for part in MEASURED:
        found = part(evidence)
        assert found.rows if isinstance(found, Table) else len(found.data), part.__name__
    for plot in (chapter.cuts(evidence), chapter.family(evidence), chapter.tile(evidence)):
        assert plot.alt and "measured on Test GPU, " in str(plot.source)
    table = use.beside_pytorch(evidence)
    assert len(table.rows) == len(held_to.COMPARED) and "4.00×" in "".join(table.rows[0])
    told = {name: load()[name].on(Evidence.load(folder)) for name in ("v8-main", "v8-cuts", "v8-targets")}
    assert told["v8-main"].numbers["peer"] == "4.00×" and told["v8-cuts"].numbers["copies"] == "60.0 %"
    assert told["v8-targets"].text.startswith("On an Test GPU V8 reaches 5 of its 7")  # not 8 or 12 times as fast


def test_pytorch_counts_at_its_fastest_where_it_was_compiled_as_one_graph(folder: Path) -> None:
    """A problem without such a row says nothing of how V8 stands to PyTorch."""
    single, grouped, full, alone = CHOSEN[7], CHOSEN[9], CHOSEN[6], BEYOND[3]
    times = {("rope_v8", p): 10.0 for p in (single, grouped, full)}
    graph, tuned = ONE_GRAPH[0], AUTOTUNED[0]
    times |= {(graph, single): 8.0, (tuned, single): 5.0, (graph, grouped): 20.0, (tuned, full): 30.0}
    record(folder, "autotuned", times)
    record(
        folder, "beyond", {("rope_v8", p): 10.0 for p in (full, alone)} | {(COMPILED, full): 25.0, (COMPILED, alone): 9}
    )
    evidence = held_to.read("test-gpu")
    assert list(held_to.beside_one_graph(evidence)) == [full, single, grouped]
    found = beside_pytorch(Evidence.load(folder))
    assert [*found.starved.over.values_known.values()] == pytest.approx([0.5, 2.0])
    assert found.starved.lost == 1 and (found.one_query.lost, found.one_query.problems) == (1, 2)
    assert f"{found.elsewhere.over}" == "2.50×" and found.split.values is False
    rows = {row[0]: row[2] for row in use.beside_pytorch(evidence).plain().rows}
    assert "not timed" in rows[held_to.label(alone)] and "not timed" not in rows[held_to.label(full)]


def test_what_is_said_of_the_fastest_peer_is_what_was_recorded() -> None:
    """Taken from the tables of the reference once more, by hand: the least time of any right peer beside V8's."""
    evidence, folder = held_to.read(files.REFERENCE), files.gpu_folder(files.REFERENCE)
    runs = files.parsed(folder / "runs.csv", "runs").query("complete == 1")
    timings = files.parsed(folder / "timings.csv", "timings").query("timer == 'device_warm' and status == 'ok'")
    latest = runs[runs["study"].isin(held_to.MEASURED_IN)].groupby("study")["run"].max()
    for problem in held_to.beside_one_graph(evidence):
        columns = problem_columns(problem)
        mine = timings.loc[(timings[list(columns)] == pd.Series(columns)).all(axis=1)]
        least = math.inf
        for study, run in latest.items():
            medians = mine[(mine["study"] == study) & (mine["run"] == run)].groupby("version")["median_us"].median()
            peers = [name for name in medians.index if VERSIONS[name].is_peer]
            if "rope_v8" in medians and peers:
                least = min(least, medians[peers].min() / medians["rope_v8"])
        said = held_to.rivals(evidence, problem, peers=True)[0].ratio.value
        assert said == pytest.approx(least, rel=TIE - 1), problem


def test_missed_targets_come_first(folder: Path) -> None:
    record(folder, "beyond", {("rope_v8", MAIN): 5.0, (COMPILED, MAIN): 50.0, ("rope_v7", MAIN): 30.0})
    first, *others = targets.target_table(held_to.read("test-gpu")).plain().rows
    assert "rope_v7" in first[0] and first[2] == MISSED and first[1].startswith("6.00×")
    assert not any(MISSED in row[2] for row in others) and others[-1][2].startswith(REACHED)


def test_embeddings_are_compared_within_a_process(folder: Path) -> None:
    plain = Problem("attention", 1, 4, seq_q=64, hdim=512)
    stored = Problem("sinusoidal", 1, 4, seq_q=64, hdim=512, table="float16")
    record(folder, "embeddings", {("attention_v8", plain): 4.0, ("sinusoidal_v6", stored): 5.0})
    frame = held_to.embeddings(held_to.read("test-gpu")).set_index("embedding")
    row = frame.loc["sinusoidal, float16"]
    assert (row["over_none"], row["low"], row["high"]) == pytest.approx((1.25, 1.25, 1.25))
    assert 1e-4 < row["table_error"] <= 2.0**-12  # half a unit of float16 just below 1
    assert isinstance(frame, pd.DataFrame) and frame.loc["none", "table_error"] == 0.0
