"""The page of the kernel: what a reader decides by. Times and ratios that are changed here were not measured."""

import inspect
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

import kernels
from analysis.book.build import NOTEBOOKS
from analysis.evidence import Estimate, Evidence
from analysis.evidence.interval import TIE
from analysis.evidence.study import Study
from analysis.measure.studies import MAIN
from analysis.models import rivals
from analysis.models.rivals import BEYOND, Rival, label
from analysis.record.files import REFERENCE, problem_columns
from analysis.tables import use
from analysis.tables.table import Missing, Table
from kernels import rope_attention
from kernels.version import Problem
from tests.evidence.made_up import folder
from tests.rows import append_rows

__all__ = ["folder"]

PAGE = NOTEBOOKS / "use.ipynb"
LOST = BEYOND[3]


@pytest.fixture(scope="module")
def e() -> Evidence:
    return Evidence.load(REFERENCE)


def test_problems_where_the_kernel_loses_come_first_marked(e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rivals.rivals

    def one_faster(e: Evidence, problem: Problem) -> list[Rival]:
        found = real(e, problem)
        return [found[0]._replace(over=Estimate(0.8, 0.79, 0.81))] if problem == LOST else found

    monkeypatch.setattr(use, "rivals", one_faster)
    lost = [p for p in rivals.COMPARED if (found := real(e, p)) and found[0].over.value * TIE < 1]
    rows = use.beside_pytorch(e).plain().rows
    assert dict((row[0], row[3]) for row in rows)[label(LOST)].startswith("0.80×")
    slower = {row[0] for row in rows if any("slower" in cell for cell in row)}
    assert slower == {label(LOST), *(label(p) for p in lost)} and {row[0] for row in rows} >= {*map(label, BEYOND)}
    gains = [float(row[3].split("×")[0]) for row in rows]
    assert gains == sorted(gains)


def test_the_speedup_of_a_row_is_that_of_its_two_times(e: Evidence) -> None:
    """Up to a tie: a speedup is a mean over processes and printed to 0.01, the times are medians and printed to 0.1."""
    for row in use.beside_pytorch(e).plain().rows:
        ours, theirs, speedup = (float(re.match(r"[\d.]+", cell)[0]) for cell in row[1:4])  # type: ignore[index]
        assert theirs / ours == pytest.approx(speedup, rel=TIE - 1, abs=0.05 / ours * speedup + 0.005)


def test_what_is_not_measured_or_refused_is_said(e: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = e.study("beyond").check("rope_v8", LOST)
    assert refused
    check = Study.check

    def refuse(self: Study, version: str, problem: Problem, *inputs: str) -> Any:
        at = (version, problem) == ("rope_v8", LOST)
        return refused._replace(status="unsupported") if at else check(self, version, problem, *inputs)

    monkeypatch.setattr(Study, "check", refuse)
    rows = {row[0]: row for row in use.beside_pytorch(e).plain().rows}
    assert rows[label(LOST)][1:4] == ("unsupported", "–", "–") and rows[label(LOST)][5] == "–"


def called(what: str, timer: str, us: float | None, **differs: Any) -> dict[str, Any]:
    row = {**problem_columns(MAIN), "interleaved": True, "mode": "rates", "layout": "contiguous", **differs}
    return {**row, "what": what, "timer": timer, "median_us": us}


def test_a_call_of_the_op_is_set_beside_the_bare_launch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Median over the turns; the launch is that of the problem, however the op is called."""
    rows = [
        *(called("launch", "device_warm", us) for us in (8.0, 7.0, 90.0)),
        called("launch", "host_loop", 4.0),
        called("op", "device_warm", 8.0),
        called("op", "host_loop", 12.5),
        called("op_out", "host_loop", 1.0),
        called("op", "device_warm", 12.0, interleaved=False, mode="tables", layout="cache"),
        called("op", "host_loop", None, interleaved=False, mode="tables", layout="cache"),
    ]
    monkeypatch.setattr(use, "op_rows", lambda e, study: rows)
    assert use.op_times(Evidence.load(folder)).rows == [
        (label(MAIN), "interleaved pairs", "8.0", "8.0", "1.00×", "12.5", "8.5"),
        (label(MAIN), "half-split pairs, tables, cache tensors", "12.0", "8.0", "1.50×", "–", "–"),
    ]


def test_figures_of_the_op_are_of_its_latest_complete_run(folder: Path) -> None:
    assert use.op_times(Evidence.load(folder)) == Missing("make op")
    words = ("node", "started_at", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit")
    run = {**dict.fromkeys(words, "x"), "study": "op_time", "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    runs = [{**run, "run": name, "complete": name != "3"} for name in "123"]
    append_rows(folder / "runs.csv", "runs", runs)
    row = {**called("op", "device_warm", 7.0), "study": "op_time", "version": "rope_v8", "status": "ok"}
    row |= {"source_hash": "x", "measured_at": "x"}
    append_rows(folder / "op.csv", "op", [{**row, "run": name, "median_us": float(name)} for name in "123"])
    table = use.op_times(Evidence.load(folder))
    assert isinstance(table, Table) and table.rows == [(label(MAIN), "interleaved pairs", "2.0", "–", "–", "–", "–")]


def test_the_page_tells_every_argument_of_the_op_and_its_default() -> None:
    """A default is told as it is written in Python, where it is not a tensor's or made of the others."""
    (cell,) = [cell for cell in nbformat.read(PAGE, as_version=4).cells if "| argument | what it is |" in cell.source]
    firsts = [line.split(" | ")[0] for line in cell.source.splitlines() if line.startswith("| `")]
    told = {name: default for first in firsts for name, default in re.findall(r"`(\w+)=?(\w*)`", first)}
    parameters = inspect.signature(rope_attention).parameters
    assert list(told) == list(parameters)
    for name, parameter in parameters.items():
        if parameter.default not in (parameter.empty, None):
            assert told[name] == f"{parameter.default:g}" if name == "base" else str(parameter.default)
    for name in re.findall(r"`(\w+)\(q, k, v", cell.source):
        assert hasattr(kernels, name)
