"""The evidence on the op: every rule finds what it is for, no call is lost, and a right op passes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.measure import op, op_calls, runs
from analysis.measure.op_calls import Call, Tensors, attended, drawn, judge, laid_out, tensors
from analysis.measure.studies import Study
from analysis.measure.timing import Timing
from analysis.measure.workers import Hang, MeasureError
from analysis.record import rows
from kernels import Problem, Unsupported
from tests.measure.stub_card import CARD

ROPE = Problem("rope", 2, 4, 2, seq_q=5, seq_k=40, hdim=32, rotary_dim=16)
CAUSAL = replace(ROPE, causal=True)
PLAIN = Problem("attention", 2, 4, 2, seq_q=5, seq_k=40, hdim=32)
SPECIAL = op_calls.INPUTS[3:]
CALLS = [
    Call(ROPE),
    Call(CAUSAL, interleaved=False, layout="transposed", inputs="sharp"),
    Call(CAUSAL, mode="rates_positions", layout="cache", reach=2**20, base=500_000.0, inputs="large"),
    Call(ROPE, mode="tables", layout="unaligned", interleaved=False, scale=0.3),
    Call(CAUSAL, mode="tables_positions", layout="cache", inputs="sharp"),
    Call(replace(CAUSAL, q_offset=2**20 - 5), inputs="sharp"),
    Call(Problem("rope", 1, 1, seq_q=1, seq_k=1, hdim=4, rotary_dim=0)),
    Call(Problem("attention", 2, 4, 1, seq_q=7, seq_k=33, hdim=20, causal=True, q_offset=30), layout="strided"),
    Call(Problem("alibi", 2, 6, 3, seq_q=9, seq_k=40, hdim=16, causal=True), inputs="sharp", layout="expanded"),
    *(Call(problem, inputs=kind, seed=3) for problem in (CAUSAL, PLAIN) for kind in SPECIAL),
]
IDS = [f"{c.problem.family}-{c.inputs}-{c.mode}-{c.layout}-{i}" for i, c in enumerate(CALLS)]


def run_of(folder: Path, name: str) -> runs.StudyRun:
    return runs.StudyRun(Study(name, "", (), ()), runs.Writer(folder, CARD))


def test_a_draw_is_the_same_for_its_seed_and_meets_all_kinds_in_few_kernels() -> None:
    def kernel(call: Call) -> tuple[int, str] | None:
        return None if call.problem.hdim == 4 else (call.problem.hdim, call.mode)

    found, again, other = ([*itertools.islice(drawn(seed, kernel, 30), 600)] for seed in (5, 5, 6))
    assert found == again != other
    assert len({kernel(call) for call in found} - {None}) == 30
    for name, all_of in (("inputs", op_calls.INPUTS), ("mode", op_calls.MODES), ("layout", op_calls.LAYOUTS)):
        assert {getattr(call, name) for call in found} == set(all_of)
    assert {call.function for call in found} == set(op_calls.FUNCTIONS.values())
    assert 100 < sum(call.called == "graph" for call in found) < 200
    assert len({call.base for call in found}) > 100 and max(call.places for call in found) > 2**19
    assert all(call.problem.hdim % 4 == 0 and call.places <= 2**20 for call in found)


@pytest.mark.parametrize("layout", op_calls.LAYOUTS)
def test_a_layout_holds_the_values_with_nan_around_them(layout: str) -> None:
    x = torch.randn(2, 3, 5, 8)
    view = laid_out(x, layout)
    assert torch.equal(view, x[:, :1].expand(x.shape) if layout == "expanded" else x)
    assert view.is_neg() == (layout == "negated")
    whole = view.resolve_neg().as_strided((view.untyped_storage().nbytes() // 4,), (1,), 0)
    around = {"cache": 2 * 3 * 40 * 8, "unaligned": 2 * 3 * 5 * 4, "strided": 2 * 3 * 5 * 8}
    assert int(whole.isnan().sum()) == around.get(layout, 0)
    assert (view.data_ptr() % 16 == 0) == (layout != "unaligned")


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_pytorchs_path_of_the_op_breaks_no_rule(call: Call) -> None:
    row = op.check(call, "cpu", op.functions())
    assert row["status"] == "fell_back", row
    if "ratio" in row:
        assert row["ratio"] <= 4 and row["allowed_abs_err"] > 0


def result_of(call: Call, given: Tensors) -> torch.Tensor:
    return attended(call, given, torch.float32)


SHARP = Call(CAUSAL, inputs="sharp", seed=3)
INF = Call(replace(CAUSAL, causal=False), inputs="inf_value", seed=3)
NAN = Call(CAUSAL, inputs="nan_query", seed=3)


Wrong = Callable[[Call, Tensors], torch.Tensor]


def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Wrong:
    """The right result, changed."""
    return lambda call, given: change(result_of(call, given))


def put(value: float, *where: int) -> Wrong:
    return changed(lambda out: out.index_put([torch.tensor(i) for i in where], torch.tensor(value)))


def one_number_for_nan(out: torch.Tensor) -> torch.Tensor:
    out[tuple(out.isnan().all(-1).nonzero()[0])][0] = 1.0
    return out


def beyond_what_is_allowed(call: Call, given: Tensors) -> torch.Tensor:
    allowed = judge(call, given, result_of(call, given))["allowed_abs_err"]
    out = attended(call, given, torch.float64)
    out[1, 2, 3, 4] += 1.01 * allowed
    return out.float()


def other(**change: Any) -> Wrong:
    """The result of a call that differs, or whose problem does."""
    problem = {name: change.pop(name) for name in ("causal", "q_offset", "rotary_dim") if name in change}
    return lambda call, given: result_of(replace(call, problem=replace(call.problem, **problem), **change), given)


def drifting(call: Call, given: Tensors) -> torch.Tensor:
    """Angles by a rate that is rounded to float32, as the first part of a rate alone is."""
    angle = torch.arange(call.places, dtype=torch.float64)[:, None] * op_calls.rates(call, "cpu").float().double()
    options = {**given.options, "cos": angle.cos().float(), "sin": angle.sin().float()}
    return result_of(call, given._replace(options=options))


WRONG: list[tuple[str, Call, Wrong]] = [
    ("error", SHARP, other(scale=1.001 / math.sqrt(32))),
    ("error", SHARP, other(interleaved=False)),
    ("error", SHARP, other(base=10_100.0)),
    ("error", SHARP, other(causal=False)),
    ("error", SHARP, other(q_offset=34)),
    ("error", replace(SHARP, inputs="uniform"), other(rotary_dim=14)),
    ("error", Call(replace(CAUSAL, q_offset=2**20 - 5), inputs="sharp"), drifting),
    ("error", SHARP, beyond_what_is_allowed),
    ("nan_spread", SHARP, put(math.nan, 1, 2, 3, 4)),
    ("nan_spread", NAN, changed(lambda out: out.masked_fill(out.isnan().any((-1, -2), keepdim=True), math.nan))),
    ("nan_lost", NAN, changed(one_number_for_nan)),
    ("nan_lost", NAN, changed(lambda out: out.nan_to_num(0.0))),
    ("not_finite", SHARP, put(math.nan, 0, 1, 2, 3)),
    ("not_finite", Call(ROPE, inputs="near_max"), put(-math.inf, 0, 0, 0, 0)),
    ("infinity", INF, changed(lambda out: out.masked_fill(out.isinf(), math.nan))),
    ("infinity", INF, changed(torch.neg)),
    ("shape", SHARP, changed(lambda out: out[:, :, 1:])),
    ("shape", SHARP, changed(torch.Tensor.double)),
]


@pytest.mark.parametrize(("rule", "call", "wrong"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_a_planted_wrong_result_breaks_its_rule(rule: str, call: Call, wrong: Wrong) -> None:
    given = tensors(call, "cpu")
    assert judge(call, given, result_of(call, given))["broken"] == []
    assert rule in judge(call, given, wrong(call, given))["broken"]


def test_special_values_are_met() -> None:
    """The kinds of inputs do what they are for: rules of values that never occur would find nothing."""
    given = {kind: tensors(Call(PLAIN, inputs=kind), "cpu") for kind in SPECIAL}
    out = {kind: attended(Call(PLAIN, inputs=kind), given[kind], torch.float64) for kind in SPECIAL}
    infinite = given["minus_inf_key"]
    scores = infinite.q @ infinite.k.repeat_interleave(2, 1).transpose(-1, -2)
    assert (scores == -math.inf).any() and out["minus_inf_key"].isfinite().all()
    assert (out["inf_value"] == math.inf).any() and not out["inf_value"].isnan().any()
    assert out["near_max"].abs().max() > 1e36 and given["near_max"].v.isfinite().all()
    assert 0 < out["subnormal"].abs().max() < op_calls.FLT_MIN
    assert int(out["nan_query"].isnan().all(-1).sum()) == 1 == int(out["nan_query"].isnan().any(-1).sum())


# ---------------------------------------------------------------- rows


def functions_with(function) -> dict:
    return {**op.functions(), "rope_attention": function}


def test_a_call_is_right_fell_back_refused_or_wrong() -> None:
    right = result_of(SHARP, tensors(SHARP, "cpu"))

    def unsupported(*arguments, fallback: bool = True, **options) -> torch.Tensor:
        if not fallback:
            raise Unsupported("hdim", 32, 16, "hdim is {needed}; allowed is {allowed}")
        return right

    def refuses(*arguments, **options) -> torch.Tensor:
        raise ValueError("q_offset is 35; it must be 0")

    outcomes = [
        op.check(SHARP, "cpu", functions_with(function))
        for function in (lambda *a, **o: right, unsupported, refuses, lambda *a, **o: right * 1.001)
    ]
    assert [row["status"] for row in outcomes] == ["ok", "fell_back", "refused", "wrong"]
    assert [row["reason"] for row in outcomes] == [
        None, "hdim is 32; allowed is 16", "q_offset is 35; it must be 0", "error",
    ]  # fmt: skip
    assert outcomes[0]["ratio"] <= 4 < outcomes[3]["ratio"] and "ratio" not in outcomes[2]


@pytest.mark.parametrize("call", [CALLS[0], CALLS[8]], ids=["rope", "alibi"])
def test_an_eviction_asks_for_more_than_the_op_caches(call: Call) -> None:
    seen = set()

    def function(q, k, v, base: float = 0.0) -> None:
        seen.add((q.shape, base))

    op.evict(call, "cpu", {call.function: function})
    assert len(seen) == op.EVICTING > 256 and (call.problem.q_shape, call.base) not in seen


def test_every_call_gets_a_row_and_a_run_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Calls 1 and 3 of what the measuring process is given hang and fail."""
    done: list[int] = []

    def do(self, work, todo):
        lost = {1: Hang("a measuring process has sent nothing for 90 s"), 3: MeasureError("an illegal memory access")}
        for place, (index, call) in enumerate(todo):
            done.append(index)
            if place in lost:
                yield "lost", ((index, call), lost[place])
            else:
                yield "row", (index, op.check(call, "cpu", op.functions()))

    monkeypatch.setattr(op.Worker, "do", do)
    monkeypatch.setattr(op, "compile_all", lambda chosen, target: None)
    monkeypatch.setattr(op, "drawn", lambda seed, kernel_of, most: iter(CALLS))
    run = run_of(tmp_path, "op_problems")
    op.check_problems(run, "sm_90", count=5, seed=1)
    frame = rows(tmp_path, "op_problems")
    assert list(frame["call"]) == [0, 1, 2, 3, 4] == done
    assert list(frame["status"]) == ["fell_back", "hang", "fell_back", "error", "fell_back"]
    assert frame["reason"][3] == "an illegal memory access" and frame["seconds"][1] == op.PATIENCE
    assert set(frame["core"]) == {"wgmma"} and frame["max_abs_err"].notna().sum() == 3

    run.run.close()
    again = run_of(tmp_path, "op_problems")
    op.check_problems(again, "sm_90", count=7, seed=1)
    assert again.id == run.id and done[5:] == [5, 6]
    op.check_problems(again, "sm_90", count=1, seed=2)  # another draw
    assert len(rows(tmp_path, "op_problems")) == 8


def test_every_contestant_is_timed_in_every_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    timing = Timing(5, 1.0, 2.0, 3.0)
    monkeypatch.setattr(op, "device_warm", lambda program: timing)
    monkeypatch.setattr(op, "host_loop", lambda run: timing)
    made: list[str] = []
    chosen = [
        op.Timed(Call(op.SMALL, **variant), what, lambda what=what: made.append(what))
        for what, variant in (("launch", {}), ("op", {}), ("op", {"mode": "tables"}))
    ]
    run = run_of(tmp_path, "op_time")
    for row in op.timings(chosen, "sm_90", repetitions=2):
        run.append("op", [row])
    frame = rows(tmp_path, "op")
    assert set(made) == {"launch", "op"} and len(frame) == 3 * 2 * 2
    assert set(frame["repetition"]) == {1, 2} and set(frame["timer"]) == {"device_warm", "host_loop"}
