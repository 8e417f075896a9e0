"""A measuring run goes on where it stopped, never repeats equal code, and loses nothing."""

from typing import Any

import pytest

from analysis.evidence import current
from analysis.evidence.current import today
from analysis.measure import on_gpu
from analysis.measure import run as measure
from analysis.studies import STUDIES, Study, matched, study
from kernels import VERSIONS, Problem
from tests.measure.stub_card import CARD

NAMES = tuple(v.id for v in VERSIONS.values() if v.family in ("attention", "rope") and v.of_log)
PROBLEMS = Problem("attention", hdim=64), Problem("rope", hdim=64, rotary_dim=32)
SMALL = Study("log", "", ("device_warm", "launched"), ((NAMES, PROBLEMS),))


@pytest.fixture
def begin(tmp_path):
    """Begin a run, or go on with it, as the process does that has killed the one before."""
    writers: list[measure.Writer] = []

    def begun(new_run: bool = False, **gpu: Any) -> measure.StudyRun:
        for writer in writers:
            writer.close()
        writers.append(measure.Writer(tmp_path, {**CARD, **gpu}))
        return measure.StudyRun(SMALL, writers[-1], new_run)

    return begun


def check(run: measure.StudyRun, pair: on_gpu.Pair, status: str = "ok", **values) -> None:
    found = {"status": status, "reason": "", "max_abs_err": 1e-6, **values}
    run.append("checks", [on_gpu.row_of(pair, inputs=kind, **found) for kind in measure.INPUTS])


def timing(run: measure.StudyRun, pair: on_gpu.Pair, process: int, timer: str) -> None:
    numbers = {"n": 1, "p20_us": 1.0, "median_us": 1.0, "p80_us": 1.0, "status": "ok"}
    run.append("timings", [on_gpu.row_of(pair, process=process, timer=timer, **numbers)])


def test_interrupted_run_goes_on_and_finished_rows_are_not_measured_again(begin) -> None:
    first = begin()
    pairs = first.unchecked()
    assert len(pairs) == len(list(SMALL.pairs()))
    check(first, pairs[0])
    check(first, pairs[1], "unsupported")
    timing(first, pairs[0], 1, "device_warm")
    second = begin()
    assert second.folder == first.folder and set(second.unchecked()) == set(pairs[2:])
    assert [(trial.pair, trial.timers) for trial in second.untimed(1)] == [(pairs[0], ("launched",))]
    assert [trial.timers for trial in second.untimed(2)] == [SMALL.timers]
    assert set(second.unfinished(1)) == {pairs[0], *pairs[2:]}, "what was refused is finished"
    timing(second, pairs[0], 1, "launched")
    assert set(second.unfinished(1)) == {*pairs[2:]} and pairs[0] in second.unfinished(2)


@pytest.mark.parametrize("what", ["node", "uuid", "driver", "python", "numba", "numba_cuda", "torch", "commit"])
def test_interrupted_run_goes_on_only_with_equal_card_and_software(begin, what: str) -> None:
    one, other, again, other_again = (begin(**change).folder for change in 2 * ({}, {what: "another"}))
    assert one != other and (one, other) == (again, other_again)


@pytest.mark.parametrize(
    ("changed", "stays"),
    [
        ({}, True), ({"node": "another"}, True), ({"commit": "another"}, True), ({"uuid": "another"}, False),
        ({"torch": "another"}, False), ({"driver": "another"}, False), ({"new_run": True}, False),
    ],
)  # fmt: skip
def test_complete_run_counts_until_card_software_or_code_changes(begin, monkeypatch, changed, stays) -> None:
    run = begin()
    for pair in run.unchecked():
        check(run, pair)
    run.save(complete=True)
    assert begin(**changed).complete is stays
    monkeypatch.setattr(current, "today", lambda name: "changed")
    assert begin().complete is False


def test_changed_code_is_measured_again(begin, monkeypatch) -> None:
    run = begin()
    pair = run.unchecked()[0]
    check(run, pair)
    timing(run, pair, 1, "device_warm")
    monkeypatch.setattr(current, "today", lambda name: "changed" if name == pair[0] else today(name))
    again = begin()
    assert pair in again.unchecked() and again.folder != run.folder, "rows of two codes would stand in one run"


def test_worst_of_the_inputs_decides_and_refused_pairs_are_not_timed(begin) -> None:
    run = begin()
    one, other = run.unchecked()[:2]
    check(run, other, "infeasible", reason="49,536 B and 49,152 B")
    row = on_gpu.row_of(one, inputs="uniform", status="ok", reason="")
    run.append("checks", [row, {**row, "inputs": "sharp", "status": "wrong", "reason": "why"}])
    assert run.verdicts()[one]["reason"] == "why"
    assert [(trial.pair, trial.status) for trial in run.untimed(1)] == [(one, "wrong")]


def test_without_a_gpu_measuring_ends_with_one_line(capsys, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert measure.main([]) == 1
    said = capsys.readouterr()
    assert said.err == "[check] stops   GPU: no CUDA GPU is visible on this machine; measuring needs one\n"
    assert said.out == ""


def test_every_version_is_in_a_study_and_the_log_holds_the_published_shapes() -> None:
    assert {name for chosen in STUDIES.values() for name, _ in chosen.pairs()} == set(VERSIONS)
    shapes = {(p.family, p.heads, p.seq_q, p.hdim, p.rotary_dim) for p in study("log").problems}
    assert {("attention", 1, 8, 16384, 0), ("sinusoidal", 2, 32, 4096, 0), ("rope", 4, 64, 2048, 2048)} <= shapes


@pytest.mark.parametrize(
    ("sms", "heads"),  # of problems with 4, 2 and 1 heads, and of 8 in half precision
    [(48, (4, 2, 1, 7)), (58, (5, 2, 1, 8)), (132, (11, 6, 3, 18)), (16, (1, 1, 1, 2)), (2, (1, 1, 1, 1))],
)
def test_matched_heads_give_each_sm_the_load_that_it_had_on_the_authors_card(sms: int, heads: tuple) -> None:
    single = [Problem("rope", 1, heads, seq_q=64, hdim=512, rotary_dim=128) for heads in (4, 2, 1)]
    half = Problem("fp16", 1, 8, seq_q=512, hdim=64, dtype="float16", causal=True)
    found = [matched(problem, sms) for problem in (*single, half)]
    assert tuple(problem.heads for problem in found) == tuple(problem.kv_heads for problem in found) == heads
    assert {(p.seq_k, p.hdim, p.rotary_dim, p.batch, p.causal) for p in found} == {
        (64, 512, 128, 1, False), (512, 64, 0, 1, True),
    }  # fmt: skip
