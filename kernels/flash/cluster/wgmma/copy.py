"""The wgmma core: copies of tiles of K and V to shared memory."""

from typing import Any

from numba import cuda

from ....device.asm import cp_async4_or_zero
from ....device.vector import advance
from ..embedding import halves_of
from ..shape import GROUP
from .shape import KEYS, Shape

HALF = GROUP // 2  # dims of a group in one fragment of K


@cuda.jit(device=True)
def swizzle(column, row):
    """The swizzled column, so that neither a fragment nor a row has bank conflicts."""
    return column ^ row % 4 * 8


def copier(shape: Shape, tile_at: int, halves: bool = False, paired: int = 0) -> Any:
    """A device function that starts to copy a slice of a tile of K or V to float `tile_at` of shared memory.

    With `halves`, the first 16 dims of each of the first `paired` groups become the first elements of pairs, the others
    the second. After the embedded dims nothing is paired; the dims of a group then are in order, or in runs of eight.
    """
    stride, groups, rows_per_pass = shape.width, shape.groups, shape.rows_per_pass
    span = GROUP * shape.cluster  # from one group of a slice to the next

    @cuda.jit(device=True)
    def copy(shared, rows, dims, thread, sizes):
        """Rows past the last, and dims past hdim, become 0."""
        dim = dims.first_dim + thread.column
        for i in range(KEYS // rows_per_pass):
            row = thread.first_row + i * rows_per_pass
            to = tile_at + dims.buffer + row * stride + swizzle(thread.column, row)
            row_start = advance(rows.data, row * rows.pitch + dim)
            for group in range(groups):
                start, more, inside = row_start, group * span, dim + group * span < sizes.hdim
                if halves and group < paired:
                    pair_dim = dims.first_dim + 2 * (thread.column % HALF)
                    low, high = halves_of(pair_dim, more, sizes.embedded_dim, sizes.hdim)
                    start = advance(rows.data, row * rows.pitch + (high if thread.column >= HALF else low))
                    more, inside = 0, pair_dim + more < sizes.hdim
                cp_async4_or_zero(shared, to + group * GROUP, start, more, row < rows.count and inside)

    return copy
