"""Instructions of half-precision kernels on Hopper: products of 16-bit tiles, copies of tensors, registers moved."""

import numpy as np
import pytest
import torch
from test_instructions import kernel, kinds
from test_wgmma import descriptor, spread

from kernels.runtime.emulator import LaunchReport, Memory, UnknownInstruction, execute, parse
from kernels.runtime.emulator.memory.tensors import put_map
from kernels.tensor_map import TensorMap

COLUMNS, DEPTH, SIZE = 32, 16, 8192
FENCE = "fence.proxy.async.shared::cta; bar.sync 0;"
FINISH = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
FILL = """mov.u32 %r20, buffer; mad.lo.u32 %r21, %t, 16, %r20; mul.wide.u32 %w10, %t, 16; add.s64 %w10, %w0, %w10;
  mov.u32 %r22, 0;
$fill: ld.global.v4.f32 {%f32, %f33, %f34, %f35}, [%w10]; st.shared.v4.f32 [%r21], {%f32, %f33, %f34, %f35};
  add.u32 %r21, %r21, 2048; add.s64 %w10, %w10, 2048; add.u32 %r22, %r22, 1; setp.lt.u32 %p7, %r22, 4;
  @%p7 bra $fill; mul.wide.u32 %w10, %t, 16; add.s64 %w10, %w1, %w10;
  ld.global.v4.b32 {%r16, %r17, %r18, %r19}, [%w10]; setp.eq.u32 %p1, 0, 0; setp.ne.u32 %p2, 0, 0;"""
STORE = f"mul.wide.u32 %w10, %t, {2 * COLUMNS}; add.s64 %w10, %w2, %w10;" + "".join(
    f"st.global.f32 [%w10+{4 * i}], %f{i};" for i in range(COLUMNS // 2)
)
TOTALS = "{" + ", ".join(f"%f{i}" for i in range(COLUMNS // 2)) + "}"


def drawn(kind: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers of a type, and their bits."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[kind]
    x = torch.from_numpy(np.random.default_rng(len(kind)).normal(size=shape)).to(dtype)
    return x.double().numpy(), x.view(torch.int16).numpy().view(np.uint16)


def image(tile: np.ndarray, start: int, swizzle: int, leading: int, size: int = SIZE) -> np.ndarray:
    """Shared memory that holds the rows of a tile, NaN elsewhere: as many bytes side by side as the swizzle has."""
    memory = np.full(size // 2, 0x7FFF, np.uint16)
    for row, column in np.ndindex(*tile.shape):
        slab, byte = divmod(2 * column, swizzle)
        address = start + slab * leading + row * swizzle + byte
        memory[(address ^ (address >> 7) % (swizzle // 16) << 4) // 2] = tile[row, column]
    return memory


def fragments(a: np.ndarray) -> np.ndarray:
    """uint32[128, 4]: what each thread of a warpgroup holds of A, `[64, 16]`, by the PTX ISA's figure."""
    thread, part = np.arange(128)[:, None], np.arange(2)
    row, term = 16 * (thread // 32) + thread % 32 // 4, 2 * (thread % 4) + part
    pieces = [a[row, term], a[row + 8, term], a[row, term + 8], a[row + 8, term + 8]]
    return np.ascontiguousarray(np.stack(pieces, axis=1)).view(np.uint32).reshape(128, 4)


def product(kind: str, left: str, b: int, flags: str) -> str:
    shape = f"m64n{COLUMNS}k{DEPTH}.f32.{kind}.{kind}"
    return f"""mov.u64 %w6, {b}; wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.{shape} {TOTALS}, {left}, %w6, %p2, 1, 1, {flags};"""


def multiplied(body: str, x: np.ndarray, left: np.ndarray, **options) -> tuple[np.ndarray, LaunchReport]:
    out = np.full((128, COLUMNS // 2), np.nan, np.float32)
    memory = Memory({"x": x, "left": left, "out": out}, unwritten={"out"})
    text = kernel(FILL + body + STORE, "x left out", SIZE).replace(".align 16", ".align 1024")
    report = execute(parse(text, "test"), memory, 1, 128, ("x", "left", "out"), **options)
    return memory["out"], report


REGISTERS = "{%r16, %r17, %r18, %r19}"
TILE = descriptor(0, 1024, 512, 64)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("swizzle", [128, 64, 32])
def test_product_of_registers_and_a_transposed_tile(kind: str, swizzle: int) -> None:
    """V lies as [key][dim]: keys are the terms. Terms 16 .. 31 of 32, in slabs of as many dims as the swizzle holds."""
    (a, a_bits), (v, v_bits) = drawn(kind, 64, DEPTH), drawn(kind, 2 * DEPTH, COLUMNS)
    leading = 2 * DEPTH * swizzle
    start = 1024 + DEPTH * swizzle
    body = product(kind, REGISTERS, descriptor(start, leading, 8 * swizzle, swizzle), "1") + FINISH
    out, report = multiplied(FENCE + body, image(v_bits, 1024, swizzle, leading), fragments(a_bits))
    assert not report.findings and report.counts["inst.wgmma"] == 128
    np.testing.assert_allclose(out, spread(a @ v[DEPTH:]), rtol=2**-22, atol=2**-22)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_product_of_two_tiles(kind: str) -> None:
    """Q and K lie as [row][dim]: dims 16 .. 31 of 64."""
    (q, q_bits), (k, k_bits) = drawn(kind, 32, 64), drawn(kind, COLUMNS, 64)
    x = np.concatenate([image(q_bits, 0, 128, 0, 4096), image(k_bits, 0, 128, 0, 4096)])
    body = f"mov.u64 %w5, {descriptor(32, 0, 0, 128)};"  # a stride of 0: the same 8 rows over and over
    body += product(kind, "%w5", descriptor(4096 + 32, 0, 1024, 128), "0, 0") + FINISH
    out, report = multiplied(FENCE + body, x, np.zeros((128, 4), np.uint32))
    assert not report.findings
    expected = np.tile(q[:8, 16:32] @ k[:, 16:32].T, (8, 1))
    np.testing.assert_allclose(out, spread(expected), rtol=2**-22, atol=2**-22)


def test_wait_leaves_the_last_groups_under_way() -> None:
    (a, a_bits), (v, v_bits) = drawn("f16", 64, DEPTH), drawn("f16", DEPTH, COLUMNS)
    one = product("f16", REGISTERS, TILE, "1") + "wgmma.commit_group.sync.aligned;"
    other = one.replace(TOTALS, "{" + ", ".join(f"%f{16 + i}" for i in range(16)) + "}")
    for body, done in ((one + other, True), (other + one, False)):
        body = FENCE + body + "wgmma.wait_group.sync.aligned 1;"
        out, _ = multiplied(body, image(v_bits, 0, 64, 1024), fragments(a_bits))
        assert np.isnan(out).all() != done
        assert not done or np.allclose(out, spread(a @ v), atol=1e-5)


@pytest.mark.parametrize("after", [True, False])
def test_tile_may_be_overwritten_when_its_product_has_been_waited_for(after: bool) -> None:
    """Warp 4 waits for the others at a barrier, and stores to the tile."""
    _, v_bits = drawn("f16", DEPTH, COLUMNS)
    start = product("f16", REGISTERS, TILE, "1") + "wgmma.commit_group.sync.aligned;"
    wait = "wgmma.wait_group.sync.aligned 0;"
    store = "bar.sync 0; setp.eq.u32 %p3, %t, 127; @%p3 st.shared.u32 [%r20], 7;"
    body = start + (wait + store if after else store + wait)
    _, report = multiplied(FENCE + body, image(v_bits, 0, 64, 1024), np.zeros((128, 4), np.uint32))
    assert kinds(report) == (set() if after else {"race"})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%p2, 1, 1, 1", "%p2, 1, 1", "transposition"),
        ("%p2, 1, 1, 1", "%p2, 1, 1, 0, 1", "transposition"),
        ("k16.f32.f16.f16", "k8.f32.f16.f16", "shape"),
        ("k16.f32.f16.f16", "k16.f32.tf32.tf32", "shape"),
    ],
)
def test_unknown_products_name_themselves(old: str, new: str, message: str) -> None:
    body = product("f16", REGISTERS, TILE, "1").replace(old, new)
    with pytest.raises(UnknownInstruction, match=rf"wgmma\.mma_async.*{message}"):
        parse(kernel(FILL + body, "x left out", SIZE))


# --- copies of tensors --------------------------------------------------------------------------------

MAP = TensorMap("x", sizes=(96, 5, 3), strides=(224, 1120), box=(64, 8, 1))  # rows of 112 elements, 5 of 2 x 3 heads
BOX = MAP.box_bytes
INIT = """mov.u32 %r0, made; mov.u32 %r1, buffer; setp.eq.u32 %p0, %t, 0; setp.eq.u32 %p1, %t, 64;
  @%p0 mbarrier.init.shared::cta.b64 [%r0], 1; bar.sync 0;"""
OPEN = "@%p0 fence.proxy.tensormap::generic.acquire.gpu [%w1], 128;"
EXPECT = f"@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], {BOX};"
COPY = """@%p0 cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes
  [%r1], [%w1, {%r2, %r3, %r4}], [%r0];"""
WAIT = "$wait: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r0], 0; @!%p2 bra $wait;"
READ = """mad.lo.u32 %r5, %t, 8, %r1; ld.shared.v2.u32 {%r6, %r7}, [%r5]; mul.wide.u32 %w4, %t, 8;
  add.s64 %w5, %w2, %w4; st.global.v2.u32 [%w5], {%r6, %r7};"""


def copied(body: str, place: tuple[int, int, int] = (0, 0, 0), of: TensorMap = MAP) -> tuple[np.ndarray, LaunchReport]:
    """128 threads of which the first copies a box of `x`, and each stores 8 of its bytes."""
    x = np.arange(3 * 5 * 112, dtype=np.uint16)
    memory = Memory({"x": x, "map": np.zeros(128, np.uint8), "out": np.zeros(512, np.uint16)})
    put_map(memory, "map", of)
    set_up = "".join(f"mov.u32 %r{2 + i}, {value};" for i, value in enumerate(place))
    text = kernel(".shared .align 8 .b8 made[8];" + INIT + set_up + body, "x map out", BOX)
    text = text.replace(f".align 16 .b8 buffer[{BOX}]", f".align 1024 .b8 buffer[{BOX}]")
    report = execute(parse(text, "test"), memory, 1, 128, ("x", "map", "out"))
    return memory["out"].reshape(8, 64), report


@pytest.mark.parametrize("place", [(0, 0, 0), (64, 0, 2), (32, 2, 1), (-16, -3, 1), (0, 0, 3), (96, 0, 0)])
def test_box_with_zeros_where_the_tensor_ends(place: tuple[int, int, int]) -> None:
    out, report = copied(OPEN + EXPECT + COPY + WAIT + READ, place)
    tensor = np.zeros((8, 32, 256), np.uint16)  # zeros all around
    tensor[2:5, 8:13, 64:160] = np.arange(3 * 5 * 112, dtype=np.uint16).reshape(3, 5, 112)[:, :, :96]
    box = tensor[2 + place[2], 8 + place[1] : 16 + place[1], 64 + place[0] : 128 + place[0]]
    expected = np.stack([line.reshape(8, 8)[np.arange(8) ^ row].ravel() for row, line in enumerate(box)])
    assert not report.findings and report.counts["inst.cp_bulk"] == 1
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (EXPECT + COPY + WAIT + READ, {"unfenced"}),  # the map may be an old one
        (OPEN + EXPECT + COPY + "bar.sync 0;" + READ, {"race"}),
        (OPEN + EXPECT.replace(f"{BOX};", f"{BOX + 16};") + COPY + WAIT + READ, {"deadlock"}),
        (OPEN + "@%p0 st.shared.u32 [%r1], 0;" + EXPECT + COPY + WAIT + READ, {"unfenced"}),
        (OPEN + "@%p0 st.shared.u32 [%r1], 0; fence.proxy.async;" + EXPECT + COPY + WAIT + READ, set()),
        (OPEN + EXPECT + COPY + "@%p1 st.shared.u32 [%r1], 0;" + WAIT + READ, {"race", "unfenced"}),
        (OPEN + EXPECT + COPY.replace("[%r1]", "[%r1+16]") + WAIT, {"misaligned"}),
        (OPEN.replace("%w1", "%w2") + EXPECT + COPY.replace("%w1", "%w2") + WAIT, {"uninitialised"}),
    ],
)
def test_bulk_copy_misused_is_found(body: str, expected: set[str]) -> None:
    assert kinds(copied(body)[1]) == expected


def test_products_read_what_was_copied_without_a_fence() -> None:
    (a, a_bits), (v, v_bits) = drawn("bf16", 64, DEPTH), drawn("bf16", DEPTH, 64)
    of = TensorMap("x", sizes=(64, DEPTH), strides=(128,), box=(64, DEPTH))
    copy = COPY.replace(".3d", ".2d").replace("%r2, %r3, %r4", "%r2, %r2").replace("%w1", "%w3")
    body = ".shared .align 8 .b8 made[8];" + INIT + "mov.u32 %r2, 0;" + OPEN.replace("%w1", "%w3")
    body += EXPECT.replace(f"{BOX};", f"{of.box_bytes};") + copy + WAIT + FILL.partition("@%p7 bra $fill;")[2]
    body += product("bf16", REGISTERS, descriptor(0, 0, 1024, 128), "1") + FINISH + STORE
    out = np.zeros((128, COLUMNS // 2), np.float32)
    memory = Memory({"x": v_bits, "left": fragments(a_bits), "out": out, "map": np.zeros(128, np.uint8)})
    put_map(memory, "map", of)
    text = kernel(body, "x left out map", SIZE).replace(".align 16", ".align 1024")
    report = execute(parse(text, "test"), memory, 1, 128, ("x", "left", "out", "map"))
    assert not report.findings
    np.testing.assert_allclose(memory["out"], spread(a @ v[:, :COLUMNS]), rtol=2**-22, atol=2**-22)


@pytest.mark.parametrize(
    "changed", [{"strides": (120, 1120)}, {"box": (48, 8, 1)}, {"box": (64, 512, 1)}, {"strides": (224,)}]
)
def test_maps_that_no_copy_takes_are_refused(changed: dict) -> None:
    given = {"sizes": (96, 5, 3), "strides": (224, 1120), "box": (64, 8, 1)} | changed
    with pytest.raises(ValueError):
        TensorMap("x", **given)


# --- registers ----------------------------------------------------------------------------------------


def moved(*counts: str, threads: int = 384) -> LaunchReport:
    """Three warpgroups that change their registers; 384 threads start with 168 each."""
    body = "".join(
        f"setp.ge.u32 %p0, %t, {128 * i}; setp.lt.and.u32 %p1, %t, {128 * i + 128}, %p0; @!%p1 bra $next{i};"
        f"setmaxnreg.{count.replace(' ', '.sync.aligned.u32 ')}; $next{i}:"
        for i, count in enumerate(counts)
    )
    text = kernel(body).replace(") {", f")\n.maxntid {threads}, 1, 1\n.minnctapersm 1\n{{", 1)
    return execute(parse(text, "test"), Memory({"out": np.zeros(1)}), 2, threads, ("out",))


@pytest.mark.parametrize(
    ("counts", "place"),
    [
        (("dec 24", "inc 240", "inc 240"), ""),
        (("dec 96", "inc 208", "inc 208"), "96 + 208 + 208 registers a thread where 168 each are"),
        (("dec 24", "inc 240", "dec 240"), "168 registers a thread before"),
    ],
)
def test_registers_may_be_moved_between_warpgroups_where_a_block_has_them(counts: tuple[str, ...], place: str) -> None:
    report = moved(*counts)
    assert kinds(report) == ({"registers"} if place else set())
    assert not place or place in {finding.place for finding in report.findings}


@pytest.mark.parametrize("count", ["inc 100", "inc 264", "dec 16"])
def test_counts_of_registers_that_do_not_exist_are_refused(count: str) -> None:
    with pytest.raises(UnknownInstruction, match="count"):
        moved(count)
