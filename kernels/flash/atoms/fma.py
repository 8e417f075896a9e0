"""Scores and weighted sums on FMA units: a lane owns some dims of a key, and all rows of queries in them."""

from typing import Any

from numba import cuda, types

from ..embed import pairs_of, rotate, turns
from ..loads import beyond
from ..schedule import WARP, Atoms, DecodeShape
from ..softmax import masks_of, sum_lanes
from ..tiles import f32, floats, ints, op


def held(shape: DecodeShape) -> int:
    """Scores of the lanes that share a key: at most one a lane."""
    return shape.batch_rows * shape.rows


def first_bit(shape: DecodeShape) -> int:
    """Bit of a lane from which on it tells of its row, then of its key."""
    return (shape.lanes // held(shape)).bit_length() - 1


def split(shape: DecodeShape, b: Any, lane: Any) -> tuple[Any, Any]:
    """(key among those abreast, chunk) of a lane."""
    return lane >> (shape.lanes.bit_length() - 1), lane & (shape.lanes - 1)


@op(lambda shape: ints(4))
def places(b, shape, lane):
    slot, chunk = split(shape, b, lane)
    value = chunk >> first_bit(shape)
    key = (value >> (shape.rows.bit_length() - 1)) * shape.row_step
    return slot, chunk, value & (shape.rows - 1), key + slot


@op(lambda shape: types.void)
def store_queries(b, shape, shared, row, chunk, values):
    dim = row * shape.dims + chunk * shape.element.vector
    b.store_floats(b.at_float(shared, dim), values, 4 * shape.layout["query"])


@op(lambda shape: floats(shape.rows * shape.elements))
def load_queries(b, shape, shared, chunk):
    """A lane's dims of all rows."""
    vector, step, query = shape.element.vector, shape.lanes * shape.element.vector, shape.layout["query"]
    address = b.at_float(shared, chunk * vector)
    starts = [query + r * shape.dims + c * step for r in range(shape.rows) for c in range(shape.chunks)]
    return [x for start in starts for x in b.load_floats(address, vector, 4 * start)]


@op(lambda shape: floats(held(shape)))
def dot(b, shape, shared, warp, lane, keys, begun, rotation, where):
    """The lane's part of each score."""
    registers, pairs = 4 * shape.chunks, pairs_of(shape, shape.chunks)
    (state, queries), parts, chunk = begun, [], split(shape, b, lane)[1]
    turned = turns(shape, b, state, rotation, (*where, chunk, shape.chunks), shape.row_step)
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
            total = x[0] * q[0]
            for element in range(1, shape.elements):
                total = b.fma(x[element], q[element], total)
            parts.append(total)
    return parts


@op(lambda shape: floats(1))
def reduce_scatter(b, shape, shared, warp, lane, values):
    """Sums over the lanes of a key; lane l of them gets that of part l * held // lanes.

    A butterfly that halves what each lane holds: `held` - 1 shuffles and some, where a sum for all takes 5 each.
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


@op(lambda shape: floats(shape.rows * shape.elements))
def accumulate(b, shape, shared, warp, lane, acc, values, weights):
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
    """scale(b, acc, factors, lane): each row by the factor of a lane that has it."""

    def scale(b, acc, factors, lane):
        made = []
        for row in range(shape.rows):
            by = b.shuffle("idx", factors[0], row << first_bit(shape))
            made += [x * by for x in acc[row * shape.elements : (row + 1) * shape.elements]]
        return made

    return scale


@op(lambda shape: types.void)
def store_sums(b, shape, shared, warp, lane, acc):
    """A warp's accumulators to [row][dim], summed over the keys abreast."""
    vector, step = shape.element.vector, shape.lanes * shape.element.vector
    slots = masks_of(shape.lanes.bit_length() - 1, WARP.bit_length() - 1)
    (slot, chunk), values = split(shape, b, lane), sum_lanes(b, acc, slots)
    first = warp * (shape.rows * shape.row_pitch) + chunk * vector
    address = b.at_float(shared, first)
    with b.if_then(slot == 0):
        for i in range(0, len(values), 4):
            row, inside = divmod(i, shape.elements)
            place = row * shape.row_pitch + inside // vector * step + inside % vector
            b.store_floats(address, values[i : i + 4], 4 * (shape.layout["sums"] + place))


def atoms(shape: DecodeShape) -> Atoms:
    queries_of = load_queries(shape)
    masks = masks_of(first_bit(shape) + shape.rows.bit_length() - 1, WARP.bit_length() - 1)
    offsets = tuple(shape.row_step * i for i in range(shape.batch_rows))

    @cuda.jit(device=True, forceinline=True)
    def prepare(shared, tid, state, chunk):
        cuda.syncthreads()
        return state, queries_of(shared, chunk)

    return Atoms(
        offsets, shape.chunks, shape.lanes, (0,), masks, shape.rows * shape.elements, rescale(shape), places(shape),
        store_queries(shape), prepare, dot(shape), reduce_scatter(shape), accumulate(shape), store_sums(shape),
    )  # fmt: skip
