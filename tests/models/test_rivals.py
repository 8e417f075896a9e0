"""Peers of V8, on made-up evidence. No time here was measured."""

import math
from pathlib import Path

import pytest

from analysis.evidence import Evidence
from analysis.evidence.current import outdated
from analysis.models import rivals
from analysis.models.rivals import V8
from analysis.record import files, rows
from analysis.record.files import problem_columns
from analysis.studies import MAIN, ONE_GRAPH, STUDIES
from kernels import VERSIONS, Problem
from kernels.version import PROBLEM_COLUMNS
from tests.evidence.made_up import GPU, record

REFERENCE, DECODE = Evidence.load(files.REFERENCE), "rope_decode"
COMPILED, GRAPH, TRITON = "torch_rope_compiled_sdpa", "torch_rope_sdpa_one_graph", "triton_rope_sliced"


def test_floor_is_a_launch_and_the_larger_of_bytes_and_operations() -> None:
    # by hand: 4 tensors of 4 * 64 * 2048 floats at 8 TB/s; three times 134 MFLOP at 800 TFLOP/s
    moved, products = 4 * 4 * 4 * 64 * 2048 / 8e6, 3 * 4 * 4 * 64 * 64 * 2048 / 800e6
    assert rivals.floor(MAIN, GPU) == pytest.approx(0.5 + max(moved, products))
    large = Problem("rope", 8, 16, seq_q=64, hdim=2048, rotary_dim=128)  # 268 MB do not fit L2
    assert rivals.floor(large, GPU) == pytest.approx(0.5 + max(32 * moved * 2, 32 * products))
    long = {"seq_q": 2048, "seq_k": 4096, "hdim": 64, "rotary_dim": 64}
    causal, whole = (rivals.floor(Problem("rope", heads=8, causal=mask, **long), GPU) - 0.5 for mask in (True, False))
    seen = sum(range(2049, 4097))  # of each query the keys up to its own
    assert causal / whole == pytest.approx(seen / (2048 * 4096))


def test_fastest_right_peer_of_any_study_counts(folder: Path) -> None:
    beyond = {(V8, MAIN): 7.0, (COMPILED, MAIN): 70.0, ("rope_v7", MAIN): 91.0}
    record(folder, "beyond", beyond)
    record(folder, "peers", {(V8, MAIN): 8.0, (GRAPH, MAIN): 66.0, (TRITON, MAIN): 16.0}, wrong=(TRITON,))
    e = Evidence.load(folder)
    fastest, second = rivals.rivals(e, MAIN)  # the second takes 10 times as long
    assert (fastest.version, second.version) == (GRAPH, COMPILED) and fastest.over.value == pytest.approx(8.25)


def test_wrong_v8_has_no_rivals(folder: Path) -> None:
    record(folder, "beyond", {(V8, MAIN): 1.0, (COMPILED, MAIN): 70.0}, wrong=(V8,))
    assert not rivals.rivals(Evidence.load(folder), MAIN)


def test_op_is_set_beside_the_fastest_peer_of_the_study_that_timed_its_kernels(folder: Path) -> None:
    step = next(problem for problem in STUDIES["split_keys"].problems if rivals.served(REFERENCE, problem) == DECODE)
    graph = ONE_GRAPH[0]
    record(folder, "split_keys", {(DECODE, step): 5.0, (V8, step): 50.0, (graph, step): 20.0})
    record(folder, "peers", {(V8, MAIN): 8.0, (graph, MAIN): 24.0, (V8, step): 50.0, (GRAPH, step): 10.0})
    found = rivals.beside_op(Evidence.load(folder))
    assert {problem: round(rival.over.value, 6) for problem, rival in found.items()} == {step: 4.0, MAIN: 3.0}


def test_fastest_peer_agrees_with_the_recorded_rows() -> None:
    """Taken from the tables of the reference once more, by hand: no process gave less or more than it says."""
    folder = files.gpu_folder(files.REFERENCE)
    runs = rows(folder, "runs").query("complete == 1")
    timings = rows(folder, "timings").query("timer == 'device_warm' and status == 'ok'")
    timings = timings[timings["study"].isin(rivals.MEASURED_IN) & timings["run"].isin(runs["run"]) & ~outdated(timings)]
    by_problem = dict(iter(timings.groupby(list(PROBLEM_COLUMNS))))
    for problem, rival in rivals.beside_op(REFERENCE).items():
        ours = rivals.served(REFERENCE, problem)
        low, high = math.inf, math.inf
        for _, taken in by_problem[tuple(problem_columns(problem).values())].groupby("study"):
            medians = taken.pivot_table("median_us", ["run", "process"], "version", "last")  # a repeat takes its place
            if ours in medians:
                over = medians[[name for name in medians if VERSIONS[name].is_peer]].div(medians[ours], axis=0)
                low, high = min(low, over.min().min()), min(high, over.max().min())
        assert low <= rival.over.value <= high, problem
