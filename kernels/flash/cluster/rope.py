"""RoPE in the V8 cores: the rotation of pairs, and as the ops expose it, their layout, positions, and rates or tables.

A position outside [0, 2^20), or outside the tables, gives NaN, never a wrong number.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from numba import cuda, float32, types, uint64

from ...constants import FLOATS, INTS, MOST_POSITIONS
from ...device import advance, ld2, ld4, make_float4, rotate
from ...device.angle import sincospi
from ...rates import rates_of_turning
from ...version import Buffer
from .embedding import Embedding, no_values

NAN = float32(float("nan"))


@cuda.jit(device=True)
def rates_of(rates, dim):
    """The two parts of the rate of each of two pairs."""
    return ld4(rates, dim)


@cuda.jit(device=True)
def cos_sin(rates, position, dim, rate, hdim):
    sin0, cos0 = sincospi(float32(position), rate.x, rate.y)
    sin1, cos1 = sincospi(float32(position), rate.z, rate.w)
    return cos0, sin0, cos1, sin1


@cuda.jit(device=True)
def rotate_pairs(x, cos0, sin0, cos1, sin1):
    x0, x1 = rotate(x.x, x.y, cos0, sin0)
    x2, x3 = rotate(x.z, x.w, cos1, sin1)
    return make_float4(x0, x1, x2, x3)


@cuda.jit(device=True)
def rotate_pairs_odd(x, cos0, sin0, cos1, sin1):
    """As `rotate_pairs`, but a pair with cos 1 and sin 0 stays as it is even if infinite: the one after
    an odd number of pairs.
    """
    y = rotate_pairs(x, cos0, sin0, cos1, sin1)
    if cos1 == float32(1.0) and sin1 == float32(0.0):
        y = make_float4(y.x, y.y, x.z, x.w)
    return y


ROPE = Embedding("rope", rates_of, cos_sin, rotate_pairs)


def of_pairs(embedding: Embedding, rotary_dim: int) -> Embedding:
    """`embedding` for `rotary_dim` dims: two pairs are rotated at a time, so an odd number leaves one unrotated."""
    if rotary_dim % 4 == 0:
        return embedding
    return replace(embedding, name=f"{embedding.name}_odd", apply=rotate_pairs_odd)


def rates_buffer(rotary_dim: int) -> Buffer:
    """The rates of the documents' base, as a buffer of a plan."""
    return Buffer((-(-rotary_dim // 4) * 2, 2), init=partial(rates_of_turning, rotary_dim))


class Places(NamedTuple):
    """Rates, and the int32 position of each index; sequences are `batch` elements apart."""

    rates: Any
    positions: Any
    batch: Any


class Tables(NamedTuple):
    """Cosines and sines, a row of `pitch` elements for each of `count` positions."""

    cos: Any
    sin: Any
    pitch: Any
    count: Any


class PlacedTables(NamedTuple):
    """Tables and positions."""

    cos: Any
    sin: Any
    pitch: Any
    count: Any
    positions: Any
    batch: Any


PLACES = types.NamedTuple((FLOATS, INTS, types.uint64), Places)
TABLES = types.NamedTuple((FLOATS, FLOATS, types.uint32, types.int32), Tables)
PLACED_TABLES = types.NamedTuple((*TABLES.types, INTS, types.uint64), PlacedTables)


@cuda.jit(device=True)
def rates_at(places, dim):
    return rates_of(places.rates, dim)


@cuda.jit(device=True)
def cos_sin_at(places, index, dim, rate, hdim):
    position = places.positions[index]
    cos0, sin0, cos1, sin1 = cos_sin(places.rates, position, dim, rate, hdim)
    if position < 0 or position >= MOST_POSITIONS:
        cos0, sin0, cos1, sin1 = NAN, NAN, NAN, NAN
    return cos0, sin0, cos1, sin1


@cuda.jit(device=True)
def places_of(places, batch):
    return Places(places.rates, advance(places.positions, uint64(batch) * places.batch), places.batch)


@cuda.jit(device=True)
def row_of(tables, position, dim, dim_values, hdim):
    cos0, sin0, cos1, sin1 = NAN, NAN, NAN, NAN
    if position >= 0 and position < tables.count:
        at = uint64(uint64(position) * uint64(tables.pitch) + uint64(dim // 2))
        cos0, cos1 = ld2(tables.cos, at)
        sin0, sin1 = ld2(tables.sin, at)
    return cos0, sin0, cos1, sin1


@cuda.jit(device=True)
def row_at(tables, index, dim, dim_values, hdim):
    return row_of(tables, tables.positions[index], dim, dim_values, hdim)


@cuda.jit(device=True)
def placed_tables_of(tables, batch):
    positions = advance(tables.positions, uint64(batch) * tables.batch)
    return PlacedTables(tables.cos, tables.sin, tables.pitch, tables.count, positions, tables.batch)


MODES = {
    (False, False): (ROPE, FLOATS),
    (False, True): (Embedding("rope_at", rates_at, cos_sin_at, rotate_pairs, table_of_batch=places_of), PLACES),
    (True, False): (Embedding("rope_table", no_values, row_of, rotate_pairs), TABLES),
    (True, True): (
        Embedding("rope_table_at", no_values, row_at, rotate_pairs, table_of_batch=placed_tables_of),
        PLACED_TABLES,
    ),
}


def mode(tables: bool, positions: bool, half_split: bool, rotary_dim: int) -> tuple[Embedding, Any]:
    """The embedding for `rotary_dim` dims, and the Numba type of its table.

    Its arguments are the rates, or cos, sin, their pitch and number of rows; then the positions and their batch stride.
    """
    embedding, table_type = MODES[tables, positions]
    embedding = of_pairs(embedding, rotary_dim)
    if half_split:
        embedding = replace(embedding, name=f"{embedding.name}_halves", half_split=True)
    return embedding, table_type
