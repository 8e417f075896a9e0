"""The evidence on the op: every rule finds what it is for, no call is lost, and a right op passes."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import types
from pathlib import Path

import pytest
import torch

from analysis.measure import runs, workers
from analysis.measure.op import calls, check, classes, command, overhead, planned, sanitized, stress
from analysis.measure.op.calls import Call, Tensors, drawn, laid_out, tensors
from analysis.measure.op.judge import exact, folded, fp32_math, judge
from analysis.measure.sanitize.cases import MODES
from analysis.measure.sanitize.logs import PLANTED, Log, Report, marker, read_log
from analysis.measure.studies import Study
from analysis.measure.timing import Timing
from analysis.records import files
from analysis.records.files import read_table
from kernels import VERSIONS, Problem, Unsupported

ROPE = Problem("rope", 2, 4, 2, seq_q=5, seq_k=40, hdim=32, rotary_dim=16)
CAUSAL = dataclasses.replace(ROPE, causal=True)
CALLS = [
    Call(ROPE),
    Call(CAUSAL, interleaved=False, layout="transposed", inputs="sharp"),
    Call(CAUSAL, mode="rates_positions", layout="cache", reach=2**20, base=500_000.0, inputs="large"),
    Call(ROPE, mode="tables", layout="unaligned", interleaved=False, scale=0.3),
    Call(CAUSAL, mode="tables_positions", layout="cache", inputs="sharp"),
    Call(dataclasses.replace(CAUSAL, q_offset=2**20 - 5), inputs="sharp"),
    Call(Problem("rope", 1, 1, seq_q=1, seq_k=1, hdim=4, rotary_dim=0)),
    Call(Problem("attention", 2, 4, 1, seq_q=7, seq_k=33, hdim=20, causal=True, q_offset=30), layout="transposed"),
    Call(Problem("alibi", 2, 6, 3, seq_q=9, seq_k=40, hdim=16, causal=True), inputs="sharp"),
    *(Call(CAUSAL, inputs=kind, seed=3) for kind in calls.SPECIAL),
    *(Call(Problem("attention", 2, 4, 2, seq_q=5, seq_k=40, hdim=32), inputs=kind) for kind in calls.SPECIAL),
]
IDS = [f"{c.problem.family}-{c.inputs}-{c.mode}-{c.layout}-{i}" for i, c in enumerate(CALLS)]

GPU = {
    "slug": "test-gpu", "name": "Test GPU", "target": "sm_90", "node": "n", "driver": "1", "cuda": "13", "numba": "0",
    "python": "3.12", "numba_cuda": "0", "torch": "2", "sm_mhz_max": 1, "power_limit_w": 1, "commit": "c",
}  # fmt: skip


def run_of(folder: Path, name: str = "op_problems", new_run: bool = False) -> runs.Run:
    return runs.Run(Study(name, "", (), ()), GPU, new_run, folder)


# ---------------------------------------------------------------- calls


def test_a_draw_is_the_same_for_its_seed_and_meets_no_more_kernels_than_it_may() -> None:
    def kernel(call: Call) -> tuple[int, str] | None:
        return None if call.problem.hdim == 4 else (call.problem.hdim, call.mode)

    found = drawn(400, 5, kernel, 30)
    assert found == drawn(400, 5, kernel, 30) != drawn(400, 6, kernel, 30)
    assert len({kernel(call) for call in found} - {None}) == 30
    assert {call.inputs for call in found} == set(calls.INPUTS) and {call.mode for call in found} == set(calls.MODES)
    assert {call.layout for call in found} == set(calls.LAYOUTS)
    assert {call.function for call in found} == set(calls.FUNCTIONS.values())
    assert max(call.places for call in found) > 2**19 and all(call.places <= 2**20 for call in found)
    assert all(call.problem.hdim % 4 == 0 <= call.problem.q_offset for call in found)


@pytest.mark.parametrize("layout", calls.LAYOUTS)
def test_a_layout_holds_the_values_with_nan_around_them(layout: str) -> None:
    x = torch.randn(2, 3, 5, 8)
    view = laid_out(x, layout)
    assert torch.equal(view, x)
    whole = view.as_strided((view.untyped_storage().nbytes() // 4,), (1,), 0)
    around = {"contiguous": 0, "transposed": 0, "cache": 2 * 3 * 40 * 8, "unaligned": 2 * 3 * 5 * 4}
    assert int(whole.isnan().sum()) == around[layout]
    assert view.is_contiguous() == (layout == "contiguous")
    assert (view.data_ptr() % 16 == 0) == (layout != "unaligned")


def test_positions_and_tables_reach_as_far_as_the_call_says() -> None:
    far = tensors(Call(ROPE, mode="rates_positions", reach=2**20), "cpu").options["positions"]
    assert far.shape[-1] == 40 and 2**16 < int(far.max()) < 2**20
    given = tensors(Call(ROPE, mode="tables_positions", reach=2**12), "cpu").options
    assert given["cos"].shape == (2**12, 8) and int(given["positions"].max()) < 2**12 and "base" not in given
    assert not torch.equal(*(tensors(Call(ROPE, seed=seed), "cpu").q for seed in (1, 2)))
    assert torch.equal(*(tensors(Call(ROPE, seed=1), "cpu").q for _ in range(2)))


# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize("call", CALLS, ids=IDS)
def test_pytorchs_path_of_the_op_breaks_no_rule(call: Call) -> None:
    row = check.check(call, "cpu", check.functions())
    assert row["status"] == "fell_back", row
    if row["ratio"] is not None:
        assert row["ratio"] <= 4 and row["allowed_abs_err"] > 0


def result_of(call: Call, given: Tensors) -> torch.Tensor:
    return fp32_math(call, folded(call, given, torch.float32))


SHARP = Call(CAUSAL, inputs="sharp", seed=3)
INF = Call(dataclasses.replace(CAUSAL, causal=False), inputs="inf_value", seed=3)
NAN = Call(CAUSAL, inputs="nan_query", seed=3)


def put(value: float, where: object):
    def wrong(call: Call, given: Tensors) -> torch.Tensor:
        out = result_of(call, given)
        out[where] = value
        return out

    return wrong


def nan_for_inf(call: Call, given: Tensors) -> torch.Tensor:
    out = result_of(call, given)
    return out.masked_fill(out.isinf(), math.nan)


def nan_is_zero(call: Call, given: Tensors) -> torch.Tensor:
    return result_of(call, given).nan_to_num(0.0)


def nan_over_the_head(call: Call, given: Tensors) -> torch.Tensor:
    out = result_of(call, given)
    return out.masked_fill(out.isnan().any((-1, -2), keepdim=True), math.nan)


def one_number_for_nan(call: Call, given: Tensors) -> torch.Tensor:
    out = result_of(call, given)
    row = out.isnan().all(-1).nonzero()[0]
    out[tuple(row)][0] = 1.0
    return out


def beyond_what_is_allowed(call: Call, given: Tensors) -> torch.Tensor:
    allowed = judge(call, given, result_of(call, given)).allowed_abs_err
    out = exact(call, given)
    out[1, 2, 3, 4] += 1.01 * allowed
    return out.float()


def other_call(**change: object):
    return lambda call, given: result_of(dataclasses.replace(call, **change), given)


def other_problem(**change: object):
    return lambda call, given: result_of(
        dataclasses.replace(call, problem=dataclasses.replace(call.problem, **change)), given
    )


def drifting(call: Call, given: Tensors) -> torch.Tensor:
    """Angles by a rate that is rounded to float32, as the first part of a rate alone is."""
    positions = torch.arange(call.places, dtype=torch.float64)
    pairs = call.problem.rotary_dim // 2
    rate = (call.base ** (-torch.arange(pairs, dtype=torch.float64) / pairs)).float().double()
    angle = positions[:, None] * rate
    options = {**given.options, "cos": angle.cos().float(), "sin": angle.sin().float()}
    return result_of(call, dataclasses.replace(given, options=options))


WRONG = [
    ("error", SHARP, other_call(scale=1.001 / math.sqrt(32))),
    ("error", SHARP, other_call(interleaved=False)),
    ("error", SHARP, other_call(base=10_100.0)),
    ("error", SHARP, other_problem(causal=False)),
    ("error", SHARP, other_problem(q_offset=34)),
    ("error", dataclasses.replace(SHARP, inputs="uniform"), other_problem(rotary_dim=14)),
    ("error", Call(dataclasses.replace(CAUSAL, q_offset=2**20 - 5), inputs="sharp"), drifting),
    ("error", SHARP, beyond_what_is_allowed),
    ("nan_spread", SHARP, put(math.nan, (1, 2, 3, 4))),
    ("nan_lost", NAN, one_number_for_nan),
    ("not_finite", SHARP, put(math.nan, (0, 1, 2, 3))),
    ("not_finite", SHARP, put(math.inf, (1, 3, 4, 31))),
    ("not_finite", Call(ROPE, inputs="near_max"), put(-math.inf, (0, 0, 0, 0))),
    ("infinity", INF, nan_for_inf),
    ("infinity", INF, lambda call, given: -result_of(call, given)),
    ("nan_spread", NAN, nan_over_the_head),
    ("nan_lost", NAN, nan_is_zero),
    ("shape", SHARP, lambda call, given: result_of(call, given)[:, :, 1:]),
    ("shape", SHARP, lambda call, given: result_of(call, given).double()),
]


@pytest.mark.parametrize(("rule", "call", "wrong"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_a_planted_wrong_result_breaks_its_rule(rule: str, call: Call, wrong) -> None:
    given = tensors(call, "cpu")
    assert judge(call, given, result_of(call, given)).broken == ()
    assert rule in judge(call, given, wrong(call, given)).broken


def test_special_values_are_met() -> None:
    """The kinds of inputs do what they are for: rules of values that never occur would find nothing."""
    plain = Problem("attention", 1, 2, seq_q=4, seq_k=40, hdim=32)
    out = {kind: exact(Call(plain, inputs=kind), tensors(Call(plain, inputs=kind), "cpu")) for kind in calls.SPECIAL}
    given = {kind: tensors(Call(plain, inputs=kind), "cpu") for kind in calls.SPECIAL}
    scores = {kind: given[kind].q @ given[kind].k.transpose(-1, -2) for kind in calls.SPECIAL}
    for kind in ("minus_inf_key", "overflow"):
        assert ((scores[kind] == -math.inf).sum(-1) == 1).all() and out[kind].isfinite().all()
    assert given["overflow"].k.isfinite().all()
    assert (out["inf_value"] == math.inf).any() and not out["inf_value"].isnan().any()
    assert out["near_max"].abs().max() > 1e36 and given["near_max"].v.isfinite().all()
    assert 0 < out["subnormal"].abs().max() < calls.FLT_MIN
    assert int(out["nan_query"].isnan().all(-1).sum()) == 1 == int(out["nan_query"].isnan().any(-1).sum())


# ---------------------------------------------------------------- rows


def functions_with(function) -> dict:
    return {**check.functions(), "rope_attention": function}


def test_a_call_is_right_fell_back_refused_or_wrong() -> None:
    given = tensors(SHARP, "cpu")
    right = result_of(SHARP, given)

    def unsupported(*arguments, fallback: bool = True, **options) -> torch.Tensor:
        if not fallback:
            raise Unsupported("hdim", 32, 16, "hdim is {needed}; allowed is {allowed}")
        return right

    def refuses(*arguments, **options) -> torch.Tensor:
        raise ValueError("q_offset is 35; it must be 0")

    outcomes = [
        check.check(SHARP, "cpu", functions_with(function))
        for function in (lambda *a, **o: right, unsupported, refuses, lambda *a, **o: right * 1.001)
    ]
    assert [row["status"] for row in outcomes] == ["ok", "fell_back", "refused", "wrong"]
    assert [row["reason"] for row in outcomes] == [
        None, "hdim is 32; allowed is 16", "q_offset is 35; it must be 0", "error",
    ]  # fmt: skip
    assert outcomes[0]["ratio"] <= 4 < outcomes[3]["ratio"] and "ratio" not in outcomes[2]


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of the versions, one for each kind of pairs and angles."""

    def plan_launch(problem: Problem, target: str, *kind: bool):
        launch = VERSIONS[planned.VERSIONS_OF[problem.family]](problem).launches[0]
        return types.SimpleNamespace(launch=launch)

    monkeypatch.setattr(planned, "plan_launch", plan_launch)


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch, planner: None) -> list[int]:
    """A measuring process that is this one, on the CPU. Calls 1 and 3 of what it is given hang and fail, once."""
    done: list[int] = []

    def watched(work, todo, patience):
        for place, (index, call) in enumerate(todo):
            done.append(index)
            if place == 1:
                yield "lost", ((index, call), "hang", "a measuring process has sent nothing for 90 s")
            elif place == 3:
                yield "lost", ((index, call), "error", "an illegal memory access")
            else:
                yield "row", (index, check.check(call, "cpu", check.functions()))

    monkeypatch.setattr(check, "watched", watched)
    monkeypatch.setattr(check, "compile_all", lambda chosen, target: None)
    small = [call for call in CALLS if call.inputs in calls.INPUTS[:3]]
    monkeypatch.setattr(check, "drawn", lambda count, seed, kernel_of, most: small[:count])
    return done


def test_every_call_gets_a_row_and_a_run_goes_on_where_it_stopped(no_card: list[int], tmp_path: Path) -> None:
    run = run_of(tmp_path)
    run.save(complete=False)
    check.check_problems(run, "sm_90", count=5, seed=1)
    frame = read_table(tmp_path / "op_problems.csv", "op_problems")
    assert list(frame["call"]) == [0, 1, 2, 3, 4] == no_card
    assert list(frame["status"]) == ["fell_back", "hang", "fell_back", "error", "fell_back"]
    assert frame["reason"][3] == "an illegal memory access" and frame["seconds"][1] == check.PATIENCE
    assert set(frame["core"]) == {"wgmma"} and frame["max_abs_err"].notna().sum() == 3
    assert frame["largest_position"][0] == 39 and frame["scale"][3] == 0.3

    again = run_of(tmp_path)
    assert again.id == run.id and check.missing(again, 7, 1) == [5, 6] and len(check.missing(again, 7, 2)) == 7
    check.check_problems(again, "sm_90", count=7, seed=1)
    assert len(read_table(tmp_path / "op_problems.csv", "op_problems")) == 7


def test_a_silent_process_hangs_and_one_that_speaks_does_not() -> None:
    worker = object.__new__(workers.Worker)
    worker.pipe, theirs = multiprocessing.Pipe()
    worker.patience = 0.1
    theirs.send(("row", 1))
    answers = worker.do()
    assert next(answers) == ("row", 1)
    with pytest.raises(workers.Hang, match="sent nothing for 0 s"):
        next(answers)


def test_what_hangs_or_dies_is_lost_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []

    class Worker:
        def __init__(self, work, patience: float) -> None:
            assert patience == 5.0

        def do(self, todo: list[str]):
            begun.append(todo)
            for place, item in enumerate(todo):
                yield "begun", place
                if item == "spins":
                    raise workers.Hang("sent nothing")
                if item == "dies":
                    raise workers.MeasureError("died\nwith a traceback")
                yield "row", item

        def close(self) -> None:
            pass

    monkeypatch.setattr(workers, "Worker", Worker)
    found = list(workers.watched(lambda todo, send: None, ["a", "spins", "b", "dies", "c"], 5.0))
    assert found == [
        ("row", "a"), ("lost", ("spins", "hang", "sent nothing")), ("row", "b"), ("lost", ("dies", "error", "died")),
        ("row", "c"),
    ]  # fmt: skip
    assert begun == [["a", "spins", "b", "dies", "c"], ["b", "dies", "c"], ["c"]]


def test_a_process_that_cannot_begin_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu(self, todo):
        raise workers.MeasureError("no CUDA GPU is visible")
        yield

    stub = type("Worker", (), {"__init__": lambda *a: None, "do": no_gpu, "close": lambda self: None})
    monkeypatch.setattr(workers, "Worker", stub)
    with pytest.raises(workers.MeasureError, match="no CUDA GPU"):
        list(workers.watched(lambda todo, send: None, ["a"], 5.0))


# ---------------------------------------------------------------- time, classes, calls at the same time


def test_every_contestant_is_timed_in_every_turn(
    monkeypatch: pytest.MonkeyPatch, planner: None, tmp_path: Path
) -> None:
    timing = Timing(5, 1.0, 2.0, 3.0)
    monkeypatch.setattr(overhead, "device_warm", lambda program: timing)
    monkeypatch.setattr(overhead, "host_loop", lambda run: timing)
    made: list[str] = []
    long = dataclasses.replace(overhead.PREFILL, seq_q=8192, seq_k=8192)
    chosen = [
        overhead.Timed(Call(overhead.SMALL, **variant), what, lambda what=what: made.append(what))
        for what, variant in (("launch", {}), ("op", {}), ("op", {"mode": "tables"}))
    ] + [overhead.Timed(Call(long), "op", lambda: None)]
    run = run_of(tmp_path, "op_time")
    for row in overhead.timings(chosen, repetitions=2):
        run.append("op", {"study": "op_time", **row})
    frame = read_table(tmp_path / "op.csv", "op")
    assert set(made) == {"launch", "op"}
    assert len(frame) == 2 * (3 * 2 + 1) and set(frame["repetition"]) == {1, 2}
    assert set(frame[frame["seq_q"] == 8192]["timer"]) == {"device_warm"}
    assert set(frame["mode"]) == {"rates", "tables"} and set(frame["median_us"]) == {2.0}


@pytest.fixture
def made_up_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that is the CPU, for what measuring processes do with tensors, streams and graphs."""

    class Graph:
        """Replays nothing: what is captured has run."""

        def replay(self) -> None:
            pass

    for module in (overhead, stress):
        monkeypatch.setattr(module, "tensors", lambda call, device: tensors(call, "cpu"))
    for name in ("synchronize", "Stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *arguments: None)
    for name in ("stream", "graph", "device"):
        monkeypatch.setattr(torch.cuda, name, lambda *arguments, **options: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(overhead, "Program", lambda plan, inputs: types.SimpleNamespace(launch=lambda: None))


def test_contestants_are_the_launch_and_the_op_in_every_variant(made_up_card: None) -> None:
    seen: list[tuple[bool, bool, bool]] = []

    def function(q, k, v, out=None, **options) -> torch.Tensor:
        result = check.functions()["rope_attention"](q, k, v, out=out, **options)
        seen.append((out is not None, "cos" in options, "positions" in options))
        return result

    chosen = overhead.contestants(overhead.SMALL, functions_with(function))
    assert [each.what for each in chosen] == ["launch", *["op", "op_out"] * len(overhead.VARIANTS)]
    for each in chosen:
        each.launch(0)
    modes = [variant.get("mode", "rates") for variant in overhead.VARIANTS]
    assert seen == [(out, "tables" in mode, "positions" in mode) for mode in modes for out in (False, True)]


@pytest.mark.parametrize("kind", stress.KINDS)
def test_every_kind_of_stress_counts_what_differs(
    kind: str, made_up_card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stress, "CALLS", 20)
    small = Problem("rope", 1, 2, 1, seq_q=3, seq_k=9, hdim=16, rotary_dim=8)
    right = check.functions()["rope_attention"]
    assert stress.stressed(kind, small, check.functions()) == 0
    count = [0]

    def disturbed(*arguments, **options) -> torch.Tensor:
        count[0] += 1
        return right(*arguments, **options) + (1.0 if count[0] == 25 else 0.0)

    assert stress.stressed(kind, small, functions_with(disturbed)) == 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert (stress.stressed(kind, small, check.functions()) is None) == (kind == "two_devices")


def test_the_hosts_loop_never_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("wait"))
    timing = overhead.host_loop(lambda: order.append("call"))
    assert timing.n == overhead.HOST_SAMPLES and 0 < timing.p20_us <= timing.median_us <= timing.p80_us
    one = ["wait", *["call"] * overhead.HOST_CALLS]
    assert order == [*one * overhead.HOST_SAMPLES, "wait"] and overhead.HOST_CALLS < 1024


def test_classes_are_counted_by_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def kernel_of(call: Call, target: str) -> object:
        return call.problem.seq_q > 1, call.problem.batch > 8

    monkeypatch.setattr(classes, "kernel_of", kernel_of)
    model = classes.MODELS[0]
    run = run_of(tmp_path, "op_classes")
    for row in classes.counted(model, "sm_90"):
        run.append("op", {"study": "op_classes", **row})
    frame = read_table(tmp_path / "op.csv", "op").set_index("what")
    assert dict(frame["kernels"]) == {
        "decode": 1, "prefill": 2, "decode_batches": 2, "prefill_batches": 2, "all": 4,
    }  # fmt: skip
    assert frame["n"]["all"] == frame["n"].drop("all").sum() and frame["n"]["decode_batches"] == 64
    assert {1, 512, 513, 576, 577, 32_768} <= set(classes.lengths(32_768))
    monkeypatch.setattr(classes, "kernel_of", lambda call, target: None)
    with pytest.raises(LookupError, match="no core takes rope B1 H32 S1"):
        list(classes.counted(model, "sm_90"))


def test_calls_that_disturb_each_other_are_counted() -> None:
    given = [[tensors(Call(ROPE, seed=seed), "cpu") for seed in range(first, first + 2)] for first in (0, 2)]
    lanes = [contextlib.nullcontext] * 2
    calls_made = []

    def right(each: Tensors) -> torch.Tensor:
        return result_of(Call(ROPE), each)

    def disturbed(each: Tensors) -> torch.Tensor:
        calls_made.append(each)
        out = right(each)
        return torch.nextafter(out, out + 1) if len(calls_made) in (9, 12) else out

    assert stress.differing(right, given, lanes, 6, lambda: None) == 0
    assert stress.differing(disturbed, given, lanes, 6, lambda: None) == 2 and len(calls_made) == 4 + 12
    assert [stress.outcome(differ)["status"] for differ in (0, 2, None)] == ["ok", "wrong", "unavailable"]


def test_small_problems_share_embedded_keys(planner: None) -> None:
    """Those that two launches could once take from each other are among the problems of the stress."""
    shapes = [planned.launch_of(Call(problem), "sm_90").shape for problem in stress.PROBLEMS]
    assert any(getattr(shape, "once", False) for shape in shapes)
    assert any(
        getattr(planned.launch_of(call, "sm_90").shape, "once", False)
        for call in sanitized.CALLS
        if call.problem.family == "rope"
    )


def test_each_tool_says_what_it_found_in_a_call() -> None:
    report = "========= Invalid __global__ read of size 4 bytes\n=========     at {}+0x30\n=========\n"
    head, end = "========= COMPUTE-SANITIZER\n", "========= ERROR SUMMARY: 1 error\n" + marker(ended=0)

    def log(planted: bool, found: bool, finished: bool = True):
        text = head + marker(case=PLANTED) + (report.format("planted") if planted else "") + marker(done=PLANTED)
        text += marker(case=0) + (report.format("attention_c1") if found else "") + marker(done=0)
        return read_log((text + (end if finished else "")).splitlines(keepends=True))

    mode = MODES["memcheck"]
    assert sanitized.outcome(mode, log(True, True), 0) == {"status": "wrong", "reason": "out_of_bounds"}
    assert sanitized.outcome(mode, log(True, False), 0) == {"status": "ok", "reason": None}
    assert sanitized.outcome(mode, log(False, False), 0)["status"] == "unavailable"
    assert sanitized.outcome(mode, log(True, False, finished=False), 0)["status"] == "error"
    assert {mode.tool for mode in sanitized.TOOL_MODES} == {"memcheck", "racecheck", "initcheck", "synccheck"}


# ---------------------------------------------------------------- the command


def test_the_command_measures_once_and_says_what_is_bad(
    no_card: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    counted: list[str] = []

    def count(run: runs.Run, target: str) -> None:
        counted.append(run.id)
        row = {"what": "decode", "version": "rope_v8", "status": "ok", "measured_at": "x", "kernels": 2}
        run.append("op", {"study": run.study.name, "source_hash": check.today("rope_v8"), **row})

    monkeypatch.setitem(command.STUDIES, "classes", ("kernels", count))
    assert not command.measure_op(["problems", "classes"], GPU, 3, 1, new_run=False)
    said = capsys.readouterr().out
    assert "HANG: call 1, sharp: a measuring process has sent nothing" in said and "1 ok" in said
    command.measure_op(["problems", "classes"], GPU, 3, 1, new_run=False)
    assert no_card == [0, 1, 2] and len(counted) == 1
    frame = read_table(tmp_path / "test-gpu" / "runs.csv", "runs")
    assert dict(zip(frame["study"], frame["complete"])) == {"op_problems": True, "op_classes": True}
    command.measure_op(["problems"], GPU, 3, 2, new_run=False)  # another seed is another run
    assert len(no_card) == 6


def test_the_command_lists_without_a_gpu_and_names_an_unknown_study(
    planner: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--list", "--problems", "40"]) == 0
    assert "40 calls meet " in capsys.readouterr().out
    assert command.main(["--study", "overhed"]) == 1
    assert "'overhed'; known: problems, time, compile, classes, stress, sanitize" in capsys.readouterr().err


# ---------------------------------------------------------------- rows of the other studies


def test_what_hangs_under_stress_is_a_row(monkeypatch: pytest.MonkeyPatch, planner: None, tmp_path: Path) -> None:
    def watched(work, todo, patience):
        assert {kind for kind, _ in todo} == set(stress.KINDS)
        for place, each in enumerate(todo):
            yield ("lost", (each, "hang", "nothing for 90 s")) if place == 2 else ("row", (each, stress.outcome(0)))

    monkeypatch.setattr(stress, "watched", watched)
    monkeypatch.setattr(stress, "compile_all", lambda chosen, target: None)
    stress.stress(run_of(tmp_path, "op_stress"), "sm_90")
    frame = read_table(tmp_path / "op.csv", "op")
    assert len(frame) == len(stress.KINDS) * len(stress.PROBLEMS) and set(frame["n"]) == {2000}
    assert list(frame["status"]).index("hang") == 2 and frame["reason"][2] == "nothing for 90 s"
    assert (frame["status"] == "ok").sum() == len(frame) - 1 and frame["once"].sum() > 0


def test_first_calls_find_nothing_on_disk_and_then_what_the_one_before_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caches: list[str] = []

    class Worker:
        def __init__(self, work, patience: float) -> None:
            caches.append(os.environ["FUSED_PE_CACHE"])
            self.files = len(os.listdir(caches[-1]))
            Path(caches[-1], "kernel.ptx").touch()

        def do(self, problem: Problem):
            yield "seconds", {"import": 1.0, "first_call": 0.5 if self.files else 8.0, "second_call": 1e-5}

        def close(self) -> None:
            pass

    before = os.environ.get("FUSED_PE_CACHE")
    monkeypatch.setattr(overhead, "Worker", Worker)
    overhead.first_calls(run_of(tmp_path, "op_compile"), "sm_90")
    assert os.environ.get("FUSED_PE_CACHE") == before and not any(map(os.path.exists, caches))
    assert caches[0] == caches[1] != caches[2] == caches[3]
    frame = read_table(tmp_path / "op.csv", "op")
    assert list(zip(frame["what"], frame["seconds"]))[:4] == [
        ("first_call_cold", 8.0), ("import", 1.0), ("first_call_cached", 0.5), ("second_call", 1e-5),
    ]  # fmt: skip
    assert list(frame["seq_q"][::4]) == [64, 2048]


def test_every_call_gets_a_row_of_every_tool(monkeypatch: pytest.MonkeyPatch, planner: None, tmp_path: Path) -> None:
    def log_of(mode, binary: str, help_text: str, folder: Path):
        log = Log(heard=set(range(1, len(sanitized.CALLS))))
        if mode.planted:
            log.reports[PLANTED] = {Report(mode.planted, PLANTED, None, "planted", False, None, ())}
        return log

    monkeypatch.setattr(sanitized, "_log_of", log_of)
    monkeypatch.setattr(sanitized, "find_sanitizer", lambda: "echo")
    monkeypatch.setattr(sanitized, "compile_all", lambda chosen, target: None)
    sanitized.sanitize_op(run_of(tmp_path, "op_sanitize"), "sm_90")
    frame = read_table(tmp_path / "op.csv", "op")
    assert list(frame.groupby("what").size()) == [len(sanitized.CALLS)] * 4
    assert all(list(rows["status"]) == ["error"] + ["ok"] * (len(rows) - 1) for _, rows in frame.groupby("what"))
    assert set(frame["layout"]) == set(calls.LAYOUTS) and set(frame["mode"]) == set(calls.MODES)
