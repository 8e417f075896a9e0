"""The page of the kernel: what a reader decides by. Times and ratios that are changed here were not measured."""

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from analysis.book import example
from analysis.book.chapters import use
from analysis.models import targets
from analysis.models.targets import BEYOND, Evidence, Rival, label
from analysis.records.files import REFERENCE
from analysis.records.interval import TIE, Ratio
from analysis.records.measured import Measured
from kernels.checking.reference import angles, positions, rotate
from kernels.version import Problem

LOST = BEYOND[3]


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return targets.read(REFERENCE)


def test_the_problems_where_the_kernel_loses_come_first_and_are_marked(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = targets.rivals

    def rivals(evidence: Evidence, problem: Problem, peers: bool) -> list[Rival]:
        found = real(evidence, problem, peers)
        return [replace(found[0], ratio=Ratio(0.8, 0.79, 0.81))] if problem == LOST else found

    monkeypatch.setattr(use, "rivals", rivals)
    rows = use.against(evidence).plain().rows
    assert rows[0][0] == label(LOST) and rows[0][3].startswith("0.80×") and rows[0][3].endswith("slower")
    assert len(rows) == len(BEYOND) and not any("slower" in cell for row in rows[1:] for cell in row)
    gains = [float(row[3].split("×")[0]) for row in rows]
    assert gains == sorted(gains)
    assert use.speedups(evidence).faster is False


def test_the_speedup_of_a_row_is_that_of_its_two_times(evidence: Evidence) -> None:
    """Up to a tie: a speedup is a mean over processes, the times are medians, which are printed to 0.1 µs."""
    for row in use.against(evidence).plain().rows:
        ours, theirs, speedup = (float(re.match(r"[\d.]+", cell)[0]) for cell in row[1:4])  # type: ignore[index]
        assert theirs / ours == pytest.approx(speedup, rel=TIE - 1, abs=0.05 / ours * speedup)


def test_what_is_not_measured_or_refused_is_said(evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Evidence("x", evidence.gpu, {}, evidence.shapes, evidence.profiled)
    assert {row[1] for row in use.against(nothing).plain().rows} == {"not measured"}
    assert use.speedups(nothing).faster is None
    assert use.rates(replace(nothing, slug=REFERENCE))["full"] == "no measured rate"
    refused = evidence.studies["beyond"].check("rope_v8", LOST)
    assert refused
    check = Measured.check

    def refuse(self: Measured, version: str, problem: Problem) -> Any:
        at = (version, problem) == ("rope_v8", LOST)
        return refused._replace(status="unsupported") if at else check(self, version, problem)

    monkeypatch.setattr(Measured, "check", refuse)
    rows = {row[0]: row for row in use.against(evidence).plain().rows}
    assert rows[label(LOST)][1:] == ("unsupported", "–", "–", "–")


def test_one_query_is_shown_with_its_floor_the_furthest_first() -> None:
    measured = Measured.load(REFERENCE, "map")
    rows = use.one_query(measured).plain().rows
    assert len(rows) == sum(problem.seq_q == 1 for problem in measured.problems("rope"))
    assert len({row[0] for row in rows}) == len(rows)
    over = [float(row[3].removesuffix("×")) for row in rows]
    assert over == sorted(over, reverse=True) and min(over) > 1


def test_figures_of_the_op_are_joined_by_quantity() -> None:
    columns = ("quantity", "case", "value_us", "note")
    frame = pd.DataFrame(
        [("overhead", "eager", 7.25, None), ("graph", "main", 7.81, None), ("overhead", "compiled", 9, "a note")],
        columns=columns,
    )
    rows = use.figures_of_op(frame).rows
    assert rows == [
        ("graph", "main", "7.8", ""),
        ("overhead", "eager", "7.2", ""),
        ("overhead", "compiled", "9.0", "a note"),
    ]


def test_the_example_rotates_half_split_pairs() -> None:
    """As the reference rotates interleaved ones, whose dims are moved."""
    problem = Problem("rope", 1, 2, seq_q=5, hdim=8, rotary_dim=8)
    x = torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    turn = angles(positions(problem, x.device)[0], 8, torch.float32)
    interleaved = x.unflatten(-1, (2, 4)).transpose(-1, -2).flatten(-2)
    expected = rotate(interleaved, turn.cos(), turn.sin()).unflatten(-1, (4, 2)).transpose(-1, -2).flatten(-2)
    torch.testing.assert_close(example.rotated(x), expected)


def test_the_example_sees_no_later_token() -> None:
    torch.manual_seed(0)
    model, tokens = example.Transformer(), torch.arange(24).view(2, 12)
    changed = tokens.clone()
    changed[:, 7] = 60
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(after[:, :7], before[:, :7])
    assert (after[:, 7:] - before[:, 7:]).abs().amax() > 0.01
