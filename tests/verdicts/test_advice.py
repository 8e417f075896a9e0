"""Advice: what the rules choose, and the nearest shapes on which the three versions were timed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from analysis import figures, tables
from analysis.measure.studies import FUSIONS, STUDIES
from analysis.models import advice, fusion
from analysis.models.fusion import FULL, HYBRID, SEPARATE
from analysis.models.targets import Evidence
from analysis.records import files
from analysis.records.current import today
from analysis.records.files import DataError, append_rows, problem_columns
from analysis.records.measured import CEILINGS, Measured
from analysis.tables.table import Table
from kernels import Problem, Unsupported

GPU = {
    "name": "Test GPU",
    "slug": "test-gpu",
    "compute_capability": "9.0",
    "sms": 132,
    "l2_bytes": 60_000_000,
    "ceilings": dict.fromkeys(CEILINGS, 1.0),
}
ONE = Problem("rope", 1, 4, seq_q=64, hdim=2048, rotary_dim=128)  # one tile of keys
FEW = Problem("rope", 1, 8, seq_q=1, seq_k=4096, hdim=128, rotary_dim=128)
MANY = Problem("rope", 1, 64, seq_q=64, seq_k=512, hdim=128, rotary_dim=128)
US = {FULL: 10.0, HYBRID: 11.0, SEPARATE: 15.0}


def record(folder: Path, us: Callable[[str, Problem], float | None], problems: tuple[Problem, ...]) -> Measured:
    """A complete run of the study `map`: five processes, which a version takes `us` in; None: it is not timed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(GPU))
    words = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "throttle", "commit")
    row = {"run": "1", "study": "map", "complete": True, "seconds": 1.0, "sm_mhz_max": 1, "power_limit_w": 1}
    append_rows(folder / "runs.csv", "runs", [{**dict.fromkeys((*words, "started_at", "finished_at"), "x"), **row}])
    for version in FUSIONS:
        for problem in problems:
            mine = {"run": "1", "study": "map", "version": version, **problem_columns(problem), "measured_at": "1"}
            mine |= {"source_hash": today(version), "status": "ok"}
            found = {"max_abs_err": 1e-7, "allowed_abs_err": 4e-7, "nan_share": 0.0}
            checks = [{**mine, **found, "inputs": kind} for kind in ("uniform", "sharp")]
            append_rows(folder / "checks.csv", "checks", checks)
            taken = us(version, problem)
            times = [{**mine, "process": i, "timer": "device_warm", "median_us": taken} for i in range(1, 6)]
            append_rows(folder / "timings.csv", "timings", times if taken else [])
    return Measured.read(folder, "map")


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """The only card there is, with a problem of each rule."""
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    return record(tmp_path / "test-gpu", lambda version, problem: US[version], (ONE, FEW, MANY))


def test_the_nearest_measured_shape_comes_first_with_its_own_numbers(tmp_path: Path) -> None:
    far, near = dataclasses.replace(FEW, seq_k=1024), dataclasses.replace(FEW, seq_k=8192, heads=9, kv_heads=9)
    times = {FEW: 1.0, far: 2.0, near: 3.0}
    measured = record(tmp_path / "test-gpu", lambda version, problem: US[version] * times[problem], (far, near, FEW))
    asked = dataclasses.replace(FEW, seq_k=6144)
    found = advice.nearest([measured], asked)
    assert [each.problem for each in found] == [near, FEW, far]  # 9 / 8 of the heads, 4 / 3 of the keys; 1.5; 6
    assert [each.us.us for each in found] == [pytest.approx(30.0), pytest.approx(10.0), pytest.approx(20.0)]
    assert found[0].factor == pytest.approx(4 / 3) and found[2].factor == pytest.approx(6.0)
    for each in found:  # how many times as long the others take, not the inverse
        assert {name: ratio.value for name, ratio in each.over.items()} == pytest.approx({HYBRID: 1.1, SEPARATE: 1.5})
    assert found[0].fastest == FULL
    masked = dataclasses.replace(asked, causal=True, seq_k=4096, q_offset=4095)
    assert advice.nearest([measured], masked)[0].problem == FEW


def test_a_shape_counts_where_all_three_were_timed(tmp_path: Path) -> None:
    measured = record(tmp_path / "test-gpu", lambda v, p: None if (v, p) == (HYBRID, FEW) else US[v], (ONE, FEW))
    assert fusion.problems(measured) == [ONE] and not fusion.winners(measured, FEW)
    assert [each.problem for each in advice.nearest([measured], FEW)] == [ONE]


@pytest.mark.parametrize(
    ("problem", "choice", "pytorch"),
    [
        (ONE, FULL, False),
        (dataclasses.replace(ONE, seq_k=65, q_offset=1), HYBRID, True),  # more than a tile of keys, 256 queries in all
        (MANY, FULL, False),
        (dataclasses.replace(MANY, heads=32, kv_heads=32), FULL, False),
        (dataclasses.replace(MANY, heads=31, kv_heads=31), HYBRID, False),
        (dataclasses.replace(MANY, heads=62, kv_heads=31), HYBRID, False),
        (dataclasses.replace(MANY, batch=2, heads=31, kv_heads=31), FULL, False),
        (dataclasses.replace(MANY, heads=16, kv_heads=16), HYBRID, True),
        (dataclasses.replace(MANY, heads=17, kv_heads=17), HYBRID, False),
        (FEW, HYBRID, True),
    ],
)
def test_the_rules_of_the_chapter(measured: Measured, problem: Problem, choice: str, pytorch: bool) -> None:
    given = advice.advice_of([measured], problem)
    assert given.rule == choice and ("say otherwise" in given.text) is (choice != FULL)  # the fastest at every shape
    assert ("PyTorch" in given.text) is pytorch


def test_advice_far_from_everything_measured_says_so(measured: Measured) -> None:
    for times, far in ((4, False), (5, True)):
        given = advice.advice_of([measured], dataclasses.replace(FEW, seq_k=4096 * times, q_offset=4096 * times - 1))
        assert given.far is far and ("Nothing within a factor of 4" in given.text) is far


def test_the_command_advises_and_refuses(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    assert advice.main(["--heads", "8", "--seq-q", "1", "--seq-k", "4096"]) == 0  # of the only card there is
    said = capsys.readouterr().out
    assert re.search(r"10\.0 µs.* 1\.10 times .* 1\.50 times", said) and "Test GPU" in said
    assert advice.main(["--hdim", "66"]) == 1
    assert capsys.readouterr().err == "advise: hdim is 66; it must be a multiple of 4\n"
    assert advice.main(["--gpu", "abacus"]) == 1 and "there is: test-gpu" in capsys.readouterr().err
    with pytest.raises(Unsupported, match="rotary_dim is 0"):
        advice.advise(dataclasses.replace(ONE, rotary_dim=0))


def test_a_card_without_the_family_says_what_measures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path)
    record(tmp_path / "test-gpu", lambda version, problem: None, (ONE,))
    with pytest.raises(DataError, match="make measure STUDY=map"):
        advice.advise(ONE)


@pytest.mark.parametrize(
    ("us", "outcome"),
    [((10, 11, 15), fusion.ALONE), ((10, 10.2, 15), fusion.TIES), ((10, 9, 15), fusion.LOSES)],
)
def test_the_map_draws_and_lists_who_wins(tmp_path: Path, us: tuple[float, ...], outcome: str) -> None:
    measured = record(tmp_path / "test-gpu", lambda v, p: us[FUSIONS.index(v)], (ONE, MANY))
    (near,) = advice.nearest([measured], ONE, count=1)
    assert (near.fastest == FULL) is (outcome != fusion.LOSES)
    plot = figures.fusion_map(measured, Evidence("test-gpu", GPU, {}, pd.DataFrame(), pd.DataFrame()))
    assert list(plot.data["outcome"]) == [outcome] * 2
    listed = tables.map_problems(measured)
    assert isinstance(listed, Table) and len(listed.rows) == 2
    bold = [["<b>" in cell for cell in row[2:5]] for row in listed.rows]
    assert bold == [[outcome != fusion.LOSES, outcome != fusion.ALONE, False]] * 2
    assert len(tables.advice([measured]).rows) == len(advice.TYPICAL)


def test_the_grid_spans_what_it_says() -> None:
    study = STUDIES["map"]
    assert len(set(study.problems)) == len(study.problems) >= 60
    for name, low, high in (("seq_q", 1, 2048), ("seq_k", 16, 4096), ("hdim", 64, 4096), ("rotary_dim", 32, 4096)):
        sizes = [getattr(problem, name) for problem in study.problems]
        assert (min(sizes), max(sizes)) == (low, high), name
