"""RoPE in the V8 cores as the ops expose it: the pairing of dims, the positions, and rates or tables.

A position outside [0, 2^20), or outside the tables, gives NaN, never a wrong number.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from numba import cuda, float32, types, uint64

from ..constants import FLOATS, INTS
from ..device.vector import advance, ld2
from ..flash.cluster import Embedding
from ..flash.cluster.embedding import MOST_POSITIONS, no_values
from .v8 import ROPE, cos_sin, of_pairs, rates_of, rotate_pairs

NAN = float32(float("nan"))


class Places(NamedTuple):
    """Rates, and the int32 position at each place; sequences are `batch` elements apart."""

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
def cos_sin_at(places, place, dim, rate, hdim):
    position = places.positions[place]
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
def row_at(tables, place, dim, dim_values, hdim):
    return row_of(tables, tables.positions[place], dim, dim_values, hdim)


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
