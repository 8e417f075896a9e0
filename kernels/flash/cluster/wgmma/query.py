"""The wgmma core: Q, from global memory through registers to shared memory."""

from typing import Any

from numba import cuda

from ....device import FACTOR_BOUND, advance, cint, make_float4, split_bounded
from ....device.wgmma import TERMS, tile_index
from ..embedding import Embedding, loader_of
from ..shape import GROUP
from .copy import HALF
from .shape import Shape


def query_of(shape: Shape, embedding: Embedding, paired: int) -> tuple[Any, Any, Any]:
    """Device functions for a thread's part of Q: four dims of each group, for some rows, in the order of pairs.

    load(raw, queries, thread, first_dim, sizes): to registers; 0 past the last row or dim
    load_dims(dim_values, scope, thread, first_dim): what all rows share; one wait for all loads
    stage(shared, raw, dim_values, tile, scope, thread, first_dim): embedded, scaled and split, to shared memory
    """
    groups, rows_per_pass, passes, queries = shape.groups, shape.rows_per_pass, shape.query_passes, shape.queries
    span, embeds_query, halves = GROUP * shape.cluster, embedding.query, embedding.halves
    per_dim, per_position, apply = embedding.per_dim, embedding.per_position, embedding.apply
    load_pairs, load_dims_in_order = loader_of(embedding.half_split), loader_of(False)
    query_at, tile_floats, low = shape.layout["query"], queries * TERMS, queries * shape.width

    @cuda.jit(device=True)
    def load(raw, queries, thread, first_dim, sizes):
        dim = first_dim + thread.column
        for i in range(passes):
            row = thread.first_row + i * rows_per_pass
            start, inside = advance(queries.data, row * queries.pitch), row < queries.count
            for group in range(groups):
                if group < paired:
                    x = load_pairs(start, dim, group * span, inside, sizes.embedded_dim, sizes.hdim)
                else:
                    x = load_dims_in_order(start, dim, group * span, inside, sizes.embedded_dim, sizes.hdim)
                at = 4 * (i * groups + group)
                raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def load_dims(dim_values, scope, thread, first_dim):
        if embeds_query:
            for group in range(paired):
                dim = first_dim + thread.column + group * span
                if dim < scope.sizes.embedded_dim:
                    x, at = per_dim(scope.table, dim), 4 * group
                    dim_values[at], dim_values[at + 1], dim_values[at + 2], dim_values[at + 3] = x.x, x.y, x.z, x.w
            cuda.syncwarp()  # else the assembler moves each load to its use, and waits for them one by one

    @cuda.jit(device=True)
    def embed(raw, dim_values, tile, scope, thread, first_dim):
        """Rows past the last query are zeros; they have its position."""
        first_position, sizes = scope.sizes.q_offset + tile.first_query, scope.sizes
        for group in range(paired):
            dim, d = first_dim + thread.column + group * span, 4 * group
            if dim < sizes.embedded_dim:
                values = make_float4(dim_values[d], dim_values[d + 1], dim_values[d + 2], dim_values[d + 3])
                for i in range(passes):
                    position = cint(first_position + min(thread.first_row + i * rows_per_pass, tile.query_count - 1))
                    s, t, u, v = per_position(scope.table, position, dim, values, sizes.hdim)
                    at = 4 * (i * groups + group)
                    x = apply(make_float4(raw[at], raw[at + 1], raw[at + 2], raw[at + 3]), s, t, u, v)
                    raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def stage(shared, raw, dim_values, tile, scope, thread, first_dim):
        """Term 4 c + m of 16 is dim 4 m + c of 16, as in the fragments of K. The halves of pairs are 16 terms apart, as
        in the copies of K.
        """
        if embeds_query and first_dim + thread.column < scope.sizes.embedded_dim:
            embed(raw, dim_values, tile, scope, thread, first_dim)
        column, scale = thread.column, scope.sizes.softmax_scale
        for i in range(passes):
            row = thread.first_row + i * rows_per_pass
            if queries % rows_per_pass == 0 or row < queries:
                for term in range(4):
                    at = query_at + column % HALF // 4 + tile_index(row, column // HALF * 4 + term)
                    paired_at = at
                    if halves:
                        piece = column % 8 // 2 + term // 2 + 4 * (term % 2)
                        paired_at = query_at + column // 8 + tile_index(row, piece)
                    for group in range(groups):
                        value = raw[4 * (i * groups + group) + term] * scale
                        to = (paired_at if group < paired else at) + group * tile_floats
                        shared[to], shared[to + low] = split_bounded(value, FACTOR_BOUND)

    return load, load_dims, stage
