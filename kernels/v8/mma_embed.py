"""The mma core: copies of tiles to shared memory, and the embedding of Q and K there."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import cuda, int32, uint32

from ..device.asm import cp_async2_or_zero, cp_async4_or_zero
from ..device.vector import advance, ld4, make_float4, st4
from .embedding import Embedding, halves_of
from .mma_shape import GROUP, Shape


class Tiles(NamedTuple):
    """Device functions that `tiles_of` makes. Copies are asynchronous; a thread embeds what it has copied."""

    copy_query: Any
    copy_keys: Any
    copy_values: Any
    compute_keys: Any
    compute_query: Any
    apply_keys: Any
    apply_query: Any
    scale_query: Any


def tiles_of(shape: Shape, embedding: Embedding) -> Tiles:
    """The copies and embeddings of a kernel. Rows of Q and K are `width` + 16 floats apart, those of V `width` + 4."""
    queries, keys, layout = shape.queries, shape.keys, shape.layout
    query_at, keys_at, values_at = (uint32(layout[name]) for name in ("query", "keys", "values"))
    stride, v_stride = uint32(shape.width + 16), uint32(shape.width + 4)
    groups, passes, turns, sharers = shape.groups, shape.passes, shape.turns, shape.sharers
    span = GROUP * shape.cluster  # dims from one group of a slice to the next
    embeds_query, embeds_keys = embedding.query, embedding.keys
    prepare, embed, half_split = embedding.prepare, embedding.embed, embedding.half_split

    def copier(place, pitch, count):
        """A function that starts to copy a slice of a tile with `count` rows to `place`, rows `pitch` apart."""

        @cuda.jit(device=True)
        def copy(shared, source, source_pitch, exist, first_row, column, dim, embedded_dim, hdim):
            """`exist` of the rows exist; the others, and dims past hdim, become 0."""
            for i in range(-(-count // passes)):
                row = uint32(first_row + uint32(i * passes))
                if count % passes == 0 or row < uint32(count):
                    to = uint32(place + row * pitch + column)
                    row_start = advance(source, uint32(row * source_pitch + dim))
                    for group in range(0, groups, sharers):
                        there = row < exist and uint32(dim + uint32(group * span)) < hdim
                        cp_async4_or_zero(shared, to + uint32(group * GROUP), row_start, uint32(group * span), there)

        @cuda.jit(device=True)
        def copy_halves(shared, source, source_pitch, exist, first_row, column, dim, embedded_dim, hdim):
            """As `copy`; of four dims, the first elements of two pairs come first, then the second elements."""
            for group in range(0, groups, sharers):
                low, high = halves_of(dim, uint32(group * span), embedded_dim, hdim)
                for i in range(-(-count // passes)):
                    row = uint32(first_row + uint32(i * passes))
                    if count % passes == 0 or row < uint32(count):
                        to = uint32(place + row * pitch + column + uint32(group * GROUP))
                        row_start = advance(source, uint32(row * source_pitch))
                        there = row < exist and uint32(dim + uint32(group * span)) < hdim
                        cp_async2_or_zero(shared, to, row_start, low, there)
                        cp_async2_or_zero(shared, to + uint32(2), row_start, high, there)

        return copy_halves if half_split and place != values_at else copy

    copy_query, copy_keys, copy_values = (
        copier(query_at, stride, queries),
        copier(keys_at, stride, keys),
        copier(values_at, v_stride, keys),
    )

    @cuda.jit(device=True)
    def compute_keys(values, table, tile_start, key_count, first_row, dim, begun, hdim):
        """The embedding's values for the rows of K of a thread."""
        if embeds_keys:
            for i in range(turns):
                row = uint32(first_row + uint32(i * passes))
                if row < key_count:
                    s, t, u, v = prepare(table, int32(tile_start + row), dim, begun, hdim)
                    values[8 * i], values[8 * i + 1], values[8 * i + 2], values[8 * i + 3] = s, t, u, v

    @cuda.jit(device=True)
    def compute_query(values, table, first_position, query_count, key_count, first_row, dim, begun, hdim):
        """The embedding's values for the rows of Q of a thread; those of its first rows of K if the positions are
        equal.
        """
        if embeds_query:
            for i in range(turns):
                row = uint32(first_row + uint32(i * passes))
                if row < query_count:
                    if embeds_keys and first_position == 0 and row < key_count:
                        s, t, u, v = values[8 * i], values[8 * i + 1], values[8 * i + 2], values[8 * i + 3]
                    else:
                        s, t, u, v = prepare(table, first_position + int32(row), dim, begun, hdim)
                    values[8 * i + 4], values[8 * i + 5], values[8 * i + 6], values[8 * i + 7] = s, t, u, v

    def embedder(place, first):
        """A function that embeds a thread's rows in place, with the values from `values[first]` on."""

        @cuda.jit(device=True)
        def apply(shared, values, count, first_row, column):
            for i in range(turns):
                row = uint32(first_row + uint32(i * passes))
                if row < count:
                    at = uint32(place + row * stride + column)
                    j = 8 * i + first
                    x = ld4(shared, at)
                    if half_split:
                        x = make_float4(x.x, x.z, x.y, x.w)
                    x = embed(x, values[j], values[j + 1], values[j + 2], values[j + 3])
                    if half_split:
                        x = make_float4(x.x, x.z, x.y, x.w)
                    st4(shared, at, x)

        return apply

    @cuda.jit(device=True)
    def scale_query(shared, scale, count, first_row, column):
        """Multiply a thread's part of Q by the scale. So no score overflows that would not overflow when it is scaled
        later.
        """
        for i in range(-(-queries // passes)):
            row = uint32(first_row + uint32(i * passes))
            if row < count:
                at = uint32(query_at + row * stride + column)
                for group in range(0, groups, sharers):
                    x = ld4(shared, uint32(at + uint32(group * GROUP)))
                    x = make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale)
                    st4(shared, uint32(at + uint32(group * GROUP)), x)

    return Tiles(
        copy_query,
        copy_keys,
        copy_values,
        compute_keys,
        compute_query,
        embedder(keys_at, 0),
        embedder(query_at, 4),
        scale_query,
    )
