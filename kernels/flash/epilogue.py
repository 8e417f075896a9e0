"""Epilogue: the warps' accumulators of a block to one partial result, or to the output where keys are not split."""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, types, uint64

from ..device.asm import exp2 as power_of_two
from ..device.vector import advance
from .dtype import Dtype
from .schedule import DecodeShape, query_of
from .softmax import NO_KEY
from .tiles import I64, as_words, constant, f32, floats, load_shared, maximum, op, store_words


def store_row(element: Dtype) -> Any:
    """write(tensors, sizes, batch, head, row, dim, (four outputs, row max, row sum)): divided, rounded; 0 without keys.

    `row` counts the rows of a KV head; those behind the last are not written.
    """

    @op(types.void)
    def put(b, pointer, index, state):
        has_keys = b.fcmp_unordered("!=", state[5], f32(0.0))
        by = b.select(has_keys, b.fdiv(f32(1.0), state[5]), f32(0.0))
        address = b.add(pointer, b.mul(b.sext(index, I64), I64(element.size)))
        store_words(b, "st.global", address, element.words(b, [b.fmul(x, by) for x in state[:4]]))

    @cuda.jit(device=True, forceinline=True)
    def write(tensors, sizes, batch, head, row, dim, state):
        if row < sizes.group * sizes.seq_q:
            of_group, query = query_of(row, sizes)
            out = advance(tensors.out, uint64(batch) * tensors.out_batch)
            out = advance(out, uint64(head * sizes.group + of_group) * tensors.out_head)
            put(advance(out, uint64(query) * uint64(tensors.out_row)), dim, state)

    return write


@op(types.void)
def store_part(b, workspace, place, row, first, state):
    """Four outputs at element `place`, and with `first` the statistics of the row."""
    part, maxima = workspace
    store_words(b, "st.global", b.add(part, b.shl(b.zext(place, I64), I64(2))), as_words(b, state[:4]))
    with b.if_then(first):
        store_words(b, "st.global", b.add(maxima, b.shl(b.zext(row, I64), I64(3))), as_words(b, state[4:]))


@op(floats(6))
def add_warp(b, state, values, factor, total):
    out = [b.fma(factor, x, y) for x, y in zip(values, state[:4])]
    return [*out, state[4], b.fma(factor, total, state[5])]


@op(floats(6))
def with_max(b, state, row_max):
    return [*state[:4], row_max, state[5]]


@op(types.float32)
def larger(b, x, y):
    return maximum(b, x, y)


def finish(shape: DecodeShape) -> Any:
    """done(shared, tid, tensors, sizes, workspace, block, split): `block` is (batch, head, tile, flat head).

    Accumulators and statistics of all warps are in shared memory, in front of a barrier that it has.
    """
    at, warps, rows, pitch = shape.layout, shape.warps, shape.rows, shape.row_pitch
    sums, row_max, row_sum = at["sums"], at["row_max"], at["row_sum"]
    quads, hdim, threads = shape.hdim // 4, shape.hdim, shape.threads
    load, zero, write = load_shared(4), constant(6, 0.0), store_row(shape.element)
    no_key = float32(NO_KEY)

    @cuda.jit(device=True, forceinline=True)
    def done(shared, tid, tensors, sizes, workspace, block, split):
        batch, head, tile, flat = block
        cuda.syncthreads()
        item = tid
        while item < rows * quads:
            row = item // quads
            dim = 4 * (item - row * quads)
            top = no_key
            for warp in range(warps):
                top = larger(top, shared[row_max + warp * rows + row])
            state = with_max(zero(), top)
            for warp in range(warps):
                factor = power_of_two(shared[row_max + warp * rows + row] - top)
                values = load(shared, sums + (warp * rows + row) * pitch + dim)
                state = add_warp(state, values, factor, shared[row_sum + warp * rows + row])
            if sizes.splits == 1:
                write(tensors, sizes, batch, head, tile * rows + row, dim, state)
            else:
                place = (flat * sizes.splits + split) * rows + row
                store_part(workspace, place * hdim + dim, place, dim == 0, state)
            item += threads

    return done
