"""Copies of tensors to shared memory, and registers that warpgroups move, as half-precision kernels on Hopper do."""

import numpy as np
import pytest
from products import descriptor, fragments, spread, text
from test_instructions import kernel, kinds
from test_products import COLUMNS, HALVES, TRANSPOSED, drawn

from kernels.runtime.emulator import LaunchReport, Memory, UnknownInstruction, execute, parse
from kernels.runtime.emulator.memory.tensors import put_map
from kernels.tensor_map import TensorMap

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
    (a, a_bits), (v, v_bits) = drawn("bf16", 64, 16), drawn("bf16", 16, 64)
    of = TensorMap("x", sizes=(64, 16), strides=(128,), box=(64, 16))
    copy = OPEN + EXPECT.replace(f"{BOX};", f"{of.box_bytes};") + COPY.replace(".3d", ".2d")
    copy = copy.replace("%r2, %r3, %r4", "%r2, %r2").replace("%w1", "%w0")
    copy = ".shared .align 8 .b8 made[8];" + INIT + "mov.u32 %r2, 0;" + copy + WAIT
    ptx = text(COLUMNS, descriptor(0, 0, 1024, 128), HALVES, kind="bf16", sync="", copy=copy, **TRANSPOSED)
    out = np.zeros((128, COLUMNS // 2), np.float32)
    memory = Memory({"x": v_bits, "left": fragments(a_bits), "out": out, "map": np.zeros(128, np.uint8)})
    put_map(memory, "map", of)
    report = execute(parse(ptx, "test"), memory, 1, 128, ("map", "left", "out"))
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
