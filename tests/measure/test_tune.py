"""The search of shapes: what it tries fits and holds what the rule chooses, and what it changes fits the kernel."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from analysis.measure import candidates, tune
from analysis.measure.timing import Timing
from analysis.records.files import read_table
from kernels import VERSIONS, Problem
from kernels.checking.reference import make_inputs, reference_of
from kernels.constants import OPT_IN_SHARED_LIMIT, attention_buffers
from kernels.rope.v8 import ROPE, rates_buffer
from kernels.runtime.compile import compile_ptx, require_target
from kernels.runtime.emulator import run
from kernels.runtime.gpu import GpuError
from kernels.runtime.identity import source_hash
from kernels.version import Plan

SHAPE = candidates.wgmma.Shape(cluster=2, queries=8, width=64, warpgroups=1)
SMALL = Problem("rope", seq_q=16, seq_k=80, hdim=128, rotary_dim=64, causal=True)


def changed_plan(*changes: str) -> Plan:
    core = candidates.changed(*changes)
    buffers = attention_buffers(SMALL, rates=rates_buffer(SMALL.rotary_dim))
    launch = core.attend(SMALL, ROPE, "rates", SMALL.rotary_dim, shape=core.Shape(**vars(SHAPE)))
    return Plan(SMALL, buffers, (launch,))


def test_cuts_leave_the_work_out_and_nothing_else() -> None:
    cut = compile_ptx(changed_plan("no_scores", "no_output", "no_embedding").launches[0].kernel)
    assert "wgmma.mma_async" not in cut
    assert "cp.async" in cut and "st.async" in cut and "ex2.approx" in cut


def test_ideas_stay_right() -> None:
    """All of them in one kernel, two tiles of keys and of queries, under a mask."""
    plan = changed_plan(*(change.name for change in candidates.IDEAS))
    case = reference_of(SMALL, "sharp")
    report = run(plan, case.inputs)
    assert case.compare(torch.from_numpy(report.out)).status == "ok" and not report.findings
    assert compile_ptx(plan.launches[0].kernel) != compile_ptx(changed_plan().launches[0].kernel)


def test_a_change_whose_lines_are_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(candidates.CHANGES, "gone", candidates.Change("gone", "", (("no such line", ""),), ()))
    with pytest.raises(ValueError, match=r"'gone' does not fit kernels\.v8\.wgmma: 'no such line' is there 0 times"):
        candidates.candidates()


def test_candidates_are_few_fit_and_hold_the_choice() -> None:
    found = candidates.candidates()
    assert len(found) < 200 and len({candidate.key for candidate in found}) == len(found)
    for problem in candidates.PROBLEMS:
        mine = [candidate for candidate in found if candidate.problem == problem and not candidate.change]
        (chosen,) = (candidate for candidate in mine if candidate.chosen)
        assert chosen.plan().launches == VERSIONS["rope_v8"](problem).launches
        assert len(mine) > 5
        for candidate in mine:
            assert candidate.plan().launches[0].shared_bytes <= OPT_IN_SHARED_LIMIT
    assert all(candidate.chosen for candidate in found if candidate.change and candidate.core == "wgmma")
    assert {candidate.change for candidate in found} == {"", *candidates.CHANGES}


TIMES = (5.0, 7.0, 3.0, 1.0, 6.0, 2.0)
PAIR = Problem("rope", seq_q=64, hdim=128, rotary_dim=64)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> list[candidates.Candidate]:
    """A search without a GPU: a core that is right, one that is wrong, a change that is wrong by design."""
    shape = candidates.wgmma.choose(PAIR)
    found = [
        candidates.Candidate(PAIR, "wgmma", shape),
        candidates.Candidate(PAIR, "mma", candidates.mma.choose(PAIR)),
        candidates.Candidate(PAIR, "wgmma", shape, "no_scores"),
    ]
    times = itertools.cycle(TIMES)

    def timing(us: float) -> Timing:
        return Timing(15, us - 0.5, us, us + 0.5)

    class Program:
        def __init__(self, plan: Plan, inputs: dict[str, torch.Tensor]) -> None:
            name = plan.launches[0].kernel.function.__module__
            kind = (
                "uniform" if torch.equal(inputs["q"], torch.from_numpy(make_inputs(PAIR, "uniform")["q"])) else "sharp"
            )
            wrong = name != "kernels.v8.wgmma" and kind == "sharp"
            self.out = reference_of(PAIR, kind).expected + (1.0 if wrong else 0.0)

        def output(self) -> torch.Tensor:
            return self.out

    monkeypatch.setattr(tune, "DEVICE", "cpu")
    monkeypatch.setattr(tune, "candidates", lambda target: found)
    monkeypatch.setattr(tune, "Program", Program)
    monkeypatch.setattr(tune, "_registers", lambda plan: 128)
    monkeypatch.setattr(tune, "device_target", lambda: "sm_90")
    monkeypatch.setattr(tune, "warm_up", lambda: None)
    monkeypatch.setattr(tune, "compile_all", lambda chosen, target: None)
    monkeypatch.setattr(tune, "device_warm", lambda program: timing(next(times)))
    return found


def test_a_search_checks_times_and_says_what_it_did_not_check(
    search: list[candidates.Candidate], tmp_path: Path
) -> None:
    frame = read_table(tune.search(tmp_path / "shapes.csv"), "shapes")
    right, wrong, cut = frame.to_dict("records")
    assert (right["status"], right["chosen"], right["registers"], right["max_abs_err"]) == ("ok", True, 128, 0.0)
    assert wrong["status"] == "error" and wrong["median_us"] != wrong["median_us"]  # no time without a green check
    assert (cut["status"], cut["cut"]) == ("wrong", "no_scores") and "not checked" in cut["reason"]
    assert cut["max_abs_err"] != cut["max_abs_err"]
    assert cut["p80_us"] - cut["p20_us"] == 1.0 and {right["median_us"], cut["median_us"]} <= {
        5.0,
        7.0,
        3.0,
        1.0,
        6.0,
        2.0,
    }
    assert set(frame["source_hash"]) == {source_hash(VERSIONS["rope_v8"])}


def test_a_search_goes_on_where_it_stopped_and_drops_older_code(
    search: list[candidates.Candidate], tmp_path: Path
) -> None:
    path = tmp_path / "shapes.csv"
    tune.search(path)
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, others[0], others[1].replace(source_hash(VERSIONS["rope_v8"]), "older")]))
    search.pop()
    done: list[candidates.Candidate] = []
    tune_measured = tune.measured

    def measured(problem: Problem, chosen: list[candidates.Candidate]):
        done.extend(chosen)
        return tune_measured(problem, chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune, "measured", measured)
        frame = read_table(tune.search(path), "shapes")
    assert done == [search[1]] and len(frame) == 2


def test_a_candidate_that_breaks_the_gpu_is_recorded_and_left_out_next(
    search: list[candidates.Candidate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, checked = tmp_path / "shapes.csv", tune._checked

    def breaks(candidate: candidates.Candidate, inputs: dict):
        if candidate is search[1]:
            raise RuntimeError("an illegal memory access was encountered")
        return checked(candidate, inputs)

    monkeypatch.setattr(tune, "_checked", breaks)
    with pytest.raises(GpuError, match="illegal memory access was encountered; the next call goes on without it"):
        tune.search(path)
    frame = read_table(tune.search(path), "shapes")
    assert list(frame["status"]) == ["error", "ok", "wrong"] and "illegal memory access" in frame["reason"][0]


def test_candidates_of_other_cards_are_those_that_they_can_run() -> None:
    assert not candidates.candidates("sm_89")
    found = candidates.candidates("sm_120")
    assert {candidate.core for candidate in found} == {"mma"} and len({each.key for each in found}) == len(found)
    for candidate in found:
        require_target(candidate.plan().launches[0], "sm_120")
    narrow = [each for each in found if each.problem == candidates.SMALL]
    (chosen,) = (each for each in narrow if each.chosen)
    assert len(narrow) > 1 and chosen.plan().launches == VERSIONS["rope_v8"](candidates.SMALL, "sm_120").launches
