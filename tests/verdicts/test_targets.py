"""V8's targets on made-up evidence: what is compared, what the verdicts are, and what a page says without evidence.

No time here was measured.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.book import style
from analysis.book.chapters import targets
from analysis.book.table import Missing, Table
from analysis.measure import candidates
from analysis.measure.studies import MAIN, STUDIES
from analysis.models import profiles, steps
from analysis.models import targets as held_to
from analysis.models.targets import MISSED, REACHED, UNMEASURED, UNTOLD, Target
from analysis.records import files
from analysis.records.current import today
from analysis.records.files import DataError, append_rows, problem_columns
from analysis.records.interval import Ratio
from analysis.records.measured import CEILINGS
from kernels import Problem

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


def shapes(folder: Path, us: dict[str, float]) -> None:
    """Every candidate of the search, all shapes taking 10 us and changes what is said, else 8 us."""
    rows = []
    for candidate in candidates.candidates():
        change = candidates.CHANGES.get(candidate.change)
        taken = us.get(candidate.change, 8.0) if change else 10.0
        rows.append(
            {
                **{"measured_at": "1", "commit": "abc", "source_hash": today("rope_v8"), **candidate.columns()},
                **{"status": "wrong" if change and not change.right else "ok", "median_us": taken},
            }
        )
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
    evidence = targets.read("test-gpu")
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
    assert held_to.worst_verdict([other, error]) == MISSED


def test_a_wrong_v8_reaches_nothing(folder: Path) -> None:
    record(folder, "beyond", {("rope_v8", MAIN): 1.0, (COMPILED, MAIN): 70.0}, wrong=("rope_v8",))
    evidence = targets.read("test-gpu")
    assert {each.verdict for each in held_to.results(evidence)} == {UNMEASURED}


def test_the_targets_cover_the_shapes_that_they_name() -> None:
    peer = next(t for t in held_to.TARGETS if t.quantity == "peer" and len(t.problems) > 1)
    assert {p.hdim for p in peer.problems} == {512, 1024, 2048, 4096, 8192, 16384}
    assert all(p.batch == 1 and p.seq_q <= 64 for p in peer.problems)
    assert [p.rotary_dim for p in held_to.FILLED_2048] == [128, 2048]
    assert [p.causal for p in held_to.PREFILL_2048] == [False, True]


# ---------------------------------------------------------------- steps and shapes


def test_steps_say_which_way_they_went(folder: Path) -> None:
    shapes(folder, {"values_early": 12.5, "rows_in_turn": 15.0, "two_paths": 9.9, "first_queries_first": 9.0})
    evidence = targets.read("test-gpu")
    found = {step.idea: step.compare(evidence.shapes) for step in steps.STEPS}
    (early,) = (ratios for idea, ratios in found.items() if "before the products" in idea)
    assert early[MAIN] == pytest.approx(0.8) and steps.held(early.values()) == "refuted"  # an idea that lost
    (rows,) = (ratios for idea, ratios in found.items() if "side by side" in idea)
    assert rows[MAIN] == pytest.approx(1.5) and steps.held(rows.values()) == "held"  # taken back
    (path,) = (ratios for idea, ratios in found.items() if "path of their own" in idea)
    assert steps.held(path.values()) == "no difference"
    assert all(found.values()), "every step has shapes to compare"
    assert steps.held([]) == UNMEASURED and steps.held([1.2, 0.9]) == "held in part"


def test_regret_is_over_the_best_right_shape_and_cuts_over_the_kernel(folder: Path) -> None:
    shapes(folder, {"copies_alone": 4.0})
    evidence = targets.read("test-gpu")
    evidence.shapes.loc[(evidence.shapes["problem"] == MAIN) & evidence.shapes["chosen"], "median_us"] *= 1.2
    frame = steps.regret(evidence.shapes)
    assert len(frame) == (evidence.shapes["cut"] == "").sum()
    assert frame[frame["chosen"] & (frame["problem"] == "B1 H4 S64 D2048 R128")]["over_best"].item() == pytest.approx(
        1.2
    )
    assert frame.groupby("problem")["chosen"].sum().eq(1).all()
    parts = steps.cuts(evidence.shapes).set_index(["problem", "part"])["share"]
    assert parts["B1 H4 S64 D512 R128", "only copies and exchanges"] == pytest.approx(0.4)


def test_counters_say_how_often_bytes_are_read_and_what_is_waited_for(folder: Path) -> None:
    once = 4 * 3 * 4 * 64 * 2048  # bytes of Q, K and V
    counted(folder, "rope_v8", {"l2_to_l1_bytes": 2.5 * once, "issue_percent": 40.0, "stall_barrier": 31.0})
    counted(folder, "rope_v7", {"l2_to_l1_bytes": 50.0 * once})
    evidence = targets.read("test-gpu")
    rows = targets.counter_table(evidence).rows
    assert [row[3] for row in rows] == ["2.5×", "50.0×"] and rows[0][5] == "40"
    assert rows[0][-1].startswith("other warps at a barrier")
    told = targets.found_counters(evidence)
    assert told.numbers["times_read"] == "2.50" and told.numbers["longest_wait"] == "65 %"
    assert told.holds is False  # one cause takes more than half of the time
    assert (
        targets.found_counters(targets.Evidence(**{**vars(evidence), "profiled": evidence.profiled[:0]})).holds is None
    )


def test_few_heads_fill_the_reference_and_not_a_card_twice_as_large(folder: Path) -> None:
    evidence = targets.read("test-gpu")
    for sms, fill in ((132, True), (264, False)):
        assert targets.found_tiles(targets.Evidence(**{**vars(evidence), "gpu": {**GPU, "sms": sms}})).holds is fill
    portable = targets.Evidence(**{**vars(evidence), "gpu": {**GPU, "compute_capability": "8.9"}})
    assert targets.found_tiles(portable).numbers["cluster"] == 1 and not targets.found_tiles(portable).holds


def test_a_card_with_another_core_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = {**GPU, "compute_capability": "8.9"}
    (folder / "gpu.json").write_text(json.dumps(gpu))
    told = dict(zip(targets.PARTS, shown(targets.read("test-gpu"), monkeypatch), strict=True))
    for name in ("steps", "cuts", "shapes"):
        assert told[name] == f"*{targets.OTHER_CORE} (Test GPU).*"
    assert told["targets"].startswith("*Not measured on the Test GPU yet: `make measure STUDY=beyond`")


def test_a_version_that_its_card_refuses_is_not_called_unmeasured(folder: Path) -> None:
    record(folder, "beyond", {("rope_v7", MAIN): 5.0})
    path = folder / "checks.csv"
    refused = {"version": "rope_v8", "source_hash": today("rope_v8"), "status": "unsupported", "reason": "no clusters"}
    row = {"run": "1", "study": "beyond", **problem_columns(MAIN), "measured_at": "1", "inputs": "sharp"}
    append_rows(path, "checks", [row | refused])
    evidence = targets.read("test-gpu")
    told = targets.found_main(evidence)
    assert (
        told.holds is None and told.why and told.why.reason == "no clusters" and told.numbers["main"] == "unsupported"
    )
    rows = {row[0]: row for row in targets.problem_table(evidence).plain().rows}
    assert rows[held_to.label(MAIN)][2] == "unsupported"
    assert {row[2] for name, row in rows.items() if name != held_to.label(MAIN)} == {"not measured"}


# ---------------------------------------------------------------- the page


def shown(evidence: targets.Evidence, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Plots and tables, and the text in place of those that are not measured."""
    said: list[Any] = []
    monkeypatch.setattr(targets, "display", lambda what: said.append(what.data))
    monkeypatch.setattr(
        targets,
        "show",
        lambda what, evidence: said.append(what.text(evidence.card) if isinstance(what, Missing) else what),
    )
    for name in targets.PARTS:
        targets.part(name, evidence)
    return said


def test_what_is_not_measured_is_said_and_how_to_measure_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = targets.read("test-gpu")
    assert evidence.lacks("beyond", "peers", "embeddings", "shapes") == ["beyond", "peers", "embeddings", "shapes"]
    said = shown(evidence, monkeypatch)
    assert [type(what) for what in said[:2]] == [style.Plot, Table]  # the idea is drawn, the floor computed
    assert said[0].source.kinds == ("computed",)
    assert all(line.startswith("*Not measured on the Test GPU yet: `make ") for line in said[2:])
    assert len(said) == len(targets.PARTS)
    with pytest.raises(DataError, match="no part 'colour'; it has idea, floor"):
        targets.part("colour", evidence)


def test_everything_measured_is_shown_and_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for study in held_to.NEEDED:
        pairs = {(v.id, p): 20.0 if v.is_peer else 5.0 for v, p in STUDIES[study].pairs()}
        record(folder, study, pairs)
    shapes(folder, {})
    counted(folder, "rope_v8", {})
    evidence = targets.read("test-gpu")
    found = dict(zip(targets.PARTS, shown(evidence, monkeypatch), strict=True))
    for name in ("shapes", "cuts", "family", "embeddings"):
        plot = found[name]
        assert isinstance(plot, style.Plot) and len(plot.data) and plot.alt and plot.id == f"v8-{name}"
        assert str(plot.source).startswith("measured on Test GPU, ")
    assert "4.0×" in found["family"].figure._suptitle.get_text()
    table = found["problems"]
    assert len(table.rows) == len(held_to.BEYOND) and "4.00×" in "".join(table.rows[0])
    told = targets.found_main(evidence)
    assert told.holds and told.numbers["main"] == "5.0 µs" and told.numbers["over_peer"] == "4.0×"


def test_embeddings_are_compared_within_a_process(folder: Path) -> None:
    plain = Problem("attention", 1, 4, seq_q=64, hdim=512)
    stored = Problem("sinusoidal", 1, 4, seq_q=64, hdim=512, table="float16")
    record(folder, "embeddings", {("attention_v8", plain): 4.0, ("sinusoidal_v6", stored): 5.0})
    frame = held_to.embeddings(targets.read("test-gpu")).set_index("embedding")
    row = frame.loc["sinusoidal, float16"]
    assert (row["over_none"], row["low"], row["high"]) == pytest.approx((1.25, 1.25, 1.25))
    assert 1e-4 < row["table_error"] <= 2.0**-12  # half a unit of float16 just below 1
    assert isinstance(frame, pd.DataFrame) and frame.loc["none", "table_error"] == 0.0
