"""The wgmma core: copies of tiles of K and V to shared memory, and the split of Q."""

from typing import Any

from numba import cuda

from ....device.asm import cp_async4_or_zero
from ....device.cuint import cuint
from ....device.tensor import FACTOR_BOUND, split_bounded
from ....device.vector import advance
from ....device.wgmma import TERMS, tile_index
from ..shape import COPIERS, GROUP
from .embed import half_of
from .shape import KEYS, Shape

STEP = 16  # terms of one half of a group


@cuda.jit(device=True)
def swizzle(column, row):
    """The swizzle: where a column of a row is stored, so that neither a fragment nor a row has bank conflicts."""
    return column ^ row % 4 * 8


def copier(shape: Shape, place_at: int, halves: bool = False, paired: int = 0) -> Any:
    """A device function that starts to copy a slice of a tile of K or V to float `place_at` of shared memory.

    With `halves`, the first 16 dims of each of the first `paired` groups become the first elements of pairs, the others
    the second.
    """
    place, stride, groups, rows_per_pass = place_at, shape.width, shape.groups, shape.rows_per_pass
    span = GROUP * shape.cluster  # from one group of a slice to the next

    @cuda.jit(device=True)
    def copy(shared, rows, dims, sizes):
        """Rows past the last, and dims past hdim, become 0."""
        first_dim = dims.first_dim
        lane = cuint(cuda.threadIdx.x) % COPIERS * 4
        first_row = cuint(cuda.threadIdx.x) // COPIERS
        for i in range(KEYS // rows_per_pass):
            row = first_row + i * rows_per_pass
            to = place + dims.buffer + row * stride + swizzle(lane, row)
            row_start = advance(rows.data, row * rows.pitch + first_dim + lane)
            for group in range(groups):
                start, more = row_start, group * span
                if halves and group < paired:
                    dim, there = half_of(first_dim, more, lane, sizes)
                    start, more = advance(rows.data, row * rows.pitch + dim), 0
                else:
                    there = first_dim + lane + more < sizes.hdim
                cp_async4_or_zero(shared, to + group * GROUP, start, more, row < rows.count and there)

    return copy


def copiers(shape: Shape, halves: bool, paired: int) -> tuple[Any, Any]:
    """copy_keys, as `copier` with `halves`, and copy_values."""
    return copier(shape, shape.layout["keys"], halves, paired), copier(shape, shape.values_at)


def query_placer(shape: Shape, halves: bool, paired: int) -> Any:
    """A device function: splits a thread's part of Q into shared memory; halves of pairs lie as `copier` puts them."""
    queries, groups, rows_per_pass, query_passes = shape.queries, shape.groups, shape.rows_per_pass, shape.query_passes
    query_at, tile, query_low = shape.layout["query"], queries * TERMS, queries * shape.width

    @cuda.jit(device=True)
    def store_split(shared, at, low, value):
        high, rest = split_bounded(value, FACTOR_BOUND)
        shared[at] = high
        shared[at + low] = rest

    @cuda.jit(device=True)
    def place_query(shared, raw, column, scale):
        """Split a thread's part of Q, scaled, into the tiles of high and low parts.

        Term 4 c + m of 16 is dim 4 m + c of 16, as in the fragments of K. The halves of pairs are 16 terms apart, as
        in the copies of K.
        """
        side = column // STEP
        place = query_at + column % STEP // 4
        for i in range(query_passes):
            row = cuint(cuda.threadIdx.x) // COPIERS + i * rows_per_pass
            if queries % rows_per_pass == 0 or row < queries:
                for term in range(4):
                    at = place + tile_index(row, 4 * side + term)
                    halves_at = at
                    if halves:
                        piece = 2 * side + term // 2 + 4 * (term % 2)
                        halves_at = place + tile_index(row, piece)
                    for group in range(groups):
                        value = raw[4 * (i * groups + group) + term] * scale
                        start = halves_at if group < paired else at
                        store_split(shared, start + group * tile, query_low, value)

    return place_query
