"""Float32 rows as two float16 parts each, for tensor cores: the launch before `float32`.

A block takes a tile of rows of one head of Q, K or V, rotates Q and K, and multiplies the tile by the power of two that
brings its largest element to 2^14 .. 2^15. Each element becomes `high + low`, two float16: 22 bits or more,
and 2^-40 of the largest element where that is more. So the tile needs values that are not far apart: among four
neighbours in a row, and among a thread's rows of each dim, the largest is 0 or at least 2^-17 of the tile's largest.
Any other tile, one with NaN or infinities, or with values beyond 2^60, is kept as float32 and has an infinite scale;
so is one of Q or K beyond 2^9, as 22 bits of large scores show in their weights.

Parts: a row has all high parts and then all low parts, in the bytes of its float32 row of `dims` elements.
"""

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, types, uint32, uint64

from ...constants import FLOATS
from ...device.cint import cint
from ...device.vector import advance
from ...version import Kernel
from ..args import types_of
from ..dtype import DTYPES, HALF
from ..embed import begin, cos_sins, pairs_of, rotate
from ..loads import columns, load_rows
from ..schedule import ROW_STEPS
from ..shapes import SPLIT_THREADS, Prompt32Shape
from ..tiles import FLOAT, I32, f32, floats, i32, launch_dependents, register_op, zero_words

SPLIT_WARPS = SPLIT_THREADS // 32
TOP = 14  # exponent of the largest element of a scaled tile
LEAST, MOST, MOST_SCORED = 127 - 60, 127 + 60, 127 + 8  # biased exponents of the largest element, the last of Q or K
UNSPLIT = float32(np.inf)  # the scale of a tile that is kept as it is
SPREAD = 2.0**-3  # of neighbours in a scaled tile: 2^-25, the step of float16 near 0, is 2^-22 of that


def tile_count(shape: Prompt32Shape, seq_q: int, seq_k: int) -> int:
    """Blocks of a head; those after its last row do nothing."""
    return -(-max(seq_q, seq_k) // shape.tile_keys)


def split_parts(b: Any, values: Any) -> tuple[list[Any], list[Any]]:
    """float32 as words of high parts, and words of low parts."""
    high = HALF.words(b, values)
    rest = [x - y for x, y in zip(values, HALF.floats(b, high))]
    return high, HALF.words(b, rest)


def _greater(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.icmp_unsigned(">", x, y), x, y)


def _magnitudes(b: Any, x: Any) -> list[Any]:
    """Bits without the sign, which order as the magnitudes do; NaN is above infinity."""
    return [word & 0x7FFFFFFF for word in b.as_words(x)]


def _tops(b: Any, rows: list[list[Any]]) -> list[Any]:
    return [functools.reduce(lambda x, y: _greater(b, x, y), row) for row in rows]


@register_op(types.uint32)
def largest(b, x):
    """The bits of the greatest magnitude."""
    (top,) = _tops(b, [_magnitudes(b, x)])
    return top


@register_op(types.uint32)
def warp_largest(b, bits):
    return b.ptx("redux.sync.max.u32 $0, $1, -1;", "=r,r", I32, [bits])


@register_op(types.uint32)
def spreads(b, x, factor):
    """1 where the largest of some neighbours is neither 0 nor large enough for parts, else 0."""
    rows = [_magnitudes(b, [value * factor for value in x[4 * i : 4 * i + 4]]) for i in range(ROW_STEPS)]
    tops = _tops(b, rows) + _tops(b, [list(column) for column in zip(*rows)])
    least = b.bitcast(f32(SPREAD), I32)
    small = (b.icmp_unsigned("<", top, least) & (top != 0) for top in tops)
    return functools.reduce(b.or_, (b.zext(each, I32) for each in small), i32(0))


@register_op(types.float32)
def float_of(b, bits):
    return b.bitcast(bits, FLOAT)


@cuda.jit(device=True, forceinline=True)
def scale_tile(shared, tid, x, scored):
    """(factor, scale): the factor of a block's tile, and its inverse, infinite where the tile is kept as float32.

    x: the elements of a thread. scored: the tile is one of Q or K. The function has two block barriers.
    """
    bits = warp_largest(largest(x))
    if tid & 31 == 0:
        shared[tid >> 5] = bits
    cuda.syncthreads()
    for i in range(SPLIT_WARPS):
        bits = max(bits, shared[i])
    exponent = bits >> uint32(23)
    clamped, far, factor = max(exponent, uint32(LEAST)), uint32(1), float32(1.0)
    if exponent <= (uint32(MOST_SCORED) if scored else uint32(MOST)):
        factor = float_of((uint32(2 * 127 + TOP) - clamped) << uint32(23))
        far = spreads(x, factor)
    far = warp_largest(far)
    if tid & 31 == 0:
        shared[8 + (tid >> 5)] = far
    cuda.syncthreads()
    for i in range(SPLIT_WARPS):
        far |= shared[8 + i]
    scale = UNSPLIT
    if far == uint32(0):
        scale = float_of((uint32(127) + clamped - uint32(127 + TOP)) << uint32(23))
    return factor, scale


@cuda.jit(device=True, forceinline=True)
def head_of(tensors, sizes, q_parts, k_parts, v_parts):
    """The head of a block: (rows, pitch, their count, number of the head, its parts, first index, whether it is V)."""
    head, batch, heads = cint(cuda.blockIdx.y), cint(cuda.blockIdx.z), sizes.kv_heads * sizes.group
    rows = advance(advance(tensors.q, uint64(batch) * tensors.q_batch), uint64(head) * tensors.q_head)
    pitch, count, first, parts, flat = tensors.q_row, sizes.seq_q, sizes.q_offset, q_parts, batch * heads + head
    values = False
    if head >= heads:
        head -= heads
        count, first, parts = sizes.seq_k, cint(0), k_parts
        rows = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        pitch = tensors.k_row
        if head >= sizes.kv_heads:
            head -= sizes.kv_heads
            parts, pitch, values = v_parts, tensors.v_row, True
            rows = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        flat = batch * sizes.kv_heads + head
    return rows, pitch, count, flat, parts, first, values


def loader(shape: Prompt32Shape, offsets: tuple[int, ...]) -> Any:
    """load(rows, pitch, row, last, chunk, rotary_dim, values) -> a thread's chunks of rows row + offsets, or 0."""
    pieces, hdim, none = 1 + shape.half_split, shape.hdim, zero_words(4 * len(offsets))
    load, load_v = (load_rows(offsets, 1, each, 4, "ld.global.nc") for each in (pieces, 1))
    columns_of, v_columns_of = columns(shape, 1, 0, shape.half_split), columns(shape, 1, 0, False)

    @cuda.jit(device=True, forceinline=True)
    def loaded(rows, pitch, row, last, chunk, rotary_dim, values):
        words = none()
        if chunk * 4 < hdim:
            if values:
                words = load_v(rows, row, last, pitch, v_columns_of(chunk, 0))
            else:
                words = load(rows, row, last, pitch, columns_of(chunk, rotary_dim))
        return words

    return loaded


def split_kernel(shape: Prompt32Shape) -> Kernel:
    """The kernel that fills parts and scales: grid (`tile_count`, heads + 2 kv_heads, batch), Q's heads first.

    scales: float32[batch, heads + 2 kv_heads, tiles]: a tile's elements are its parts' sums times its scale.
    """
    return _split_kernel(shape.hdim, shape.embedding, shape.half_split)


@functools.cache
def _split_kernel(hdim: int, embedding: str, half_split: bool) -> Kernel:
    shape = Prompt32Shape(hdim, embedding=embedding, half_split=half_split)
    # tile
    dims = shape.dims
    tile_rows = shape.tile_keys
    chunks = shape.row_chunks
    row_step = shape.row_step
    offsets = tuple(row_step * i for i in range(ROW_STEPS))
    # loads
    load_tile = loader(shape, offsets)
    load_row = loader(shape, (0,))
    load_rates = begin(shape, 1)
    # rotation
    rotates = shape.rotates
    pairs = pairs_of(shape, 1)

    @register_op(floats(4 * ROW_STEPS))
    def as_floats(b, words):
        return b.as_floats(words)

    @register_op(floats(4 * ROW_STEPS))
    def rotated(b, words, state, rotation, batch, index, last, chunk):
        angles = cos_sins(shape, b, state, rotation, (batch, index, last, chunk, 1), row_step)
        x = b.as_floats(words)
        return [y for i in range(ROW_STEPS) for y in rotate(b, x[4 * i : 4 * i + 4], next(angles), pairs)]

    @register_op(types.void)
    def store_parts(b, pointer, x, factor, row, last, chunk):
        pointer = pointer + b.zext(chunk << 3, pointer.type)
        for i, offset in enumerate(offsets):
            parts = split_parts(b, [value * factor for value in x[4 * i : 4 * i + 4]])
            with b.if_then(row + offset <= last):
                for number, words in enumerate(parts):
                    b.store_words("st.global", pointer, words, 4 * dims * offset + 2 * dims * number)

    @register_op(types.void)
    def store_row(b, pointer, words, state, rotation, batch, index, chunk, values):
        if rotates:
            angles = next(cos_sins(shape, b, state, rotation, (batch, index, index, chunk, 1), 1))
            made, embeds = rotate(b, b.as_floats(words), angles, pairs), values == 0
            words = [b.select(embeds, x, y) for x, y in zip(b.as_words(made), words)]
        b.store_words("st.global", pointer + b.zext(chunk << 4, pointer.type), words)

    def kernel(tensors, sizes, rotation, workspace, scales, q_parts, k_parts, v_parts):
        launch_dependents()
        shared = cuda.shared.array(16, uint32)
        tid, block, batch = cint(cuda.threadIdx.x), cint(cuda.blockIdx.x), cint(cuda.blockIdx.z)
        chunk, row = tid % chunks, block * tile_rows + tid // chunks
        rows, pitch, count, flat, parts, first, values = head_of(tensors, sizes, q_parts, k_parts, v_parts)
        if block * tile_rows < count:
            # load, rotate
            words = load_tile(rows, pitch, row, count - 1, chunk, rotation.rotary_dim, values)
            x, index, last = as_floats(words), first + row, first + count - 1
            if rotates:
                if not values:
                    x = rotated(words, load_rates(rotation, chunk), rotation, batch, index, last, chunk)
            # scale, store
            factor, scale = scale_tile(shared, tid, x, not values)
            if scale != UNSPLIT:
                begins = (uint64(flat) * uint64(count) + uint64(row)) * uint64(dims)
                store_parts(advance(parts, begins), x, factor, row, count - 1, chunk)
            else:  # rotated again, row by row: large scores show how far angles are off that are not exact
                rates, end = load_rates(rotation, chunk), min(row + tile_rows, count)
                while row < end:
                    one = load_row(rows, pitch, row, row, chunk, rotation.rotary_dim, values)
                    at = advance(parts, (uint64(flat) * uint64(count) + uint64(row)) * uint64(dims))
                    store_row(at, one, rates, rotation, batch, first + row, chunk, cint(values))
                    row += row_step
            if tid == 0:
                head = batch * cint(cuda.gridDim.y) + cint(cuda.blockIdx.y)
                scales[head * cint(cuda.gridDim.x) + block] = scale

    blocks = 1 if "tables" in embedding else 3  # rows of tables take registers
    kernel.__name__ = kernel.__qualname__ = f"split_float32_d{hdim}_{embedding}{'_halves' * half_split}"
    signature = (*types_of(DTYPES["float32"]), *(FLOATS,) * 4)
    return Kernel(kernel, signature, SPLIT_THREADS, min_blocks=blocks)
