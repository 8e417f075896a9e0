"""The wgmma core: loading and embedding rows of Q and K in registers."""

import functools
from typing import Any

from numba import cuda, float32

from ....device.cint import cint
from ....device.cuint import cuint
from ....device.reduce import FULL_MASK
from ....device.vector import advance, ld4, make_float4, st4
from ..embedding import Embedding, halves_of
from ..shape import COPIERS, GROUP
from .shape import KEYS, Shape

HALF = GROUP // 2  # dims of a group in one fragment of K


@cuda.jit(device=True)
def rotated_dims(lane):
    """Half-split RoPE: the first of the dims that the lane starting at `lane` of a group of 32 rotates."""
    return lane % HALF * 2 + lane // HALF * 4


@cuda.jit(device=True)
def half_of(first_dim, more, lane, sizes):
    """Where a thread loads four dims of a group, and whether they exist: the first or second elements of four pairs.

    After the embedded dims nothing is paired; the dims of a group then are in order, or in runs of eight.
    """
    dim = first_dim + 2 * (lane % HALF)
    low, high = halves_of(dim, more, sizes.embedded_dim, sizes.hdim)
    return high if lane >= HALF else low, dim + more < sizes.hdim


@functools.cache
def four_dims(embedding: Embedding) -> tuple[Any, Any]:
    """load_dim(dim_values, at, table, dim): what all positions share, to dim_values[at : at + 4]. embed_four(x, table,
    position, dim, dim_values, at, hdim) -> Float4.
    """
    per_dim, per_position, apply = embedding.per_dim, embedding.per_position, embedding.apply

    @cuda.jit(device=True)
    def load_dim(dim_values, at, table, dim):
        x = per_dim(table, dim)
        dim_values[at], dim_values[at + 1], dim_values[at + 2], dim_values[at + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def embed_four(x, table, position, dim, dim_values, at, hdim):
        y = make_float4(dim_values[at], dim_values[at + 1], dim_values[at + 2], dim_values[at + 3])
        s, t, u, v = per_position(table, position, dim, y, hdim)
        return apply(x, s, t, u, v)

    return load_dim, embed_four


def pairer(groups: int, paired: int, passes: int) -> Any:
    """A device function that exchanges half-split pairs between the two threads that loaded their halves."""

    @cuda.jit(device=True)
    def pair(raw):
        first = cuint(cuda.threadIdx.x) % COPIERS < COPIERS // 2
        for i in range(passes):
            for group in range(paired):
                at = 4 * (i * groups + group)
                x, y = cuda.selp(first, raw[at + 2], raw[at]), cuda.selp(first, raw[at + 3], raw[at + 1])
                x = cuda.shfl_xor_sync(FULL_MASK, x, COPIERS // 2)
                y = cuda.shfl_xor_sync(FULL_MASK, y, COPIERS // 2)
                a, b = cuda.selp(first, raw[at], x), cuda.selp(first, x, raw[at + 2])
                c, d = cuda.selp(first, raw[at + 1], y), cuda.selp(first, y, raw[at + 3])
                raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = a, b, c, d

    return pair


def loader(shape: Shape, half_split: bool, paired: int, passes: int) -> Any:
    """A device function that loads a thread's part of a slice of a tile of Q or K, in the order of the embedding."""
    groups, rows_per_pass, span = shape.groups, shape.rows_per_pass, GROUP * shape.cluster

    @cuda.jit(device=True)
    def load(raw, rows, first_dim, sizes):
        """Four dims of each group of a thread's rows; 0 where there are none."""
        lane = cuint(cuda.threadIdx.x) % COPIERS * 4
        for i in range(passes):
            row = cuint(cuda.threadIdx.x) // COPIERS + i * rows_per_pass
            row_start = advance(rows.data, row * rows.pitch)
            for group in range(groups):
                at, more, dim = 4 * (i * groups + group), group * span, first_dim + lane
                there = dim + more < sizes.hdim
                if half_split and group < paired:
                    dim, there = half_of(first_dim, more, lane, sizes)
                    more = 0
                x = make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))
                if row < rows.count and there:
                    x = ld4(advance(row_start, dim), more)
                raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = x.x, x.y, x.z, x.w

    return load


@functools.cache
def dim_loader(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """A device function load_dims(dim_values, table, dim, embedded_dim)."""
    span, (load_dim, _) = GROUP * shape.cluster, four_dims(embedding)

    @cuda.jit(device=True)
    def load_dims(dim_values, table, dim, sizes):
        """The values of the embedding that all rows share, for all groups of a thread: one wait for all loads."""
        for group in range(paired):
            if dim + group * span < sizes.embedded_dim:
                load_dim(dim_values, 4 * group, table, dim + group * span)

    return load_dims


def query_embedder(shape: Shape, embedding: Embedding) -> Any:
    """A device function that embeds a group of Q."""
    groups, rows_per_pass, query_passes = shape.groups, shape.rows_per_pass, shape.query_passes
    span = GROUP * shape.cluster
    _, embed_four = four_dims(embedding)

    @cuda.jit(device=True)
    def embed_query(raw, dim_values, group, table, first_position, count, copied_dim, sizes):
        """Embed a thread's part of a group of Q; rows past the last query are zeros."""
        dim = copied_dim + group * span
        if dim < sizes.embedded_dim:
            for i in range(query_passes):
                row = cuint(cuda.threadIdx.x) // COPIERS + i * rows_per_pass
                position = first_position + cint(min(row, count - 1))
                at = 4 * (i * groups + group)
                x = make_float4(raw[at], raw[at + 1], raw[at + 2], raw[at + 3])
                x = embed_four(x, table, position, dim, dim_values, 4 * group, sizes.hdim)
                raw[at], raw[at + 1], raw[at + 2], raw[at + 3] = x.x, x.y, x.z, x.w

    return embed_query


def key_embedder(shape: Shape, embedding: Embedding) -> tuple[Any, Any]:
    """Device functions load_key_dims and embed_keys: for K before its products."""
    span, half_split, (load_dim, embed_four) = GROUP * shape.cluster, embedding.half_split, four_dims(embedding)

    @cuda.jit(device=True)
    def dim_of(group, half, member, first_dim):
        """The first of four embedded dims that a thread has in one half of a group."""
        dim = first_dim + group * span
        if half_split:
            return dim + 8 * member + 4 * half
        return dim + half * HALF + 4 * member

    @cuda.jit(device=True)
    def load_key_dims(values, table, group, member, first_dim, sizes):
        """The values of the embedding that all keys share, for a thread's dims of a group."""
        for half in range(2):
            dim = dim_of(group, half, member, first_dim)
            if dim < sizes.embedded_dim:
                load_dim(values, 4 * half, table, dim)

    @cuda.jit(device=True)
    def embed_keys(x, dim_values, scope, group, key, member, start_key, first_dim):
        """Embed what `load_keys` loaded; `dim_values` are the values from `load_key_dims`."""
        for half in range(2):
            dim = dim_of(group, half, member, first_dim)
            if dim < scope.sizes.embedded_dim:
                for i in range(2):
                    position = cint(min(start_key + key + i, scope.last_key - 1))
                    at = 8 * half + 4 * i
                    a, b, c, d = at, at + 1, at + 2, at + 3
                    if half_split:
                        at = 2 * half + 4 * i
                        a, b, c, d = at, at + 8, at + 1, at + 9
                    four = make_float4(x[a], x[b], x[c], x[d])
                    four = embed_four(four, scope.table, position, dim, dim_values, 4 * half, scope.sizes.hdim)
                    x[a], x[b], x[c], x[d] = four.x, four.y, four.z, four.w

    return load_key_dims, embed_keys


def tile_embedder(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """A device function that embeds a tile of K in global memory."""
    groups, rows_per_pass, span = shape.groups, shape.rows_per_pass, GROUP * shape.cluster
    half_split = embedding.half_split
    key_passes = KEYS // rows_per_pass
    key_floats, dim_floats = 4 * key_passes * groups, 4 * groups
    _, embed_four = four_dims(embedding)
    load_dims = dim_loader(shape, embedding, paired)
    load_key_rows, pair_key_rows = loader(shape, half_split, paired, key_passes), pairer(groups, paired, key_passes)

    @cuda.jit(device=True)
    def embed_tile(rows, to, table, first_key, first_dim, copied_dim, sizes):
        """Embed a thread's part of a slice of a tile of K, from global memory to global memory."""
        raw = cuda.local.array(key_floats, float32)
        dim_values = cuda.local.array(dim_floats, float32)
        load_dims(dim_values, table, copied_dim, sizes)
        load_key_rows(raw, rows, first_dim, sizes)
        if half_split:
            pair_key_rows(raw)
        for i in range(key_passes):
            row = cuint(cuda.threadIdx.x) // COPIERS + i * rows_per_pass
            for group in range(groups):
                dim = copied_dim + group * span
                if row < rows.count and dim < sizes.hdim:
                    at = 4 * (i * groups + group)
                    x = make_float4(raw[at], raw[at + 1], raw[at + 2], raw[at + 3])
                    if dim < sizes.embedded_dim:
                        x = embed_four(x, table, cint(first_key + row), dim, dim_values, 4 * group, sizes.hdim)
                    st4(to, row * sizes.hdim + dim, x)

    return embed_tile
