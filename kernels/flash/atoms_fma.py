"""Scores and weighted sums on FMA units: a lane owns some dims of a key, and all rows of queries in them."""

from __future__ import annotations

from typing import Any

from numba import cuda, types

from .embed import begin, pairs_of, rotate, turns
from .loads import beyond
from .schedule import WARP, Atoms, DecodeShape
from .softmax import lane_sum, masks_of, reduce_scatter
from .tiles import (
    as_floats, as_words, f32, floats, i32, load_shared, load_words, op, shuffle, store_shared, store_words,
)  # fmt: skip


def load_queries(shape: DecodeShape) -> Any:
    """load(shared, index) -> a lane's dims of all rows; `index` is that of its first chunk of row 0."""
    step = shape.lanes * shape.element.vector

    @op(floats(shape.rows * shape.elements))
    def load(b, shared, index):
        address = b.add(shared, b.shl(index, i32(2)))
        starts = [r * shape.dims + c * step for r in range(shape.rows) for c in range(shape.chunks)]
        places = [start + i for start in starts for i in range(0, shape.element.vector, 4)]
        return [x for at in places for x in as_floats(b, load_words(b, "ld.shared", address, 4, 4 * at))]

    return load


def scores(shape: DecodeShape) -> Any:
    """dots(keys, queries, state, rotation, batch, first, last, chunk) -> the lane's part of each score."""
    registers = 4 * shape.chunks
    pairs = pairs_of(shape, shape.chunks)

    @op(floats(shape.batch_rows * shape.rows))
    def dots(b, keys, queries, state, rotation, batch, first, last, chunk):
        parts = []
        where = (batch, first, last, chunk, shape.chunks)
        turned = turns(shape, b, state, rotation, where, shape.keys_abreast)
        for key in range(shape.batch_rows):
            x = shape.element.floats(b, keys[registers * key : registers * (key + 1)])
            for i in range(shape.elements):
                outside = beyond(shape, b, chunk, i // shape.element.vector)
                if outside is not None:
                    x[i] = b.select(outside, f32(0.0), x[i])
            if shape.rotates:
                x = rotate(b, x, next(turned), pairs)
            for row in range(shape.rows):
                q = queries[row * shape.elements : (row + 1) * shape.elements]
                total = b.fmul(x[0], q[0])
                for element in range(1, shape.elements):
                    total = b.fma(x[element], q[element], total)
                parts.append(total)
        return parts

    return dots


def accumulate(shape: DecodeShape) -> Any:
    """add(acc, values, weights) -> acc[row][dim] plus the sum over keys of weights[key][row] values[key][dim]."""
    registers = 4 * shape.chunks

    @op(floats(shape.rows * shape.elements))
    def add(b, acc, values, weights):
        for key in range(shape.batch_rows):
            x = shape.element.floats(b, values[registers * key : registers * (key + 1)])
            for row in range(shape.rows):
                for element in range(shape.elements):
                    i = row * shape.elements + element
                    acc[i] = b.fma(x[element], weights[key * shape.rows + row], acc[i])
        return acc

    return add


def rescale(shape: DecodeShape, shift: int) -> Any:
    """scale(b, acc, factors, lane): row r by the factor of lane r << `shift`."""

    def scale(b, acc, factors, lane):
        made = []
        for row in range(shape.rows):
            by = shuffle(b, "idx", factors[0], row << shift)
            made += [b.fmul(x, by) for x in acc[row * shape.elements : (row + 1) * shape.elements]]
        return made

    return scale


def store_sums(shape: DecodeShape) -> Any:
    """store(shared, index, acc): a lane's accumulators to [row][dim]; `index` is that of its first chunk of row 0."""
    vector, step = shape.element.vector, shape.lanes * shape.element.vector

    @op(types.void)
    def store(b, shared, index, acc):
        address, values = b.add(shared, b.shl(index, i32(2))), as_words(b, acc)
        for i in range(0, len(values), 4):
            row, inside = divmod(i, shape.elements)
            place = row * shape.row_pitch + inside // vector * step + inside % vector
            store_words(b, "st.shared", address, values[i : i + 4], 4 * place)

    return store


def atoms(shape: DecodeShape) -> Atoms:
    """Each lane ends with one (key, row) score of the `held` ones of its key group; weights go by shared memory."""
    at, lanes, abreast, rows = shape.layout, shape.lanes, shape.keys_abreast, shape.rows
    query, sums, weights_at, max_at, sum_at = (at[x] for x in ("query", "sums", "weights", "row_max", "row_sum"))
    dims, vector, held, size = shape.dims, shape.element.vector, shape.batch_rows * rows, rows * shape.elements
    shift, row_bits, key_bits = (lanes // held).bit_length() - 1, rows.bit_length() - 1, WARP.bit_length() - 1
    masks, slots = masks_of(shift + row_bits, key_bits), masks_of(lanes.bit_length() - 1, key_bits)
    state_of, dots, add = begin(shape, shape.chunks, abreast), scores(shape), accumulate(shape)
    scatter, store_row, store_acc = reduce_scatter(held, lanes), store_shared(vector), store_sums(shape)
    queries_of, weights_of = load_queries(shape), load_shared(held)
    sum_rows, sum_lanes = lane_sum(1, masks), lane_sum(size, slots)

    @cuda.jit(device=True, forceinline=True)
    def place(lane):
        slot, chunk = lane // lanes, lane & (lanes - 1)
        value = chunk >> shift
        return slot, chunk, value & (rows - 1), (value >> row_bits) * abreast + slot

    @cuda.jit(device=True, forceinline=True)
    def store_query(shared, row, chunk, x):
        store_row(shared, query + row * dims + chunk * vector, x)

    @cuda.jit(device=True, forceinline=True)
    def prepare(shared, tid, rotation, chunk):
        return state_of(rotation, chunk)

    @cuda.jit(device=True, forceinline=True)
    def queries(shared, chunk):
        return queries_of(shared, query + chunk * vector)

    @cuda.jit(device=True, forceinline=True)
    def take(shared, warp, keys, q, state, rotation, batch, first, last, chunk, slot):
        return dots(keys, q, state, rotation, batch, first, last, chunk)

    @cuda.jit(device=True, forceinline=True)
    def score(shared, warp, parts, lane):
        return scatter(parts, lane)

    @cuda.jit(device=True, forceinline=True)
    def weigh(shared, warp, acc, values, p, lane):
        group = weights_at + warp * WARP + lane // lanes * held
        cuda.syncwarp()
        shared[group + ((lane & (lanes - 1)) >> shift)] = p[0]
        cuda.syncwarp()
        return add(acc, values, weights_of(shared, group))

    @cuda.jit(device=True, forceinline=True)
    def close(shared, warp, acc, row_max, row_sum, lane):
        acc, row_sum = sum_lanes(acc), sum_rows(row_sum)
        slot, chunk, row, key = place(lane)
        if slot == 0:
            store_acc(shared, sums + warp * (rows * dims) + chunk * vector, acc)
            if key == 0:
                shared[max_at + warp * rows + row] = row_max[0]
                shared[sum_at + warp * rows + row] = row_sum[0]

    offsets = tuple(abreast * i for i in range(shape.batch_rows))
    return Atoms(
        offsets, shape.chunks, lanes, (0,), masks, size, rescale(shape, shift),
        place, store_query, prepare, queries, take, score, weigh, close,
    )  # fmt: skip
