"""Scores and weighted sums on tensor cores (mma.m16n8k16) in half precision, for 16 keys and 8 or 16 rows a warp.

Scores are Q K^T with queries as rows of the A operand: up to 8 rows keep what rounding them lost in rows 8 to 15, which
costs nothing. Sums are V^T P^T: weights come out of the softmax as the B operand, and V goes from registers to A by
byte permutes. Lane l is (g, m) = (l // 4, l % 4). Tiles in shared memory are swizzled: chunk c of row r at c ^ (r & 7).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import cuda, types

from ..device.asm import _asm
from .embed import begin, pairs_of, rotate, state_size, turns
from .loads import beyond
from .schedule import Atoms, DecodeShape
from .softmax import lane_sum
from .tiles import I32, as_words, f32, floats, i32, load_shared, op, pure, shuffle, store_shared, store_words

VALUE_ROWS = (0, 1, 8, 9)  # of lane m, from 2 m on: those of its A fragments
MASKS = (1, 2)  # of the lanes that share a row of scores


def _ldmatrix(b: Any, address: Any) -> list[Any]:
    text = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];"
    made = _asm(b, text, "=r,=r,=r,=r,r,~{memory}", ir.LiteralStructType([I32] * 4), [address])
    return [b.extract_value(made, i) for i in range(4)]


def _row(b: Any, shared: Any, index: Any, row: Any, dims: int) -> Any:
    return b.add(b.add(shared, b.shl(index, i32(2))), b.mul(row, i32(2 * dims)))


def store_queries(shape: DecodeShape) -> Any:
    """store(shared, index, row, chunk, values): 8 floats rounded, and what that lost 8 rows on where rows are free."""

    @op(types.void)
    def store(b, shared, index, row, chunk, values):
        place = b.shl(b.xor(chunk, b.and_(row, i32(7))), i32(4))
        address = b.add(_row(b, shared, index, row, shape.dims), place)
        high = shape.element.words(b, values)
        store_words(b, "st.shared", address, high)
        if shape.sets == 1:
            lost = [b.fsub(x, y) for x, y in zip(values, shape.element.floats(b, high))]
            store_words(b, "st.shared", address, shape.element.words(b, lost), 8 * 2 * shape.dims)

    return store


def store_keys(shape: DecodeShape) -> Any:
    """store(shared, index, keys, state, rotation, batch, first, last, chunk, slot): the batch's keys, rotated, rounded.

    The lane's are rows slot, slot + keys_abreast, ... of the tile.
    """
    pairs = pairs_of(shape, 1)

    @op(types.void)
    def store(b, shared, index, keys, state, rotation, batch, first, last, chunk, slot):
        base = _row(b, shared, index, slot, shape.dims)
        turned = turns(shape, b, state, rotation, (batch, first, last, chunk, 1), shape.keys_abreast)
        outside = beyond(shape, b, chunk, 0)
        for number in range(shape.batch_rows):
            key = keys[4 * number : 4 * number + 4]
            if outside is not None:
                key = [b.select(outside, i32(0), word) for word in key]
            if shape.rotates:
                key = shape.element.words(b, rotate(b, shape.element.floats(b, key), next(turned), pairs))
            row = number * shape.keys_abreast
            place = b.shl(b.xor(b.xor(chunk, slot), i32(row & 7)), i32(4))
            store_words(b, "st.shared", b.add(base, place), key, 2 * shape.dims * row)

    return store


def scores(shape: DecodeShape) -> Any:
    """dots(shared, keys, queries, lane) -> 4 scores a row set: of row g (and g + 8), keys 2m, 2m + 1, 2m + 8, 2m + 9.

    Both indices are of tiles in shared memory.
    """

    @op(floats(4 * shape.sets))
    def dots(b, shared, keys, queries, lane):
        low, third, fourth = b.and_(lane, i32(7)), b.and_(b.lshr(lane, i32(3)), i32(1)), b.lshr(lane, i32(4))
        key_base = _row(b, shared, keys, b.add(b.shl(fourth, i32(3)), low), shape.dims)
        query_base = _row(b, shared, queries, b.add(b.shl(third, i32(3)), low), shape.dims)
        key_chunk, query_chunk = b.xor(third, low), b.xor(fourth, low)
        chains = 2 if shape.sets == 1 else 1  # of sums, so that one product need not wait for the other
        total = [[[f32(0.0)] * 4] * chains, [[f32(0.0)] * 4] * chains]
        for step in range(shape.dims // 16):
            place = [b.shl(b.xor(chunk, i32(2 * step)), i32(4)) for chunk in (key_chunk, query_chunk)]
            key = _ldmatrix(b, b.add(key_base, place[0]))
            query = _ldmatrix(b, b.add(query_base, place[1]))
            for half in range(2):
                chain = total[half][step % chains]
                total[half][step % chains] = shape.element.mma(b, query, key[2 * half : 2 * half + 2], chain)
        if shape.sets == 2:
            return [total[half][0][2 * row + i] for row in range(2) for half in range(2) for i in range(2)]
        made = []
        for half in range(2):
            both = [b.fadd(x, y) for x, y in zip(*total[half])]
            made += [b.fadd(both[i], both[i + 2]) for i in range(2)]  # high parts, low parts
        return made

    return dots


def _dims_of_tiles(shape: DecodeShape) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(half, dim) of rows g and g + 8 of each accumulator: lane g has 8 dims of each half of 64 of a row."""
    places = [(half, dim) for dim in range(8) for half in range(shape.dims // 64)]
    return list(zip(places[::2], places[1::2]))


def accumulate(shape: DecodeShape) -> Any:
    """add(acc, values, weights) -> acc plus V^T P^T; weights keep what rounding lost in a second product."""
    tiles, halves = _dims_of_tiles(shape), shape.dims // 64
    size = 4 * len(tiles)

    @op(floats(size * shape.sets))
    def add(b, acc, values, weights):
        def pair(row, half, dim):
            words = [values[((row + i) * halves + half) * 4 + dim // 2] for i in range(2)]
            selector = 0x5410 if dim % 2 == 0 else 0x7632
            return pure(b, f"prmt.b32 $0, $1, $2, {selector};", "=r,r,r", I32, *words)

        factors = []
        for row in range(shape.sets):
            p = weights[4 * row : 4 * row + 4]
            high = shape.element.words(b, p)
            lost = [b.fsub(x, y) for x, y in zip(p, shape.element.floats(b, high))]
            factors.append([high] if shape.sets == 2 else [high, shape.element.words(b, lost)])
        for number, (first, second) in enumerate(tiles):
            a = [pair(row, *place) for row in (0, 2) for place in (first, second)]
            for row in range(shape.sets):
                at = slice(size * row + 4 * number, size * row + 4 * number + 4)
                for factor in factors[row]:
                    acc[at] = shape.element.mma(b, a, factor, acc[at])
        return acc

    return add


def rescale(shape: DecodeShape) -> Any:
    """scale(b, acc, factors, lane): rows 2m and 2m + 1 of each set by the factors that their lanes hold."""
    size = 4 * len(_dims_of_tiles(shape))

    def scale(b, acc, factors, lane):
        source = b.shl(b.and_(lane, i32(3)), i32(3))
        made = []
        for row, factor in enumerate(factors):
            by = [shuffle(b, "idx", factor, b.add(source, i32(4 * i))) for i in range(2)]
            made += [b.fmul(x, by[i & 1]) for i, x in enumerate(acc[size * row : size * (row + 1)])]
        return made

    return scale


def store_sums(shape: DecodeShape) -> Any:
    """store(shared, index, acc, lane): the warp's accumulators as [row][dim], rows `row_pitch` floats apart."""
    tiles = _dims_of_tiles(shape)
    where = {place: (number, side) for number, both in enumerate(tiles) for side, place in enumerate(both)}
    pitch = 4 * shape.row_pitch

    @op(types.void)
    def store(b, shared, index, acc, lane):
        g, m = b.lshr(lane, i32(2)), b.and_(lane, i32(3))
        base = b.add(b.add(shared, b.shl(index, i32(2))), b.add(b.shl(g, i32(5)), b.mul(m, i32(2 * pitch))))
        for number in range(shape.sets):
            tile = as_words(b, acc[4 * len(tiles) * number : 4 * len(tiles) * (number + 1)])
            for odd in range(2):
                row = b.add(b.shl(m, i32(1)), i32(8 * number + odd))
                with b.if_then(b.icmp_signed("<", row, i32(shape.rows))):
                    for half in range(shape.dims // 64):
                        for dim in (0, 4):
                            entries = [where[half, dim + i] for i in range(4)]
                            values = [tile[4 * entry + 2 * side + odd] for entry, side in entries]
                            store_words(b, "st.shared", base, values, (8 * number + odd) * pitch + 256 * half + 4 * dim)

    return store


def store_statistics(shape: DecodeShape) -> Any:
    """store(shared, index, g, values): that of row g of each set of 8, where the shape has that row."""

    @op(types.void)
    def store(b, shared, index, g, values):
        for number, value in enumerate(as_words(b, values)):
            row = b.add(g, i32(8 * number))
            with b.if_then(b.icmp_signed("<", row, i32(shape.rows))):
                store_words(b, "st.shared", b.add(shared, b.shl(b.add(index, row), i32(2))), [value])

    return store


def atoms(shape: DecodeShape) -> Atoms:
    """Queries and the rotation's constants stay in shared memory, as the accumulators take the registers."""
    at, lanes, sets, rows, pitch = shape.layout, shape.lanes, shape.sets, shape.rows, shape.row_pitch
    query, sums, turns_at, max_at, sum_at = (at[x] for x in ("query", "sums", "turns", "row_max", "row_sum"))
    halves, kept, tile_floats = shape.dims // 64, state_size(shape, 1), 8 * shape.dims
    state_of, keep_state, kept_state = begin(shape, 1, shape.keys_abreast), store_shared(kept), load_shared(kept)
    keep_query, keep_keys, dots, add = store_queries(shape), store_keys(shape), scores(shape), accumulate(shape)
    sum_rows, store_acc, statistics = lane_sum(sets, MASKS), store_sums(shape), store_statistics(shape)

    @cuda.jit(device=True, forceinline=True)
    def place(lane):
        m = lane & 3
        return 2 * m, lane >> 2, lane >> 2, 2 * m

    @cuda.jit(device=True, forceinline=True)
    def store_query(shared, row, chunk, x):
        keep_query(shared, query, row, chunk, x)

    @cuda.jit(device=True, forceinline=True)
    def prepare(shared, tid, rotation, chunk):
        if tid < lanes:
            keep_state(shared, turns_at + tid * kept, state_of(rotation, chunk))
        return chunk

    @cuda.jit(device=True, forceinline=True)
    def queries(shared, chunk):
        return query

    @cuda.jit(device=True, forceinline=True)
    def take(shared, warp, keys, q, state, rotation, batch, first, last, chunk, slot):
        turn = kept_state(shared, turns_at + chunk * kept)
        cuda.syncwarp()
        keep_keys(shared, sums + warp * tile_floats, keys, turn, rotation, batch, first, last, chunk, slot)
        return chunk

    @cuda.jit(device=True, forceinline=True)
    def score(shared, warp, taken, lane):
        cuda.syncwarp()
        return dots(shared, sums + warp * tile_floats, query, lane)

    @cuda.jit(device=True, forceinline=True)
    def weigh(shared, warp, acc, values, p, lane):
        return add(acc, values, p)

    @cuda.jit(device=True, forceinline=True)
    def close(shared, warp, acc, row_max, row_sum, lane):
        row_sum = sum_rows(row_sum)
        cuda.syncthreads()
        store_acc(shared, sums + warp * (rows * pitch), acc, lane)
        if lane & 3 == 0:
            statistics(shared, max_at + warp * rows, lane >> 2, row_max)
            statistics(shared, sum_at + warp * rows, lane >> 2, row_sum)

    return Atoms(
        VALUE_ROWS, halves, 8, VALUE_ROWS, MASKS, 16 * halves * sets, rescale(shape),
        place, store_query, prepare, queries, take, score, weigh, close,
    )  # fmt: skip
