"""RoPE in kernels for prompts: as in `embed`, with the rotation from row to row from the host, and keys in place.

`rates` of these kernels are float32[2, pairs, 2]: those of `embed`, and (cos - 1, sin) of the angle of `row_step`
positions. In the kernel they would take 15 operations a pair in front of the first tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..constants import FREQUENCY_BASE
from .args import Rotation
from .embed import advance, begin, pairs_of, rotate, seeds, turns
from .loads import load_rows
from .plan import rates_of
from .prompt import PromptShape, WgmmaShape, bytes_at, places
from .tiles import FLOAT, I64, as_floats, f32, floats, i32, load_words, negate, op, store_words

SEEDED_TILES = 4  # tiles of keys from one exact seed to the next


def prompt_rates(rotary_dim: int, pairs: int, row_step: int, base: float = FREQUENCY_BASE) -> np.ndarray:
    """float32[2, pairs, 2]: rates of all pairs, 0 behind rotary_dim, and the rotation by row_step positions."""
    angle = np.zeros(pairs)
    angle[: rotary_dim // 2] = row_step * float(base) ** (-np.arange(0, rotary_dim, 2) / max(rotary_dim, 1))
    step = np.stack([-2 * np.sin(angle / 2) ** 2, np.sin(angle)], axis=1)  # cos - 1 would lose digits
    return np.stack([rates_of(rotary_dim, pairs, base), step.astype(np.float32)])


def load_state(shape: PromptShape | WgmmaShape) -> Any:
    """state(rotation, chunk) as that of `embed.begin` for keys `row_step` apart: loads alone."""
    if shape.embedding != "rates":
        return begin(shape, 1, shape.row_step)  # type: ignore[arg-type]
    vector, second = shape.element.vector, 4 * shape.dims

    @op(floats(2 * vector))
    def state(b, rotation, chunk):
        address = b.add(Rotation(*rotation).rates, b.zext(b.mul(chunk, i32(4 * vector)), I64))
        offsets = [offset + 4 * i for offset in (0, second) for i in range(0, vector, 4)]
        return as_floats(b, [word for at in offsets for word in load_words(b, "ld.global.nc", address, 4, at)])

    return state


def rotate_rows(shape: PromptShape) -> tuple[Any, Any, Any]:
    """A thread's rows of a tile of keys: from global memory to registers, and rotated to shared memory.

    load(pointer, first, last, pitch, columns) -> raw registers of rows first, first + row_step, ...
    seed(state, first, row) -> (cos, sin) of each pair for the first row, where they come of rates
    put(shared, index, words, seed, state, rotation, batch, first, last, row, chunk) -> the seed of the next tile

    Both take `shape.rows_at_once` rows.
    """
    pairs, step, element = pairs_of(shape, 1), shape.row_step, shape.element  # type: ignore[arg-type]
    by_rates, size = shape.embedding == "rates", element.vector
    offsets = tuple(step * number for number in range(shape.rows_at_once))
    load = load_rows(offsets, 1, 1 + shape.half_split, element.size, "ld.global.nc")

    @op(floats(size))
    def seed(b, state, first, row):
        return seeds(b, b.sitofp(b.add(first, row), FLOAT), state[:size]) if by_rates else [f32(0.0)] * size

    def advanced(b: Any, turn: Any, step_of: Any) -> Iterator[Any]:
        """By cos(a + 2d) = 2 cos(d) cos(a + d) - cos(a), sin alike: its error is below 4e-6 after eight rows."""
        twice = [b.fma(f32(2.0), less, f32(2.0)) for less in step_of[::2]]
        after = advance(b, turn, step_of)
        while True:
            yield turn
            following = [b.fma(twice[i // 2], x, negate(b, before)) for i, (x, before) in enumerate(zip(after, turn))]
            turn, after = after, following

    @op(floats(size))
    def put(b, shared, index, words, seed, state, rotation, batch, first, last, row, chunk):
        targets = places(b, shape, bytes_at(b, shared, index), row, chunk)
        if by_rates:
            turned = advanced(b, seed, state[size:])
        else:
            where = (batch, b.add(first, row), last, chunk, 1)
            turned = turns(shape, b, state, rotation, where, step)  # type: ignore[arg-type]
        for number, (address, offset) in enumerate(targets[: shape.rows_at_once]):
            x = rotate(b, element.floats(b, words[4 * number : 4 * number + 4]), next(turned), pairs)
            store_words(b, "st.shared", address, element.words(b, x), offset)
        return next(turned) if by_rates else seed

    return load, seed, put
