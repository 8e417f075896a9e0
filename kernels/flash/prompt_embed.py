"""RoPE in kernels for prompts: tiles of keys from memory to registers, and rotated to shared memory."""

from __future__ import annotations

from typing import Any

from .embed import advanced, pairs_of, rotate, seeds, turns
from .loads import load_rows
from .prompt import PromptShape, bytes_at, places
from .tiles import FLOAT, f32, floats, op, store_words

SEEDED_TILES = 4  # tiles of keys from one exact seed to the next


def rotate_rows(shape: PromptShape) -> tuple[Any, Any, Any]:
    """A thread's rows of a tile of keys: from global memory to registers, and rotated to shared memory.

    load(pointer, first, last, pitch, columns) -> raw registers of rows first, first + row_step, ...
    seed(state, first, row) -> (cos, sin) of each pair for the first row, where they come of rates
    put(shared, index, words, seed, state, rotation, batch, first, last, row, chunk) -> the seed of the next tile

    Both take `shape.rows_at_once` rows.
    """
    pairs, step, element = pairs_of(shape, 1), shape.row_step, shape.element
    by_rates, size = shape.embedding == "rates", element.vector
    offsets = tuple(step * number for number in range(shape.rows_at_once))
    load = load_rows(offsets, 1, 1 + shape.half_split, element.size, "ld.global.nc")

    @op(floats(size))
    def seed(b, state, first, row):
        return seeds(b, b.sitofp(b.add(first, row), FLOAT), state[:size]) if by_rates else [f32(0.0)] * size

    @op(floats(size))
    def put(b, shared, index, words, seed, state, rotation, batch, first, last, row, chunk):
        targets = places(b, shape, bytes_at(b, shared, index), row, chunk)
        if by_rates:
            turned = advanced(b, seed, state[size:])
        else:
            where = (batch, b.add(first, row), last, chunk, 1)
            turned = turns(shape, b, state, rotation, where, step)
        for number, (address, offset) in enumerate(targets[: shape.rows_at_once]):
            x = rotate(b, element.floats(b, words[4 * number : 4 * number + 4]), next(turned), pairs)
            store_words(b, "st.shared", address, element.words(b, x), offset)
        return next(turned) if by_rates else seed

    return load, seed, put
