"""The portable core: the queries of a tile in shared memory, and their products with a stream of keys."""

from collections import namedtuple
from typing import Any

from numba import cuda, float32, uint64

from ....device import FULL_MASK, advance, cint, cuint, ld4, make_float4, repeat, st4
from ..embedding import Embedding, loader_of
from .shape import Shape

# `first_key` of a tile and `first_dim` of a step are a thread's first; `member` is its number among the threads that
# share a key, `part` that of its warp among those that take the same keys.
Thread = namedtuple("Thread", "first_key first_dim member part warp_id lane_id")


def _reduction(count: int, lanes: int) -> Any:
    """A device function reduce(sums, lane_id) over `lanes` threads: each ends up with its share of the sums.

    In each step a thread sends half of its sums to another thread and receives that thread's part of the rest. Thread m
    ends up with the sums from count / lanes * m on, at the start of the array.
    """
    half, offset = count // 2, lanes // 2
    rest: Any = _reduction(half, offset) if offset > 1 else None

    @cuda.jit(device=True)
    def exchange(i, sums, upper):
        lower, higher = sums[i], sums[i + half]
        mine, other = (higher, lower) if upper else (lower, higher)
        sums[i] = mine + cuda.shfl_xor_sync(FULL_MASK, other, offset)

    exchange_all = repeat(exchange, half)

    @cuda.jit(device=True)
    def reduce(sums, lane_id):
        exchange_all(sums, lane_id & offset != 0)
        if offset > 1:
            rest(sums, lane_id)

    return reduce


def rows_loader(count: int, load_dims: Any, hdim: int) -> Any:
    """A device function load(values, rows, first, dim, embedded_dim): four dims of each of `count` rows.

    Values past the last row or dim are 0.
    """

    @cuda.jit(device=True)
    def load_row(i, values, source, rows, first, dim, embedded_dim):
        x = load_dims(advance(source, i * rows.pitch), dim, cuint(0), first + i < rows.count, embedded_dim, hdim)
        values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = x.x, x.y, x.z, x.w

    load_rows = repeat(load_row, count)

    @cuda.jit(device=True)
    def load(values, rows, first, dim, embedded_dim):
        source = advance(rows.data, uint64(first) * uint64(rows.pitch))
        load_rows(values, source, rows, first, dim, embedded_dim)

    return load


def query_of(shape: Shape, embedding: Embedding) -> tuple[Any, Any]:
    """(load, place): a slice of the queries to registers; then embedded and scaled to shared memory."""
    queries, hdim, threads = shape.queries, shape.hdim, shape.threads
    float4s = shape.slice // 4  # of a row
    passes, load_pairs = -(-queries * float4s // threads), loader_of(embedding.half_split)
    embeds_query, per_dim, per_position = embedding.query, embedding.per_dim, embedding.per_position
    apply = embedding.apply

    @cuda.jit(device=True)
    def load_quad(i, values, rows, first_dim, embedded_dim):
        item = cuint(cuda.threadIdx.x) + i * threads
        row, dim = item // float4s, first_dim + item % float4s * 4
        x = load_pairs(advance(rows.data, row * rows.pitch), dim, cuint(0), row < rows.count, embedded_dim, hdim)
        values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def place_quad(i, shared, values, buffer, tile, first_dim, scope):
        item, sizes = cuint(cuda.threadIdx.x) + i * threads, scope.sizes
        row, dim = item // float4s, first_dim + item % float4s * 4
        x = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3])
        if embeds_query and row < tile.query_count and dim < sizes.embedded_dim:
            position = cint(sizes.q_offset + tile.first_query + row)
            s, t, u, v = per_position(scope.table, position, dim, per_dim(scope.table, dim), hdim)
            x = apply(x, s, t, u, v)
        scale = sizes.softmax_scale
        if queries * float4s % threads == 0 or item < queries * float4s:
            st4(shared, buffer + 4 * item, make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale))

    return repeat(load_quad, passes), repeat(place_quad, passes)


def scores_of(shape: Shape, embedding: Embedding, load_query: Any, place_query: Any) -> tuple[Any, Any]:
    """(load_keys, score): load_keys loads the first values of a stream of keys; score(...) stores the scores of a tile
    of keys to shared memory, and returns the buffer that has the next slice of queries.
    """
    queries, hdim, each, keys, step = shape.queries, shape.hdim, shape.each, shape.keys, shape.step
    width, staged, query_at, prefetch = shape.width, shape.slice, shape.layout["query"], shape.ahead
    sliced, sums, key_floats, query_floats = staged < width, queries * each, 4 * each, shape.query_floats
    scores_at, stride, own = shape.layout["scores"], shape.stride, sums // shape.lanes  # scores of a thread
    per_dim, per_position, apply = embedding.per_dim, embedding.per_position, embedding.apply
    embeds_keys, load_keys = embedding.keys, rows_loader(each, loader_of(embedding.half_split), hdim)

    @cuda.jit(device=True)
    def embed_key(i, values, scope, first, dim, dim_values):
        position = cint(min(first + i, scope.last_key - 1))
        s, t, u, v = per_position(scope.table, position, dim, dim_values, hdim)
        x = apply(make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]), s, t, u, v)
        values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def multiply_row(i, sums, values, shared, at):
        x = ld4(shared, at + i * staged)
        for j in range(each):
            total = sums[i * each + j]
            total = x.x * values[4 * j] + total
            total = x.y * values[4 * j + 1] + total
            total = x.z * values[4 * j + 2] + total
            sums[i * each + j] = x.w * values[4 * j + 3] + total

    embed_keys, multiply = repeat(embed_key, each), repeat(multiply_row, queries)
    reduce = _reduction(sums, shape.lanes)

    @cuda.jit(device=True)
    def score(shared, k_values, buffer, q_rows, k_rows, start, thread, tile, scope):
        embedded_dim = scope.sizes.embedded_dim
        k_next = cuda.local.array(key_floats, float32)
        q_values = cuda.local.array(query_floats, float32)
        sums_of = cuda.local.array(sums, float32)
        for i in range(sums):
            sums_of[i] = float32(0.0)
        key, slice_start = start + thread.first_key, cuint(0)
        while slice_start < width:
            next_slice = slice_start + staged
            if sliced:
                if next_slice >= width:
                    next_slice = cuint(0)
                load_query(q_values, q_rows, next_slice, embedded_dim)
            dim = thread.first_dim
            while dim < staged:
                whole_dim = slice_start + dim
                next_key, next_dim = key, whole_dim + step
                if next_dim >= width:
                    next_key, next_dim = key + keys, thread.first_dim
                if embeds_keys and whole_dim < embedded_dim:
                    embed_keys(k_values, scope, key, whole_dim, per_dim(scope.table, whole_dim))
                if prefetch:
                    load_keys(k_next, k_rows, next_key, next_dim, embedded_dim)
                    multiply(sums_of, k_values, shared, buffer + dim)
                    for i in range(key_floats):
                        k_values[i] = k_next[i]
                else:
                    multiply(sums_of, k_values, shared, buffer + dim)
                    load_keys(k_values, k_rows, next_key, next_dim, embedded_dim)
                dim = dim + step
            if sliced:
                buffer = query_at + queries * staged - (buffer - query_at)
                place_query(shared, q_values, buffer, tile, next_slice, scope)
                cuda.syncthreads()
            slice_start = slice_start + staged
        reduce(sums_of, thread.lane_id)
        if not sliced:
            cuda.syncthreads()
        for i in range(own):
            index = thread.member * own + i
            at = scores_at + (thread.part * queries + index // each) * stride + thread.first_key + index % each
            shared[at] = sums_of[i]
        return buffer

    return load_keys, score
