"""Epilogue: the warps' accumulators of a block to one partial result, or to the output where keys are not split."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from numba import cuda, types, uint64

from ..device import advance, cint
from .schedule import DecodeShape, query_of
from .shapes import PromptShape
from .softmax import NO_KEY
from .tiles import FLOAT, I64, f32, floats, register_op


class State(NamedTuple):
    """A partial result of a row: four outputs before division, the row max in base 2, the row sum."""

    o: list[Any]
    m: Any
    d: Any

    @classmethod
    def of(cls, values: list[Any]) -> "State":
        return cls(values[:4], *values[4:])

    @property
    def values(self) -> list[Any]:
        """The state flat, as kernels hand it on."""
        return [*self.o, self.m, self.d]


STATE = floats(6)


def inverse(b: Any, total: Any) -> Any:
    """1 / total to 2^-23, 0 of a row without keys. An exact division would be a call."""
    has_keys = b.fcmp_unordered("!=", total, f32(0.0))
    return b.select(has_keys, b.pure("rcp.approx.ftz.f32 $0, $1;", "=f,f", FLOAT, total), f32(0.0))


def exact_inverse(b: Any, total: Any) -> Any:
    """`inverse`, and one step of Newton's."""
    by = inverse(b, total)
    return b.fma(by, b.fma(-total, by, f32(1.0)), by)


@register_op(types.void)
def store_output(b, pointer, index, state, *, element):
    """Store the four outputs of a state at element `index`: divided by the row sum, rounded; 0 without keys."""
    o, _, d = State.of(state)
    by = exact_inverse(b, d)
    address = pointer + b.sext(index, I64) * element.size
    b.store_words("st.global", address, element.words(b, [x * by for x in o]))


@cuda.jit(device=True, forceinline=True)
def out_row(tensors, sizes, batch, head, row):
    """The address of a row of a KV head in the output."""
    of_group, query = query_of(row, sizes)
    out = advance(tensors.out, uint64(batch) * tensors.out_batch)
    out = advance(out, uint64(head * sizes.group + of_group) * tensors.out_head)
    return advance(out, uint64(query) * uint64(tensors.out_row))


@register_op(types.void)
def store_part(b, workspace, index, row, first, state):
    """Store a state for `combine`: its outputs at element `index` and, with `first`, the row's max and sum."""
    part, totals = workspace
    o, m, d = State.of(state)
    b.store_words("st.global", part + (b.zext(index, I64) << 2), b.as_words(o))
    with b.if_then(first):
        b.store_words("st.global", totals + (b.zext(row, I64) << 3), b.as_words([m, d]))


@register_op(types.void)
def store_statistics(b, shared, index, g, values, *, shape):
    """Store the value of row g of each set of 8 rows, where the shape has that row."""
    for number, value in enumerate(b.as_words(values)):
        row = g + 8 * number
        with b.if_then(row < shape.rows):
            b.store_words("st.shared", b.at_float(shared, index + row), [value])


def merged(b: Any, state: State, parts: Sequence[State]) -> State:
    """A state with others of its row added."""
    m = functools.reduce(b.maximum, [part.m for part in parts], state.m)
    rescale = b.exp2(state.m - m)
    o, d = [x * rescale for x in state.o], state.d * rescale
    for part in parts:
        rescale = b.exp2(part.m - m)
        o, d = [b.fma(x, rescale, y) for x, y in zip(part.o, o)], b.fma(part.d, rescale, d)
    return State(o, m, d)


def no_keys() -> State:
    return State([f32(0.0)] * 4, f32(NO_KEY), f32(0.0))


@register_op(STATE)
def merge_warps(b, shared, row, dim, *, shape):
    """The state of a row from `dim` on, of all warps."""
    at, rows, pitch, parts = shape.layout, shape.rows, shape.row_pitch, []
    row_at, sums = b.at_float(shared, row), b.at_float(shared, row * pitch + dim)
    for warp in range(shape.warps):
        o = b.load_words("ld.shared", sums, 4, 4 * (at["sums"] + warp * rows * pitch))
        (m,) = b.load_words("ld.shared", row_at, 1, 4 * (at["row_max"] + warp * rows))
        (d,) = b.load_words("ld.shared", row_at, 1, 4 * (at["row_sum"] + warp * rows))
        parts.append(State(b.as_floats(o), *b.as_floats([m, d])))
    return merged(b, no_keys(), parts).values


def finish(shape: DecodeShape | PromptShape) -> Any:
    """done(shared, tid, tensors, sizes, workspace, block, split): `block` is (batch, KV head, tile).

    All warps have stored accumulators, row maxima and row sums to shared memory; `done` begins with a block barrier.
    """
    rows, hdim, threads = shape.rows, shape.hdim, shape.threads
    row_items = shape.hdim // 4  # a thread takes four dims of a row at a time
    merge, store = merge_warps(shape), store_output(shape.element)

    @cuda.jit(device=True, forceinline=True)
    def done(shared, tid, tensors, sizes, workspace, block, split):
        batch, head, tile = block
        head_rows, heads = sizes.group * sizes.seq_q, sizes.kv_heads
        cuda.syncthreads()
        item = tid
        while item < rows * row_items:
            row = item // row_items
            dim = 4 * (item - row * row_items)
            head_row = tile * rows + row
            if head_row < head_rows:
                state = merge(shared, row, dim)
                if sizes.splits == 1:
                    store(out_row(tensors, sizes, batch, head, head_row), dim, state)
                else:
                    part_row = ((split * cint(cuda.gridDim.z) + batch) * heads + head) * head_rows + head_row
                    store_part(workspace, part_row * hdim + dim, part_row, dim == 0, state)
            item += threads

    return done
