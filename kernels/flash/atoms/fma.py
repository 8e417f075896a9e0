"""Scores and weighted sums on FMA units: a lane has some dims of a key, and the same dims of all rows of queries."""

from typing import Any

from numba import cuda, types

from ..embed import cos_sins, pairs_of, rotate
from ..loads import beyond
from ..schedule import WARP, Atoms, DecodeShape
from ..softmax import masks_of, sum_lanes
from ..tiles import f32, floats, ints, register_op


def held(shape: DecodeShape) -> int:
    """Number of scores of the lanes that share a key: at most one a lane."""
    return shape.batch_rows * shape.rows


def first_bit(shape: DecodeShape) -> int:
    """The bit of a lane's number where its row begins, followed by its key."""
    return (shape.lanes // held(shape)).bit_length() - 1


def split(shape: DecodeShape, b: Any, lane: Any) -> tuple[Any, Any]:
    """(slot, chunk) of a lane: its key among those that a warp has at once, and its chunk of that key."""
    return lane >> (shape.lanes.bit_length() - 1), lane & (shape.lanes - 1)


@register_op(ints(4))
def indices(b, lane, *, shape):
    """(row of V, chunk of V, row of scores, key of scores) of a lane."""
    slot, chunk = split(shape, b, lane)
    value = chunk >> first_bit(shape)
    key = (value >> (shape.rows.bit_length() - 1)) * shape.row_step
    return slot, chunk, value & (shape.rows - 1), key + slot


@register_op(types.void)
def store_queries(b, shared, row, chunk, values, *, shape):
    dim = row * shape.dims + chunk * shape.element.vector
    b.store_floats(b.at_float(shared, dim), values, 4 * shape.layout["query"])


@register_op(lambda shape: floats(shape.rows * shape.elements))
def load_queries(b, shared, chunk, *, shape):
    """A lane's dims of all rows."""
    vector, step, query = shape.element.vector, shape.lanes * shape.element.vector, shape.layout["query"]
    address = b.at_float(shared, chunk * vector)
    starts = [query + r * shape.dims + c * step for r in range(shape.rows) for c in range(shape.chunks)]
    return [x for start in starts for x in b.load_floats(address, vector, 4 * start)]


@register_op(lambda shape: floats(held(shape)))
def dot(b, shared, warp, lane, keys, begun, rotation, where, *, shape):
    """The lane's part of each score."""
    registers, pairs = 4 * shape.chunks, pairs_of(shape, shape.chunks)
    (state, queries), parts, chunk = begun, [], split(shape, b, lane)[1]
    angles = cos_sins(shape, b, state, rotation, (*where, chunk, shape.chunks), shape.row_step)
    for key in range(shape.batch_rows):
        x = shape.element.floats(b, keys[registers * key : registers * (key + 1)])
        for i in range(shape.elements):
            outside = beyond(shape, b, chunk, i // shape.element.vector)
            if outside is not None:
                x[i] = b.select(outside, f32(0.0), x[i])
        if shape.rotates:
            x = rotate(b, x, next(angles), pairs)
        for row in range(shape.rows):
            q = queries[row * shape.elements : (row + 1) * shape.elements]
            total = x[0] * q[0]
            for element in range(1, shape.elements):
                total = b.fma(x[element], q[element], total)
            parts.append(total)
    return parts


@register_op(floats(1))
def reduce_scatter(b, shared, warp, lane, values, *, shape):
    """Sums over the lanes of a key; lane l of them gets the sum of part l * held // lanes.

    A butterfly that halves the parts of each lane: little more than `held` - 1 shuffles, not 5 for each part.
    """
    mask = shape.lanes // 2
    while len(values) > 1:
        half = len(values) // 2
        upper = lane & mask != 0
        kept = []
        for i in range(half):
            keep, send = (b.select(upper, values[i + k], values[i + half - k]) for k in (half, 0))
            kept.append(keep + b.shuffle("bfly", send, mask))
        values, mask = kept, mask // 2
    return sum_lanes(b, values, masks_of(0, mask.bit_length()))


@register_op(lambda shape: floats(shape.rows * shape.elements))
def accumulate(b, shared, warp, lane, acc, values, weights, *, shape):
    """acc[row][dim] plus the sum over keys of weights[key][row] values[key][dim]; lanes exchange their weights."""
    registers, count, weights_at = 4 * shape.chunks, held(shape), shape.layout["weights"]
    slot, chunk = split(shape, b, lane)
    group = b.at_float(shared, warp * WARP + slot * count)
    b.sync_warp()
    mine = b.at_float(group, chunk >> first_bit(shape))
    b.store_words("st.shared", mine, b.as_words(weights), 4 * weights_at)
    b.sync_warp()
    weights = b.load_floats(group, count, 4 * weights_at)
    for key in range(shape.batch_rows):
        x = shape.element.floats(b, values[registers * key : registers * (key + 1)])
        for row in range(shape.rows):
            for element in range(shape.elements):
                i = row * shape.elements + element
                acc[i] = b.fma(x[element], weights[key * shape.rows + row], acc[i])
    return acc


def rescale(shape: DecodeShape) -> Any:
    """scale(b, acc, factors, lane): multiply each row by the factor of a lane that has the row's scores."""

    def scale(b, acc, factors, lane):
        made = []
        for row in range(shape.rows):
            by = b.shuffle("idx", factors[0], row << first_bit(shape))
            made += [x * by for x in acc[row * shape.elements : (row + 1) * shape.elements]]
        return made

    return scale


@register_op(types.void)
def store_sums(b, shared, warp, lane, acc, *, shape):
    """Store a warp's accumulators as [row][dim], summed over its slots of keys."""
    vector, step = shape.element.vector, shape.lanes * shape.element.vector
    slots = masks_of(shape.lanes.bit_length() - 1, WARP.bit_length() - 1)
    (slot, chunk), values = split(shape, b, lane), sum_lanes(b, acc, slots)
    first = warp * (shape.rows * shape.row_pitch) + chunk * vector
    address = b.at_float(shared, first)
    with b.if_then(slot == 0):
        for i in range(0, len(values), 4):
            row, inside = divmod(i, shape.elements)
            index = row * shape.row_pitch + inside // vector * step + inside % vector
            b.store_floats(address, values[i : i + 4], 4 * (shape.layout["sums"] + index))


def atoms(shape: DecodeShape) -> Atoms:
    """The functions of a shape."""
    queries_of = load_queries(shape)
    masks = masks_of(first_bit(shape) + shape.rows.bit_length() - 1, WARP.bit_length() - 1)
    offsets = tuple(shape.row_step * i for i in range(shape.batch_rows))

    @cuda.jit(device=True, forceinline=True)
    def prepare(shared, tid, state, chunk):
        cuda.syncthreads()
        return state, queries_of(shared, chunk)

    return Atoms(
        offsets, shape.chunks, shape.lanes, (0,), masks, shape.rows * shape.elements, rescale(shape), indices(shape),
        store_queries(shape), prepare, dot(shape), reduce_scatter(shape), accumulate(shape), store_sums(shape),
    )  # fmt: skip
