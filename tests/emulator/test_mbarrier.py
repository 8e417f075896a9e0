"""Barriers in shared memory and the stores that count at them: their phases, and the exchange between blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numba import cuda, float32, types, uint32
from test_instructions import kernel
from test_wgmma import descriptor, fragments, image, small_integers, spread, text

from kernels.device.cluster import (
    barrier_expect,
    barrier_init,
    barrier_init_fence,
    barrier_wait,
    cluster_arrive,
    cluster_rank,
    cluster_send,
    cluster_send2,
    cluster_wait,
)
from kernels.device.reduce import FULL_MASK, NEGATIVE_INFINITY
from kernels.runtime import cache
from kernels.runtime.compile import CompileError, assemble, compile_ptx
from kernels.runtime.emulator import LaunchReport, Memory, UnknownInstruction, execute, parse
from kernels.runtime.emulator.memory.barriers import Barriers
from kernels.runtime.emulator.memory.contents import SharedMemory
from kernels.runtime.emulator.memory.order import Order
from kernels.runtime.emulator.memory.shadow import Shadow
from kernels.version import Kernel, SharedLayout
from tests.sampling import swept

FLOATS = types.CPointer(float32)
PROBABILITIES = (0.3, 0.04, 0.18, 0.12, 0.34, 0.01, 0.01)
KEYS, ROWS, WARPS, TILES = 64, 2, 2, 3  # ROWS: that a block owns, one a warp
STRIDE = 4


@pytest.fixture(scope="module", autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The kernels here lie outside of what the cache knows them by."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "FOLDER", tmp_path_factory.mktemp("cache"))
        yield


def kinds(report: LaunchReport) -> set[str]:
    return {finding.kind for finding in report.findings}


# --- the exchange of V8: partial scores to the rows' owners, weights and factors to all -------------


@dataclass(frozen=True)
class Exchange:
    """The protocol, and what may be wrong with it. Byte counts are what a phase expects beyond what is sent."""

    cluster: int
    wait_scores: bool = True
    wait_weights: bool = True
    wait_in_turn: bool = True  # for phases 0, 1, 0, ..., not always for 0
    one_waits: str = ""  # for the weights: warp 0 alone; with "barrier" and a barrier of the block behind it
    one_sends: str = ""  # the scores: warp 0 alone; with "barrier" and one of the block before it
    expects: bool = True
    more_scores: int = 0
    more_weights: int = 0
    start: bool = True  # the cluster's barrier behind the initialisation

    @property
    def layout(self) -> SharedLayout:
        slots = self.cluster * WARPS
        return SharedLayout(
            parts=slots * ROWS * KEYS, weights=self.cluster * ROWS * KEYS, rescale=self.cluster * ROWS, barriers=4
        )


def make_exchange(exchange: Exchange) -> Kernel:
    cluster, layout = exchange.cluster, exchange.layout
    rows, slots, threads = cluster * ROWS, cluster * WARPS, 32 * WARPS
    parts_at, weights_at, rescale_at = (uint32(layout[name]) for name in ("parts", "weights", "rescale"))
    scores_done, weights_done = uint32(layout["barriers"]), uint32(layout["barriers"] + 2)
    score_bytes = 4 * slots * ROWS * KEYS + exchange.more_scores
    weight_bytes = 4 * rows * KEYS + 4 * rows + exchange.more_weights
    wait_scores, wait_weights, expects, start = (
        exchange.wait_scores, exchange.wait_weights, exchange.expects, exchange.start,
    )  # fmt: skip
    one_waits, one_sends, in_turn = exchange.one_waits, exchange.one_sends, exchange.wait_in_turn

    def attend(x, v, out):
        """x: [TILES, slots, rows, KEYS]; v: [TILES, cluster, threads, KEYS]; out: [blocks, threads, rows].

        A thread multiplies every fourth key, so that all threads of a warp together read all weights.
        """
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        warp, lane, rank = tid // uint32(32), tid % uint32(32), cluster_rank()
        if tid == 0:
            barrier_init(shared, scores_done, 1)
            barrier_init(shared, weights_done, 1)
            barrier_init_fence()
        if start:
            cluster_arrive()
            cluster_wait()
        slot, pair = rank * uint32(WARPS) + warp, lane * uint32(2)
        acc = cuda.local.array(rows, float32)
        for row in range(rows):
            acc[row] = float32(0.0)
        row_max = NEGATIVE_INFINITY
        for t in range(TILES):
            parity = uint32(t & 1) if in_turn else uint32(0)
            if expects and tid == 0:
                barrier_expect(shared, scores_done, score_bytes)
                barrier_expect(shared, weights_done, weight_bytes)
            if one_sends == "barrier":
                cuda.syncthreads()
            for row in range(rows):
                for w in range(WARPS):
                    sends = w == warp if one_sends == "" else warp == 0
                    if sends:
                        of = slot if one_sends == "" else uint32(rank * uint32(WARPS) + uint32(w))
                        at = uint32(parts_at + (of * uint32(ROWS) + uint32(row % ROWS)) * uint32(KEYS) + pair)
                        there = uint32(((t * slots + of) * rows + row) * KEYS + pair)
                        cluster_send2(shared, at, uint32(row // ROWS), x[there], x[there + 1], scores_done)
            if wait_scores:
                barrier_wait(shared, scores_done, parity)

            own = uint32(rank * uint32(ROWS) + warp)
            a, b = float32(0.0), float32(0.0)
            for part in range(slots):
                at = uint32(parts_at + (uint32(part * ROWS) + warp) * uint32(KEYS) + pair)
                a += shared[at]
                b += shared[at + 1]
            greatest = max(a, b)
            for step in range(5):
                greatest = max(greatest, cuda.shfl_xor_sync(FULL_MASK, greatest, 16 >> step))
            factor = float32(2.0) if greatest > row_max else float32(1.0)
            row_max = max(row_max, greatest)
            for to in range(cluster):
                at = uint32(weights_at + own * uint32(KEYS) + pair)
                cluster_send2(shared, at, uint32(to), a, b, weights_done)
            if lane < uint32(cluster):
                cluster_send(shared, rescale_at + own, lane, factor, weights_done)
            if wait_weights:
                if one_waits == "" or warp == 0:
                    barrier_wait(shared, weights_done, parity)
                if one_waits == "barrier":
                    cuda.syncthreads()

            for row in range(rows):
                acc[row] *= shared[rescale_at + uint32(row)]
                for step in range(KEYS // STRIDE):
                    key = uint32(uint32(step * STRIDE) + tid % uint32(STRIDE))
                    there = uint32(((t * cluster + rank) * threads + tid) * KEYS + key)
                    acc[row] += shared[weights_at + uint32(row * KEYS) + key] * v[there]
        for row in range(rows):
            out[(uint32(cuda.blockIdx.x) * threads + tid) * rows + row] = acc[row]

    return Kernel(attend, (FLOATS,) * 3, max_threads=threads)


def expected(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores, total, row_max = x.astype(np.float64).sum(axis=1), 0.0, np.full(x.shape[2], -np.inf)
    taken = np.arange(32 * WARPS)[:, None] % STRIDE == np.arange(KEYS) % STRIDE
    for tile, values in zip(scores, v.astype(np.float64) * taken, strict=True):
        greatest = tile.max(axis=1)
        total = total * np.where(greatest > row_max, 2.0, 1.0) + values @ tile.T
        row_max = np.maximum(row_max, greatest)
    return total


def exchanged(exchange: Exchange, seed: int = 0, schedule: str = "random") -> tuple[bool, LaunchReport]:
    """Whether two clusters got the right result; inputs are small integers, so that every sum is exact."""
    cluster, threads = exchange.cluster, 32 * WARPS
    rng = np.random.default_rng(seed)
    x = small_integers(rng, TILES, cluster * WARPS, cluster * ROWS, KEYS)
    v = small_integers(rng, TILES, cluster, threads, KEYS)
    memory = Memory({"x": x, "v": v, "out": np.full((2, cluster, threads, cluster * ROWS), np.nan, np.float32)})
    module = parse(compile_ptx(make_exchange(exchange)), "exchange")
    layout = exchange.layout
    report = execute(
        module,
        memory,
        2 * cluster,
        threads,
        ("x", "v", "out"),
        layout.nbytes,
        layout.place,
        cluster,
        seed,
        schedule=schedule,
    )
    right = expected(x, v)
    return bool((memory["out"] == right).all()), report


@pytest.mark.parametrize("schedule", ["random", "in step"])
@pytest.mark.parametrize("cluster", [1, 2, 4])
def test_the_exchange_is_right_and_clean(cluster: int, schedule: str) -> None:
    right, report = exchanged(Exchange(cluster), schedule=schedule)
    assert right and not report.findings


@pytest.mark.parametrize("seed", range(2))
def test_counts_do_not_depend_on_the_order_of_warps(seed: int) -> None:
    _, report = exchanged(Exchange(2), seed)
    assert report.counts == exchanged(Exchange(2), 7)[1].counts
    # per thread: a wait for scores and one for weights a tile, 2 at the cluster's barrier; thread 0: 2 made, 2 expected
    assert report.counts["inst.barrier"] == 4 * 64 * (2 * TILES + 2) + 4 * (2 + 2 * TILES)


DEFECTS = [  # what is wrong, and where it shows
    (Exchange(2, wait_scores=False), {"race"}, "parts"),
    (Exchange(2, wait_weights=False), {"race"}, "weights"),
    (Exchange(2, wait_in_turn=False), {"race"}, "parts"),
    (Exchange(2, one_waits="warp"), {"race"}, "weights"),
    (Exchange(2, one_sends="warp"), {"race"}, "weights"),
    (Exchange(4, wait_scores=False), {"race"}, "parts"),
    (Exchange(4, wait_weights=False), {"race"}, "weights"),
    (Exchange(2, more_scores=-8), {"race"}, "parts"),
    (Exchange(2, more_scores=-256), {"race"}, "parts"),
    (Exchange(4, more_weights=-256), {"race"}, "weights"),
    (Exchange(2, more_weights=8), {"deadlock"}, "0 arrivals and 8 bytes"),
    (Exchange(2, more_scores=4), {"deadlock"}, "0 arrivals and 4 bytes"),
    (Exchange(2, more_scores=-4), {"deadlock"}, "0 arrivals and -4 bytes"),
    (Exchange(2, expects=False), {"deadlock"}, "1 arrivals"),
]


BOTH_WAYS = [(*defect, schedule) for defect in DEFECTS for schedule in ("random", "in step")]


@pytest.mark.parametrize("exchange, kind, place, schedule", swept(BOTH_WAYS, 14, 14, by=lambda case: str(case[:3])))
def test_a_defect_of_the_exchange_is_found(exchange: Exchange, kind: set[str], place: str, schedule: str) -> None:
    _, report = exchanged(exchange, schedule=schedule)
    assert kind <= kinds(report)
    assert any(place in finding.place for finding in report.findings if finding.kind in kind)


@pytest.mark.parametrize("seed", range(3))
def test_barriers_are_made_before_others_use_them(seed: int) -> None:
    _, report = exchanged(Exchange(2, start=False), seed)
    assert {(finding.kind, finding.place) for finding in report.findings} & {
        ("race", "barriers"),
        ("uninitialised", "barriers"),
    }


@pytest.mark.parametrize("schedule", ["random", "in step"])
@pytest.mark.parametrize("exchange", [Exchange(2, one_waits="barrier"), Exchange(4, one_sends="barrier")])
def test_a_barrier_of_the_block_hands_on_what_one_warp_knows(exchange: Exchange, schedule: str) -> None:
    right, report = exchanged(exchange, schedule=schedule)
    assert right and not report.findings


# --- single instructions ----------------------------------------------------------------------------

START = """mov.u32 %r0, buffer; mov.u32 %r1, %cluster_ctarank; cvt.rn.f32.u32 %f1, %t; setp.eq.u32 %p0, %t, 0;
    @%p0 mbarrier.init.shared::cta.b64 [%r0], {count}; @%p0 mbarrier.init.shared::cta.b64 [%r0+8], 1;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    add.u32 %r2, %r1, 1; and.b32 %r2, %r2, 1; shl.b32 %r4, %t, 2; add.u32 %r4, %r0, %r4; add.u32 %r4, %r4, 16;
    mapa.shared::cluster.u32 %r5, %r4, %r2; mapa.shared::cluster.u32 %r6, %r0, %r2;"""
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], {};"
SEND = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%r5], %f1, [%r6];"
WAIT = "${label}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r0], {parity}; @!%p1 bra ${label};"
SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
LOAD = "ld.shared.f32 %f2, [%r4];"
STORE = "mul.wide.u32 %w1, %t, 4; add.s64 %w2, %w0, %w1; mov.u32 %r9, %ctaid.x; "
STORE += "mul.wide.u32 %w3, %r9, {size}; add.s64 %w2, %w2, %w3; st.global.f32 [%w2], %f2;"


def wait(parity: int = 0, label: str = "wait") -> str:
    return WAIT.format(parity=parity, label=label)


def sent(body: str, threads: int = 64, count: int = 1, **options) -> tuple[np.ndarray, LaunchReport]:
    """Two blocks of a cluster that send each other their thread indices, and store %f2."""
    ptx = kernel(START.format(count=count) + body + STORE.format(size=4 * threads), shared=16 + 4 * threads)
    memory = Memory({"out": np.zeros((2, threads), np.float32)})
    report = execute(parse(ptx, "test"), memory, 2, threads, ("out",), cluster=2, **options)
    return memory["out"], report


@pytest.mark.parametrize("threads", [32, 64])
def test_stores_have_happened_behind_the_wait(threads: int) -> None:
    out, report = sent(EXPECT.format(4 * threads) + SEND + wait() + LOAD, threads)
    assert not report.findings
    np.testing.assert_array_equal(out, np.tile(np.arange(threads), (2, 1)))


def test_bytes_may_come_before_they_are_expected() -> None:
    _, report = sent(SEND + SYNC + EXPECT.format(256) + wait() + LOAD)
    assert not report.findings


@pytest.mark.parametrize("sync", ["", "bar.sync 0;", SYNC])
def test_nothing_but_the_wait_orders_the_stores(sync: str) -> None:
    _, report = sent(EXPECT.format(256) + SEND + sync + LOAD)
    assert kinds(report) & {"race", "uninitialised"}
    assert not kinds(report) - {"race", "uninitialised"}


def test_not_even_the_sender_knows_that_its_store_has_happened() -> None:
    own = "mov.u32 %r2, %r1; mapa.shared::cluster.u32 %r5, %r4, %r2; mapa.shared::cluster.u32 %r6, %r0, %r2;"
    assert kinds(sent(own + EXPECT.format(256) + SEND + LOAD)[1]) == {"race"}
    assert not sent(own + EXPECT.format(256) + SEND + wait() + LOAD)[1].findings


def test_another_barrier_does_not_wait_for_the_stores() -> None:
    other = SEND.replace("%r5", "%r5+256").replace("%r6", "%r7")
    body = "add.u32 %r7, %r6, 8; {} @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0+8], 256;" + SEND + other
    both = body.format(EXPECT.format(256))
    second = wait(label="second").replace("[%r0]", "[%r0+8]")
    ptx = kernel(START.format(count=1) + both + second + LOAD + STORE.format(size=256), shared=16 + 512)
    report = execute(parse(ptx, "test"), Memory({"out": out_of(128)}), 2, 64, ("out",), cluster=2)
    assert kinds(report) == {"race"}
    ptx = ptx.replace(LOAD, wait() + LOAD)
    assert not execute(parse(ptx, "test"), Memory({"out": out_of(128)}), 2, 64, ("out",), cluster=2).findings


def out_of(count: int) -> np.ndarray:
    return np.zeros(count, np.float32)


def test_a_phase_takes_all_its_arrivals_and_the_next_one_the_same() -> None:
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%r0];"
    body = "mov.u32 %r8, 1; @%p0 st.shared.u32 [%r0+16], %r8;" + arrive + wait(0, "first")
    body += "ld.shared.f32 %f2, [%r0+16];" + arrive + wait(1, "second")
    body += "mov.u32 %r8, 2; @%p0 st.shared.u32 [%r0+16], %r8;" + arrive + wait(0, "third")
    assert not sent(body, count=64)[1].findings
    assert kinds(sent(body, count=32)[1]) & {"race", "deadlock"}
    assert kinds(sent(body, count=65)[1]) == {"deadlock"}


def test_a_wait_for_the_phase_before_the_first_goes_on() -> None:
    assert not sent(wait(1))[1].findings


def test_a_deadlock_says_what_is_missing() -> None:
    _, report = sent(EXPECT.format(260) + SEND + wait() + LOAD)
    (finding,) = report.findings
    assert finding.kind == "deadlock" and finding.count == 128 and finding.instruction.startswith("mbarrier.try_wait")
    assert finding.place == "mbarrier in 'buffer', 0 arrivals and 4 bytes short in phase 0"


def test_a_wait_for_a_block_that_is_stuck_at_its_barrier_is_a_deadlock() -> None:
    _, report = sent("setp.lt.u32 %p2, %t, 32; @%p2 bra $first; bar.sync 0; bra $end; $first:" + wait() + "$end: ret;")
    assert kinds(report) == {"deadlock"}


def test_no_barrier_there() -> None:
    _, report = sent(wait().replace("[%r0]", "[%r0+16]"))
    assert kinds(report) == {"uninitialised"} and "try_wait" in report.findings[0].instruction


def test_a_barrier_may_not_be_made_anew_while_it_is_used() -> None:
    _, report = sent(EXPECT.format(256) + SEND + wait() + "@%p0 mbarrier.init.shared::cta.b64 [%r0], 1;")
    assert kinds(report) == {"race"}


def test_data_and_barrier_lie_in_one_block() -> None:
    _, report = sent(EXPECT.format(256) + SEND.replace("[%r6]", "[%r0]") + wait())
    assert kinds(report) == {"out_of_bounds"}


@pytest.mark.parametrize(
    "body",
    [
        "mbarrier.arrive.shared::cta.b64 %w5, [%r0];",
        "mbarrier.try_wait.shared::cta.b64 %p1, [%r0], %w5;",
        "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r0], 0;",
        "@%p0 mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r0], 0;",
        "mbarrier.inval.shared::cta.b64 [%r0];",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%r5], %f1, [%r6];",
    ],
)
def test_unknown_forms_are_named(body: str) -> None:
    with pytest.raises(UnknownInstruction, match=body.replace("@%p0 ", "").split(".shared")[0].split(".weak")[0]):
        sent(body)


# --- who knows of what ------------------------------------------------------------------------------


class Knowledge:
    """The accesses that each warp is ordered behind, as sets; accesses and barriers have numbers."""

    def __init__(self, warps: int, barriers: int) -> None:
        self.known: list[set[int]] = [set() for _ in range(warps)]
        self.gathered: list[set[int]] = [set() for _ in range(barriers)]
        self.stored: list[set[int]] = [set() for _ in range(barriers)]
        self.released: list[set[int]] = [set() for _ in range(barriers)]

    def sync(self, warps: list[int]) -> None:
        everything = set().union(*(self.known[warp] for warp in warps))
        for warp in warps:
            self.known[warp] |= everything

    def complete(self, barrier: int) -> None:
        self.released[barrier] = self.gathered[barrier] | self.stored[barrier]
        self.gathered[barrier] = set()


@pytest.mark.parametrize("cluster", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_warps_is_exact(cluster: int, seed: int) -> None:
    """Random accesses, stores that count, waits and barriers against sets of accesses; reads are of the own block."""
    rng = np.random.default_rng(seed)
    blocks, warps, each, granules, bytes_a_phase = 4, 4, 1, 4, 4  # barriers and free granules of a block
    order = Order(blocks, warps, cluster, mbarriers=True)
    size = 4 * (granules + 2 * each)
    memory = SharedMemory(blocks, size, Shadow(blocks * size, order, "cluster" if cluster > 1 else "block"), 4)
    codes = order.code(np.arange(blocks))
    barriers = Barriers(memory, order, codes)
    places = np.array([block * memory.stride + 8 * i for block in range(blocks) for i in range(each)])
    barriers.init(places, np.ones(len(places), np.int64))
    truth = Knowledge(blocks * warps, len(places))
    writer: dict[int, tuple[int, int]] = {}  # granule: access, and the warp, -1 for a barrier's
    readers: dict[int, list[tuple[int, int]]] = {}
    seen = {True: 0, False: 0}
    for access in range(2500):
        order.tick(0)
        block, warp = int(rng.integers(blocks)), int(rng.integers(warps))
        number, thread = block * warps + warp, np.array([codes[block] << order.block_shift | 32 * warp])
        first = block // cluster * cluster
        action = rng.choice(["read", "write", "send", "arrive", "wait", "block", "cluster"], p=PROBABILITIES)
        there = first + int(rng.integers(cluster))
        slot = there * each + int(rng.integers(each))
        slots, codes_of_warps = np.array([slot]), thread >> 5
        if action == "block":
            order.sync_blocks(codes[[block]])
            truth.sync([block * warps + w for w in range(warps)])
        elif action == "cluster":
            order.sync_clusters(np.array([block // cluster]))
            truth.sync(list(range(first * warps, (first + cluster) * warps)))
        elif action == "wait":
            slot = block * each + slot % each
            barriers.acquire(np.array([slot]), codes_of_warps)
            truth.known[number] |= truth.released[slot]
        elif action == "arrive":
            if barriers.pending[slot]:
                truth.gathered[slot] |= truth.known[number]
                phase = barriers.phase[slot]
                barriers.arrive(slots, codes_of_warps, np.array([bytes_a_phase]))
                if barriers.phase[slot] > phase:
                    truth.complete(slot)
        else:
            there = block if action == "read" else there
            granule = there * memory.stride // 4 + 2 * each + int(rng.integers(granules))
            where = np.array([granule])
            known = truth.known[number]
            last, by = writer.get(granule, (-1, number))
            expected = by != number and last not in known
            if action == "read":
                racing = memory.shadow.read(where, thread)
                readers.setdefault(granule, []).append((access, number))
                known.add(access)
            else:
                expected |= any(who != number and what not in known for what, who in readers.get(granule, []))
                sends = action == "send"
                agent = barriers.agent[slots] if sends else None
                racing = memory.shadow.write(where, thread, np.ones(1, bool), None, writer=agent)
                writer[granule] = access, -1 if sends else number
                if sends:
                    truth.gathered[slot] |= known
                    truth.stored[slot].add(access)
                    phase = barriers.phase[slot]
                    barriers.deliver(slots, codes_of_warps, 4)
                    if barriers.phase[slot] > phase:
                        truth.complete(slot)
                else:
                    known.add(access)
            assert (racing is not None and bool(racing.any())) == expected
            seen[expected] += 1
    assert min(seen.values()) > 50


def test_every_warp_that_has_read_must_be_heard_of() -> None:
    """Three warps read, the last two of them send, a fourth waits for these and writes: the first one's read races."""
    order = Order(1, 4, 1, mbarriers=True)
    memory = SharedMemory(1, 16, Shadow(4, order, "block"), 4)
    barriers = Barriers(memory, order, order.code(np.arange(1)))
    barriers.init(np.array([0]), np.array([2]))
    slot, granule = np.array([0]), np.array([2])
    for warp in range(3):
        order.tick(0)
        memory.shadow.read(granule, np.array([32 * warp]))
    for warp in (1, 2):
        order.tick(0)
        barriers.arrive(slot, np.array([warp]), np.array([0]))
    order.tick(0)
    barriers.acquire(slot, np.array([3]))
    racing = memory.shadow.write(granule, np.array([96]), np.ones(1, bool), None)
    assert racing is not None and racing[0] & 0xFFFFFFFF == 0 and racing[0] > 0


# --- products that read what was sent ---------------------------------------------------------------


@pytest.mark.parametrize(
    "sync, found",
    [
        ("{wait} fence.proxy.async.shared::cta;", set()),
        ("{wait}", {"unfenced"}),
        ("fence.proxy.async.shared::cta; {wait}", {"unfenced"}),
        ("fence.proxy.async.shared::cta; {wait} bar.sync 0;", {"unfenced"}),
        ("{wait} setp.eq.u32 %p3, %t, 0; @%p3 fence.proxy.async.shared::cta;", {"unfenced"}),
    ],
)
def test_products_need_a_fence_behind_the_wait(sync: str, found: set[str]) -> None:
    rng = np.random.default_rng(1)
    a, b, size = small_integers(rng, 64, 8), small_integers(rng, 32, 8), 4096
    x = image(b, size, 0, 512, 128, 0, 0)
    x[np.isnan(x)] = 0.0
    ptx = text(32, descriptor(0, 512, 128), size, sync=sync.format(wait=wait().replace("[%r0]", "[made]")))
    made = """.shared .align 8 .b8 made[8]; setp.eq.u32 %p1, %t, 0; mov.u32 %r9, made; mov.u32 %r8, 0;
        @%p1 mbarrier.init.shared::cta.b64 [%r9], 1; bar.sync 0; mapa.shared::cluster.u32 %r11, %r9, %r8;"""
    ptx = ptx.replace("mov.u32 %r1, buffer;", made + "mov.u32 %r1, buffer;")
    store = "mapa.shared::cluster.u32 %r10, %r1, %r8; "
    store += "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%r10], {%f0, %f1, %f2, %f3}, [%r11];"
    ptx = ptx.replace("st.shared.v4.f32 [%r1], {%f0, %f1, %f2, %f3};", store)
    ptx = ptx.replace("$copy:", f"@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], {size};\n$copy:")
    memory = Memory({"x": x, "left": fragments(a), "out": np.zeros((128, 16), np.float32)})
    report = execute(parse(ptx), memory, 1, 128, ("x", "left", "out"))
    assert kinds(report) == found
    if not found:
        np.testing.assert_array_equal(memory["out"], spread(a @ b.T + 5))


# --- machine code -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["sm_90", "sm_90a"])
def test_the_exchange_assembles(target: str) -> None:
    ptx = compile_ptx(make_exchange(Exchange(4)), target)
    assert ptx.count("fence.mbarrier_init.release.cluster") == 1
    cubin, _ = assemble(ptx, target)
    assert cubin


def test_other_targets_have_none_of_it() -> None:
    with pytest.raises(CompileError, match=r"sm_90"):
        assemble(compile_ptx(make_exchange(Exchange(4)), "sm_86"), "sm_86")
