"""Products of warpgroups: their layouts against NumPy, what they need, and what is told where they lack it."""

import numpy as np
import pytest
import torch
from products import (
    COMMIT,
    REGISTERS,
    SYNC,
    WAIT,
    descriptor,
    fragments,
    image,
    multiply,
    product,
    small_integers,
    spread,
    text,
)
from test_instructions import kinds

from kernels.runtime.emulator import LaunchReport, Memory, UnknownInstruction, execute, parse

DEPTH = 8
PLAIN = (128, 256, 0, 0)  # leading, stride, swizzle, step
ONE_TILE, SIZE = descriptor(0, 128, 256), 4096
LAYOUTS = [  # n, leading, stride, swizzle, step, start
    (8, 128, 256, 0, 0, 0),
    (32, 512, 128, 0, 0, 1024),
    (32, 528, 128, 0, 1, 0),
    (64, 128, 256, 0, 0, 256),
    (32, 0, 1024, 128, 0, 0),
    (32, 0, 1024, 128, 3, 4096),
    (128, 0, 1024, 128, 1, 0),
    (16, 0, 512, 64, 1, 512),
    (16, 0, 512, 64, 0, 0),
    (40, 0, 256, 32, 0, 256),
    (256, 0, 1024, 128, 2, 0),
]


@pytest.mark.parametrize("n, leading, stride, swizzle, step, start", LAYOUTS)
def test_layouts_of_b_and_registers(n: int, leading: int, stride: int, swizzle: int, step: int, start: int) -> None:
    rng = np.random.default_rng(n)
    a, b, size = small_integers(rng, 128, DEPTH), small_integers(rng, n, DEPTH), 49152
    x = image(b, size, start, leading, stride, swizzle, step)
    first = start + step * (2 * leading if swizzle == 0 else 32)
    described = descriptor(first, leading, stride, swizzle)
    out, report = multiply(x, fragments(a), n, described, size, threads=256)
    assert not report.findings
    np.testing.assert_array_equal(out, spread(a @ b.T + 5))
    assert report.counts["inst.wgmma"] == 256


@pytest.mark.parametrize(
    "wait",
    [
        "",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        "wgmma.wait_group.sync.aligned 0; wgmma.commit_group.sync.aligned;",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;",
    ],
)
def test_accumulators_undefined_before_wait_group(wait: str) -> None:
    rng = np.random.default_rng(6)
    a, b = small_integers(rng, 64, DEPTH), small_integers(rng, 32, DEPTH)
    out, _ = multiply(image(b, SIZE, 0, *PLAIN), fragments(a), 32, ONE_TILE, SIZE, wait=wait)
    assert np.isnan(out).all()


@pytest.mark.parametrize("swizzle", [0, 128])
def test_a_from_a_descriptor(swizzle: int) -> None:
    rng = np.random.default_rng(1)
    a, b, half = small_integers(rng, 64, DEPTH), small_integers(rng, 32, DEPTH), 8192
    layout = (1024, 128, swizzle) if swizzle == 0 else (0, 1024, swizzle)
    x = np.concatenate([image(a, half, 0, *layout, 0), image(b, half, 0, *layout, 0)])
    described = (descriptor(start, *layout) for start in (half, 0))
    out, report = multiply(x, np.zeros((128, 4), np.float32), 32, next(described), 2 * half, next(described))
    assert not report.findings
    np.testing.assert_array_equal(out, spread(a @ b.T + 5))


@pytest.mark.parametrize(
    "keep, scales, expected",
    [
        ("%p2", "1, 1", lambda product: product),
        ("!%p1", "1, 1", lambda product: product),
        ("%p1", "-1, 1", lambda product: 5 - product),
        ("%p1", "-1, -1", lambda product: 5 + product),
    ],
)
def test_scales(keep: str, scales: str, expected) -> None:
    rng = np.random.default_rng(2)
    a, b = small_integers(rng, 64, DEPTH), small_integers(rng, 32, DEPTH)
    x = image(b, SIZE, 0, *PLAIN)
    out, _ = multiply(x, fragments(a), 32, ONE_TILE, SIZE, keep=keep, scales=scales)
    np.testing.assert_array_equal(out, spread(expected(a @ b.T)))


def test_low_bits_of_both_operands_are_ignored() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=(rows, DEPTH)).astype(np.float32) for rows in (64, 32))
    x = image(b, SIZE, 0, *PLAIN)
    out, _ = multiply(x, fragments(a), 32, ONE_TILE, SIZE, keep="%p2")
    high_a, high_b = ((value.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for value in (a, b))
    np.testing.assert_array_equal(out, spread((high_a @ high_b.T).astype(np.float32)))
    assert not np.allclose(out, spread(a @ b.T), rtol=0, atol=1e-4)


def hazards(described: int = ONE_TILE, size: int = SIZE, threads: int = 128, **options) -> LaunchReport:
    x = image(small_integers(np.random.default_rng(4), 32, DEPTH), SIZE, 0, *PLAIN)
    return multiply(x, np.zeros((threads, 4), np.float32), 32, described, size, threads=threads, **options)[1]


@pytest.mark.parametrize(
    "sync, expected",
    [
        (SYNC, set()),
        ("bar.sync 0; fence.proxy.async;", set()),
        ("bar.sync 0; fence.proxy.async.shared::cta;", set()),
        ("bar.sync 0;", {"unfenced"}),
        ("bar.sync 0; fence.acq_rel.cta;", {"unfenced"}),
        ("bar.sync 0; fence.proxy.async.global;", {"unfenced"}),
        ("fence.proxy.async;", {"race", "uninitialised"}),
        ("", {"race", "uninitialised", "unfenced"}),
    ],
)
def test_stored_tile_needs_a_barrier_and_a_proxy_fence(sync: str, expected: set[str]) -> None:
    assert {finding.kind for finding in hazards(sync=sync).findings} == expected


def test_a_reader_must_fence_behind_the_barrier() -> None:
    """The second warpgroup stores and fences nothing; the first, which multiplies, fences before it knows of that."""
    early = "setp.ge.u32 %p3, %t, 128; @%p3 bra $skip; fence.proxy.async; $skip: bar.sync 0; @%p3 bra $end;"
    (finding,) = hazards(descriptor(SIZE // 2, 128, 256), threads=256, sync=early).findings
    assert finding.kind == "unfenced" and finding.space == "shared" and finding.place == "buffer"
    assert finding.instruction.startswith("wgmma.mma_async") and finding.other.startswith("st.shared.v4.f32")
    assert finding.count == 4 * 32 * DEPTH  # every element, as each warp reads it, whichever of the warps ran first


@pytest.mark.parametrize(
    "kind, place, changed",
    [
        ("uninitialised", "buffer", {"described": descriptor(SIZE, 128, 256), "size": 2 * SIZE, "copied": SIZE}),
        ("out_of_bounds", "shared", {"described": descriptor(2 * SIZE, 128, 256)}),
        ("divergent_warp", "warpgroup", {"threads": 32}),
    ],
)
def test_defects_of_a_product(kind: str, place: str, changed: dict) -> None:
    assert {(finding.kind, finding.place) for finding in hazards(**changed).findings} == {(kind, place)}


def test_lanes_must_agree_on_a_descriptor() -> None:
    ptx = text(32, ONE_TILE, SIZE).replace("mov.u64 %w6, 0;", "cvt.u64.u32 %w6, %t; add.s64 %w5, %w5, %w6;")
    x = np.zeros(SIZE // 4, np.float32)
    memory = Memory({"x": x, "left": np.zeros((128, 4), np.float32), "out": np.zeros((128, 16), np.float32)})
    (finding,) = execute(parse(ptx), memory, 1, 128, ("x", "left", "out")).findings
    assert (finding.kind, finding.place) == ("divergent_warp", "descriptor")


@pytest.mark.parametrize(
    "kind, old, new, message",
    [
        ("tf32", "f32.tf32.tf32", "f32.tf32.f16", "types"),
        ("tf32", "{%d0, ", "{", "operands"),
        ("tf32", "%r6, %r7}, %w5", "%r6}, %w5", "operands"),
        ("tf32", "%p1, 1, 1;", "%p1, 1, 2;", "scale"),
        ("tf32", "m64n32k8", "m64n32k16", "m64n32k16"),
        ("f16", "%p1, 1, 1, 1;", "%p1, 1, 1;", "transposition"),
        ("f16", "%p1, 1, 1, 1;", "%p1, 1, 1, 0, 1;", "transposition"),
        ("f16", "k16.f32.f16.f16", "k8.f32.f16.f16", "shape"),
        ("f16", "k16.f32.f16.f16", "k16.f32.tf32.tf32", "shape"),
    ],
)
def test_unknown_products_name_themselves(kind: str, old: str, new: str, message: str) -> None:
    ptx = text(32, ONE_TILE, SIZE, kind=kind, scales="1, 1" if kind == "tf32" else "1, 1, 1")
    assert old in ptx
    with pytest.raises(UnknownInstruction, match=rf"wgmma\.mma_async.*{message}"):
        parse(ptx.replace(old, new))


def test_a_base_offset_is_refused() -> None:
    with pytest.raises(UnknownInstruction, match="wgmma: a descriptor's base offset"):
        hazards(described=descriptor(0, 0, 1024, 128, base=1))


# --- of 16-bit numbers --------------------------------------------------------------------------------

COLUMNS, HALVES = 32, 8192  # of the result; bytes of shared memory
LAYOUT = (1024, 512, 64)
TRANSPOSED = {"keep": "%p2", "scales": "1, 1, 1"}


def drawn(kind: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers of a type, and their bits."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[kind]
    x = torch.from_numpy(np.random.default_rng(len(kind)).normal(size=shape)).to(dtype)
    return x.double().numpy(), x.view(torch.int16).numpy().view(np.uint16)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("swizzle", [128, 64, 32])
def test_product_of_registers_and_a_transposed_tile(kind: str, swizzle: int) -> None:
    """V lies as [key][dim]: keys are the terms. Terms 16 .. 31 of 32, in slabs of as many dims as the swizzle holds."""
    (a, a_bits), (v, v_bits) = drawn(kind, 64, 16), drawn(kind, 32, COLUMNS)
    layout = 32 * swizzle, 8 * swizzle, swizzle
    x, described = image(v_bits, HALVES, 1024, *layout), descriptor(1024 + 16 * swizzle, *layout)
    out, report = multiply(x, fragments(a_bits), COLUMNS, described, HALVES, kind=kind, **TRANSPOSED)
    assert not report.findings and report.counts["inst.wgmma"] == 128
    np.testing.assert_allclose(out, spread(a @ v[16:]), rtol=2**-22, atol=2**-22)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_product_of_two_tiles(kind: str) -> None:
    """Q and K lie as [row][dim]: dims 16 .. 31 of 64."""
    (q, q_bits), (k, k_bits) = drawn(kind, 32, 64), drawn(kind, COLUMNS, 64)
    x = np.concatenate([image(bits, 4096, 0, 0, 1024, 128) for bits in (q_bits, k_bits)])
    a, b = descriptor(32, 0, 0, 128), descriptor(4096 + 32, 0, 1024, 128)  # of a stride of 0: the same 8 rows
    how = {"kind": kind, "keep": "%p2", "scales": "1, 1, 0, 0"}
    out, report = multiply(x, np.zeros((128, 4), np.uint32), COLUMNS, b, HALVES, a, **how)
    assert not report.findings
    expected = np.tile(q[:8, 16:32] @ k[:, 16:32].T, (8, 1))
    np.testing.assert_allclose(out, spread(expected), rtol=2**-22, atol=2**-22)


def test_wait_leaves_the_last_groups_under_way() -> None:
    (a, a_bits), (v, v_bits) = drawn("f16", 64, 16), drawn("f16", 16, COLUMNS)
    other = product(COLUMNS, "f16", REGISTERS, totals="e", **TRANSPOSED) + COMMIT
    last = "wgmma.wait_group.sync.aligned 1;"
    behind, before = {"wait": COMMIT + other + last}, {"sync": SYNC + other, "wait": COMMIT + last}
    for order, done in ((behind, True), (before, False)):
        x, how = image(v_bits, HALVES, 0, *LAYOUT), {"kind": "f16", **TRANSPOSED, **order}
        out, _ = multiply(x, fragments(a_bits), COLUMNS, descriptor(0, *LAYOUT), HALVES, **how)
        assert np.isnan(out).all() != done
        assert not done or np.allclose(out, spread(a @ v), atol=1e-5)


@pytest.mark.parametrize("after", [True, False])
def test_tile_may_be_overwritten_when_its_product_has_been_waited_for(after: bool) -> None:
    """The last warp waits for the others at a barrier, and stores to the tile."""
    _, v_bits = drawn("f16", 16, COLUMNS)
    store = "mov.u32 %r8, buffer; bar.sync 0; setp.eq.u32 %p3, %t, 127; @%p3 st.shared.u32 [%r8], 7;"
    x, how = image(v_bits, HALVES, 0, *LAYOUT), {"kind": "f16", **TRANSPOSED}
    how["wait"] = WAIT + store if after else WAIT.replace(COMMIT, COMMIT + store)
    _, report = multiply(x, np.zeros((128, 4), np.uint32), COLUMNS, descriptor(0, *LAYOUT), HALVES, **how)
    assert kinds(report) == (set() if after else {"race"})
