"""Barriers in shared memory and the stores that count at them: their phases, and the exchange between blocks."""

import numpy as np
import pytest
from products import descriptor, fragments, image, small_integers, spread, text
from test_instructions import kernel, kinds

from kernels.runtime.emulator import LaunchReport, Memory, UnknownInstruction, execute, parse
from kernels.runtime.emulator.memory.barriers import Barriers
from kernels.runtime.emulator.memory.contents import SharedMemory
from kernels.runtime.emulator.memory.order import Order
from kernels.runtime.emulator.memory.shadow import Shadow

PROBABILITIES = (0.3, 0.04, 0.18, 0.12, 0.34, 0.01, 0.01)


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


def sent(body: str, threads: int = 64, count: int = 1, room: int = 256, **options) -> tuple[np.ndarray, LaunchReport]:
    """Two blocks of a cluster that send each other their thread indices, and store %f2."""
    ptx = kernel(START.format(count=count) + body + STORE.format(size=4 * threads), shared=16 + room)
    memory = Memory({"out": np.zeros((2, threads), np.float32)})
    report = execute(parse(ptx, "test"), memory, 2, threads, ("out",), cluster=2, **options)
    return memory["out"], report


@pytest.mark.parametrize("threads", [32, 64])
def test_stores_have_happened_behind_the_wait(threads: int) -> None:
    out, report = sent(EXPECT.format(4 * threads) + SEND + wait() + LOAD, threads)
    assert not report.findings
    np.testing.assert_array_equal(out, np.tile(np.arange(threads), (2, 1)))


OWN = "mov.u32 %r2, %r1; mapa.shared::cluster.u32 %r5, %r4, %r2; mapa.shared::cluster.u32 %r6, %r0, %r2;"
ONE_WARP = "setp.lt.u32 %p2, %t, 32; @!%p2 bra $skip; {} $skip: "
ALL = EXPECT.format(256)
TURN = EXPECT.format(256) + SEND + "{}" + LOAD + SYNC  # and the next phase
MADE = "@%p0 mbarrier.init.shared::cta.b64 [%r0+16], 64; {}"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r0+16];"
PLANTED = [
    (SEND + SYNC + ALL + wait() + LOAD, set()),  # bytes may come before they are expected
    *((ALL + SEND + sync + LOAD, {"race"}) for sync in ("", "bar.sync 0;", SYNC)),
    (OWN + ALL + SEND + LOAD, {"race"}),  # not even the sender knows that its store has happened
    (OWN + ALL + SEND + wait() + LOAD, set()),
    (ALL + SEND + ONE_WARP.format(wait()) + LOAD, {"race"}),
    (ALL + SEND + ONE_WARP.format(wait()) + "bar.sync 0;" + LOAD, set()),  # which hands on what one warp knows
    *((EXPECT.format(size) + SEND + wait() + LOAD, {"race"}) for size in (128, 248)),  # it completes too early
    (ALL + SEND + "st.shared::cluster.f32 [%r5], %f1;" + wait() + LOAD, {"race"}),  # behind what is waited for
    (EXPECT.format(264) + SEND + wait() + LOAD, {"deadlock"}),
    (SEND + wait() + LOAD, {"deadlock"}),
    (TURN.format(wait(0, "a")) + TURN.format(wait(1, "b")) + TURN.format(wait(0, "c")), set()),
    (TURN.format(wait(0, "a")) + TURN.format(wait(0, "b")) + LOAD, {"race", "deadlock"}),  # a phase that is over
    (wait(1), set()),  # the one before the first
    ("setp.lt.u32 %p2, %t, 32; @%p2 bra $first; bar.sync 0; bra $end; $first:" + wait() + "$end: ret;", {"deadlock"}),
    (wait().replace("[%r0]", "[%r0+16]"), {"uninitialised"}),  # no barrier there
    (ALL + SEND + wait() + "@%p0 mbarrier.init.shared::cta.b64 [%r0], 1;", {"race", "deadlock"}),  # made anew in use
    (MADE.format("") + ARRIVE, {"race"}),  # used before it is made
    (MADE.format("bar.sync 0;") + ARRIVE, set()),
    (ALL + SEND.replace("[%r6]", "[%r0]") + wait(), {"out_of_bounds"}),  # data and barrier lie in one block
]


@pytest.mark.parametrize("body, expected", PLANTED)
def test_copied_bytes_need_a_wait_by_their_reader(body: str, expected: set[str]) -> None:
    found = [kinds(sent(body, schedule=schedule)[1]) for schedule in ("random", "in step")]
    assert set().union(*found) in (expected, expected | {"uninitialised"})  # a race may be with nothing
    assert all(bool(each) == bool(expected) for each in found)


def test_another_barrier_does_not_wait_for_the_stores() -> None:
    other = SEND.replace("%r5", "%r5+256").replace("%r6", "%r7")
    body = "add.u32 %r7, %r6, 8;" + ALL + "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0+8], 256;"
    body += SEND + other + wait(label="second").replace("[%r0]", "[%r0+8]") + "{}" + LOAD
    for first, expected in (("", {"race"}), (wait(), set())):
        assert kinds(sent(body.replace("{}", first), room=512)[1]) == expected


def test_phase_takes_all_its_arrivals_and_the_next_one_the_same() -> None:
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%r0];"
    body = "mov.u32 %r8, 1; @%p0 st.shared.u32 [%r0+16], %r8;" + arrive + wait(0, "first")
    body += "ld.shared.u32 %f2, [%r0+16];" + arrive + wait(1, "second")
    body += "mov.u32 %r8, 2; @%p0 st.shared.u32 [%r0+16], %r8;" + arrive + wait(0, "third")
    assert not sent(body, count=64)[1].findings
    assert kinds(sent(body, count=32)[1]) & {"race", "deadlock"}
    assert kinds(sent(body, count=65)[1]) == {"deadlock"}


def test_deadlock_says_what_is_missing() -> None:
    (finding,) = sent(EXPECT.format(260) + SEND + wait() + LOAD)[1].findings
    assert finding.kind == "deadlock" and finding.count == 128 and finding.instruction.startswith("mbarrier.try_wait")
    assert finding.place == "mbarrier in 'buffer', 0 arrivals and 4 bytes short in phase 0"


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
def test_order_of_warps_is_exact(cluster: int, seed: int) -> None:
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
    x = image(b, size, 0, 512, 128, 0)
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
