"""Rows of float32 where they lie in a tensor of any strides."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import cuda, types, uint64

from .vector import advance


class Rows(NamedTuple):
    """A kernel's argument `[batch, heads, seq, hdim]`: a pointer, and strides in elements; that of hdim is 1."""

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
