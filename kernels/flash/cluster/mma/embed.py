"""The mma core: copies of tiles to shared memory, and the embedding of Q and K there."""

from typing import Any

from numba import cuda, float32

from ....device.asm import cp_async2_or_zero, cp_async4_or_zero, cp_async_wait
from ....device.cint import cint
from ....device.cuint import cuint
from ....device.vector import advance, ld4, make_float4, st4
from ..embedding import Embedding, halves_of
from ..shape import GROUP
from .shape import Shape


def copier(shape: Shape, name: str, pitch: int, count: int, halves: bool = False) -> Any:
    """A device function that starts to copy `count` rows of a slice to shared memory, `pitch` floats apart."""
    place, groups, rows_per_pass, sharers = shape.layout[name], shape.groups, shape.rows_per_pass, shape.sharers
    span = GROUP * shape.cluster  # dims from one group of a slice to the next

    @cuda.jit(device=True)
    def copy(shared, source, dims, thread, sizes):
        """Rows past the last, and dims past hdim, become 0. With `halves`, of four dims, the first elements of two
        pairs come first, then the second elements.
        """
        for i in range(-(-count // rows_per_pass)):
            row = thread.first_row + i * rows_per_pass
            if count % rows_per_pass == 0 or row < count:
                row_start = advance(source.data, row * source.pitch)
                if not halves:
                    row_start = advance(row_start, thread.copied_dim)
                for group in range(0, groups, sharers):
                    at, more = place + row * pitch + thread.column + group * GROUP, group * span
                    there = row < source.count and thread.copied_dim + more < sizes.hdim
                    if halves:
                        low, high = halves_of(thread.copied_dim, more, sizes.embedded_dim, sizes.hdim)
                        cp_async2_or_zero(shared, at, row_start, low, there)
                        cp_async2_or_zero(shared, at + 2, row_start, high, there)
                    else:
                        cp_async4_or_zero(shared, at, row_start, more, there)

    return copy


def values_of(shape: Shape, embedding: Embedding, first: int) -> Any:
    """A device function: the embedding's values for a thread's rows, from `values[first]` on.

    Rows before `known` have the values from `values[0]` on, which are of equal positions.
    """
    rows_per_pass, passes, per_position = shape.rows_per_pass, shape.passes, embedding.per_position

    @cuda.jit(device=True)
    def compute(values, table, first_position, count, known, first_row, dim, dim_values, hdim):
        for i in range(passes):
            row = first_row + i * rows_per_pass
            if row < count:
                j, k = 8 * i, 8 * i + first
                if first > 0 and row < known:
                    s, t, u, v = values[j], values[j + 1], values[j + 2], values[j + 3]
                else:
                    s, t, u, v = per_position(table, first_position + row, dim, dim_values, hdim)
                values[k], values[k + 1], values[k + 2], values[k + 3] = s, t, u, v

    return compute


def embedder(shape: Shape, embedding: Embedding, name: str, first: int) -> Any:
    """A device function that embeds a thread's rows in place, with the values from `values[first]` on."""
    place, stride, rows_per_pass = shape.layout[name], shape.width + 16, shape.rows_per_pass
    passes = shape.passes
    apply, half_split = embedding.apply, embedding.half_split

    @cuda.jit(device=True)
    def embed(shared, values, count, first_row, column):
        for i in range(passes):
            row = first_row + i * rows_per_pass
            if row < count:
                at = place + row * stride + column
                j = 8 * i + first
                x = ld4(shared, at)
                if half_split:
                    x = make_float4(x.x, x.z, x.y, x.w)
                x = apply(x, values[j], values[j + 1], values[j + 2], values[j + 3])
                if half_split:
                    x = make_float4(x.x, x.z, x.y, x.w)
                st4(shared, at, x)

    return embed


def tile_embedder(shape: Shape, embedding: Embedding) -> Any:
    """embed_tile(...): a thread embeds what it has copied."""
    width, keys, span, sharers = shape.width, shape.keys, GROUP * shape.cluster, shape.sharers
    embedded_floats = 8 * shape.passes  # of the rows that a thread embeds at once
    embeds_query, embeds_keys, per_dim = embedding.query, embedding.keys, embedding.per_dim
    key_values, query_values = values_of(shape, embedding, 0), values_of(shape, embedding, 4)
    embed_keys, embed_query = embedder(shape, embedding, "keys", 0), embedder(shape, embedding, "query", 4)

    @cuda.jit(device=True)
    def embed_tile(shared, dim_values, tile, scope, thread, start):
        """Embed what a thread has copied of a tile of K, and with the first tile of Q; waits for the copies."""
        values = cuda.local.array(embedded_floats, float32)
        next_values = make_float4(dim_values[0], dim_values[1], dim_values[2], dim_values[3])
        table, sizes, first_tile, nothing = scope.table, scope.sizes, start == 0, cuint(0)
        key_count, first_row = min(keys, scope.last_key - start), thread.first_row
        first_position = cint(sizes.q_offset + tile.first_query)
        known = key_count if embeds_keys and first_position == 0 else nothing  # rows whose positions are those of K
        other, dim = thread.column, thread.copied_dim
        while other < width and dim < sizes.embedded_dim:
            now = next_values
            next_dim = dim + sharers * span
            if next_dim < sizes.embedded_dim:
                next_values = per_dim(table, next_dim)
            if embeds_keys:
                key_values(values, table, cint(start), key_count, nothing, first_row, dim, now, sizes.hdim)
            if embeds_query and first_tile:
                query_values(values, table, first_position, tile.query_count, known, first_row, dim, now, sizes.hdim)
            cp_async_wait()  # waits in the first iteration only
            if embeds_keys:
                embed_keys(shared, values, key_count, first_row, other)
            if embeds_query and first_tile:
                embed_query(shared, values, tile.query_count, first_row, other)
            other = other + sharers * GROUP
            dim = next_dim

    return embed_tile


def scaler(shape: Shape) -> Any:
    """A device function that multiplies a thread's part of Q by the scale, so that no score overflows that would not
    overflow when it is scaled later.
    """
    query_at, stride, groups = shape.layout["query"], shape.width + 16, shape.groups
    queries, rows_per_pass, sharers = shape.queries, shape.rows_per_pass, shape.sharers

    @cuda.jit(device=True)
    def scale_query(shared, scale, count, thread):
        for i in range(-(-queries // rows_per_pass)):
            row = thread.first_row + i * rows_per_pass
            if row < count:
                for group in range(0, groups, sharers):
                    at = query_at + row * stride + thread.column + group * GROUP
                    x = ld4(shared, at)
                    st4(shared, at, make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale))

    return scale_query
