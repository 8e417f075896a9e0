"""Rows of float32 in a tensor with any strides."""

from typing import Any, NamedTuple

from numba import cuda, types, uint32, uint64

from .vector import advance


class Rows(NamedTuple):
    """A kernel argument `[batch, heads, seq, hdim]`: a pointer, and strides in elements; the stride of hdim is 1."""

    data: Any
    batch: Any
    head: Any
    row: Any


ROWS = types.NamedTuple((types.CPointer(types.float32), types.uint32, types.uint32, types.uint32), Rows)


@cuda.jit(device=True)
def rows_of(rows, batch, head, first):
    """The pointer to row `first` of a head."""
    offset = uint64(batch) * uint64(rows.batch) + uint64(head) * uint64(rows.head) + uint64(first) * uint64(rows.row)
    return advance(rows.data, offset)


def reciprocal_of(divisor: int) -> int:
    """The second argument that `quotient` needs for a divisor: ceil(2^31 / divisor)."""
    return -(-(2**31) // divisor)


@cuda.jit(device=True)
def quotient(number, divisor, reciprocal):
    """number // divisor for numbers below 2^31, without the library function that a division calls."""
    near = uint32((uint64(number) * uint64(reciprocal)) >> uint64(31))  # at most one too large
    return uint32(near - uint32(1)) if uint32(near * divisor) > number else near
