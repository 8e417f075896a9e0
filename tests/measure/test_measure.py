"""A measuring run goes on where it stopped, never repeats equal code, and loses nothing."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from analysis.measure import on_gpu, runs
from analysis.measure import run as measure
from analysis.measure.studies import STUDIES, Study, study
from analysis.records import current, files
from analysis.records.current import today
from kernels import VERSIONS, Plan, Problem, Version
from kernels.checking.reference import reference_of

GPU = {
    "slug": "test-gpu", "name": "Test GPU", "node": "n", "driver": "1", "cuda": "13", "python": "3.12", "numba": "0",
    "numba_cuda": "0", "torch": "2", "sm_mhz_max": 1, "power_limit_w": 1, "commit": "c",
}  # fmt: skip
SMALL = Study(
    "log", "", (Problem("attention", hdim=64), Problem("rope", hdim=64, rotary_dim=32)), ("device_warm", "launched")
)


@pytest.fixture
def begin(tmp_path):
    return lambda new_run=False, **gpu: runs.Run(SMALL, {**GPU, **gpu}, new_run, tmp_path)


def check(run: runs.Run, pair: on_gpu.Pair, status: str = "ok", **values) -> None:
    for kind in runs.INPUTS:
        row = on_gpu.row_of("log", pair, inputs=kind, status=status, reason="", max_abs_err=1e-6, **values)
        run.append("checks", row)


def timing(run: runs.Run, pair: on_gpu.Pair, process: int, timer: str, **values) -> None:
    numbers = {"n": 1, "p20_us": 1.0, "median_us": 1.0, "p80_us": 1.0, "status": "ok"}
    run.append("timings", on_gpu.row_of("log", pair, process=process, timer=timer, **numbers, **values))


def test_an_interrupted_run_goes_on_and_a_finished_row_is_not_measured_again(begin) -> None:
    first = begin()
    first.save(complete=False)
    pairs = first.unchecked()
    assert len(pairs) == len(list(SMALL.pairs()))
    check(first, pairs[0])
    check(first, pairs[1], "unsupported")
    timing(first, pairs[0], 1, "device_warm")

    second = begin()
    assert second.id == first.id
    assert set(second.unchecked()) == set(pairs[2:])
    assert [(pair, timer) for pair, timer, _ in second.untimed(1)] == [(pairs[0], "launched")]
    assert len(second.untimed(2)) == 2


def test_changed_code_is_measured_again(begin, monkeypatch) -> None:
    run = begin()
    run.save(complete=False)
    pair = run.unchecked()[0]
    check(run, pair)
    timing(run, pair, 1, "device_warm")
    monkeypatch.setattr(current, "today", lambda name: "changed" if name == pair[0] else today(name))
    assert pair in begin().unchecked()


def test_a_complete_run_is_left_alone_until_something_changes(begin, monkeypatch) -> None:
    run = begin()
    for pair in run.unchecked():
        check(run, pair)
    run.save(complete=True)
    assert begin().row["complete"] is True
    assert begin(driver="2").row["complete"] is False
    assert begin(new_run=True).row["complete"] is False
    monkeypatch.setattr(current, "today", lambda name: "changed")
    assert begin().row["complete"] is False


def test_the_worst_of_the_inputs_decides(begin) -> None:
    run = begin()
    run.save(complete=False)
    pair = run.unchecked()[0]
    row = on_gpu.row_of("log", pair, inputs="uniform", status="ok", reason="", max_abs_err=1e-3)
    run.append("checks", row)
    run.append("checks", {**row, "inputs": "sharp", "status": "wrong", "reason": "why", "max_abs_err": 1e-6})
    verdict = run.verdicts()[pair]
    assert (verdict["status"], verdict["reason"], verdict["max_abs_err"]) == ("wrong", "why", 1e-3)


def test_what_cannot_be_timed_is_a_row_with_its_reason(begin) -> None:
    run = begin()
    run.save(complete=False)
    pair = run.unchecked()[0]
    for kind in runs.INPUTS:
        run.append(
            "checks", on_gpu.row_of("log", pair, inputs=kind, status="infeasible", reason="49,536 B and 49,152 B")
        )
    run.note_untimed()
    run.note_untimed()
    [row] = run.rows("timings")
    assert (row["status"], row["timer"], row["reason"]) == ("infeasible", None, "49,536 B and 49,152 B")


@pytest.mark.parametrize("name", ["torch_hungry", "hungry"])  # a peer, and an own version
def test_a_lack_of_memory_is_an_error_and_no_refusal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(problem: Problem) -> Plan:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB.\nMore about it")

    monkeypatch.setitem(VERSIONS, name, Version(name, "attention", "", "", "", None, None, 1, plan))
    monkeypatch.setattr(on_gpu, "device_target", lambda: "sm_90")
    row = on_gpu.check((name, Problem("attention")), "uniform")
    assert row == {"status": "error", "reason": "CUDA out of memory. Tried to allocate 80.00 GiB."}


@pytest.mark.parametrize(("target", "core"), [("sm_75", "portable"), ("sm_90", "wgmma"), ("sm_120", "mma")])
def test_a_check_plans_for_the_card_and_says_which_core_ran(
    target: str, core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem("rope", heads=2, seq_q=8, seq_k=40, hdim=64, rotary_dim=64)
    case = reference_of(problem, "uniform")
    ran = []

    class Program:
        def __init__(self, plan: Plan, inputs: object) -> None:
            ran.append(plan.core)

        def output(self) -> torch.Tensor:
            return case.expected

    monkeypatch.setattr(on_gpu, "device_target", lambda: target)
    monkeypatch.setattr(on_gpu, "reference_of", lambda *_: case)
    monkeypatch.setattr(on_gpu, "Program", Program)
    found = on_gpu.check(("rope_v8", problem), "uniform")
    assert (found["status"], found["core"], ran) == ("ok", core, [core])
    assert on_gpu.check(("rope_v7", Problem("rope", seq_q=8, hdim=64, rotary_dim=64)), "uniform")["core"] == ""


def test_a_damaged_file_stops_the_run_and_stays_as_it_is(begin, tmp_path) -> None:
    run = begin()
    run.save(complete=False)
    check(run, run.unchecked()[0])
    path = tmp_path / "checks.csv"
    path.write_text(path.read_text()[:-20])
    before = path.read_bytes()
    with pytest.raises(files.DataError, match=r"checks.csv, line 3"):
        begin().unchecked()
    assert path.read_bytes() == before


def test_messages_of_the_command(capsys) -> None:
    assert measure.main(["--study", "nothing"]) == 1
    assert capsys.readouterr().err == f"measure: no study is called 'nothing'; known: {', '.join(STUDIES)}\n"
    assert measure.main(["--versions", "rope_v99"]) == 1
    assert "no version is called 'rope_v99'" in capsys.readouterr().err


def test_without_a_gpu_measuring_ends_with_one_line(capsys, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert measure.main([]) == 1
    said = capsys.readouterr()
    assert said.err == "[check] stops   GPU: no CUDA GPU is visible on this machine; measuring needs one\n"
    assert said.out == ""


def test_the_log_study_holds_the_published_shapes() -> None:
    shapes = {(p.family, p.heads, p.seq_q, p.hdim, p.rotary_dim) for p in study("log").problems}
    assert {("attention", 4, 64, 512, 0), ("attention", 1, 8, 16384, 0), ("sinusoidal", 2, 32, 4096, 0)} <= shapes
    assert {("rope", 4, 64, 128, 64), ("rope", 1, 16, 8192, 128), ("rope", 4, 64, 2048, 2048)} <= shapes
    for pair in STUDIES["log"].pairs():
        assert pair[0].family == pair[1].family
        assert dataclasses.asdict(pair[1])["batch"] == 1
    assert {version.id for chosen in STUDIES.values() for version, _ in chosen.pairs()} == set(VERSIONS)
