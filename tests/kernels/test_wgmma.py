"""Products of warpgroups: their layouts against NumPy, what they need and get told when it lacks, and their kernel."""

import numpy as np
import pytest
import torch

from kernels import VERSIONS, Problem, Unsupported, version
from kernels.checking.reference import reference_of
from kernels.device.wgmma import Product, batch
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.flash.cluster.wgmma.core import Shape, attend
from kernels.runtime import compile
from kernels.runtime.compile import CompileError, assemble, blocks_per_sm, compile_ptx, resources
from kernels.runtime.emulator import LaunchReport, Memory, UnknownInstruction, execute, parse, run
from kernels.version import Kernel
from tests.kernels.cluster.plans import plan_of, tried

DEPTH = 8
MODES = {0: 0, 128: 1, 64: 2, 32: 3}


def descriptor(start: int, leading: int, stride: int, swizzle: int = 0, base: int = 0) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | MODES[swizzle] << 62


def byte_of(row: int, term: int, leading: int, stride: int, swizzle: int, step: int) -> int:
    """Where an element of a K-major tile lies, from the layouts of the PTX ISA; `step` counts 8 terms in a row."""
    piece, inside = divmod(DEPTH * step + term, 4)
    if swizzle == 0:
        return row // 8 * stride + row % 8 * 16 + piece * leading + 4 * inside
    exchanged = piece ^ row * swizzle // 128 % (swizzle // 16)
    return row // 8 * stride + row % 8 * swizzle + 16 * exchanged + 4 * inside


def image(tile: np.ndarray, size: int, start: int, *layout: int) -> np.ndarray:
    """Shared memory that holds a tile, NaN elsewhere."""
    memory = np.full(size // 4, np.nan, np.float32)
    for row, term in np.ndindex(*tile.shape):
        memory[(start + byte_of(row, term, *layout)) // 4] = tile[row, term]
    return memory


COPY = """mov.u32 %r1, buffer; mad.lo.u32 %r1, %t, 16, %r1; mul.wide.u32 %w2, %t, 16; add.s64 %w2, %w0, %w2;
  mov.u32 %r2, 0;
$copy: ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%w2]; st.shared.v4.f32 [%r1], {%f0, %f1, %f2, %f3};
  add.u32 %r1, %r1, %step; add.s64 %w2, %w2, %step; add.u32 %r2, %r2, %step; setp.lt.u32 %p0, %r2, %size;
  @%p0 bra $copy;"""
SYNC = "fence.proxy.async.shared::cta; bar.sync 0;"


WAIT = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def text(
    n: int,
    b: int,
    size: int,
    a: int | None = None,
    sync: str = SYNC,
    keep: str = "%p1",
    scales: str = "1, 1",
    threads: int = 128,
    copied: int | None = None,
    wait: str = WAIT,
) -> str:
    """PTX that copies `x`, or its first bytes, to shared memory, multiplies A, of a descriptor or `left`, with B."""
    totals = ", ".join(f"%d{i}" for i in range(n // 2))
    left = "%w6" if a is not None else "{%r4, %r5, %r6, %r7}"
    copy = COPY.replace("%step", str(16 * threads)).replace("%size", str(copied or size))
    return f"""
.visible .entry test(.param .u64 p_x, .param .u64 p_left, .param .u64 p_out) {{
  .reg .pred %p<4>; .reg .b32 %r<16>, %t; .reg .b64 %w<16>; .reg .f32 %f<4>, %d<{n // 2}>;
  .shared .align 1024 .b8 buffer[{size}];
  mov.u32 %t, %tid.x; ld.param.u64 %w0, [p_x]; ld.param.u64 %w1, [p_left]; ld.param.u64 %w7, [p_out];
  {copy}
  mul.wide.u32 %w3, %t, 16; add.s64 %w3, %w1, %w3; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%w3];
  {"".join(f"mov.f32 %d{i}, 0f40A00000; " for i in range(n // 2))}
  {sync}
  setp.eq.u32 %p1, 0, 0; setp.ne.u32 %p2, 0, 0; mov.u64 %w5, {b}; mov.u64 %w6, {a or 0};
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n{n}k8.f32.tf32.tf32 {{{totals}}}, {left}, %w5, {keep}, {scales};
  {wait}
  mul.wide.u32 %w8, %t, {2 * n}; add.s64 %w9, %w7, %w8;
  {" ".join(f"st.global.f32 [%w9+{4 * i}], %d{i};" for i in range(n // 2))}
  $end: ret;
}}"""


def fragments(a: np.ndarray) -> np.ndarray:
    """float32[threads, 4]: what each thread of the warpgroups holds of A, `[64 warpgroups, 8]`."""
    thread = np.arange(2 * len(a))
    row, term = 16 * (thread // 32) + thread % 32 // 4, thread % 4
    return np.stack([a[row, term], a[row + 8, term], a[row, term + 4], a[row + 8, term + 4]], axis=1)


def spread(d: np.ndarray) -> np.ndarray:
    """float32[threads, n / 2]: what each thread holds of D, `[64 warpgroups, n]`."""
    thread, i = np.arange(2 * len(d))[:, None], np.arange(d.shape[1] // 2)[None]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
    return d[row, 8 * (i // 4) + 2 * (thread % 4) + i % 2]


def small_integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-8, 8, shape).astype(np.float32)


def multiply(x: np.ndarray, left: np.ndarray, n: int, *args, threads: int = 128, **options) -> tuple:
    out = np.full((threads, n // 2), np.nan, np.float32)
    memory = Memory({"x": x, "left": left, "out": out}, unwritten={"out"})
    ptx = text(n, *args, threads=threads, **options)
    report = execute(parse(ptx), memory, 1, threads, ("x", "left", "out"))
    return memory["out"], report


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


PLAIN = (128, 256, 0, 0)  # leading, stride, swizzle, step
ONE_TILE, SIZE = descriptor(0, 128, 256), 4096


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
    "old, new, message",
    [
        ("f32.tf32.tf32", "f32.tf32.f16", "types"),
        ("{%d0, ", "{", "operands"),
        ("%r6, %r7}, %w5", "%r6}, %w5", "operands"),
        ("1, 1;\n  wgmma.commit", "1, 2;\n  wgmma.commit", "scale"),
        ("m64n32k8", "m64n32k16", "m64n32k16"),
    ],
)
def test_unknown_products_name_themselves(old: str, new: str, message: str) -> None:
    ptx = text(32, ONE_TILE, SIZE)
    assert old in ptx
    with pytest.raises(UnknownInstruction, match=rf"wgmma\.mma_async.*{message}"):
        parse(ptx.replace(old, new))


def test_a_base_offset_is_refused() -> None:
    with pytest.raises(UnknownInstruction, match="wgmma: a descriptor's base offset"):
        hazards(described=descriptor(0, 0, 1024, 128, base=1))


# --- the kernel -------------------------------------------------------------------------------------


def serialised(kernel: Kernel) -> bool:
    return "serialized" in assemble(compile_ptx(kernel), "sm_90")[1]


def test_a_kernel_of_one_architecture_is_compiled_for_no_other() -> None:
    (launch,) = plan_of(wgmma, *QUICK).launches
    ptx = compile_ptx(launch.kernel, "sm_90")
    assert ".target sm_90a" in ptx and compile_ptx(launch.kernel, "sm_90a") == ptx
    assert resources(launch.kernel, "sm_90").spill_bytes == 0 and blocks_per_sm(launch, "sm_90") >= 1
    for target in ("sm_89", "sm_100"):
        with pytest.raises(CompileError, match=rf"uses instructions of sm_90a alone; {target} has"):
            compile_ptx(launch.kernel, target)
        with pytest.raises(CompileError, match=f"sm_90a alone; {target} has"):
            assemble(ptx, target)


def test_batch_refuses_what_the_instruction_lacks() -> None:
    with pytest.raises(ValueError, match="n is 12; it must be a multiple of 8 up to 256"):
        batch(12, [Product(0, 0, 0)])


CASES = [
    (Problem("rope", seq_q=70, hdim=96, rotary_dim=32, causal=True), Shape(2, 32, 64, 1)),
    (Problem("rope", seq_q=37, seq_k=130, hdim=256, rotary_dim=128, causal=True), Shape(2, 24, 128, 2)),
    (Problem("rope", heads=2, kv_heads=1, seq_q=9, seq_k=150, hdim=260, rotary_dim=198), Shape(3, 8, 128, 1)),
    (Problem("sinusoidal", seq_q=33, hdim=200), Shape(1, 16, 256, 1)),
    (Problem("attention", seq_q=40, hdim=132), Shape(1, 24, 192, 2)),
    (Problem("attention", seq_q=20, seq_k=70, hdim=188), Shape(1, 16, 192, 1)),
    (Problem("rope", seq_q=8, seq_k=70, hdim=700, rotary_dim=100), Shape(11, 8, 64, 1)),
    (Problem("rope", seq_q=20, seq_k=70, hdim=60, rotary_dim=60), Shape(1, 16, 64, 4)),
    # Keys in parts, of which the first queries see one alone; parts of two tiles; streamed parts.
    (Problem("rope", seq_q=70, seq_k=300, hdim=96, rotary_dim=32, causal=True), Shape(2, 32, 64, 1, splits=True)),
    (
        Problem("rope", heads=4, kv_heads=2, seq_q=40, seq_k=130, hdim=128, rotary_dim=70),
        Shape(1, 16, 128, 2, splits=True),
    ),
    (Problem("sinusoidal", seq_q=20, seq_k=165, hdim=300), Shape(2, 8, 64, 1, 2, streams=True, splits=True)),
    (Problem("rope", seq_q=40, seq_k=50, hdim=292, rotary_dim=292), Shape(1, 32, 64, 2, 2, streams=True)),
    (
        Problem("rope", heads=2, kv_heads=1, seq_q=13, seq_k=33, hdim=520, rotary_dim=36, causal=True, q_offset=20),
        Shape(2, 16, 128, 2, 2, streams=True),
    ),
    (Problem("attention", seq_q=64, hdim=60), Shape(1, 64, 128, 2, streams=True)),  # one chunk
]


QUICK = CASES[2]  # a cluster of blocks, grouped heads that no tile divides
PARAMS = [pytest.param(*case, marks=() if case == QUICK else pytest.mark.deep) for case in CASES]


@pytest.mark.parametrize("problem, shape", PARAMS, ids=str)
def test_attention(problem: Problem, shape: Shape) -> None:
    """Within twice the error of float32 attention, with nothing found, whatever the order of the warps."""
    plan = plan_of(wgmma, problem, shape)
    for verdict, findings in tried(plan):
        assert verdict.status == "ok" and verdict.max_abs_err <= verdict.allowed_abs_err / 2
        assert not findings
    assert not serialised(plan.launches[0].kernel)


@pytest.mark.deep
def test_launch_before_embeds_keys_once() -> None:
    problem = Problem("rope", heads=4, kv_heads=2, seq_q=40, seq_k=130, hdim=128, rotary_dim=70)
    case, moved = reference_of(problem, "uniform"), 2 * 130 * 128 * 4 // 32
    report = run(VERSIONS["rope_hybrid_v8"](problem, "sm_90"), case.inputs)
    assert case.compare(torch.from_numpy(report.out)).status == "ok" and not report.findings
    first, second, *_ = (each.counts for each in report.launches)
    assert first["global.read.sectors.k"] == first["global.write.sectors.k_embedded"] == moved
    assert "global.read.sectors.k" not in second


def test_attention_needs_both_its_proxy_fences() -> None:
    problem, shape = CASES[2]
    plan, case = plan_of(wgmma, problem, shape), reference_of(problem, "uniform")
    fence = "fence.proxy.async.shared::cta;"

    def places_without(which: int) -> set[tuple[str, str]]:
        def ptx_of(kernel: Kernel) -> str:
            parts = compile_ptx(kernel).split(fence)
            assert len(parts) == 3
            return parts[0] + ("" if which == 0 else fence) + parts[1] + ("" if which == 1 else fence) + parts[2]

        return {(finding.kind, finding.place) for finding in run(plan, case.inputs, ptx_of=ptx_of).findings}

    assert places_without(0) == {("unfenced", "query")}
    assert places_without(1) == {("unfenced", "weights")}


@pytest.mark.parametrize(
    "problem, shape, message",
    [
        (Problem("attention", hdim=200), Shape(1, 8, 128, 1), "hdim is 200; a cluster of this shape holds 128 dims"),
        (Problem("attention", hdim=256), Shape(1, 64, 256, 2), "needs .* B of shared memory"),
        (
            Problem("attention", 1, 2, seq_q=1, seq_k=2**25, hdim=128),
            None,
            "a stride is 4,294,967,296 elements; the kernels take 4,294,967,295",
        ),
    ],
)
def test_problems_that_do_not_fit_are_refused(problem: Problem, shape: Shape | None, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        attend(problem, shape=shape)


def test_a_card_without_clusters_or_wgmma_refuses_before_it_compiles() -> None:
    few, many = Problem("rope", heads=4, hdim=512, rotary_dim=128), Problem("rope", 8, 16, hdim=128, rotary_dim=64)
    (clustered,), (alone,) = (version("rope_v8")(problem).launches for problem in (few, many))
    assert clustered.cluster > 1 and alone.cluster == 1
    with pytest.raises(Unsupported, match=r"clusters of 8 blocks need compute capability 9\.0, this GPU has sm_89"):
        compile.require_target(clustered, "sm_89")
    for target in ("sm_89", "sm_120"):
        with pytest.raises(Unsupported, match=f"uses instructions of sm_90a alone, this GPU has {target}"):
            compile.require_target(alone, target)
    compile.require_target(alone, "sm_90")
