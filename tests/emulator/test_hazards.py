"""Planted defects are found, their correct twins are clean, and the counts are those one can work out by hand."""

import sys

import numpy as np
import pytest
from numba import cuda, float32, types, uint32
from test_instructions import kernel, kinds

from kernels.runtime.emulator import LaunchReport, Memory, execute, parse, run
from kernels.version import Buffer, Kernel, Launch, Plan, Problem

FLOATS = types.CPointer(float32)


def launch(ptx: str, buffers: dict, grid=1, block=64, unwritten=(), padding=None, **options) -> tuple:
    memory = Memory(buffers, unwritten, padding)
    return memory, execute(parse(ptx, "test"), memory, grid, block, tuple(buffers), **options)


def played(body: str, shared: int = 0, **options) -> tuple[Memory, LaunchReport]:
    """A kernel that may write `out`, and has so much shared memory."""
    return launch(kernel(body, shared=shared), {"out": out()}, **options)


def out(count: int = 256) -> np.ndarray:
    return np.zeros(count, np.uint32)


# each writes its thread index (plus one) to shared memory and reads that of thread `index ^ distance`
EXCHANGE = """mov.u32 %r0, buffer; shl.b32 %r1, %t, 2; add.u32 %r2, %r0, %r1; add.u32 %r3, %t, 1;
    st.shared.u32 [%r2], %r3; {sync} xor.b32 %r4, %t, {distance}; shl.b32 %r5, %r4, 2; add.u32 %r6, %r0, %r5;
    ld.shared.u32 %r7, [%r6]; mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %r7;"""


def exchange(sync: str, distance: int, **options) -> tuple[Memory, LaunchReport]:
    return played(EXCHANGE.format(sync=sync, distance=distance), 256, **options)


@pytest.mark.parametrize("schedule", ["random", "in step"])
@pytest.mark.parametrize(
    "sync, distance",
    [("bar.sync 0;", 32), ("bar.sync 0;", 1), ("bar.warp.sync -1;", 1), ("", 0), ("barrier.sync 0;", 33)],
)
def test_ordered_exchange_is_clean(sync: str, distance: int, schedule: str) -> None:
    memory, report = exchange(sync, distance, schedule=schedule)
    assert not report.findings
    np.testing.assert_array_equal(memory["out"][:64], (np.arange(64) ^ distance) + 1)
    with pytest.raises(ValueError, match="schedule"):
        exchange(sync, distance, schedule="backwards")


def test_missing_warp_barrier_is_found_though_the_value_is_right() -> None:
    memory, report = exchange("", 1)
    np.testing.assert_array_equal(memory["out"][:64], (np.arange(64) ^ 1) + 1)
    (finding,) = report.findings
    assert (finding.kind, finding.space, finding.place) == ("race", "shared", "buffer")
    assert finding.other.startswith("st.shared.u32")
    assert "test" in str(finding) and "block 0" in str(finding) and "ld.shared.u32 %r7, [%r6]" in str(finding)


# thread 0 overwrites what all others read: the reads come first in program order, a barrier must lie between
REUSE = """setp.ne.u32 %p0, %t, 0; mov.u32 %r0, buffer; @%p0 bra $first; st.shared.u32 [%r0], 7; $first: bar.sync 0;
    ld.shared.u32 %r1, [%r0]; {sync} @%p0 bra $second; st.shared.u32 [%r0], 8; $second: ret;"""
BY_BLOCK = "mov.u32 %r0, %ctaid.x; mul.wide.u32 %w1, %r0, 4; add.s64 %w2, %w0, %w1;"
# block `rank` of a cluster reads what the next block wrote
CLUSTER = """mov.u32 %r0, buffer; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank;
    mov.u32 %r9, %ctaid.x; setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [%r0], %r9; {sync} add.u32 %r3, %r1, 1;
    rem.u32 %r3, %r3, %r2; mapa.shared::cluster.u32 %r4, %r0, %r3; ld.shared::cluster.u32 %r5, [%r4]; {after}
    mul.wide.u32 %w1, %r9, 4; add.s64 %w2, %w0, %w1; @%p1 st.global.u32 [%w2], %r5;"""
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
AGAIN = " @%p1 st.shared.u32 [%r0], 77;"
ONE_EACH, FOURS = {"grid": 3, "block": 1}, {"grid": 8, "block": 1, "cluster": 4}
RACES: list[tuple[str, dict, str]] = [  # a kernel, how it is launched, and where it races
    *((EXCHANGE.format(sync=sync, distance=by), {}, "buffer")
      for sync, by in (("", 1), ("bar.warp.sync -1;", 32), ("membar.cta;", 1), ("", 32))),
    *((REUSE.format(sync=sync), {"block": size}, "" if sync else "buffer")
      for size in (32, 64, 256) for sync in ("", "bar.sync 0;")),
    ("mov.u32 %r0, %ctaid.x; st.global.u32 [%w0], %r0;", ONE_EACH, "out"),
    ("mov.u32 %r0, %ctaid.x; st.global.u32 [%w0], %r0;", {"grid": 200, "block": 1024}, "out"),  # in several batches
    ("mov.u32 %r0, 5; st.global.u32 [%w0], %r0;", ONE_EACH, ""),  # everybody writes the same
    ("mov.u32 %r0, %ctaid.x; red.global.add.u32 [%w0], %r0;", ONE_EACH, ""),
    ("mov.u32 %r0, %ctaid.x; st.global.u32 [%w0], 3; red.global.add.u32 [%w0], %r0;", ONE_EACH, "out"),
    ("ld.global.u32 %r0, [%w0]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 1; @%p0 st.global.u32 [%w0], %r1;",
     ONE_EACH, "out"),
    (BY_BLOCK + "st.global.u32 [%w2], %r0; ld.global.u32 %r1, [%w2];", ONE_EACH, ""),
    ("mov.u32 %r0, buffer; st.shared.u32 [%r0], %t;", {"block": 32}, "buffer"),  # lanes of one instruction
    (CLUSTER.format(sync=SYNC, after=""), FOURS, ""),
    *((CLUSTER.format(sync=SYNC, after=after + AGAIN), {**FOURS, "block": size}, "" if after == SYNC else "buffer")
      for size in (1, 64) for after in (SYNC, "bar.sync 0;")),
]  # fmt: skip


@pytest.mark.parametrize("body, options, place", RACES)
def test_unsynchronised_accesses_race(body: str, options: dict, place: str) -> None:
    memory, report = played(body, 256, **options)
    found = {(finding.kind, finding.place) for finding in report.findings}
    assert found - {("uninitialised", "buffer")} == {("race", place)} if place else not found
    if "%cluster_ctarank" in body and not place:
        np.testing.assert_array_equal(memory["out"][:8], [1, 2, 3, 0, 5, 6, 7, 4])


@pytest.mark.parametrize("sync", ["bar.sync 0;", ""])
def test_distributed_shared_memory_needs_a_cluster_barrier(sync: str) -> None:
    assert kinds(played(CLUSTER.format(sync=sync, after=""), 16, **FOURS)[1]) & {"race", "uninitialised"}


def test_launches_are_ordered_and_what_they_wrote_stays_written() -> None:
    memory = Memory({"out": out()}, unwritten={"out"})
    by_block = parse(kernel(BY_BLOCK + "st.global.u32 [%w2], %r0;"))
    read = parse(kernel("mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; ld.global.u32 %r0, [%w2];"))
    for module, grid, block in ((by_block, 128, 1), (by_block, 128, 1), (read, 1, 128)):
        assert not execute(module, memory, grid, block, ("out",)).findings
    (finding,) = execute(read, memory, 1, 256, ("out",)).findings
    assert finding.kind == "uninitialised" and finding.count == 128 and finding.thread == 128


# --- bounds, alignment, initialisation --------------------------------------------------------------


# a rank beyond the cluster
BEYOND = "mov.u32 %r0, buffer; mapa.shared::cluster.u32 %r4, %r0, 4; ld.shared::cluster.u32 %r5, [%r4];"


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
        (BEYOND, "out_of_bounds", "shared", "buffer"),
    ],
)
def test_bad_address_ends_the_launch(body: str, kind: str, space: str, place: str) -> None:
    memory, report = played(body + " st.global.u32 [%w0], 1;", 256, grid=4, block=1, cluster=4)
    (finding,) = report.findings
    assert (finding.kind, finding.space, finding.place) == (kind, space, place)
    assert not memory["out"].any()


def test_out_of_bounds_names_the_missing_lanes_alone() -> None:
    body = "mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %t;"
    (finding,) = launch(kernel(body), {"out": out(60)})[1].findings
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
    body = """ld.global.u32 %r0, [%w0]; mov.u32 %r1, buffer; ld.shared.u32 %r2, [%r1+4];
        st.global.u32 [%w0], 1; ld.global.u32 %r3, [%w0];"""
    memory, report = launch(kernel(body, shared=16), {"out": out()}, block=1, unwritten={"out"})
    assert [(f.kind, f.place) for f in report.findings] == [("uninitialised", "out"), ("uninitialised", "buffer")]
    assert memory.written("out")[:8].tolist() == [True] * 4 + [False] * 4


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
    (finding,) = played(body, grid=3)[1].findings
    assert finding.kind == "divergent_barrier" and "bar.sync 0" in finding.instruction


@pytest.mark.parametrize("schedule", ["random", "in step"])
def test_endless_loop_is_a_finding(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[execute.__module__], "ENDLESS", 1000)
    (finding,) = played("mov.u32 %r0, 0; $again: add.u32 %r0, %r0, 1; bra $again; ret;", schedule=schedule)[1].findings
    assert finding.kind == "endless_loop" and finding.instruction == "add.u32 %r0, %r0, 1"


LOOP = """mov.u32 %r0, %ctaid.x; mov.u32 %r1, 0; $loop: setp.gt.u32 %p0, %r1, %r0; @%p0 bra $end; bar.sync 0;
    add.u32 %r1, %r1, 1; bra $loop; $end:
    setp.lt.u32 %p1, %t, 3; @%p1 bra $a; add.u32 %r2, %t, 1; bra $b; $a: add.u32 %r2, %t, 2; $b: bar.sync 0; ret;"""
EXITED = "mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 1; @%p0 bra $end; bar.sync 0; $end: ret;"


@pytest.mark.parametrize("body, barriers", [(LOOP, (1 + 2 + 3 + 4) + 4), (EXITED, 3)])
def test_uniform_control_flow_around_barriers_is_clean(body: str, barriers: int) -> None:
    _, report = played(body, grid=4)
    assert not report.findings and report.counts["barriers"] == barriers


@pytest.mark.parametrize("mask, clean", [("0xffffffff", False), ("0x000000ff", True)])
def test_shuffle_needs_its_members(mask: str, clean: bool) -> None:
    body = f"""setp.gt.u32 %p0, %t, 7; @%p0 bra $end; shfl.sync.bfly.b32 %r0, %t, 1, 31, {mask}; bra $done;
        $end: mov.u32 %r1, 0; bar.sync 0; ret; $done: bar.sync 0;"""
    assert ("divergent_warp" not in kinds(played(body, block=32)[1])) == clean


def test_shuffle_waits_for_lanes_that_come_by_another_way() -> None:
    """Lanes 0..7 reach the shuffle by a jump back, the others run into it."""
    body = """setp.lt.u32 %p0, %t, 8; @%p0 bra $far; add.u32 %r0, %t, 0;
        $join: shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;
        mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; st.global.u32 [%w2], %r1; ret; $far: add.u32 %r0, %t, 100;
        bra $join;"""
    memory, report = played(body, block=32)
    assert not report.findings
    value = np.arange(32) + np.where(np.arange(32) < 8, 100, 0)
    np.testing.assert_array_equal(memory["out"][:32], value[np.arange(32) ^ 16])


# --- asynchronous copies ----------------------------------------------------------------------------

ASYNC = """mov.u32 %r0, buffer; shl.b32 %r1, %t, 4; add.u32 %r2, %r0, %r1; mul.wide.u32 %w2, %t, 16;
        add.s64 %w3, %w0, %w2;
    cp.async.cg.shared.global [%r2], [%w3], 16; cp.async.commit_group; {wait} xor.b32 %r3, %t, {distance};
    shl.b32 %r4, %r3, 4; add.u32 %r5, %r0, %r4;
    ld.shared.v4.f32 {{%f0, %f1, %f2, %f3}}, [%r5]; add.s64 %w4, %w1, %w2;
    st.global.v4.f32 [%w4], {{%f0, %f1, %f2, %f3}};"""


LANDED = "cp.async.wait_group 0; bar.sync 0;"
COPIED_AGAIN = " cp.async.cg.shared.global [%r2], [%w3], 16;"


@pytest.mark.parametrize(
    "wait, distance, after, expected",
    [
        ("cp.async.wait_group 0;", 0, "", set()),
        ("cp.async.wait_all;", 0, "", set()),
        (LANDED, 33, "", set()),
        ("", 0, "", {"uninitialised"}),
        ("cp.async.wait_group 1;", 0, "", {"uninitialised"}),
        ("bar.sync 0;", 0, "", {"uninitialised"}),
        ("cp.async.wait_group 0;", 1, "", {"race"}),
        (LANDED, 33, COPIED_AGAIN, {"race", "uninitialised"}),  # with the last reads
        (LANDED, 33, "bar.sync 0;" + COPIED_AGAIN, set()),
    ],
)
def test_async_copy_lands_at_its_wait(wait: str, distance: int, after: str, expected: set[str]) -> None:
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    text = kernel(ASYNC.format(wait=wait, distance=distance) + after, "x out", shared=1024)
    memory, report = launch(text, {"x": x, "out": np.zeros_like(x)})
    assert kinds(report) == expected
    if not expected:
        np.testing.assert_array_equal(memory["out"], x[np.arange(64) ^ distance])
    elif expected == {"uninitialised"}:
        assert np.isnan(memory["out"]).all()


def test_two_stage_pipeline() -> None:
    """wait_group 1 lands the first of two groups and leaves the second."""
    body = """mov.u32 %r0, buffer; shl.b32 %r1, %t, 2; add.u32 %r2, %r0, %r1; cvt.u64.u32 %w2, %r1;
        add.s64 %w3, %w0, %w2; add.s64 %w4, %w1, %w2;
        cp.async.ca.shared.global [%r2], [%w3], 4; cp.async.commit_group;
        cp.async.ca.shared.global [%r2+256], [%w3+256], 4; cp.async.commit_group;
        cp.async.wait_group 1; ld.shared.u32 %r3, [%r2]; st.global.u32 [%w4], %r3;
        {second} ld.shared.u32 %r4, [%r2+256]; st.global.u32 [%w4+256], %r4;"""
    x = np.arange(128, dtype=np.uint32)
    for second, expected in (("cp.async.wait_group 0;", []), ("", ["uninitialised"])):
        text = kernel(body.format(second=second), "x out", shared=512)
        memory, report = launch(text, {"x": x, "out": out(128)})
        assert [finding.kind for finding in report.findings] == expected
        assert expected or (memory["out"] == x).all()


# --- order of warps ---------------------------------------------------------------------------------


def test_seed_changes_the_order_of_warps_and_the_value_of_a_racy_kernel() -> None:
    text = kernel("mov.u32 %r0, %warpid; st.global.u32 [%w0], %r0;")
    values = {int(launch(text, {"out": out()}, block=256, seed=seed)[0]["out"][0]) for seed in range(8)}
    assert len(values) > 2
    again = [int(launch(text, {"out": out()}, block=256, seed=3)[0]["out"][0]) for _ in range(3)]
    assert len(set(again)) == 1


# --- counts and plans -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "width, stride, wavefronts",
    [(16, 16, 4), (8, 8, 2), (4, 4, 1), (16, 32, 8), (4, 128, 32), (4, 0, 1), (16, 0, 2), (8, 0, 1), (4, 8, 2)],
)
def test_wavefronts_of_one_load(width: int, stride: int, wavefronts: int) -> None:
    names = {4: "f32 %f0", 8: "v2.f32 {%f0, %f1}", 16: "v4.f32 {%f0, %f1, %f2, %f3}"}[width]
    body = f"mov.u32 %r0, buffer; mad.lo.u32 %r2, %t, {stride}, %r0; ld.shared.{names}, [%r2];"
    assert played(body, 4096, block=32)[1].counts["shared.wavefronts"] == wavefronts


@pytest.mark.parametrize("stride, sectors", [(4, 4), (8, 8), (32, 32), (64, 32), (0, 1)])
def test_sectors_of_one_load(stride: int, sectors: int) -> None:
    body = f"mul.wide.u32 %w1, %t, {stride}; add.s64 %w2, %w0, %w1; ld.global.u32 %r0, [%w2];"
    counts = launch(kernel(body), {"x": out(512)}, block=32)[1].counts
    read = ("global.read.sectors", "global.read.sectors.x", "global.unique_sectors.read")
    assert [counts[name] for name in read] == [sectors] * 3
    assert counts["global.read.bytes_requested"] == 128 and counts["global.unique_sectors.write"] == 0


def test_sectors_of_divergent_lanes_and_reversed_order() -> None:
    body = """setp.lt.u32 %p0, %t, 16; sub.u32 %r0, 63, %t; mul.wide.u32 %w1, %r0, 4;
        add.s64 %w2, %w0, %w1; @%p0 st.global.u32 [%w2], %t;"""
    counts = played(body, block=64)[1].counts
    assert counts["global.write.sectors"] == 2 and counts["inst.st.global"] == 16
    assert counts["warp_inst"] == 16  # ld.param, tid, setp, sub, mul, add, st, ret of two warps


def test_unwritten_output_of_a_plan_is_reported() -> None:
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
    (finding,) = played("mov.u32 %r0, buffer; ld.shared.u32 %r1, [%r0];", 16, grid=5, block=32)[1].findings
    assert finding.count == 160 and finding.block == 0
