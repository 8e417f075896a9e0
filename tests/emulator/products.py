"""Products of warpgroups in PTX: their operands as NumPy arrays lie in shared memory and in registers."""

import numpy as np

from kernels.runtime.emulator import LaunchReport, Memory, execute, parse

MODES = {0: 0, 128: 1, 64: 2, 32: 3}
SHAPES = {"tf32": "k8.f32.tf32.tf32", "f16": "k16.f32.f16.f16", "bf16": "k16.f32.bf16.bf16"}


def descriptor(start: int, leading: int, stride: int, swizzle: int = 0, base: int = 0) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49 | MODES[swizzle] << 62


def byte_of(row: int, byte: int, leading: int, stride: int, swizzle: int) -> int:
    """Where a byte of a row of a tile lies, from the layouts of the PTX ISA."""
    if swizzle == 0:
        return row // 8 * stride + row % 8 * 16 + byte // 16 * leading + byte % 16
    slab, byte = divmod(byte, swizzle)
    exchanged = byte // 16 ^ row * swizzle // 128 % (swizzle // 16)
    return slab * leading + row // 8 * stride + row % 8 * swizzle + 16 * exchanged + byte % 16


def image(
    tile: np.ndarray, size: int, start: int, leading: int, stride: int, swizzle: int, step: int = 0
) -> np.ndarray:
    """Shared memory that holds a tile, NaN elsewhere; `step` counts 32 bytes in a row."""
    memory = np.full(size // 4, 0x7FFF7FFF, np.uint32).view(tile.dtype)
    for row, term in np.ndindex(*tile.shape):
        place = start + byte_of(row, 32 * step + term * tile.itemsize, leading, stride, swizzle)
        memory[place // tile.itemsize] = tile[row, term]
    return memory


COPY = """mov.u32 %r1, buffer; mad.lo.u32 %r1, %t, 16, %r1; mul.wide.u32 %w2, %t, 16; add.s64 %w2, %w0, %w2;
  mov.u32 %r2, 0;
$copy: ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%w2]; st.shared.v4.f32 [%r1], {%f0, %f1, %f2, %f3};
  add.u32 %r1, %r1, %step; add.s64 %w2, %w2, %step; add.u32 %r2, %r2, %step; setp.lt.u32 %p0, %r2, %size;
  @%p0 bra $copy;"""
SYNC = "fence.proxy.async.shared::cta; bar.sync 0;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = COMMIT + "wgmma.wait_group.sync.aligned 0;"
REGISTERS = "{%r4, %r5, %r6, %r7}"


def product(n: int, kind: str, left: str, keep: str = "%p1", scales: str = "1, 1", totals: str = "d") -> str:
    """The product of `left` with the tile of %w5; `scales` are followed by what is transposed."""
    registers = ", ".join(f"%{totals}{i}" for i in range(n // 2))
    return f"wgmma.mma_async.sync.aligned.m64n{n}{SHAPES[kind]} {{{registers}}}, {left}, %w5, {keep}, {scales};"


def text(
    n: int,
    b: int,
    size: int,
    a: int | None = None,
    kind: str = "tf32",
    sync: str = SYNC,
    threads: int = 128,
    copied: int | None = None,
    copy: str = COPY,
    wait: str = WAIT,
    **how: str,
) -> str:
    """PTX that copies `x`, or its first bytes, to shared memory, multiplies A, of a descriptor or `left`, with B."""
    copy = copy.replace("%step", str(16 * threads)).replace("%size", str(copied or size))
    return f"""
.visible .entry test(.param .u64 p_x, .param .u64 p_left, .param .u64 p_out) {{
  .reg .pred %p<4>; .reg .b32 %r<16>, %t; .reg .b64 %w<16>; .reg .f32 %f<4>, %d<{n // 2}>, %e<{n // 2}>;
  .shared .align 1024 .b8 buffer[{size}];
  mov.u32 %t, %tid.x; ld.param.u64 %w0, [p_x]; ld.param.u64 %w1, [p_left]; ld.param.u64 %w7, [p_out];
  {copy}
  mul.wide.u32 %w3, %t, 16; add.s64 %w3, %w1, %w3; ld.global.v4.b32 {REGISTERS}, [%w3];
  {"".join(f"mov.f32 %d{i}, 0f40A00000; " for i in range(n // 2))}
  setp.eq.u32 %p1, 0, 0; setp.ne.u32 %p2, 0, 0; mov.u64 %w5, {b}; mov.u64 %w6, {a or 0};
  {sync}
  wgmma.fence.sync.aligned;
  {product(n, kind, REGISTERS if a is None else "%w6", **how)}
  {wait}
  mul.wide.u32 %w8, %t, {2 * n}; add.s64 %w9, %w7, %w8;
  {" ".join(f"st.global.f32 [%w9+{4 * i}], %d{i};" for i in range(n // 2))}
  $end: ret;
}}"""


def fragments(a: np.ndarray) -> np.ndarray:
    """32 bits `[threads, 4]`: what each thread of the warpgroups holds of A, `[64 warpgroups, 32 bytes]`."""
    words = a if a.itemsize == 4 else np.ascontiguousarray(a).view(np.uint32)
    thread = np.arange(2 * len(a))
    row, word = 16 * (thread // 32) + thread % 32 // 4, thread % 4
    return np.stack([words[row, word], words[row + 8, word], words[row, word + 4], words[row + 8, word + 4]], axis=1)


def spread(d: np.ndarray) -> np.ndarray:
    """float32[threads, n / 2]: what each thread holds of D, `[64 warpgroups, n]`."""
    thread, i = np.arange(2 * len(d))[:, None], np.arange(d.shape[1] // 2)[None]
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
    return d[row, 8 * (i // 4) + 2 * (thread % 4) + i % 2]


def small_integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-8, 8, shape).astype(np.float32)


def multiply(
    x: np.ndarray, left: np.ndarray, n: int, *args, threads: int = 128, **options
) -> tuple[np.ndarray, LaunchReport]:
    out = np.full((threads, n // 2), np.nan, np.float32)
    memory = Memory({"x": x, "left": left, "out": out}, unwritten={"out"})
    ptx = text(n, *args, threads=threads, **options)
    report = execute(parse(ptx), memory, 1, threads, ("x", "left", "out"))
    return memory["out"], report
