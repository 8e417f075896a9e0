"""The search of shapes: what it tries fits and holds what the rule chooses; no time without a right result."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from analysis import record
from analysis.errors import MeasureError
from analysis.measure import tune
from analysis.measure.runs import Writer
from analysis.measure.timing import Timing
from analysis.record.runs import Run
from kernels import VERSIONS, Problem
from kernels.checking.reference import make_inputs, reference_of
from kernels.runtime.compile import require_target
from kernels.runtime.identity import source_hash
from kernels.version import Plan
from tests.measure.stub_card import CARD, compilers


@pytest.mark.parametrize(("target", "cores"), [("sm_89", set()), ("sm_90", {"wgmma", "mma"}), ("sm_120", {"mma"})])
def test_candidates_are_few_run_on_the_card_and_hold_the_choice(target: str, cores: set[str]) -> None:
    found = tune.candidates(target)
    assert {candidate.core for candidate in found} == cores
    assert len(found) < 200 and len({tuple(candidate.columns.values()) for candidate in found}) == len(found)
    for problem in {candidate.problem for candidate in found}:
        mine = [candidate for candidate in found if candidate.problem == problem]
        (chosen,) = (candidate for candidate in mine if candidate.chosen)
        assert chosen.plan().launches == VERSIONS["rope_v8"](problem, target).launches
        assert len(mine) > 5 or target == "sm_120"
        for candidate in mine:
            require_target(candidate.plan().launches[0], target)


TIMES = (5.0, 7.0, 3.0, 1.0, 6.0, 2.0)
PAIR = Problem("rope", seq_q=64, hdim=128, rotary_dim=64)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tune.Candidate]:
    """A search without a GPU: a core that is right, and one that is wrong."""
    shape = tune.wgmma.choose(PAIR)
    found = [
        tune.Candidate(PAIR, "wgmma", shape),
        tune.Candidate(PAIR, "mma", tune.mma.choose(PAIR)),
    ]
    times = itertools.cycle(TIMES)

    def device_warm(program: Any) -> Timing:
        us = next(times)
        return Timing(15, us - 0.5, us, us + 0.5)

    class Program:
        def __init__(self, plan: Plan, inputs: dict[str, torch.Tensor]) -> None:
            uniform = torch.equal(inputs["q"], torch.from_numpy(make_inputs(PAIR, "uniform")["q"]))
            kind = "uniform" if uniform else "sharp"
            wrong = "wgmma" not in plan.launches[0].kernel.function.__module__ and kind == "sharp"
            self.out = reference_of(PAIR, kind).expected + (1.0 if wrong else 0.0)

        def output(self) -> torch.Tensor:
            return self.out

    monkeypatch.setattr(tune, "reference_of", lambda problem, kind, device: reference_of(problem, kind))
    monkeypatch.setattr(tune, "candidates", lambda target: found)
    monkeypatch.setattr(tune, "Program", Program)
    monkeypatch.setattr(tune, "resources", lambda kernel, target: SimpleNamespace(registers=128))
    monkeypatch.setattr(tune, "at_card", lambda *_: contextlib.closing(Writer(tmp_path, CARD)))
    monkeypatch.setattr(tune, "device_target", lambda: "sm_90")
    monkeypatch.setattr(tune, "warm_up", lambda: None)
    monkeypatch.setattr(tune, "compilers", compilers)
    monkeypatch.setattr(tune, "device_warm", device_warm)
    return found


def test_a_search_times_what_is_right_and_nothing_else(search: list[tune.Candidate], tmp_path: Path) -> None:
    tune.tune()
    frame = record.rows(tmp_path, "shapes")
    right, wrong = frame.to_dict("records")
    assert (right["status"], right["chosen"], right["registers"], right["max_abs_err"]) == ("ok", True, 128, 0.0)
    assert wrong["status"] == "error" and wrong["median_us"] != wrong["median_us"]
    assert right["median_us"] == 5.0 and right["p80_us"] - right["p20_us"] == 1.0  # the middle of 5, 7 and 3
    assert set(frame["source_hash"]) == {source_hash(VERSIONS["rope_v8"])}


def test_a_search_goes_on_where_it_stopped_drops_older_code_and_keeps_past_cuts(
    search: list[tune.Candidate], tmp_path: Path
) -> None:
    tune.tune()
    first, second = record.records(tmp_path, "shapes")
    shutil.rmtree(tmp_path)
    past = Run.begin(tmp_path, CARD, "2026-01-01T00:00:00Z")
    past.append("shapes", [second | {"source_hash": "older"}, first | {"cut": "no_scores", "status": "wrong"}])
    past.settle("shapes", complete=True)
    cut_short = Run.begin(tmp_path, CARD, "2026-01-02T00:00:00Z")
    cut_short.append("shapes", [first])
    cut_short.settle("shapes", complete=False)
    cut_short.close()
    done: list[tune.Candidate] = []
    tune_measured = tune.measured

    def measured(chosen: list[tune.Candidate]):
        done.extend(chosen)
        return tune_measured(chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune, "measured", measured)
        for _ in range(2):
            tune.tune()
    assert done == [search[1]]
    assert [row["cut"] or "" for row in record.records(tmp_path, "shapes")] == ["no_scores", "", ""]


def test_a_candidate_that_breaks_the_gpu_is_recorded_and_left_out_next(
    search: list[tune.Candidate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = tune._checked

    def breaks(candidate: tune.Candidate):
        if candidate is search[1]:
            raise RuntimeError("an illegal memory access was encountered")
        return checked(candidate)

    monkeypatch.setattr(tune, "_checked", breaks)
    with pytest.raises(MeasureError, match="illegal memory access was encountered; the next call goes on without it"):
        tune.tune()
    tune.tune()
    frame = record.rows(tmp_path, "shapes")
    assert list(frame["status"]) == ["error", "ok"] and "illegal memory access" in frame["reason"][0]
