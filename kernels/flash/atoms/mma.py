"""Scores and weighted sums on tensor cores (mma.m16n8k16) in half precision, for 16 keys and 8 or 16 rows a warp.

Scores are Q K^T with queries as rows of the A operand: up to 8 rows are stored as high and low halves, the low ones in
rows 8 to 15, which costs nothing. Sums are V^T P^T: the softmax leaves weights as the B operand, and V goes from
registers to A by byte permutes. Lane l is (g, m) = (l // 4, l % 4). Tiles in shared memory are swizzled: chunk c of
row r at c ^ (r & 7).
"""

from typing import Any

from numba import cuda, types

from ..embed import cos_sins, pairs_of, rotate, state_size
from ..loads import beyond
from ..schedule import Atoms, DecodeShape
from ..softmax import QUAD
from ..tiles import I32, f32, floats, i32, ints, register_op, store_shared

VALUE_ROWS = (0, 1, 8, 9)  # of lane m, counted from 2 m: the rows of its A fragments


@register_op(ints(4))
def indices(b, lane):
    """(row of V, chunk of V, row of scores, key of scores) of a lane."""
    g, m = lane >> 2, lane & 3
    return m << 1, g, g, m << 1


def _row(b: Any, shared: Any, row: Any, shape: DecodeShape) -> Any:
    """Address of a row of a tile that begins at `shared`."""
    return shared + row * (2 * shape.dims)


def _tile(b: Any, shared: Any, warp: Any, shape: DecodeShape) -> Any:
    """Address of the warp's tile of rotated keys."""
    return shared + (warp * (32 * shape.dims) + 4 * shape.layout["sums"])


@register_op(types.void)
def store_queries(b, shared, row, chunk, values, *, shape):
    """Store 8 floats as halves and, where rows are free, the rounding errors as halves 8 rows further."""
    swizzled = (chunk ^ (row & 7)) << 4
    address, at = _row(b, shared, row, shape) + swizzled, 4 * shape.layout["query"]
    high = shape.element.words(b, values)
    b.store_words("st.shared", address, high, at)
    if shape.sets == 1:
        lost = [x - y for x, y in zip(values, shape.element.floats(b, high))]
        b.store_words("st.shared", address, shape.element.words(b, lost), at + 8 * 2 * shape.dims)


@register_op(ints(1))
def store_keys(b, shared, warp, lane, keys, begun, rotation, where, *, shape):
    """Store keys, rotated and rounded, to the warp's tile: a lane's are rows slot, slot + row_step, ..."""
    pairs, kept, rates_at = pairs_of(shape, 1), state_size(shape, 1), 4 * shape.layout["rates"]
    slot, chunk = lane >> (shape.lanes.bit_length() - 1), lane & (shape.lanes - 1)
    state_at = b.at_float(shared, chunk * kept)
    state = b.load_floats(state_at, kept, rates_at)
    angles = cos_sins(shape, b, state, rotation, (*where, chunk, 1), shape.row_step)
    base, outside = _row(b, _tile(b, shared, warp, shape), slot, shape), beyond(shape, b, chunk, 0)
    b.sync_warp()
    for number in range(shape.batch_rows):
        key = keys[4 * number : 4 * number + 4]
        if outside is not None:
            key = [b.select(outside, i32(0), word) for word in key]
        if shape.rotates:
            key = shape.element.words(b, rotate(b, shape.element.floats(b, key), next(angles), pairs))
        row = number * shape.row_step
        swizzled = (chunk ^ slot ^ (row & 7)) << 4
        b.store_words("st.shared", base + swizzled, key, 2 * shape.dims * row)
    return [slot]


@register_op(lambda shape: floats(4 * shape.sets))
def scores(b, shared, warp, lane, taken, *, shape):
    """Four scores for each set of rows: row g (and g + 8), keys 2m, 2m + 1, 2m + 8, 2m + 9."""
    query_at = 4 * shape.layout["query"]
    low, third, fourth = lane & 7, (lane >> 3) & 1, lane >> 4
    key_base = _row(b, _tile(b, shared, warp, shape), (fourth << 3) + low, shape)
    query_base = _row(b, shared + query_at, (third << 3) + low, shape)
    key_chunk, query_chunk = third ^ low, fourth ^ low
    chains = 2 if shape.sets == 1 else 1  # accumulators in turn, so that no product waits for the one before
    total = [[[f32(0.0)] * 4] * chains, [[f32(0.0)] * 4] * chains]
    b.sync_warp()
    for step in range(shape.dims // 16):
        offsets = [(chunk ^ (2 * step)) << 4 for chunk in (key_chunk, query_chunk)]
        key = b.ldmatrix(key_base + offsets[0])
        query = b.ldmatrix(query_base + offsets[1])
        for half in range(2):
            chain = total[half][step % chains]
            total[half][step % chains] = shape.element.mma(b, query, key[2 * half : 2 * half + 2], chain)
    if shape.sets == 2:
        return [total[half][0][2 * row + i] for row in range(2) for half in range(2) for i in range(2)]
    made = []
    for half in range(2):
        both = [x + y for x, y in zip(*total[half])]
        made += [both[i] + both[i + 2] for i in range(2)]  # high parts, low parts
    return made


def _dims_of_tiles(shape: DecodeShape) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(half, dim) of rows g and g + 8 of each accumulator: lane g has 8 dims of each half of 64 of a row."""
    dims = [(half, dim) for dim in range(8) for half in range(shape.dims // 64)]
    return list(zip(dims[::2], dims[1::2]))


@register_op(lambda shape: floats(4 * len(_dims_of_tiles(shape)) * shape.sets))
def accumulate(b, shared, warp, lane, acc, values, weights, *, shape):
    """acc plus V^T P^T; up to 8 rows, the rounding errors of the weights make a second product."""
    tiles, halves = _dims_of_tiles(shape), shape.dims // 64
    size = 4 * len(tiles)

    def pair(row, half, dim):
        words = [values[((row + i) * halves + half) * 4 + dim // 2] for i in range(2)]
        selector = 0x5410 if dim % 2 == 0 else 0x7632
        return b.pure(f"prmt.b32 $0, $1, $2, {selector};", "=r,r,r", I32, *words)

    factors = []
    for row in range(shape.sets):
        p = weights[4 * row : 4 * row + 4]
        high = shape.element.words(b, p)
        lost = [x - y for x, y in zip(p, shape.element.floats(b, high))]
        factors.append([high] if shape.sets == 2 else [high, shape.element.words(b, lost)])
    for number, (first, second) in enumerate(tiles):
        a = [pair(row, *dim) for row in (0, 2) for dim in (first, second)]
        for row in range(shape.sets):
            at = slice(size * row + 4 * number, size * row + 4 * number + 4)
            for factor in factors[row]:
                acc[at] = shape.element.mma(b, a, factor, acc[at])
    return acc


def rescale(shape: DecodeShape) -> Any:
    """scale(b, acc, factors, lane): rows 2m and 2m + 1 of each set by the factors that their lanes hold."""
    size = 4 * len(_dims_of_tiles(shape))

    def scale(b, acc, factors, lane):
        source = (lane & 3) << 3
        made = []
        for row, factor in enumerate(factors):
            by = [b.shuffle("idx", factor, source + 4 * i) for i in range(2)]
            made += [x * by[i & 1] for i, x in enumerate(acc[size * row : size * (row + 1)])]
        return made

    return scale


@register_op(types.void)
def store_sums(b, shared, warp, lane, acc, *, shape):
    """Store the warp's accumulators as [row][dim], in the space of the tiles of keys."""
    tiles = _dims_of_tiles(shape)
    where = {dim: (number, side) for number, both in enumerate(tiles) for side, dim in enumerate(both)}
    pitch, sums = 4 * shape.row_pitch, 4 * shape.layout["sums"]
    g, m = lane >> 2, lane & 3
    row = warp * shape.rows + (m << 1)
    base = shared + (row * pitch + (g << 5))
    b.sync_block()
    for number in range(shape.sets):
        tile = b.as_words(acc[4 * len(tiles) * number : 4 * len(tiles) * (number + 1)])
        for odd in range(2):
            row, at = (m << 1) + (8 * number + odd), sums + (8 * number + odd) * pitch
            with b.if_then(row < shape.rows):
                for half in range(shape.dims // 64):
                    for dim in (0, 4):
                        entries = [where[half, dim + i] for i in range(4)]
                        values = [tile[4 * entry + 2 * side + odd] for entry, side in entries]
                        b.store_words("st.shared", base, values, at + 256 * half + 4 * dim)


def atoms(shape: DecodeShape) -> Atoms:
    """The functions of a shape. Queries and rates stay in shared memory, as the accumulators take the registers."""
    lanes, rates_at, kept, halves = shape.lanes, shape.layout["rates"], state_size(shape, 1), shape.dims // 64
    keep_state = store_shared(kept)

    @cuda.jit(device=True, forceinline=True)
    def prepare(shared, tid, state, chunk):
        if tid < lanes:
            keep_state(shared, rates_at + tid * kept, state)
        cuda.syncthreads()
        return chunk

    return Atoms(
        VALUE_ROWS, halves, 8, VALUE_ROWS, QUAD, 16 * halves * shape.sets, rescale(shape), indices,
        store_queries(shape), prepare, store_keys(shape), scores(shape), accumulate(shape), store_sums(shape),
    )  # fmt: skip
