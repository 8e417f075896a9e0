"""Scores and weighted sums on FMA units: a lane owns some dims of a key, and all rows of queries in them."""

from __future__ import annotations

from typing import Any

from numba import types

from .embed import pairs_of, rotate, turns
from .loads import beyond
from .schedule import DecodeShape
from .tiles import as_floats, as_words, f32, floats, i32, load_words, op, shuffle, store_words


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
    """scale(acc, factor, lane): row r by the factor of lane r << `shift`."""

    @op(floats(shape.rows * shape.elements))
    def scale(b, acc, factor, lane):
        made = []
        for row in range(shape.rows):
            by = shuffle(b, "idx", factor[0], row << shift)
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
