"""Combine: the partial results of all splits of a row to its output, in a second launch."""

import functools

from numba import cuda, float32, types

from ..device.cint import cint
from ..version import Kernel, SharedLayout
from .args import types_of
from .dtype import DTYPES
from .epilogue import merged, no_keys, store_row
from .softmax import NO_KEY
from .tiles import I64, as_floats, as_words, f32, floats, i32, load_words, op, smaller, store_words, wait_for_launch

IN_FLIGHT = 8  # partial results that a thread asks for at a time
THREADS = 128  # of a block, or as many as there are quads of dims
SCRATCH = 8  # floats a thread: four of the output, row max and row sum


@op(floats(6))
def empty(b):
    return no_keys()


@op(floats(6))
def add_splits(b, state, workspace, place, row, pitches, first, stride, splits):
    """Add splits first, first + stride, ...: at most `IN_FLIGHT`, all asked for at once.

    `place` is the element of the first split's output and `row` its row; (row pitch, output pitch) lie between splits.
    """
    part, maxima = workspace
    parts = []
    for number in range(IN_FLIGHT):
        wanted = b.add(first, b.mul(stride, i32(number)))
        split = b.zext(smaller(b, wanted, b.sub(splits, i32(1))), I64)
        at, row_at = (b.add(b.zext(x, I64), b.mul(split, b.zext(pitch, I64))) for x, pitch in
                      zip((place, row), pitches[::-1]))  # fmt: skip
        top, total = as_floats(b, load_words(b, "ld.global", b.add(maxima, b.shl(row_at, I64(3))), 2))
        new = b.icmp_signed("<", wanted, splits)  # one that is there twice adds nothing, nor infinity times 0
        out = [b.select(new, x, i32(0)) for x in load_words(b, "ld.global", b.add(part, b.shl(at, I64(2))), 4)]
        parts.append((*as_floats(b, out), b.select(new, top, f32(NO_KEY)), total))
    return merged(b, state, parts)


@op(types.void)
def keep(b, shared, thread, state):
    address, words = b.add(shared, b.mul(thread, i32(4 * SCRATCH))), as_words(b, state)
    store_words(b, "st.shared", address, words[:4])
    store_words(b, "st.shared", address, words[4:], 16)


@op(floats(6))
def join(b, state, shared, thread):
    """With what another thread keeps."""
    address = b.add(shared, b.mul(thread, i32(4 * SCRATCH)))
    words = [word for count, at in ((4, 0), (2, 16)) for word in load_words(b, "ld.shared", address, count, at)]
    return merged(b, state, [as_floats(b, words)])


@functools.cache
def combine_kernel(dtype: str, hdim: int, overlap: bool) -> tuple[Kernel, SharedLayout]:
    """One block a row of queries: grid (rows, KV heads * tiles, batch); all its threads share the splits."""
    quads, element = hdim // 4, DTYPES[dtype]
    helpers = max(1, THREADS // quads)
    threads, write = quads * helpers, store_row(element)

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
            state = empty()
            while split < sizes.splits:
                pitches = (rows, rows * hdim)
                state = add_splits(state, workspace, at * hdim + dim, at, pitches, split, cint(helpers), sizes.splits)
                split += helpers * IN_FLIGHT
            keep(shared, tid, state)
            cuda.syncthreads()
            if tid < quads:
                for other in range(1, helpers):
                    state = join(state, shared, tid + other * quads)
                write(tensors, sizes, batch, head, tile * rows + row, dim, state)

    kernel.__name__ = kernel.__qualname__ = f"combine_{dtype}_d{hdim}{'_pdl' * overlap}"
    return Kernel(kernel, types_of(element), threads), SharedLayout(scratch=SCRATCH * threads)
