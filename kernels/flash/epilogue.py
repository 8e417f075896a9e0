"""Epilogue: the warps' accumulators of a block to one partial result, or to the output where keys are not split."""

import functools
from collections.abc import Sequence
from typing import Any

from numba import cuda, types, uint64

from ..device.cint import cint
from ..device.vector import advance
from .schedule import DecodeShape, query_of
from .softmax import NO_KEY
from .tiles import FLOAT, I64, f32, floats, op


def inverse(b: Any, total: Any) -> Any:
    """1 / total to 2^-23, 0 of a row without keys. An exact division would be a call."""
    has_keys = b.fcmp_unordered("!=", total, f32(0.0))
    return b.select(has_keys, b.pure("rcp.approx.ftz.f32 $0, $1;", "=f,f", FLOAT, total), f32(0.0))


def exact_inverse(b: Any, total: Any) -> Any:
    """`inverse`, and one step of Newton's."""
    by = inverse(b, total)
    return b.fma(by, b.fma(-total, by, f32(1.0)), by)


@op(lambda element: types.void)
def store_quad(b, element, pointer, index, state):
    """Four outputs of `state` (and row max, row sum): divided, rounded; 0 without keys."""
    by = exact_inverse(b, state[5])
    address = pointer + b.sext(index, I64) * element.size
    b.store_words("st.global", address, element.words(b, [x * by for x in state[:4]]))


@cuda.jit(device=True, forceinline=True)
def out_row(tensors, sizes, batch, head, row):
    """Where a row of a KV head begins in the output."""
    of_group, query = query_of(row, sizes)
    out = advance(tensors.out, uint64(batch) * tensors.out_batch)
    out = advance(out, uint64(head * sizes.group + of_group) * tensors.out_head)
    return advance(out, uint64(query) * uint64(tensors.out_row))


@op(types.void)
def store_part(b, workspace, place, row, first, state):
    """For `combine`: four outputs at element `place`, and with `first` the statistics of the row."""
    part, totals = workspace
    b.store_words("st.global", part + (b.zext(place, I64) << 2), b.as_words(state[:4]))
    with b.if_then(first):
        b.store_words("st.global", totals + (b.zext(row, I64) << 3), b.as_words(state[4:]))


@op(lambda shape: types.void)
def store_statistics(b, shape, shared, index, g, values):
    """Store that of row g of each set of 8, where the shape has that row."""
    for number, value in enumerate(b.as_words(values)):
        row = g + 8 * number
        with b.if_then(row < shape.rows):
            b.store_words("st.shared", b.at_float(shared, index + row), [value])


def merged(b: Any, state: Sequence[Any], parts: Sequence[Sequence[Any]]) -> list[Any]:
    """A partial result (four outputs, row max, row sum) with others of its row added."""
    highest = functools.reduce(b.maximum, [part[4] for part in parts], state[4])
    factor = b.exp2(state[4] - highest)
    out = [x * factor for x in (*state[:4], state[5])]
    for part in parts:
        factor = b.exp2(part[4] - highest)
        out = [b.fma(x, factor, y) for x, y in zip((*part[:4], part[5]), out)]
    return [*out[:4], highest, out[4]]


def no_keys() -> list[Any]:
    return [f32(x) for x in (0.0, 0.0, 0.0, 0.0, NO_KEY, 0.0)]


@op(lambda shape: floats(6))
def merge_warps(b, shape, shared, row, dim):
    """The partial result of a row, of all warps, from `dim` on."""
    at, rows, pitch, parts = shape.layout, shape.rows, shape.row_pitch, []
    row_at, sums = b.at_float(shared, row), b.at_float(shared, row * pitch + dim)
    for warp in range(shape.warps):
        part = b.load_words("ld.shared", sums, 4, 4 * (at["sums"] + warp * rows * pitch))
        for statistic in ("row_max", "row_sum"):
            part += b.load_words("ld.shared", row_at, 1, 4 * (at[statistic] + warp * rows))
        parts.append(b.as_floats(part))
    return merged(b, no_keys(), parts)


def finish(shape: DecodeShape) -> Any:
    """done(shared, tid, tensors, sizes, workspace, block, split): `block` is (batch, KV head, tile).

    Accumulators and statistics of all warps are in shared memory, in front of a barrier that it has.
    """
    rows, quads, hdim, threads = shape.rows, shape.hdim // 4, shape.hdim, shape.threads
    of_warps, put = merge_warps(shape), store_quad(shape.element)

    @cuda.jit(device=True, forceinline=True)
    def done(shared, tid, tensors, sizes, workspace, block, split):
        batch, head, tile = block
        head_rows, heads = sizes.group * sizes.seq_q, sizes.kv_heads
        cuda.syncthreads()
        item = tid
        while item < rows * quads:
            row = item // quads
            dim = 4 * (item - row * quads)
            of_head = tile * rows + row
            if of_head < head_rows:
                state = of_warps(shared, row, dim)
                if sizes.splits == 1:
                    put(out_row(tensors, sizes, batch, head, of_head), dim, state)
                else:
                    place = ((split * cint(cuda.gridDim.z) + batch) * heads + head) * head_rows + of_head
                    store_part(workspace, place * hdim + dim, place, dim == 0, state)
            item += threads

    return done
