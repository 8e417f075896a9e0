"""V8's targets on made-up evidence: what is compared, and what the verdicts are. No time here was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis.evidence import Estimate, Evidence, Known
from analysis.evidence.current import today
from analysis.evidence.interval import TIE
from analysis.evidence.known import NOT_MEASURED
from analysis.measure import tune
from analysis.measure.studies import AUTOTUNED, CHOSEN, MAIN, ONE_GRAPH
from analysis.models import steps, targets
from analysis.models.targets import BEYOND, MISSED, REACHED, UNMEASURED, UNTOLD, V8, Target
from analysis.record import files
from analysis.record.files import problem_columns
from kernels import VERSIONS, Problem
from tests.models.card import GPU, make, record
from tests.rows import append_rows, parsed

COMPILED, EAGER, TRITON = "torch_rope_compiled_sdpa", "torch_rope_sdpa", "triton_rope"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path)


def test_the_floor_is_a_launch_and_the_larger_of_bytes_and_operations() -> None:
    least = targets.floor(MAIN, GPU)
    # by hand: 4 tensors of 4 * 64 * 2048 floats at 8 TB/s; 134 MFLOP at 60 TFLOP/s, three times them at 400
    assert least.bytes == pytest.approx(4 * 4 * 4 * 64 * 2048 / 8e12 * 1e6)
    assert least.fp32 == pytest.approx(4 * 4 * 64 * 64 * 2048 / 60e12 * 1e6)
    assert least.tensor == pytest.approx(3 * 4 * 4 * 64 * 64 * 2048 / 400e12 * 1e6)
    assert least.us == 0.5 + max(least.bytes, least.tensor) and least.fp32_us == 0.5 + least.fp32
    large = Problem("rope", 8, 16, seq_q=64, hdim=2048, rotary_dim=128)  # 268 MB do not fit L2
    assert targets.floor(large, GPU).bytes == pytest.approx(32 * least.bytes * 2)
    causal, whole = (Problem("rope", seq_q=4, seq_k=6, hdim=64, rotary_dim=64, causal=mask) for mask in (True, False))
    assert targets.floor(causal, GPU).fp32 / targets.floor(whole, GPU).fp32 == pytest.approx((3 + 4 + 5 + 6) / 24)


@pytest.mark.parametrize(
    ("rule", "found", "verdict"),
    [
        ("at least", Estimate(3.1, 3.0, 3.2), REACHED),
        ("at least", Estimate(3.1, 2.9, 3.3), UNTOLD),
        ("at least", Estimate(2.8, 2.7, 2.9), MISSED),
        ("at most", Estimate(2.9, 2.8, 3.0), REACHED),
        ("at most", Estimate(2.9, 2.7, 3.1), UNTOLD),
        ("at most", Estimate(3.2, 3.1, 3.3), MISSED),
        ("at most", Estimate(3.2), MISSED),
        ("at least", Estimate.none(Known(NOT_MEASURED)), UNMEASURED),
    ],
)
def test_a_verdict_needs_the_whole_interval(rule: str, found: Estimate, verdict: str) -> None:
    assert Target("", "peer", rule, 3.0, ()).judge(found) == verdict  # type: ignore[arg-type]


def test_the_fastest_right_peer_of_any_study_counts(folder: Path) -> None:
    beyond = {(V8, MAIN): 7.0, (COMPILED, MAIN): 70.0, ("rope_v7", MAIN): 91.0, ("rope_hybrid_v8", MAIN): 6.0}
    record(folder, "beyond", beyond)
    record(folder, "peers", {(V8, MAIN): 8.0, (EAGER, MAIN): 66.0, (TRITON, MAIN): 16.0}, wrong=(TRITON,))
    e = Evidence.load(folder)
    found = {target.quantity: result for target, each in targets.results(e).items() for result in each
             if result.problem == MAIN and target.about != "the documents' shapes and around"}  # fmt: skip
    assert "us" not in found  # 8 µs are asked of the reference's card
    assert (found["peer"].rival, found["peer"].verdict) == (EAGER, REACHED)  # the other takes 10 times as long
    assert found["peer"].found.value == pytest.approx(8.25)
    assert (found["v7"].rival, found["v7"].verdict) == ("rope_v7", REACHED)
    assert (found["other"].rival, found["other"].verdict) == ("rope_hybrid_v8", MISSED)
    assert found["error"].found.value == pytest.approx(1.5) and found["error"].verdict == REACHED
    assert targets.TARGETS[-2].found(e, targets.PREFILL_2048[0]).verdict == UNMEASURED


def test_a_wrong_v8_reaches_nothing(folder: Path) -> None:
    record(folder, "beyond", {(V8, MAIN): 1.0, (COMPILED, MAIN): 70.0}, wrong=(V8,))
    e = Evidence.load(folder)
    assert {result.verdict for each in targets.results(e).values() for result in each} == {UNMEASURED}
    assert targets.v8_time(e).why == Known("wrong")


def test_a_version_that_its_card_refuses_is_not_called_unmeasured(folder: Path) -> None:
    record(folder, "beyond", {("rope_v7", MAIN): 5.0})
    refused = {"version": V8, "source_hash": today(V8), "status": "unsupported", "reason": "no clusters"}
    row = {"run": "20260101T000000Z", "study": "beyond", **problem_columns(MAIN), "measured_at": "1", "inputs": "sharp"}
    append_rows(folder / "checks.csv", "checks", [row | refused])
    assert targets.v8_time(Evidence.load(folder)).why == Known("unsupported", "no clusters")


def test_pytorch_counts_at_its_fastest_where_it_was_compiled_as_one_graph(folder: Path) -> None:
    """A problem without such a row says nothing of how V8 stands to PyTorch."""
    single, grouped, full, alone = CHOSEN[7], CHOSEN[9], CHOSEN[6], BEYOND[3]
    times = {(V8, p): 10.0 for p in (single, grouped, full)}
    graph, tuned = ONE_GRAPH[0], AUTOTUNED[0]
    times |= {(graph, single): 8.0, (tuned, single): 5.0, (graph, grouped): 20.0, (tuned, full): 30.0}
    record(folder, "autotuned", times)
    more = {(V8, full): 10.0, (V8, alone): 10.0, (COMPILED, full): 25.0, (COMPILED, alone): 9.0}
    record(folder, "beyond", more)
    found = targets.beside_one_graph(Evidence.load(folder))
    assert {problem: round(rival.over.value, 6) for problem, rival in found.items()} == {
        full: 2.5, single: 0.5, grouped: 2.0,
    }  # fmt: skip
    assert found[single].faster and not found[grouped].faster


def test_what_is_said_of_the_fastest_peer_is_what_was_recorded() -> None:
    """Taken from the tables of the reference once more, by hand: the least time of any right peer beside V8's."""
    e = Evidence.load(files.REFERENCE)
    folder = files.gpu_folder(files.REFERENCE)
    runs = parsed(folder / "runs.csv", "runs").query("complete == 1")
    timings = parsed(folder / "timings.csv", "timings").query("timer == 'device_warm' and status == 'ok'")
    latest = runs[runs["study"].isin(targets.MEASURED_IN)].groupby("study")["run"].max()
    for problem, rival in targets.beside_one_graph(e).items():
        columns = problem_columns(problem)
        mine = timings.loc[(timings[list(columns)] == pd.Series(columns)).all(axis=1)]
        least = math.inf
        for study, run in latest.items():
            medians = mine[(mine["study"] == study) & (mine["run"] == run)].groupby("version")["median_us"].median()
            peers = [name for name in medians.index if VERSIONS[name].is_peer]
            if V8 in medians and peers:
                least = min(least, medians[peers].min() / medians[V8])
        assert rival.over.value == pytest.approx(least, rel=TIE - 1), problem


def test_embeddings_are_compared_within_a_process(folder: Path) -> None:
    plain = Problem("attention", 1, 4, seq_q=64, hdim=512)
    stored = Problem("sinusoidal", 1, 4, seq_q=64, hdim=512, table="float16")
    record(folder, "embeddings", {("attention_v8", plain): 4.0, ("sinusoidal_v6", stored): 5.0})
    frame = targets.embeddings(Evidence.load(folder)).set_index("embedding")
    assert frame.loc["sinusoidal, float16", "over_none"] == pytest.approx(1.25)
    assert 1e-4 < frame.loc["sinusoidal, float16", "table_error"] <= 2.0**-12  # half a unit of float16 just below 1
    assert frame.loc["none", "table_error"] == 0.0


# ---------------------------------------------------------------- steps and shapes


def searched(folder: Path, us: dict[str, float], main: float = 10.0) -> pd.DataFrame:
    """Every candidate at 10 us, but `main` where the rule chose it at the main shape; at two problems every recorded
    cut, at what is said or 8 us; at one of them no other candidate is right."""
    rows = []
    cuts = [*steps.CUTS, *(step.cut for step in steps.STEPS if step.cut)]
    for candidate in tune.candidates():
        mine = {"measured_at": "1", "commit": "abc", "source_hash": today(V8), "status": "ok", **candidate.columns}
        chosen = candidate.chosen and candidate.problem in (MAIN, tune.SMALL)
        if candidate.problem == tune.SMALL and not chosen:
            mine["status"] = "wrong"
        rows.append(mine | {"median_us": main if chosen and candidate.problem == MAIN else 10.0})
        rows += [rows[-1] | {"cut": cut, "median_us": us.get(cut, 8.0)} for cut in cuts if chosen]
    append_rows(folder / "shapes.csv", "shapes", rows)
    return steps.shapes(Evidence.load(folder))


def test_steps_say_which_way_they_went(folder: Path) -> None:
    shapes = searched(folder, {"values_early": 12.5, "rows_in_turn": 15.0, "two_paths": 9.9})
    found = {step.cut or step.idea: step.compare(shapes) for step in steps.STEPS}
    assert found["values_early"][MAIN] == pytest.approx(0.8)  # an idea that lost
    assert found["rows_in_turn"][MAIN] == pytest.approx(1.5)  # taken back
    outcomes = {name: steps.held(ratios.values()) for name, ratios in found.items()}
    assert outcomes["values_early"] == "refuted" and outcomes["rows_in_turn"] == "held"
    assert outcomes["two_paths"] == "no difference" and all(found.values()), "every step has shapes to compare"
    assert steps.held([]) == UNMEASURED and steps.held([1.2, 0.9]) == "held in part"


def test_a_shape_is_compared_with_the_best_right_one_and_a_cut_with_the_kernel(folder: Path) -> None:
    shapes = searched(folder, {"copies_alone": 4.0}, main=12.0)
    frame = steps.searched(shapes).set_index("problem")
    assert list(frame.index) == list(tune.PROBLEMS)
    assert frame.loc[MAIN, "best_over_chosen"] == pytest.approx(1 / 1.2) and frame.loc[MAIN, "tried"] > 5
    assert frame.loc[tune.SMALL, "best_over_chosen"] == 1.0 and frame.loc[tune.SMALL, "tried"] == 1
    parts = steps.cuts(shapes).set_index(["problem", "part"])["share"]
    assert parts["B1 H4 S64 D512 R128", "only copies and exchanges"] == pytest.approx(0.4)


def test_bytes_are_read_so_often() -> None:
    once = 4 * 3 * 4 * 64 * 2048  # bytes of Q, K and V
    assert targets.times_read({"problem": MAIN, "l2_to_l1_bytes": 2.5 * once}) == 2.5
    grouped = replace(MAIN, heads=8)  # twice the queries
    assert targets.times_read({"problem": grouped, "l2_to_l1_bytes": 2 * once}) == 1.5
