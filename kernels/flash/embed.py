"""RoPE on the read of a raw key: the cosines and sines of a batch of keys, in registers.

Embeddings:
    none       no rotation; nor has alibi one: its bias is in `mask`
    rates      exact values for the first key of a batch, those of the next by a rotation of constant angle: no table,
               and no error that grows with the position (2.4e-8 rms a step, and a batch has 8 at most)
    positions  exact values at int32 positions of any order, 20 instructions a pair
    tables     rows of cos and sin, such as YaRN's or those of llama3
    placed_tables  the same at int32 positions
An `index` counts the keys of a sequence; its `position` is what RoPE rotates by, the index itself unless positions are
given. A position outside [0, 2^20), or outside the tables, makes NaN.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..constants import MOST_POSITIONS
from ..device import mark
from ..device.angle import COS_PI, ROUND, SIN_PI
from .args import Rotation
from .schedule import Shape
from .tiles import FLOAT, I32, I64, VOID, f32, floats, i32, register_op


def pairs_of(shape: Shape, chunks: int) -> list[tuple[int, int]]:
    """(low, high) of each pair among the elements of a lane's chunks: neighbours, or one of each half-split piece."""
    vector, half = shape.element.vector, shape.element.vector // 2
    chunk = [(i, i + half) for i in range(half)] if shape.half_split else [(2 * i, 2 * i + 1) for i in range(half)]
    return [(vector * number + low, vector * number + high) for number in range(chunks) for low, high in chunk]


def rotate(b: Any, x: Sequence[Any], cos_sin: Sequence[Any], pairs: Sequence[tuple[int, int]]) -> list[Any]:
    """The elements with each pair rotated; `cos_sin` is (cos, sin) pair by pair."""
    y = list(x)
    for number, (low, high) in enumerate(pairs):
        cos, sin = cos_sin[2 * number : 2 * number + 2]
        if mark.enabled():
            b.ptx("mark.rotation;", "", VOID, [])
        y[low] = b.fma(x[low], cos, -(x[high] * sin))
        y[high] = b.fma(x[low], sin, x[high] * cos)
    return y


def sincospi(b: Any, position: Any, rate: Any, rest: Any) -> tuple[Any, Any]:
    """(sin, cos) of pi position (rate + rest), as `device.angle.sincospi`."""
    rounded = b.fma(position, rate, f32(ROUND))
    x = b.fma(position, rate, ROUND - rounded)
    x = b.fma(position, rest, x)
    square = x * x
    sin, cos = f32(SIN_PI[-1]), f32(COS_PI[-1])
    for factor in SIN_PI[-2::-1]:
        sin = b.fma(sin, square, f32(factor))
    for factor in COS_PI[-2::-1]:
        cos = b.fma(cos, square, f32(factor))
    sign = b.bitcast(rounded, I32) << 31
    signed = [b.bitcast(b.bitcast(each, I32) ^ sign, FLOAT) for each in (sin * x, cos)]
    return signed[0], signed[1]


def approx_sincospi(b: Any, position: Any, rate: Any, rest: Any) -> tuple[Any, Any]:
    """`sincospi` with an error of up to 1e-6."""
    rounded = b.fma(position, rate, f32(2 * ROUND))
    x = b.fma(position, rate, 2 * ROUND - rounded)
    x = b.fma(position, rest, x) * math.pi
    sin, cos = (b.pure(f"{f}.approx.ftz.f32 $0, $1;", "=f,f", FLOAT, x) for f in ("sin", "cos"))
    return sin, cos


def seeds(b: Any, position: Any, rates: Sequence[Any], approx: bool = False) -> list[Any]:
    """(cos, sin) of each pair at a float32 position."""
    of = approx_sincospi if approx else sincospi
    made = [of(b, position, rates[i], rates[i + 1]) for i in range(0, len(rates), 2)]
    return [value for sin, cos in made for value in (cos, sin)]


def advance(b: Any, cos_sin: Sequence[Any], step: Sequence[Any]) -> list[Any]:
    """Advance each (cos, sin) by a constant angle, whose (cos - 1, sin) is `step`: four multiply-adds a pair."""
    made = []
    for i in range(0, len(cos_sin), 2):
        cos, sin, less, by = cos_sin[i], cos_sin[i + 1], step[i], step[i + 1]
        made += [b.fma(cos, less, b.fma(-sin, by, cos)), b.fma(sin, less, b.fma(cos, by, sin))]
    return made


def advanced(b: Any, cos_sin: Any, step: Any) -> Iterator[Any]:
    """Advance by cos(a + 2d) = 2 cos(d) cos(a + d) - cos(a), sin alike: errors stay below 4e-6 for eight rows."""
    twice = [b.fma(f32(2.0), less, f32(2.0)) for less in step[::2]]
    after = advance(b, cos_sin, step) if step else []
    while True:
        yield cos_sin
        following = [b.fma(twice[i // 2], x, -before) for i, (x, before) in enumerate(zip(after, cos_sin))]
        cos_sin, after = after, following


def state_size(shape: Shape, chunks: int, steps: bool = True) -> int:
    """Number of float32 that a lane holds for its pairs: rates, and the step from key to key; 4 where it has none."""
    per_chunk = {"rates": 1 + steps, "positions": 1}.get(shape.embedding, 0) * shape.element.vector
    return chunks * per_chunk or 4


@register_op(lambda shape, chunks, steps=True: floats(state_size(shape, chunks, steps)))
def begin(b, rotation, chunk, *, shape, chunks, steps=True):
    """Load the state of `cos_sins`. Chunks are `shape.lanes` apart; without `steps` it serves one key alone."""
    size, vector = state_size(shape, chunks, steps), shape.element.vector
    starts = [part * shape.dims + number * shape.lanes * vector for part in range(2) for number in range(chunks)]
    if shape.embedding not in ("rates", "positions"):
        return [f32(0.0)] * size
    address = Rotation(*rotation).rates + b.zext(chunk * (4 * vector), I64)
    offsets = [4 * (start + i) for start in starts[: size // vector] for i in range(0, vector, 4)]
    return b.as_floats([word for at in offsets for word in b.load_words("ld.global.nc", address, 4, at)])


def cos_sins(
    shape: Shape, b: Any, state: Sequence[Any], rotation: Sequence[Any], where: Sequence[Any], stride: int
) -> Iterator[list[Any]]:
    """(cos, sin) of a lane's pairs for keys first, first + stride, ... up to `last`.

    `where` is (batch, first, last, the lane's chunk, chunks).
    """
    given = Rotation(*rotation)
    batch, first, last, chunk, chunks = where
    size = chunks * shape.element.vector
    if shape.embedding == "rates":
        cos_sin = seeds(b, b.sitofp(first, FLOAT), state[:size], shape.approx_angles)
        if shape.approx_angles:
            yield from advanced(b, cos_sin, state[size:])
        while True:
            yield cos_sin
            cos_sin = advance(b, cos_sin, state[size:])
    index = first
    while True:
        position = b.smaller(index, last)
        if shape.embedding in ("positions", "placed_tables"):
            position = b.select(position < 0, i32(0), position)  # of a query that sees no key
            offset = b.sext(position, I64) + b.sext(batch, I64) * b.sext(given.batch, I64)
            address = given.positions + (offset << 2)
            (position,) = b.load_words("ld.global.nc", address, 1)
        if shape.embedding == "positions":
            inside = b.icmp_unsigned("<", position, i32(MOST_POSITIONS))
            made = seeds(b, b.sitofp(position, FLOAT), state[:size])
            yield [b.select(inside, value, f32(float("nan"))) for value in made]
        else:
            yield _table_rows(shape, b, given, position, chunk, chunks)
        index = index + stride


def rotate_row(
    shape: Shape, b: Any, x: list[Any], state: Any, rotation: Any, batch: Any, index: Any, chunk: Any
) -> list[Any]:
    """A chunk of the row at `index`, rotated where the shape rotates."""
    if not shape.rotates:
        return x
    angles = cos_sins(shape, b, state, rotation, (batch, index, index, chunk, 1), 1)
    return rotate(b, x, next(angles), pairs_of(shape, 1))


def _table_rows(shape: Shape, b: Any, given: Rotation, position: Any, chunk: Any, chunks: int) -> list[Any]:
    half = shape.element.vector // 2
    inside = b.icmp_unsigned("<", position, given.rows)
    row = b.sext(b.select(inside, position, i32(0)), I64) * b.sext(given.pitch, I64)
    pairs = b.ashr(given.rotary_dim, i32(1))
    made = []
    for number in range(chunks):
        first = (chunk + shape.lanes * number) * half
        for i in range(half):
            pair = first + i
            rotated = pair < pairs
            offset = (row + b.sext(b.select(rotated, pair, i32(0)), I64)) << 2
            for table, still in ((given.cos, 1.0), (given.sin, 0.0)):
                (value,) = b.as_floats(b.load_words("ld.global.nc", table + offset, 1))
                value = b.select(inside, value, f32(float("nan")))
                made.append(b.select(rotated, value, f32(still)))
    return made
