"""Scores and weighted sums of whole fragments on mma.m16n8k16, for 16 rows of queries and some keys a warp.

Lane l is (g, m) = (l // 4, l % 4); it holds rows g and g + 8. Scores and weights come row by row, keys 8j + 2m and
8j + 2m + 1 of each j in turn; accumulators tile by tile of 8 dims, four each: (g, 2m), (g, 2m + 1), and those of g + 8.
"""

from collections.abc import Sequence
from typing import Any

from numba import types

from ..shapes import FRAGMENT_ROWS, SLAB_ROW
from ..tiles import f32, floats, register_op, words

STEP = 16  # terms of a product


def _steps(b: Any, base: Any, row: Any, chunk: Any) -> list[Any]:
    """Addresses of a lane's row of a matrix, one for each of the four pairs of chunks of a slab."""
    at = base + row * SLAB_ROW
    swizzled = chunk ^ (row & 7)
    return [at + ((swizzled ^ (2 * step)) << 4) for step in range(4)]


def _quarter(b: Any, lane: Any) -> tuple[Any, Any, Any]:
    """(lane % 8, lane // 8 % 2, lane // 16): ldmatrix.x4 takes a row's address from each lane."""
    return lane & 7, (lane >> 3) & 1, lane >> 4


@register_op(lambda shape: words(shape.hdim // 4))
def query_fragments(b, shared, index, row, lane, *, shape):
    """The A fragments of rows `row` .. + 15 of the tile of queries."""
    slab = SLAB_ROW * shape.rows
    low, third, fourth = _quarter(b, lane)
    row = row + ((third << 3) + low)
    addresses = _steps(b, b.at_float(shared, index), row, fourth)
    fragments = [b.ldmatrix(addresses[step % 4], step // 4 * slab) for step in range(shape.hdim // STEP)]
    return [word for fragment in fragments for word in fragment]


@register_op(lambda shape: floats(shape.warp_keys // 2))
def scores(b, shared, index, first, queries, lane, *, shape):
    """Scores of the 16 rows with keys first .. + warp_keys of the tile."""
    keys, slab = shape.warp_keys, SLAB_ROW * shape.tile_keys
    low, third, fourth = _quarter(b, lane)
    row = first + ((fourth << 3) + low)
    addresses = _steps(b, b.at_float(shared, index), row, third)
    total = [[f32(0.0)] * 4 for _ in range(keys // 8)]
    for step in range(shape.hdim // STEP):
        for pair in range(keys // STEP):
            offset = step // 4 * slab + STEP * SLAB_ROW * pair
            key = b.ldmatrix(addresses[step % 4], offset)
            for half in range(2):
                tile = 2 * pair + half
                query = queries[4 * step : 4 * step + 4]
                total[tile] = shape.element.mma(b, query, key[2 * half : 2 * half + 2], total[tile])
    return [tile[2 * row + i] for row in range(2) for tile in total for i in range(2)]


@register_op(lambda shape: floats(shape.hdim // 2))
def accumulate(b, shared, index, first, weights, acc, lane, *, shape):
    """acc plus weights times keys first .. + warp_keys of the tile."""
    keys, slab = shape.warp_keys, SLAB_ROW * shape.tile_keys
    low, third, fourth = _quarter(b, lane)
    row = first + ((third << 3) + low)
    addresses = _steps(b, b.at_float(shared, index), row, fourth)
    packed = shape.element.words(b, weights)  # a word for each 8 keys, row by row
    for pair in range(keys // STEP):
        left = [packed[keys // 8 * row + 2 * pair + half] for half in range(2) for row in range(2)]
        for step in range(shape.hdim // STEP):
            value = b.ldmatrix(addresses[step % 4], step // 4 * slab + STEP * SLAB_ROW * pair, True)
            for half in range(2):
                at = slice(8 * step + 4 * half, 8 * step + 4 * half + 4)
                acc[at] = shape.element.mma(b, left, value[2 * half : 2 * half + 2], acc[at])
    return acc


@register_op(lambda shape: floats(shape.hdim // 2))
def accumulate_fma(b, shared, index, first, weights, acc, lane, *, shape):
    """As `accumulate`, in float32 on FMA units: four lanes have the weights of a row, and each needs all of them."""
    keys, slab = shape.warp_keys, SLAB_ROW * shape.tile_keys
    base = b.at_float(shared, index) + (first * SLAB_ROW + ((lane & 3) << 2))
    quad = lane & ~3
    for key in range(keys):
        of_lane, number = quad | (key % 8 // 2), key // 8 * 2 + key % 2
        both = [b.shuffle("idx", weights[keys // 4 * row + number], of_lane) for row in range(2)]
        for tile in range(shape.hdim // 8):
            offset = tile // 8 * slab + key * SLAB_ROW + (((tile % 8) ^ (key % 8)) << 4)
            pair = shape.element.floats(b, b.load_words("ld.shared", base, 1, offset))
            for row in range(2):
                for i in range(2):
                    at = 4 * tile + 2 * row + i
                    acc[at] = b.fma(both[row], pair[i], acc[at])
    return acc


def scaled_rows(b: Any, acc: Sequence[Any], factors: Sequence[Any], lane: Any = None) -> list[Any]:
    """Accumulators of rows g and g + 8, each by its factor."""
    return [x * factors[(i >> 1) & 1] for i, x in enumerate(acc)]


@register_op(lambda count: floats(count))
def rescale(b, acc, factors, *, count):
    """`scaled_rows`."""
    return scaled_rows(b, acc, factors)


@register_op(types.void)
def store_sums(b, shared, index, acc, row, lane, *, shape):
    """Store accumulators of rows `row` .. + 15 as [row][dim]."""
    pitch = 4 * shape.row_pitch
    row = row + (lane >> 2)
    base = b.at_float(shared, index) + (row * pitch + ((lane & 3) << 3))
    values = b.as_words(acc)
    for tile in range(shape.hdim // 8):
        for half in range(2):
            at = 4 * tile + 2 * half
            b.store_words("st.shared", base, values[at : at + 2], FRAGMENT_ROWS // 2 * pitch * half + 32 * tile)
