"""The mma core: copies of tiles to shared memory, and the embedding of Q and K in shared memory."""

from typing import Any

from numba import cuda, float32

from ....device import advance, cint, cp_async_wait, cuint, ld4, make_float4, st4
from ....device.asm import cp_async2_or_zero, cp_async4_or_zero
from ..embedding import Embedding, halves_of
from ..shape import GROUP
from .shape import Shape


def copier(shape: Shape, name: str, pitch: int, count: int, halves: bool = False) -> Any:
    """A device function that starts to copy `count` rows of a slice to shared memory, `pitch` floats apart."""
    tile_at, groups, rows_per_pass, sharers = shape.layout[name], shape.groups, shape.rows_per_pass, shape.sharers
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
                    at, more = tile_at + row * pitch + thread.column + group * GROUP, group * span
                    inside = row < source.count and thread.copied_dim + more < sizes.hdim
                    if halves:
                        low, high = halves_of(thread.copied_dim, more, sizes.embedded_dim, sizes.hdim)
                        cp_async2_or_zero(shared, at, row_start, low, inside)
                        cp_async2_or_zero(shared, at + 2, row_start, high, inside)
                    else:
                        cp_async4_or_zero(shared, at, row_start, more, inside)

    return copy


def tile_embedder(shape: Shape, embedding: Embedding) -> Any:
    """A device function that embeds what a thread has copied of a tile of K, and with the first tile of Q."""
    width, keys, span, sharers = shape.width, shape.keys, GROUP * shape.cluster, shape.sharers
    query_at, keys_at, stride = shape.layout["query"], shape.layout["keys"], shape.width + 16
    rows_per_pass, passes, half_split = shape.rows_per_pass, shape.passes, embedding.half_split
    per_dim, per_position, apply = embedding.per_dim, embedding.per_position, embedding.apply
    embeds_keys, embedded_floats = embedding.keys, 8 * passes  # of the rows that a thread embeds at once

    @cuda.jit(device=True)
    def embed_four(shared, at, values, i):
        x = ld4(shared, at)
        if half_split:
            x = make_float4(x.x, x.z, x.y, x.w)
        x = apply(x, values[i], values[i + 1], values[i + 2], values[i + 3])
        if half_split:
            x = make_float4(x.x, x.z, x.y, x.w)
        st4(shared, at, x)

    @cuda.jit(device=True)
    def embed_tile(shared, dim_values, tile, scope, thread, start):
        """Waits for the copies."""
        values = cuda.local.array(embedded_floats, float32)
        next_values = make_float4(dim_values[0], dim_values[1], dim_values[2], dim_values[3])
        table, sizes, key_count, query_count = scope.table, scope.sizes, cuint(0), cuint(0)
        if embeds_keys:
            key_count = min(keys, scope.last_key - start)
        if start == 0:
            query_count = tile.query_count
        first_position, column, dim = cint(sizes.q_offset + tile.first_query), thread.column, thread.copied_dim
        while column < width and dim < sizes.embedded_dim:
            now, next_dim = next_values, dim + sharers * span
            if next_dim < sizes.embedded_dim:
                next_values = per_dim(table, next_dim)
            for i in range(passes):
                row, k, q = thread.first_row + i * rows_per_pass, 8 * i, 8 * i + 4
                if row < key_count:
                    s, t, u, v = per_position(table, cint(start + row), dim, now, sizes.hdim)
                    values[k], values[k + 1], values[k + 2], values[k + 3] = s, t, u, v
                if row < query_count:
                    if first_position == 0 and row < key_count:
                        s, t, u, v = values[k], values[k + 1], values[k + 2], values[k + 3]
                    else:
                        s, t, u, v = per_position(table, first_position + cint(row), dim, now, sizes.hdim)
                    values[q], values[q + 1], values[q + 2], values[q + 3] = s, t, u, v
            cp_async_wait()  # waits in the first iteration only
            for i in range(passes):
                row = thread.first_row + i * rows_per_pass
                if row < key_count:
                    embed_four(shared, keys_at + row * stride + column, values, 8 * i)
                if row < query_count:
                    embed_four(shared, query_at + row * stride + column, values, 8 * i + 4)
            column, dim = column + sharers * GROUP, next_dim

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
