"""Combine: the partial results of all splits of a row to its output, in a launch after the attention kernel.

Rows are those of all heads, in the order (batch, head, query). Each split leaves the weighted sum of its values in
part[split, row] and (row max in base 2, row sum) in totals[split, row]: float32[splits, rows, hdim] and
float32[splits, rows, 2].
"""

import functools
from typing import Any

from numba import cuda, float32, types, uint64

from ..constants import FLOATS
from ..device import CINT, advance, cint
from ..version import Kernel, Launch, SharedLayout
from .args import STRIDE
from .dtype import DTYPES
from .epilogue import STATE, State, merged, no_keys, store_output
from .tiles import I64, register_op, wait_for_launch

LANES, SHARES = 16, 8  # threads of a block: four dims each, by splits
IN_FLIGHT = 4  # states that a thread loads at a time
PITCH = 8  # floats from one thread's state in shared memory to the next
NAMES = ("part", "totals", "out", "out_batch", "out_head", "out_row", "heads", "seq_q", "hdim", "rows", "splits")


@register_op(STATE)
def no_splits(b):
    return no_keys().values


@register_op(STATE)
def add_splits(b, state, part, totals, first, row, rows, dim, hdim, splits, *, step):
    """Add splits first, first + step, ...: at most `IN_FLIGHT`, all loaded at once."""
    parts = []
    for number in range(IN_FLIGHT):
        split = first + step * number
        part_row = b.zext(split, I64) * b.zext(rows, I64) + b.zext(row, I64)
        index = part_row * b.zext(hdim, I64) + b.zext(dim, I64)

        def loaded(part_row: Any = part_row, index: Any = index) -> list[Any]:
            o = b.load_words("ld.global", part + (index << 2), 4)
            return b.as_floats(o + b.load_words("ld.global", totals + (part_row << 3), 2))

        parts.append(State.of(b.where(split < splits, loaded, no_keys().values)))
    return merged(b, State.of(state), parts).values


@register_op(types.void)
def store_state(b, shared, index, state):
    address, words = b.at_float(shared, index), b.as_words(state)
    b.store_words("st.shared", address, words[:4])
    b.store_words("st.shared", address, words[4:], 16)


@register_op(STATE)
def add_shares(b, state, shared, index):
    """Add the states that the threads of other shares stored, from float `index` on."""
    address, parts = b.at_float(shared, index), []
    for at in range(0, 4 * PITCH * LANES * (SHARES - 1), 4 * PITCH * LANES):
        words = b.load_words("ld.shared", address, 4, at) + b.load_words("ld.shared", address, 2, at + 16)
        parts.append(State.of(b.as_floats(words)))
    return merged(b, State.of(state), parts).values


@functools.cache
def combine_kernel(dtype: str, overlap: bool) -> Kernel:
    """A block takes a row and 64 dims. overlap: it starts early (programmatic dependent launch)."""
    element = DTYPES[dtype]
    store, add = store_output(element), add_splits(SHARES)

    def combine(part, totals, out, out_batch, out_head, out_row, heads, seq_q, hdim, rows, splits):
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            wait_for_launch()
        lane, share, row = cint(cuda.threadIdx.x), cint(cuda.threadIdx.y), cint(cuda.blockIdx.x)
        dim = 4 * (cint(cuda.blockIdx.y) * LANES + lane)
        state, split = no_splits(), share
        while split < splits and dim < hdim:
            state = add(state, part, totals, split, row, rows, dim, hdim, splits)
            split += SHARES * IN_FLIGHT
        store_state(shared, PITCH * (share * LANES + lane), state)
        cuda.syncthreads()
        if share == 0 and dim < hdim:
            head = row // seq_q
            batch = head // heads
            offset = uint64(batch) * out_batch + uint64(head - batch * heads) * out_head
            offset += uint64(row - head * seq_q) * out_row
            store(advance(out, offset), dim, add_shares(state, shared, PITCH * (LANES + lane)))

    combine.__name__ = combine.__qualname__ = f"combine_{dtype}{'_pdl' * overlap}"
    signature = (FLOATS, FLOATS, element.pointer, *(STRIDE,) * 3, *(CINT,) * 5)
    return Kernel(combine, signature, LANES * SHARES)


@functools.cache
def combine_rows_kernel(dtype: str, overlap: bool) -> Kernel:
    """As `combine_kernel`, where rows are many: a block takes `SHARES` rows, and a thread all splits of four dims."""
    element = DTYPES[dtype]
    store, add = store_output(element), add_splits(1)

    def combine(part, totals, out, out_batch, out_head, out_row, heads, seq_q, hdim, rows, splits):
        if overlap:
            wait_for_launch()
        lane, row = cint(cuda.threadIdx.x), cint(cuda.blockIdx.x) * SHARES + cint(cuda.threadIdx.y)
        dim = 4 * (cint(cuda.blockIdx.y) * LANES + lane)
        if row < rows and dim < hdim:
            state, split = no_splits(), cint(0)
            while split < splits:
                state = add(state, part, totals, split, row, rows, dim, hdim, splits)
                split += IN_FLIGHT
            head = row // seq_q
            batch = head // heads
            offset = uint64(batch) * out_batch + uint64(head - batch * heads) * out_head
            offset += uint64(row - head * seq_q) * out_row
            store(advance(out, offset), dim, state)

    combine.__name__ = combine.__qualname__ = f"combine_rows_{dtype}{'_pdl' * overlap}"
    signature = (FLOATS, FLOATS, element.pointer, *(STRIDE,) * 3, *(CINT,) * 5)
    return Kernel(combine, signature, LANES * SHARES)


def shapes(rows: int, hdim: int, splits: int) -> dict[str, tuple[int, ...]]:
    """float32 shapes of the workspace between attention and `combine`; concurrent calls need memory of their own."""
    return {"part": (splits, rows, hdim), "totals": (splits, rows, 2)}


def launch_combine(
    dtype: str,
    q_shape: tuple[int, int, int, int],
    splits: int,
    strides: tuple[int | str, ...],
    overlap: bool = True,
    many: bool = False,
) -> Launch:
    """`strides` are those of batch, head and row of the output, in elements; `many` rows take `combine_rows_kernel`."""
    batch, heads, seq_q, hdim = q_shape
    rows = batch * heads * seq_q
    return Launch(
        combine_rows_kernel(dtype, overlap) if many else combine_kernel(dtype, overlap),
        grid=(-(-rows // SHARES) if many else rows, -(-hdim // (4 * LANES))),
        block=(LANES, SHARES),
        shared=SharedLayout() if many else SharedLayout(states=PITCH * LANES * SHARES),
        args=(*NAMES[:3], *strides, heads, seq_q, hdim, rows, splits),
    )
