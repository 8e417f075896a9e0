"""Combine: the partial results of all splits of a row to its output, in a second launch."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32

from ..device.cint import cint
from ..version import Kernel, SharedLayout
from .args import types_of
from .dtype import DTYPES
from .epilogue import store_row
from .softmax import NO_KEY
from .tiles import (
    I64,
    as_floats,
    constant,
    exp2,
    f32,
    floats,
    i32,
    load_shared,
    load_words,
    maximum,
    op,
    smaller,
    store_shared,
    wait_for_launch,
)

IN_FLIGHT = 8  # partial results that a thread asks for at a time
THREADS = 128  # of a block, or as many as there are quads of dims
SCRATCH = 8  # floats a thread: four of the output, row max and row sum


def merge(in_flight: int = IN_FLIGHT) -> Any:
    """merged(state, workspace, place, row, pitches, first, stride, splits) -> state (four outputs, row max, row sum).

    Adds splits first, first + stride, ...: at most `in_flight`, all asked for at once. `place` is the element of the
    first split's output and `row` its row; (row pitch, output pitch) lie between splits.
    """

    @op(floats(6))
    def merged(b, state, workspace, place, row, pitches, first, stride, splits):
        part, maxima = workspace
        indices = [b.add(first, b.mul(stride, i32(i))) for i in range(in_flight)]
        clamped = [smaller(b, index, b.sub(splits, i32(1))) for index in indices]
        statistics, outputs = [], []
        for index in clamped:
            at = b.add(b.zext(row, I64), b.mul(b.zext(index, I64), b.zext(pitches[0], I64)))
            statistics.append(as_floats(b, load_words(b, "ld.global", b.add(maxima, b.shl(at, I64(3))), 2)))
        for index in clamped:
            at = b.add(b.zext(place, I64), b.mul(b.zext(index, I64), b.zext(pitches[1], I64)))
            outputs.append(as_floats(b, load_words(b, "ld.global", b.add(part, b.shl(at, I64(2))), 4)))
        there = [b.icmp_signed("<", index, splits) for index in indices]
        tops = [b.select(is_there, top, f32(NO_KEY)) for is_there, (top, _) in zip(there, statistics)]
        highest = state[4]
        for top in tops:
            highest = maximum(b, highest, top)
        factor = exp2(b, b.fsub(state[4], highest))
        out = [b.fmul(x, factor) for x in (*state[:4], state[5])]
        for is_there, top, output, (_, total) in zip(there, tops, outputs, statistics):
            factor = b.select(is_there, exp2(b, b.fsub(top, highest)), f32(0.0))
            out = [b.fma(x, factor, y) for x, y in zip((*output, total), out)]
        return [*out[:4], highest, out[4]]

    return merged


@op(floats(6))
def empty(b, values):
    """No keys yet: outputs 0, row max -1e30, row sum 0."""
    return [*values[:4], f32(NO_KEY), f32(0.0)]


@op(floats(8))
def padded(b, state):
    return [*state, f32(0.0), f32(0.0)]


@op(floats(6))
def joined(b, state, other):
    """Two partial results of a row."""
    top = maximum(b, state[4], other[4])
    mine, theirs = exp2(b, b.fsub(state[4], top)), exp2(b, b.fsub(other[4], top))
    both = [b.fma(y, theirs, b.fmul(x, mine)) for x, y in zip((*state[:4], state[5]), (*other[:4], other[5]))]
    return [*both[:4], top, both[4]]


@functools.cache
def combine_kernel(dtype: str, hdim: int, overlap: bool) -> tuple[Kernel, SharedLayout]:
    """One block a row of queries: grid (rows, KV heads * tiles, batch); all its threads share the splits."""
    quads, element = hdim // 4, DTYPES[dtype]
    threads = quads * max(1, THREADS // quads)
    helpers = threads // quads
    merged, zero, load, store, write = merge(), constant(6, 0.0), load_shared(8), store_shared(8), store_row(element)
    begin, pad, join = empty, padded, joined

    def kernel(tensors, sizes, rotation, workspace):
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            wait_for_launch()
        row, y, batch, tid = cint(cuda.blockIdx.x), cint(cuda.blockIdx.y), cint(cuda.blockIdx.z), cint(cuda.threadIdx.x)
        head, tile, rows = y // sizes.tiles, y % sizes.tiles, sizes.tile_rows
        if tile * rows + row < sizes.group * sizes.seq_q:
            split = tid // quads
            dim = 4 * (tid - split * quads)
            at = (batch * cint(cuda.gridDim.y) + y) * sizes.splits * rows + row
            state = begin(zero())
            while split < sizes.splits:
                pitches = (rows, rows * hdim)
                state = merged(state, workspace, at * hdim + dim, at, pitches, split, cint(helpers), sizes.splits)
                split += helpers * IN_FLIGHT
            if helpers > 1:
                store(shared, tid * SCRATCH, pad(state))
                cuda.syncthreads()
                if tid < quads:
                    for other in range(1, helpers):
                        state = join(state, load(shared, (tid + other * quads) * SCRATCH))
            if tid < quads:
                write(tensors, sizes, batch, head, tile * rows + row, dim, state)

    kernel.__name__ = kernel.__qualname__ = f"combine_{dtype}_d{hdim}{'_pdl' * overlap}"
    return Kernel(kernel, types_of(element), threads), SharedLayout(scratch=SCRATCH * threads)
