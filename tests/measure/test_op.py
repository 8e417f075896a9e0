"""The study of the op: every rule finds what it is for, no call is lost, and a right op passes."""

import contextlib
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from analysis.evidence.current import today
from analysis.measure import op, op_calls, run
from analysis.measure.op_calls import DTYPES, Call, Given, drawn, expected, judge, tensors
from analysis.measure.workers import Hang, MeasureError, Worker
from analysis.record import rows
from analysis.record.problems import problem_of
from kernels import Problem, Unsupported
from kernels import op as ops
from tests.measure.stub_card import CARD, compilers

ROPE = Problem("rope", 2, 4, 2, seq_q=5, seq_k=40, hdim=32, rotary_dim=16)
CAUSAL = replace(ROPE, causal=True, q_offset=35)
FAR = replace(CAUSAL, q_offset=2**20 - 5)
CALLS = [
    Call(ROPE),
    Call(CAUSAL, interleaved=False, layout="transposed", inputs="sharp"),
    Call(CAUSAL, mode="rates_positions", layout="cache", reach=2**20, base=500_000.0, inputs="large"),
    Call(ROPE, mode="tables", layout="unaligned", interleaved=False, scale=0.3),
    Call(CAUSAL, mode="tables_positions", layout="cache", inputs="sharp", seed=1),
    Call(FAR, inputs="sharp"),
    Call(Problem("attention", 2, 4, 1, seq_q=7, seq_k=33, hdim=20, causal=True, q_offset=30), layout="negated"),
    Call(Problem("alibi", 2, 6, 3, seq_q=9, seq_k=40, hdim=16, causal=True), inputs="sharp", layout="expanded"),
]


def test_drawn_calls_are_reproducible_and_meet_all_kinds_in_few_kernels(monkeypatch: Any) -> None:
    found = drawn(5, 80, "sm_90", most_kernels=40)
    assert found[:20] == drawn(5, 20, "sm_90", most_kernels=40) != drawn(6, 20, "sm_90", most_kernels=40)
    assert len({kernel for call in found for kernel in call.served("sm_90")[1]}) <= 41
    for name, all_of in (("inputs", op_calls.INPUTS), ("mode", op_calls.MODES), ("layout", op_calls.LAYOUTS)):
        assert {getattr(call, name) for call in found} == set(all_of)
    assert {call.problem.family for call in found} == set(op_calls.FUNCTIONS)
    assert 8 < sum(call.called == "graph" for call in found) < 40
    assert all(call.places <= op_calls.MOST_POSITIONS for call in found)
    monkeypatch.setattr(op, "CALLS", 40)
    served = [call.served("sm_90")[0] for call in op.calls_of("op_problems", "sm_90")]
    assert len(served) == 40 and min(served.count("rope_prompt32"), served.count("rope_chunk")) >= 2
    served = [call.served("sm_90")[0] for study in ("op_decode", "op_prompts") for call in op.calls_of(study, "sm_90")]
    assert served.count("rope_prompt_split") >= 10


@pytest.mark.parametrize("layout", op_calls.LAYOUTS)
def test_layout_holds_the_values_with_nan_around_them(layout: str) -> None:
    x = torch.randn(2, 3, 5, 8)
    view = op_calls.LAYOUTS[layout](x)
    assert torch.equal(view, x[:, :1].expand(x.shape) if layout == "expanded" else x)
    assert view.is_neg() == (layout == "negated") and (view.data_ptr() % 16 == 0) == (layout != "unaligned")
    whole = view.resolve_neg().as_strided((view.untyped_storage().nbytes() // 4,), (1,), 0)
    assert int(whole.isnan().sum()) == {"cache": 2 * 3 * 40 * 8, "unaligned": 2 * 3 * 5 * 4}.get(layout, 0)


@pytest.mark.parametrize(
    "call", CALLS, ids=lambda call: f"{call.problem.family}-{call.inputs}-{call.mode}-{call.layout}"
)
def test_pytorchs_path_of_the_op_breaks_no_rule(call: Call) -> None:
    row = op.check(call, "cpu")
    assert row["status"] == "fell_back" and row["ratio"] <= 4 and row["allowed_abs_err"] > 0


SHARP = CALLS[1]
Wrong = Callable[[Call, Given], torch.Tensor]


def beyond_what_is_allowed(call: Call, given: Given) -> torch.Tensor:
    out = expected(call, given, torch.float64)
    out[1, 2, 3, 4] += 1.01 * judge(call, given, out.float())["allowed_abs_err"]
    return out.float()


def other(**change: Any) -> Wrong:
    """The result of a call that differs, or whose problem does."""
    problem = {name: change.pop(name) for name in ("causal", "q_offset", "rotary_dim") if name in change}
    call_of = lambda call: replace(call, problem=replace(call.problem, **problem), **change)  # noqa: E731
    return lambda call, given: expected(call_of(call), given, torch.float32)


def drifting(call: Call, given: Given) -> torch.Tensor:
    """Angles by a rate that is rounded to float32, as the first part of a rate alone is."""
    pair = torch.arange(call.problem.rotary_dim // 2, dtype=torch.float64)
    rates = (call.base ** (-2 * pair / call.problem.rotary_dim)).float().double()
    angle = torch.arange(call.places, dtype=torch.float64)[:, None] * rates
    return expected(call, (given[0], {"cos": angle.cos().float(), "sin": angle.sin().float()}), torch.float32)


def with_nan(call: Call, given: Given) -> torch.Tensor:
    return expected(call, given, torch.float32).index_put(
        [torch.tensor(i) for i in (0, 1, 2, 3)], torch.tensor(math.nan)
    )


WRONG: list[tuple[str, Call, Wrong]] = [
    ("error", SHARP, other(scale=1.001 / math.sqrt(32))),
    ("error", SHARP, other(interleaved=True)),
    ("error", SHARP, other(base=10_100.0)),
    ("error", SHARP, other(causal=False)),
    ("error", SHARP, other(q_offset=34)),
    ("error", replace(SHARP, inputs="uniform"), other(rotary_dim=14)),
    ("error", Call(FAR, inputs="sharp"), drifting),
    ("error", SHARP, beyond_what_is_allowed),
    ("not_finite", SHARP, with_nan),
    ("shape", SHARP, lambda call, given: expected(call, given, torch.float32)[:, :, 1:]),
    ("shape", SHARP, lambda call, given: expected(call, given, torch.float64)),
]


@pytest.mark.parametrize(("rule", "call", "wrong"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_planted_wrong_result_breaks_its_rule(rule: str, call: Call, wrong: Wrong) -> None:
    given = tensors(call, "cpu")
    assert judge(call, given, expected(call, given, torch.float32))["reason"] is None
    assert judge(call, given, wrong(call, given))["reason"] == rule


# ---------------------------------------------------------------- rows


def test_call_is_right_fell_back_refused_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    right = expected(SHARP, tensors(SHARP, "cpu"), torch.float32)

    def unsupported(*arguments: Any, fallback: bool = True, **options: Any) -> torch.Tensor:
        if not fallback:
            raise Unsupported("hdim", 32, 16, "hdim is {needed}; allowed is {allowed}")
        return right

    def refuses(*arguments: Any, **options: Any) -> torch.Tensor:
        raise ValueError("q_offset is 35; it must be 0")

    outcomes = []
    for function in (lambda *a, **o: right, unsupported, refuses, lambda *a, **o: right * 1.001):
        monkeypatch.setattr(ops, "rope_attention", function)
        outcomes.append(op.check(SHARP, "cpu"))
    assert [(row["status"], row["reason"]) for row in outcomes] == [
        ("ok", None), ("fell_back", "hdim is 32; allowed is 16"), ("refused", "q_offset is 35; it must be 0"),
        ("wrong", "error"),
    ]  # fmt: skip
    assert outcomes[0]["ratio"] <= 4 < outcomes[3]["ratio"] and "ratio" not in outcomes[2]


def test_sliced_calls_are_made_and_captured_on_the_stream_of_their_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []

    @contextlib.contextmanager
    def within(what: Any) -> Iterator[Any]:
        if what == 136:
            raise Unsupported("capability", what, 132, "a slice of {needed} SMs; this card has {allowed}")
        entered.append(what)
        yield f"stream of {what}"
        entered.append("left")

    captured: list[Any] = []
    monkeypatch.setattr(op, "sliced", within)
    monkeypatch.setattr(op, "replayed", lambda call, run: captured.append(list(entered)) or run())
    monkeypatch.setattr(torch.cuda, "stream", within)
    assert op.check(replace(SHARP, sms=48), "cpu")["status"] == "fell_back"
    assert entered == [48, "stream of 48", "left", "left"]
    op.check(replace(SHARP, sms=24, called="graph"), "cpu")
    assert captured == [[48, "stream of 48", "left", "left", 24, "stream of 24"]]
    row = op.check(replace(SHARP, sms=136), "cpu")
    assert (row["status"], row["reason"]) == ("unavailable", "a slice of 136 SMs; this card has 132")


def test_sliced_calls_meet_every_slice_kind_and_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "CALLS", 100)
    calls = op.calls_of("op_slices", "sm_90")
    assert {call.sms for call in calls} == set(op_calls.SLICES)
    assert {call.called for call in calls} == {"eager", "graph"} and {call.problem.dtype for call in calls} == {*DTYPES}
    assert max(call.problem.hdim for call in calls) == 12_288
    monkeypatch.setattr(op, "CALLS", 10)
    assert {call.sms for call in op.calls_of("op_slices", "sm_90", (24, 8))} == {24, 8}


def test_every_call_gets_a_row_and_a_stopped_run_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Calls 1 and 3 of what the measuring process is given hang and fail; it is interrupted behind the fifth."""
    done: list[int] = []

    def do(self: Worker, work: Any, todo: list[Any]) -> Any:
        lost = {1: Hang("a measuring process has sent nothing for 90 s"), 3: MeasureError("an illegal memory access")}
        for index, call in todo:
            done.append(index)
            if index in lost:
                yield "lost", ((index, call), lost[index])
            else:
                yield "row", (index, op.check(call, "cpu"))
            if len(done) == 5:
                raise KeyboardInterrupt

    times = [{**Call(op.SMALL).columns("sm_90"), "what": "op", "timer": "host_loop", "status": "ok", "median_us": 2.0}]
    monkeypatch.setattr(Worker, "do", do)
    monkeypatch.setattr(Worker, "ask", lambda self, work: ((("row", row)) for row in times))
    monkeypatch.setattr(op, "compilers", compilers)
    monkeypatch.setattr(op, "drawn", lambda seed, count, *_: CALLS[-count:] if len(_) > 2 else CALLS[:count])
    both = ("op_problems", "op_time")
    for count, ends in ((6, KeyboardInterrupt), (6, None), (7, None), (7, None)):
        writer = run.Writer(tmp_path, CARD)
        monkeypatch.setattr(op, "CALLS", count)
        if ends:
            with pytest.raises(ends):
                op.measure_op(writer, both, False)
        else:
            assert op.measure_op(writer, both, False) is False
        writer.close()
    assert done == [0, 1, 2, 3, 4, 5, *range(7)], "more calls are a run of their own; what is complete stays"
    frame = rows(tmp_path, "op_problems")
    first = frame[frame["run"] == frame["run"].min()]
    assert list(first["call"]) == [0, 1, 2, 3, 4, 5]
    assert list(first["status"])[:4] == ["fell_back", "hang", "fell_back", "error"]
    assert first["reason"][3] == "an illegal memory access" and first["max_abs_err"].notna().sum() == 4
    assert len(rows(tmp_path, "op")) == 1


def test_first_calls_begin_with_an_empty_cache_that_the_next_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(program: list[str], env: dict[str, str], **options: Any) -> Any:
        kept = Path(env["FUSED_PE_CACHE"])
        first = not (kept / "kernel").exists()
        (kept / "kernel").touch()
        return SimpleNamespace(stdout=json.dumps([Problem(**json.loads(program[-1])).hdim, 2] if first else [1, 2]))

    sent: list[Any] = []
    monkeypatch.setattr(op.subprocess, "run", play)
    monkeypatch.setattr(op, "device_target", lambda: "sm_90")
    op.first_calls(SimpleNamespace(send=sent.append))  # type: ignore[arg-type]
    found = {(problem_of(row), row["timer"]): row["median_us"] for _, row in sent}
    assert len(found) == len(sent) == 15 and {problem for problem, _ in found} == set(op.FIRST_CALLS)
    for (problem, timer), us in found.items():
        assert us == {"first_call": problem.hdim, "second_call": 2, "first_call_cached": 1}[timer]
    assert all(row["source_hash"] == today(row["version"]) != "" for _, row in sent)


def test_decode_calls_have_every_dtype_and_pass_on_pytorchs_path() -> None:
    dice = random.Random(3)
    calls = [call for _ in range(500) if (call := op_calls.decode_call(dice))]
    assert {(call.problem.dtype, call.lengths) for call in calls} == set(product(op_calls.DTYPES, (False, True)))
    small = [call for call in calls if math.prod(call.problem.kv_shape) < 2**17][:60]
    assert len(small) == 60 and all(call.served("sm_90")[1] for call in small[:3])
    for call in small:
        assert op.check(replace(call, called="eager"), "cpu")["status"] in ("fell_back", "refused"), call
