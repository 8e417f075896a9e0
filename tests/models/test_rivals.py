"""What stands beside V8, on made-up evidence. No time here was measured."""

import math
from pathlib import Path

import pandas as pd
import pytest

from analysis.evidence import Evidence, Known
from analysis.evidence.current import today
from analysis.evidence.interval import TIE
from analysis.measure.studies import AUTOTUNED, CHOSEN, MAIN, ONE_GRAPH
from analysis.models import rivals, steps
from analysis.models.rivals import BEYOND, V8
from analysis.record import files
from analysis.record.files import problem_columns
from kernels import VERSIONS, Problem
from tests.evidence.made_up import GPU, make, record
from tests.measure.stub_card import filled
from tests.rows import append_rows, read_table

COMPILED, EAGER, TRITON = "torch_rope_compiled_sdpa", "torch_rope_sdpa", "triton_rope"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path)


def test_the_floor_is_a_launch_and_the_larger_of_bytes_and_operations() -> None:
    # by hand: 4 tensors of 4 * 64 * 2048 floats at 8 TB/s; three times 134 MFLOP at 800 TFLOP/s
    moved, products = 4 * 4 * 4 * 64 * 2048 / 8e6, 3 * 4 * 4 * 64 * 64 * 2048 / 800e6
    assert rivals.floor(MAIN, GPU) == pytest.approx(0.5 + max(moved, products))
    large = Problem("rope", 8, 16, seq_q=64, hdim=2048, rotary_dim=128)  # 268 MB do not fit L2
    assert rivals.floor(large, GPU) == pytest.approx(0.5 + max(32 * moved * 2, 32 * products))
    long = {"seq_q": 2048, "seq_k": 4096, "hdim": 64, "rotary_dim": 64}
    causal, whole = (rivals.floor(Problem("rope", heads=8, causal=mask, **long), GPU) - 0.5 for mask in (True, False))
    seen = sum(range(2049, 4097))  # of each query the keys up to its own
    assert causal / whole == pytest.approx(seen / (2048 * 4096))


def test_the_fastest_right_peer_of_any_study_counts(folder: Path) -> None:
    beyond = {(V8, MAIN): 7.0, (COMPILED, MAIN): 70.0, ("rope_v7", MAIN): 91.0}
    record(folder, "beyond", beyond)
    record(folder, "peers", {(V8, MAIN): 8.0, (EAGER, MAIN): 66.0, (TRITON, MAIN): 16.0}, wrong=(TRITON,))
    e = Evidence.load(folder)
    fastest, second = rivals.rivals(e, MAIN)  # the second takes 10 times as long
    assert (fastest.version, second.version) == (EAGER, COMPILED) and fastest.over.value == pytest.approx(8.25)
    (log,) = rivals.rivals(e, MAIN, ("rope_v7",))
    assert log.over.value == pytest.approx(13.0) and rivals.relative_error(e, MAIN) == pytest.approx(1.5)


def test_a_wrong_v8_has_no_rivals(folder: Path) -> None:
    record(folder, "beyond", {(V8, MAIN): 1.0, (COMPILED, MAIN): 70.0}, wrong=(V8,))
    e = Evidence.load(folder)
    assert not rivals.rivals(e, MAIN) and rivals.v8_time(e).why == Known("wrong")


def test_a_version_that_its_card_refuses_is_not_called_unmeasured(folder: Path) -> None:
    record(folder, "beyond", {("rope_v7", MAIN): 5.0})
    refused = {"version": V8, "source_hash": today(V8), "status": "unsupported", "reason": "no clusters"}
    row = {"run": "20260101T000000Z", "study": "beyond", **problem_columns(MAIN), "measured_at": "1", "inputs": "sharp"}
    append_rows(folder / "checks.csv", "checks", [row | refused])
    assert rivals.v8_time(Evidence.load(folder)).why == Known("unsupported", "no clusters")


def test_pytorch_counts_at_its_fastest_where_it_was_compiled_as_one_graph(folder: Path) -> None:
    """A problem without such a row says nothing of how V8 stands to PyTorch."""
    single, grouped, full, alone = CHOSEN[7], CHOSEN[9], CHOSEN[6], BEYOND[3]
    times = {(V8, p): 10.0 for p in (single, grouped, full)}
    graph, tuned = ONE_GRAPH[0], AUTOTUNED[0]
    times |= {(graph, single): 8.0, (tuned, single): 5.0, (graph, grouped): 20.0, (tuned, full): 30.0}
    record(folder, "autotuned", times)
    more = {(V8, full): 10.0, (V8, alone): 10.0, (COMPILED, full): 25.0, (COMPILED, alone): 9.0}
    record(folder, "beyond", more)
    found = rivals.beside_one_graph(Evidence.load(folder))
    assert {problem: round(rival.over.value, 6) for problem, rival in found.items()} == {
        full: 2.5, single: 0.5, grouped: 2.0,
    }  # fmt: skip


def test_what_is_said_of_the_fastest_peer_is_what_was_recorded() -> None:
    """Taken from the tables of the reference once more, by hand: the least time of any right peer beside V8's."""
    e = Evidence.load(files.REFERENCE)
    folder = files.gpu_folder(files.REFERENCE)
    runs = read_table(folder / "runs.csv", "runs").query("complete == 1")
    timings = read_table(folder / "timings.csv", "timings").query("timer == 'device_warm' and status == 'ok'")
    latest = runs[runs["study"].isin(rivals.MEASURED_IN)].groupby("study")["run"].max()
    for problem, rival in rivals.beside_one_graph(e).items():
        columns = problem_columns(problem)
        mine = timings.loc[(timings[list(columns)] == pd.Series(columns)).all(axis=1)]
        least = math.inf
        for study, run in latest.items():
            medians = mine[(mine["study"] == study) & (mine["run"] == run)].groupby("version")["median_us"].median()
            peers = [name for name in medians.index if VERSIONS[name].is_peer]
            if V8 in medians and peers:
                least = min(least, medians[peers].min() / medians[V8])
        assert rival.over.value == pytest.approx(least, rel=TIE - 1), problem


def test_a_cut_is_compared_with_the_kernel_that_it_was_cut_from(folder: Path) -> None:
    """A search tried two shapes; of the one that the rule chose, parts were left out."""
    same = {**problem_columns(MAIN), "core": "wgmma", "source_hash": today(V8), "cut": None}
    chosen, other = (filled("shapes", **same, cluster=size, chosen=size == 16) for size in (16, 8))
    rows = [{**chosen, "median_us": 12.0}, {**other, "median_us": 10.0}]
    rows += [{**chosen, "cut": cut, "median_us": 4.8} for cut in steps.CUTS]
    append_rows(folder / "shapes.csv", "shapes", rows)
    parts = steps.cuts(steps.shapes(Evidence.load(folder))).set_index("part")["share"]
    assert parts["the kernel"] == 1.0 and parts["only copies and exchanges"] == pytest.approx(0.4)
