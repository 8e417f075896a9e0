"""Planted defects are found, their correct twins are clean, and the counts are those one can work out by hand."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numba import cuda, float32, types, uint32
from test_instructions import kernel

from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import Finding, LaunchReport, Memory, execute, parse, run
from kernels.version import Buffer, Kernel, Launch, Plan, Problem, SharedLayout

FLOATS = types.CPointer(float32)


def launch(
    ptx: str, buffers: dict, grid=1, block=64, unwritten=(), padding=None, **options
) -> tuple[Memory, LaunchReport]:
    memory = Memory(buffers, unwritten, padding)
    return memory, execute(parse(ptx, "test"), memory, grid, block, tuple(buffers), **options)


def kinds(report: LaunchReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def out(count: int = 256) -> np.ndarray:
    return np.zeros(count, np.uint32)


# each writes its thread index (plus one) to shared memory and reads that of thread `index ^ distance`
EXCHANGE = """mov.u32 %r0, buffer; shl.b32 %r1, %t, 2; add.u32 %r2, %r0, %r1; add.u32 %r3, %t, 1;
    st.shared.u32 [%r2], %r3; {sync} xor.b32 %r4, %t, {distance}; shl.b32 %r5, %r4, 2; add.u32 %r6, %r0, %r5;
    ld.shared.u32 %r7, [%r6]; {after} mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %r7;"""


def exchange(sync: str, distance: int, after: str = "", **options) -> tuple[Memory, LaunchReport]:
    return launch(
        kernel(EXCHANGE.format(sync=sync, distance=distance, after=after), shared=256), {"out": out()}, **options
    )


@pytest.mark.parametrize(
    "sync, distance",
    [("bar.sync 0;", 32), ("bar.sync 0;", 1), ("bar.warp.sync -1;", 1), ("", 0), ("barrier.sync 0;", 33)],
)
def test_ordered_exchange_is_clean(sync: str, distance: int) -> None:
    memory, report = exchange(sync, distance)
    assert not report.findings
    np.testing.assert_array_equal(memory["out"][:64], (np.arange(64) ^ distance) + 1)


@pytest.mark.parametrize("sync, distance", [("", 1), ("bar.warp.sync -1;", 32), ("membar.cta;", 1)])
def test_missing_barrier_is_a_race(sync: str, distance: int) -> None:
    _, report = exchange(sync, distance)
    assert "race" in kinds(report)


def test_missing_warp_barrier_is_found_though_the_value_is_right() -> None:
    memory, report = exchange("", 1)
    assert kinds(report) == {"race"}
    np.testing.assert_array_equal(memory["out"][:64], (np.arange(64) ^ 1) + 1)
    (finding,) = report.findings
    assert finding.space == "shared" and finding.place == "buffer" and finding.other.startswith("st.shared.u32")
    assert "test" in str(finding) and "block 0" in str(finding) and "ld.shared.u32 %r7, [%r6]" in str(finding)


# block 0 stores a value, fences and raises a flag; block 1 waits for the flag, fences and reads the value
MESSAGE = """mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; setp.ne.u32 %p1, %t, 0; add.s64 %w1, %w0, 4;
    @%p0 bra $reader; st.global.u32 [%w0+8], 7; {send} @!%p1 atom.relaxed.gpu.global.add.u32 %r1, [%w0], {raised};
    bra $end; $reader: mov.u32 %r2, 1; $again: nanosleep.u32 20; atom.relaxed.gpu.global.add.u32 %r2, [%w0], 0;
    setp.eq.u32 %p2, %r2, 0; @%p2 bra $again; {receive} ld.global.u32 %r3, [%w0+8];
    st.global.u32 [%w0+12], %r3; $end:"""
FENCE = "fence.acq_rel.gpu;"


def message(send: str = FENCE, receive: str = FENCE, raised: int = 1, **options) -> tuple[Memory, LaunchReport]:
    text = kernel(MESSAGE.format(send=send, receive=receive, raised=raised))
    return launch(text, {"out": out()}, grid=2, block=1, **options)


@pytest.mark.parametrize("schedule", ["random", "in step"])
def test_fences_around_a_flag_hand_a_value_to_another_block(schedule: str) -> None:
    memory, report = message(schedule=schedule)
    assert not report.findings and memory["out"][3] == 7


@pytest.mark.parametrize("fences", [("", FENCE), (FENCE, ""), ("", "")])
def test_a_flag_without_both_fences_is_a_race(fences: tuple[str, str]) -> None:
    _, report = message(*fences)
    assert [finding.kind for finding in report.findings] == ["race"]


def test_a_flag_that_nobody_raises_is_waited_for_without_end() -> None:
    _, report = message(raised=0)
    assert [finding.kind for finding in report.findings] == ["endless_loop"]


def test_a_barrier_passes_on_what_one_warp_heard() -> None:
    """Warp 0 of block 1 waits and fences; warp 1 reads the value, behind a barrier or not."""
    text = """mov.u32 %r0, %ctaid.x; setp.ne.u32 %p0, %r0, 0; setp.gt.u32 %p1, %t, 31; setp.ne.u32 %p3, %t, 0;
        @%p0 bra $reader; @%p3 bra $end; st.global.u32 [%w0+8], 7; fence.acq_rel.gpu;
        atom.relaxed.gpu.global.add.u32 %r1, [%w0], 1; bra $end;
        $reader: @%p1 bra $meet; $again: nanosleep.u32 20; atom.relaxed.gpu.global.add.u32 %r2, [%w0], 0;
        setp.eq.u32 %p2, %r2, 0; @%p2 bra $again; fence.acq_rel.gpu; $meet: {sync} setp.ne.u32 %p3, %t, 32;
        @%p3 bra $end; ld.global.u32 %r3, [%w0+8]; st.global.u32 [%w0+12], %r3; $end:"""
    reports = [launch(kernel(text.format(sync=sync)), {"out": out()}, grid=2)[1] for sync in ("bar.sync 0;", "")]
    assert not reports[0].findings and "race" in kinds(reports[1])


# thread 0 overwrites what all others read: the reads come first in program order, a barrier must lie between
REUSE = """setp.ne.u32 %p0, %t, 0; mov.u32 %r0, buffer; @%p0 bra $first; st.shared.u32 [%r0], 7; $first: bar.sync 0;
    ld.shared.u32 %r1, [%r0]; {sync} @%p0 bra $second; st.shared.u32 [%r0], {value}; $second:
    mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %r1;"""


@pytest.mark.parametrize("block", [32, 64, 256])
def test_a_reused_buffer_needs_a_barrier_after_its_reads(block: int) -> None:
    _, bad = launch(kernel(REUSE.format(sync="", value=8), shared=16), {"out": out()}, block=block)
    _, good = launch(kernel(REUSE.format(sync="bar.sync 0;", value=8), shared=16), {"out": out()}, block=block)
    assert kinds(bad) == {"race"} and not good.findings


def test_a_read_by_the_writers_own_warp_only_is_remembered() -> None:
    """Readers 1..31 of warp 0, then a later reader in warp 1 that is ordered: the first still races."""
    body = """setp.ne.u32 %p0, %t, 0; mov.u32 %r0, buffer; @%p0 bra $a; st.shared.u32 [%r0], 7; $a: bar.sync 0;
        ld.shared.u32 %r1, [%r0]; @%p0 bra $b; st.shared.u32 [%r0], 8; $b: ret;"""
    _, report = launch(kernel(body, shared=16), {"out": out()}, block=32)
    assert kinds(report) == {"race"}


@pytest.mark.parametrize(
    "body, racy",
    [
        ("mov.u32 %r0, %ctaid.x; st.global.u32 [%w0], %r0;", True),
        ("mov.u32 %r0, 5; st.global.u32 [%w0], %r0;", False),  # everybody writes the same
        ("mov.u32 %r0, %ctaid.x; red.global.add.u32 [%w0], %r0;", False),
        ("mov.u32 %r0, %ctaid.x; st.global.u32 [%w0], 3; red.global.add.u32 [%w0], %r0;", True),
        (
            "ld.global.u32 %r0, [%w0]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 1; @%p0 st.global.u32 [%w0], %r1;",
            True,
        ),
        (
            "mov.u32 %r0, %ctaid.x; mul.wide.u32 %w1, %r0, 4; add.s64 %w2, %w0, %w1; "
            "st.global.u32 [%w2], %r0; ld.global.u32 %r1, [%w2];",
            False,
        ),
    ],
)
def test_blocks_are_never_ordered_in_global_memory(body: str, racy: bool) -> None:
    _, report = launch(kernel(body), {"out": out()}, grid=3, block=1)
    assert kinds(report) == ({"race"} if racy else set())
    assert all(finding.place == "out" and finding.space == "global" for finding in report.findings)


def test_race_between_blocks_of_different_batches() -> None:
    _, report = launch(kernel("mov.u32 %r0, %ctaid.x; st.global.u32 [%w0], %r0;"), {"out": out()}, grid=200, block=1024)
    assert kinds(report) == {"race"}


def test_lanes_of_one_instruction_race() -> None:
    _, report = launch(kernel("mov.u32 %r0, buffer; st.shared.u32 [%r0], %t;", shared=16), {"out": out()}, block=32)
    assert kinds(report) == {"race"}
    assert report.findings[0].other == report.findings[0].instruction


def test_launches_are_ordered() -> None:
    memory = Memory({"out": out()})
    module = parse(
        kernel("mov.u32 %r0, %ctaid.x; mul.wide.u32 %w1, %r0, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %r0;")
    )
    for _ in range(2):
        assert not execute(module, memory, 4, 1, ("out",)).findings


# block `rank` of a cluster reads what the next block wrote
CLUSTER = """mov.u32 %r0, buffer; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank;
        mov.u32 %r9, %ctaid.x;
    st.shared.u32 [%r0], %r9; {sync} add.u32 %r3, %r1, 1; rem.u32 %r3, %r3, %r2;
    mapa.shared::cluster.u32 %r4, %r0, %r3;
    ld.shared::cluster.u32 %r5, [%r4]; {after} {reuse} mul.wide.u32 %w1, %r9, 4; add.s64 %w2, %w0, %w1;
    st.global.u32 [%w2], %r5;"""
CLUSTER_SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


@pytest.mark.parametrize("sync, racy", [(CLUSTER_SYNC, False), ("bar.sync 0;", True), ("", True)])
def test_distributed_shared_memory_needs_a_cluster_barrier(sync: str, racy: bool) -> None:
    memory, report = launch(
        kernel(CLUSTER.format(sync=sync, after="", reuse=""), shared=16), {"out": out()}, grid=8, block=1, cluster=4
    )
    if racy:
        assert kinds(report) & {"race", "uninitialised"}
    else:
        assert not report.findings
        np.testing.assert_array_equal(memory["out"][:8], [1, 2, 3, 0, 5, 6, 7, 4])


@pytest.mark.parametrize("after, racy", [(CLUSTER_SYNC, False), ("bar.sync 0;", True)])
def test_distributed_reads_must_end_before_the_owner_writes_again(after: str, racy: bool) -> None:
    text = kernel(CLUSTER.format(sync=CLUSTER_SYNC, after=after, reuse="st.shared.u32 [%r0], 77;"), shared=16)
    for block in (1, 64):
        _, report = launch(
            text.replace("st.shared.u32", "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32"),
            {"out": out()},
            grid=8,
            block=block,
            cluster=4,
        )
        assert kinds(report) == ({"race"} if racy else set())


def test_rank_beyond_the_cluster_is_out_of_bounds() -> None:
    body = "mov.u32 %r0, buffer; mapa.shared::cluster.u32 %r4, %r0, 4; ld.shared::cluster.u32 %r5, [%r4];"
    _, report = launch(kernel(body, shared=16), {"out": out()}, grid=4, block=1, cluster=4)
    assert kinds(report) == {"out_of_bounds"}


# --- bounds, alignment, initialisation --------------------------------------------------------------


@pytest.mark.parametrize(
    "body, kind, space, place",
    [
        ("st.global.u32 [%w0+1024], %t;", "out_of_bounds", "global", "out"),
        ("ld.global.u32 %r0, [%w0+-4];", "out_of_bounds", "global", "out"),
        ("mov.u64 %w1, 64; ld.global.u32 %r0, [%w1];", "out_of_bounds", "global", "nowhere"),
        ("ld.global.u32 %r0, [%w0+2];", "misaligned", "global", "out"),
        ("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%w0+8];", "misaligned", "global", "out"),
        ("mov.u32 %r1, buffer; ld.shared.u32 %r0, [%r1+256];", "out_of_bounds", "shared", "shared"),
        ("mov.u32 %r1, buffer; st.shared.v2.u32 [%r1+4], {%t, %t};", "misaligned", "shared", "buffer"),
        (".local .align 8 .b8 d[8]; ld.local.u32 %r0, [d+8];", "out_of_bounds", "local", "local"),
    ],
)
def test_bad_address_ends_the_launch(body: str, kind: str, space: str, place: str) -> None:
    memory, report = launch(kernel(body + " st.global.u32 [%w0], 1;", shared=256), {"out": out()}, block=1)
    (finding,) = report.findings
    assert (finding.kind, finding.space, finding.place) == (kind, space, place)
    assert not memory["out"].any()


def test_only_the_missing_lanes_are_out_of_bounds() -> None:
    _, report = launch(
        kernel("mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %t;"), {"out": out(60)}
    )
    (finding,) = report.findings
    assert finding.kind == "out_of_bounds" and finding.count == 4 and finding.thread == 60


def test_padding_may_be_read_but_is_reported() -> None:
    body = (
        "mul.wide.u32 %w2, %t, 4; add.s64 %w3, %w0, %w2; ld.global.f32 %f0, [%w3]; "
        "add.s64 %w4, %w1, %w2; st.global.f32 [%w4], %f0;"
    )
    x = np.arange(60, dtype=np.float32)
    memory, report = launch(kernel(body, "x out"), {"x": x, "out": np.zeros(64, np.float32)}, padding={"x": 16})
    (finding,) = report.findings
    assert (finding.kind, finding.place, finding.count) == ("out_of_bounds", "x", 4)
    np.testing.assert_array_equal(memory["out"][:60], x)
    assert np.isnan(memory["out"][60:]).all()


def test_unwritten_memory() -> None:
    body = (
        "ld.global.u32 %r0, [%w0]; mov.u32 %r1, buffer; ld.shared.u32 %r2, [%r1+4]; "
        "st.global.u32 [%w0], 1; ld.global.u32 %r3, [%w0];"
    )
    memory, report = launch(kernel(body, shared=16), {"out": out()}, block=1, unwritten={"out"})
    assert [(f.kind, f.place) for f in report.findings] == [("uninitialised", "out"), ("uninitialised", "buffer")]
    assert memory.written("out")[:8].tolist() == [True] * 4 + [False] * 4


def test_written_state_persists_over_launches() -> None:
    memory = Memory({"out": out()}, unwritten={"out"})
    address = "mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1;"
    write, read = (
        parse(kernel(f"{address} {body}")) for body in ("st.global.u32 [%w2], %t;", "ld.global.u32 %r0, [%w2];")
    )
    assert not execute(write, memory, 1, 128, ("out",)).findings
    assert not execute(read, memory, 1, 128, ("out",)).findings
    (finding,) = execute(read, memory, 1, 256, ("out",)).findings
    assert finding.kind == "uninitialised" and finding.count == 128 and finding.thread == 128


# --- barriers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "setp.lt.u32 %p0, %t, 32; @%p0 bra $skip; bar.sync 0; $skip: ret;",  # one warp leaves
        "setp.lt.u32 %p0, %t, 5; @%p0 bra $skip; bar.sync 0; $skip: ret;",  # part of a warp leaves
        # two different barriers
        "setp.lt.u32 %p0, %t, 32; @%p0 bra $other; bar.sync 0; bra $end; $other: bar.sync 0; $end: ret;",
        "setp.lt.u32 %p0, %t, 7; @%p0 bra $other; bar.sync 0; bra $end; $other: bar.sync 0; $end: ret;",
        "setp.lt.u32 %p0, %t, 7; @%p0 bar.sync 0;",
    ],
)
def test_divergent_barrier(body: str) -> None:
    _, report = launch(kernel(body), {"out": out()}, grid=3)
    (finding,) = report.findings
    assert finding.kind == "divergent_barrier" and "bar.sync 0" in finding.instruction


@pytest.mark.parametrize("schedule", ["random", "in step"])
def test_an_endless_loop_is_a_finding(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[execute.__module__], "ENDLESS", 1000)
    body = "mov.u32 %r0, 0; $again: add.u32 %r0, %r0, 1; bra $again; ret;"
    memory = Memory({"out": out()})
    report = execute(parse(kernel(body)), memory, 1, 64, ("out",), schedule=schedule)
    (finding,) = report.findings
    assert finding.kind == "endless_loop" and finding.instruction == "add.u32 %r0, %r0, 1"


def test_uniform_control_flow_around_barriers_is_clean() -> None:
    body = """mov.u32 %r0, %ctaid.x; mov.u32 %r1, 0; $loop: setp.gt.u32 %p0, %r1, %r0; @%p0 bra $end; bar.sync 0;
        add.u32 %r1, %r1, 1; bra $loop; $end:
        setp.lt.u32 %p1, %t, 3; @%p1 bra $a; add.u32 %r2, %t, 1; bra $b; $a: add.u32 %r2, %t, 2; $b: bar.sync 0;
        ret;"""
    _, report = launch(kernel(body), {"out": out()}, grid=4)
    assert not report.findings
    assert report.counts["barriers"] == (1 + 2 + 3 + 4) + 4


def test_exited_blocks_do_not_hold_up_others() -> None:
    _, report = launch(
        kernel("mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 1; @%p0 bra $end; bar.sync 0; $end: ret;"),
        {"out": out()},
        grid=4,
    )
    assert not report.findings and report.counts["barriers"] == 3


@pytest.mark.parametrize("mask, clean", [("0xffffffff", False), ("0x000000ff", True)])
def test_shuffle_needs_its_members(mask: str, clean: bool) -> None:
    body = f"setp.gt.u32 %p0, %t, 7; @%p0 bra $end; shfl.sync.bfly.b32 %r0, %t, 1, 31, {mask}; $end: ret;"
    _, report = launch(
        kernel(body.replace("$end: ret;", "bra $done; $end: mov.u32 %r1, 0; bar.sync 0; ret; $done: bar.sync 0;")),
        {"out": out()},
        block=32,
    )
    assert ("divergent_warp" not in kinds(report)) == clean


def test_shuffle_waits_for_lanes_that_come_by_another_way() -> None:
    """Lanes 0..7 reach the shuffle by a jump back, the others run into it."""
    body = """setp.lt.u32 %p0, %t, 8; @%p0 bra $far; add.u32 %r0, %t, 0;
        $join: shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;
        mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %r1; ret; $far: add.u32 %r0, %t, 100;
        bra $join;"""
    memory, report = launch(kernel(body), {"out": out(32)}, block=32)
    assert not report.findings
    value = np.arange(32) + np.where(np.arange(32) < 8, 100, 0)
    np.testing.assert_array_equal(memory["out"], value[np.arange(32) ^ 16])


# --- asynchronous copies ----------------------------------------------------------------------------

ASYNC = """mov.u32 %r0, buffer; shl.b32 %r1, %t, 4; add.u32 %r2, %r0, %r1; mul.wide.u32 %w2, %t, 16;
        add.s64 %w3, %w0, %w2;
    cp.async.cg.shared.global [%r2], [%w3], 16; cp.async.commit_group; {wait} xor.b32 %r3, %t, {distance};
    shl.b32 %r4, %r3, 4; add.u32 %r5, %r0, %r4;
    ld.shared.v4.f32 {{%f0, %f1, %f2, %f3}}, [%r5]; add.s64 %w4, %w1, %w2;
    st.global.v4.f32 [%w4], {{%f0, %f1, %f2, %f3}};"""


@pytest.mark.parametrize(
    "wait, distance, expected",
    [
        ("cp.async.wait_group 0;", 0, set()),
        ("cp.async.wait_all;", 0, set()),
        ("cp.async.wait_group 0; bar.sync 0;", 33, set()),
        ("", 0, {"uninitialised"}),
        ("cp.async.wait_group 1;", 0, {"uninitialised"}),
        ("bar.sync 0;", 0, {"uninitialised"}),
        ("cp.async.wait_group 0;", 1, {"race"}),
    ],
)
def test_async_copy_lands_at_its_wait(wait: str, distance: int, expected: set[str]) -> None:
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    memory, report = launch(
        kernel(ASYNC.format(wait=wait, distance=distance), "x out", shared=1024), {"x": x, "out": np.zeros_like(x)}
    )
    assert kinds(report) == expected
    if not expected:
        np.testing.assert_array_equal(memory["out"], x[np.arange(64) ^ distance])
    elif expected == {"uninitialised"}:
        assert np.isnan(memory["out"]).all()


def test_async_copy_may_not_start_before_the_last_reads() -> None:
    body = (
        ASYNC.format(wait="cp.async.wait_group 0; bar.sync 0;", distance=33)
        + "{between} cp.async.cg.shared.global [%r2], [%w3], 16;"
    )
    x = np.zeros((64, 4), np.float32)
    for between, racy in (("", True), ("bar.sync 0;", False)):
        _, report = launch(kernel(body.replace("{between}", between), "x out", shared=1024), {"x": x, "out": x.copy()})
        assert ("race" in kinds(report)) == racy and bool(report.findings) == racy


def test_two_stage_pipeline() -> None:
    """wait_group 1 lands the first of two groups and leaves the second."""
    body = """mov.u32 %r0, buffer; shl.b32 %r1, %t, 2; add.u32 %r2, %r0, %r1; cvt.u64.u32 %w2, %r1;
        add.s64 %w3, %w0, %w2; add.s64 %w4, %w1, %w2;
        cp.async.ca.shared.global [%r2], [%w3], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r2+256], [%w3+256], 4; cp.async.commit_group;
        cp.async.wait_group 1; ld.shared.u32 %r3, [%r2]; st.global.u32 [%w4], %r3;
        {second} ld.shared.u32 %r4, [%r2+256]; st.global.u32 [%w4+256], %r4;"""
    x = np.arange(128, dtype=np.uint32)
    memory, report = launch(
        kernel(body.format(second="cp.async.wait_group 0;"), "x out", shared=512), {"x": x, "out": out(128)}
    )
    assert not report.findings
    np.testing.assert_array_equal(memory["out"], x)
    _, report = launch(kernel(body.format(second=""), "x out", shared=512), {"x": x, "out": out(128)})
    assert [f.kind for f in report.findings] == ["uninitialised"]


# --- order of warps ---------------------------------------------------------------------------------


def test_seed_changes_the_order_of_warps_and_the_value_of_a_racy_kernel() -> None:
    text = kernel("mov.u32 %r0, %warpid; st.global.u32 [%w0], %r0;")
    values = {int(launch(text, {"out": out()}, block=256, seed=seed)[0]["out"][0]) for seed in range(8)}
    assert len(values) > 2
    again = [int(launch(text, {"out": out()}, block=256, seed=3)[0]["out"][0]) for _ in range(3)]
    assert len(set(again)) == 1


@pytest.mark.parametrize("sync, clean", [("bar.sync 0;", True), ("", False)])
def test_schedules_agree_on_what_is_ordered(sync: str, clean: bool) -> None:
    for schedule in ("random", "in step"):
        memory, report = exchange(sync, 32, schedule=schedule)
        assert bool(report.findings) != clean
        if clean:
            np.testing.assert_array_equal(memory["out"][:64], (np.arange(64) ^ 32) + 1)
    with pytest.raises(ValueError, match="schedule"):
        exchange(sync, 32, schedule="backwards")


# --- compiled kernels -------------------------------------------------------------------------------


def transpose(stride: int):
    size = 32 * stride

    def kernel(source, target):
        tile = cuda.shared.array(size, float32)
        x, y = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        tile[y * uint32(stride) + x] = source[y * uint32(32) + x]
        cuda.syncthreads()
        target[y * uint32(32) + x] = tile[x * uint32(stride) + y]

    kernel.__name__ = kernel.__qualname__ = f"transpose_{stride}"
    return Kernel(kernel, (FLOATS, FLOATS))


@pytest.mark.parametrize("stride, wavefronts", [(32, 32 + 32 * 32), (33, 64)])
def test_bank_conflicts_of_a_transpose(stride: int, wavefronts: int) -> None:
    x = np.arange(1024, dtype=np.float32).reshape(32, 32)
    buffers = {"source": x, "target": np.zeros_like(x)}
    memory, report = launch(compile_ptx(transpose(stride)), buffers, block=(32, 32), unwritten={"target"})
    assert not report.findings
    np.testing.assert_array_equal(memory["target"], x.T)
    assert report.counts["shared.wavefronts"] == wavefronts and report.counts["shared.requests"] == 64


@pytest.mark.parametrize(
    "width, stride, wavefronts",
    [(16, 16, 4), (8, 8, 2), (4, 4, 1), (16, 32, 8), (4, 128, 32), (4, 0, 1), (16, 0, 2), (8, 0, 1), (4, 8, 2)],
)
def test_wavefronts_of_one_load(width: int, stride: int, wavefronts: int) -> None:
    names = ", ".join(f"%f{i}" for i in range(width // 4))
    load = (
        f"ld.shared.{f'v{width // 4}.' if width > 4 else ''}f32 {{{names}}}, [%r2];"
        if width > 4
        else "ld.shared.f32 %f0, [%r2];"
    )
    _, report = launch(
        kernel(f"mov.u32 %r0, buffer; mad.lo.u32 %r2, %t, {stride}, %r0; {load}", shared=4096), {"out": out()}, block=32
    )
    assert report.counts["shared.wavefronts"] == wavefronts


@pytest.mark.parametrize("stride, sectors", [(4, 4), (8, 8), (32, 32), (64, 32), (0, 1)])
def test_sectors_of_one_load(stride: int, sectors: int) -> None:
    body = f"mul.wide.u32 %w1, %t, {stride}; add.s64 %w2, %w0, %w1; ld.global.u32 %r0, [%w2];"
    _, report = launch(kernel(body), {"x": out(512)}, block=32)
    counts = report.counts
    assert (
        counts["global.read.sectors"]
        == counts["global.read.sectors.x"]
        == counts["global.unique_sectors.read"]
        == sectors
    )
    assert counts["global.read.bytes_requested"] == 128 and counts["global.unique_sectors.write"] == 0


def test_sectors_of_divergent_lanes_and_reversed_order() -> None:
    body = (
        "setp.lt.u32 %p0, %t, 16; sub.u32 %r0, 63, %t; mul.wide.u32 %w1, %r0, 4; "
        "add.s64 %w2, %w0, %w1; @%p0 st.global.u32 [%w2], %t;"
    )
    _, report = launch(kernel(body), {"x": out(512)}, block=64)
    assert report.counts["global.write.sectors"] == 2 and report.counts["inst.st.global"] == 16
    # ld.param, tid, setp, sub, mul, add, st, ret of two warps
    assert report.counts["warp_inst"] == 16


def softmax_rows(columns: int, synchronised: bool):
    """out[row] = sum of the row's exponentials, each thread one column; the total is read by all threads."""

    def kernel(x, out):
        shared = cuda.shared.array(0, float32, 16)
        tid, row = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        shared[tid] = x[row * uint32(columns) + tid]
        cuda.syncthreads()
        stride = uint32(columns // 2)
        while stride > uint32(0):
            if tid < stride:
                shared[tid] += shared[tid + stride]
            if synchronised or stride > uint32(32):
                cuda.syncthreads()
            stride >>= uint32(1)
        out[row * uint32(columns) + tid] = shared[0]

    kernel.__name__ = kernel.__qualname__ = f"row_sums_{'synchronised' if synchronised else 'racy'}"
    return Kernel(kernel, (FLOATS, FLOATS))


def sums_plan(synchronised: bool) -> Plan:
    step = Launch(softmax_rows(128, synchronised), (4,), (128,), ("q", "out"), SharedLayout(values=128))
    return Plan(Problem("attention", seq_q=4, hdim=128), {"q": Buffer((4, 128)), "out": Buffer((4, 128))}, (step,))


def test_run_of_a_plan() -> None:
    q = np.random.default_rng(0).integers(-5, 5, (4, 128)).astype(np.float32)
    clean = run(sums_plan(True), {"q": q})
    assert not clean.findings
    np.testing.assert_array_equal(clean.out, np.repeat(q.sum(axis=1, keepdims=True), 128, axis=1))
    assert [report.kernel for report in clean.launches] == ["row_sums_synchronised"]
    assert clean.launches[0].counts["barriers"] == 4 * 8
    racy = run(sums_plan(False), {"q": q})
    assert {(f.kind, f.kernel, f.place) for f in racy.findings} == {("race", "row_sums_racy", "values")}


def test_plan_with_a_table_and_an_output_nobody_writes() -> None:
    def copy(table, out):
        i = uint32(cuda.threadIdx.x)
        if i < uint32(20):
            out[i] = table[i] + out[i]

    table = np.arange(32, dtype=np.float32)
    plan = Plan(
        Problem("attention", seq_q=1, hdim=32),
        {"table": Buffer((32,), init=lambda: table), "out": Buffer((32,))},
        (Launch(Kernel(copy, (FLOATS, FLOATS)), (1,), (32,), ("table", "out")),),
    )
    report = run(plan, {})
    assert [(f.kind, f.place, f.count) for f in report.findings] == [("uninitialised", "out", 20)]
    assert np.isnan(report.out).all()


def test_findings_merge_by_place_and_instruction() -> None:
    _, report = launch(
        kernel("mov.u32 %r0, buffer; ld.shared.u32 %r1, [%r0];", shared=16), {"out": out()}, grid=5, block=32
    )
    (finding,) = report.findings
    assert isinstance(finding, Finding) and finding.count == 160 and finding.block == 0
