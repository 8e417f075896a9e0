"""The V8 core for every GPU: attention in float32 arithmetic, without clusters, tensor cores or asynchronous copies.

A block computes a tile of queries of one head and streams K and V. A thread loads four dims of a few keys to registers,
embeds them there and multiplies them with every query of the tile. So K never passes through shared memory, and each of
its elements is read and embedded once per tile of queries. Shared memory holds the embedded queries: all of them or, if
they do not fit, two slices in turn. The threads that share a key's dims add their scores by shuffles. Each warp
computes the softmax of its rows. Then every thread accumulates four dims of the output for all queries of the tile.

The next loads are issued before the current values are used up, also across the ends of key tiles and output panels.
Nothing is read past the last key: those values are 0, and their scores are masked.

As long as every four dims of the output have a thread, sums stay in registers. Beyond that, a thread takes several
panels of four dims and accumulates them in global memory, where it reads only what it wrote. With one tile of keys it
reads nothing back.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, int32, uint32, uint64

from ..constants import FLOAT, FLOATS, INT, UINT, require, require_shared
from ..device.reduce import FULL_MASK, NEGATIVE_INFINITY, warp_max, warp_sum
from ..device.rows import ROWS, rows_of
from ..device.vector import advance, ld4, make_float4, st2, st4
from ..version import Kernel, Launch, Problem
from .embedding import PLAIN, Embedding, loader_of
from .launch import listed, numbers, tensors
from .portable_shape import BLOCK, Shape, choose
from .repeat import repeat
from .softmax import LOWEST, greatest_weight, inverse_of, rescaling, weight_of


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
        exchange_all(sums, lane_id & uint32(offset) != 0)
        if offset > 1:
            rest(sums, lane_id)

    return reduce


def make_kernel(shape: Shape, embedding: Embedding) -> Any:
    """The attention kernel for that shape and embedding."""
    queries, hdim, each, lanes = shape.queries, shape.hdim, shape.each, shape.lanes
    across, depth, keys, step = shape.across, shape.depth, shape.keys, shape.step
    width, staged, stride, columns = shape.width, shape.slice, uint32(shape.stride), shape.columns
    threads, warps, layout, ahead = shape.threads, shape.threads // 32, shape.layout, shape.ahead
    query_at, scores_at = uint32(layout["query"]), uint32(layout["scores"])
    rescale_at, inverse_at = uint32(layout["rescale"]), uint32(layout["inverse"])
    sliced, resident = staged < width, hdim <= 4 * threads
    groups = threads // columns  # groups of threads that take different keys of the output
    quads = staged // 4
    turns = -(-queries * quads // threads)
    rows_each = -(-queries // warps)  # rows for which a warp computes the softmax
    per_lane = -(-keys // 32)
    own = queries * each // lanes  # scores that a thread ends up with
    sums, query_floats, key_floats, value_floats = queries * each, 4 * turns, 4 * each, 4 * BLOCK
    outputs, row_scores = 4 * queries, rows_each * per_lane
    embeds_query, embeds_keys = embedding.query, embedding.keys
    begin, prepare, embed, bias = embedding.begin, embedding.prepare, embedding.embed, embedding.bias
    of_batch = embedding.of_batch
    load_pairs, load_four = loader_of(embedding.half_split), loader_of(False)

    def loader(count, load_dims):
        """A function that loads four dims of `count` consecutive rows; a row past the last is 0.

        Values for which there are no rows or no dims at all keep their contents.
        """

        @cuda.jit(device=True)
        def load_whole(i, values, source, pitch, dim, embedded_dim):
            row = advance(source, uint32(uint32(i) * pitch))
            x = load_dims(row, dim, uint32(0), True, embedded_dim, uint32(hdim))
            values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = x.x, x.y, x.z, x.w

        @cuda.jit(device=True)
        def load_ragged(i, values, source, pitch, dim, embedded_dim, rows):
            row = advance(source, uint32(uint32(i) * pitch))
            x = load_dims(row, dim, uint32(0), uint32(i) < rows, embedded_dim, uint32(hdim))
            values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = x.x, x.y, x.z, x.w

        load_all, load_some = repeat(load_whole, count), repeat(load_ragged, count)

        @cuda.jit(device=True)
        def load(values, head, pitch, first, end, dim, embedded_dim):
            if first < end and dim < uint32(hdim):
                source = advance(head, uint64(first) * uint64(pitch))
                if first + uint32(count) <= end:
                    load_all(values, source, pitch, dim, embedded_dim)
                else:
                    load_some(values, source, pitch, dim, embedded_dim, uint32(end - first))

        return load

    # --- Q: a slice is loaded to registers, embedded, and stored to shared memory

    @cuda.jit(device=True)
    def fetch_quad(i, values, q_tile, pitch, query_count, first_dim, embedded_dim):
        quad = uint32(uint32(cuda.threadIdx.x) + uint32(i * threads))
        row = quad // uint32(quads)
        dim = uint32(first_dim + quad % uint32(quads) * uint32(4))
        row_start = advance(q_tile, uint32(row * pitch))
        x = load_pairs(row_start, dim, uint32(0), row < query_count, embedded_dim, uint32(hdim))
        values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def place_quad(i, shared, values, buffer, query_count, first_dim, first_position, table, embedded_dim, scale):
        quad = uint32(uint32(cuda.threadIdx.x) + uint32(i * threads))
        row = quad // uint32(quads)
        x = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3])
        if embeds_query:
            dim = uint32(first_dim + quad % uint32(quads) * uint32(4))
            if row < query_count and dim < embedded_dim:
                s, t, u, v = prepare(table, first_position + int32(row), dim, begin(table, dim), uint32(hdim))
                x = embed(x, s, t, u, v)
        x = make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale)
        if queries * quads % threads == 0 or quad < uint32(queries * quads):
            st4(shared, uint32(buffer + uint32(4) * quad), x)

    fetch, place = repeat(fetch_quad, turns), repeat(place_quad, turns)

    # --- scores: the stream of K, and its products with the staged queries

    load_keys = loader(each, load_pairs)

    @cuda.jit(device=True)
    def embed_key(i, values, table, first, last_key, dim, begun):
        position = int32(min(uint32(first + uint32(i)), uint32(last_key - uint32(1))))
        s, t, u, v = prepare(table, position, dim, begun, uint32(hdim))
        x = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3])
        x = embed(x, s, t, u, v)
        values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def multiply_row(i, sums, values, shared, at):
        x = ld4(shared, uint32(at + uint32(i * staged)))
        for j in range(each):
            total = sums[i * each + j]
            total = x.x * values[4 * j] + total
            total = x.y * values[4 * j + 1] + total
            total = x.z * values[4 * j + 2] + total
            sums[i * each + j] = x.w * values[4 * j + 3] + total

    embed_keys, multiply = repeat(embed_key, each), repeat(multiply_row, queries)
    reduce = _reduction(sums, lanes)
    together = min(own, each, 4)  # adjacent scores

    # --- the output: the stream of V, and its sum weighted by the scores

    load_values = loader(BLOCK, load_four)

    @cuda.jit(device=True)
    def weigh_row(i, acc, values, shared, at):
        weights = ld4(shared, uint32(at + uint32(i) * stride))
        for d in range(4):
            total = acc[4 * i + d]
            total = weights.x * values[d] + total
            total = weights.y * values[d + 4] + total
            total = weights.z * values[d + 8] + total
            acc[4 * i + d] = weights.w * values[d + 12] + total

    @cuda.jit(device=True)
    def rescale_row(i, acc, shared):
        correction = shared[rescale_at + uint32(i)]
        for d in range(4):
            acc[4 * i + d] *= correction

    @cuda.jit(device=True)
    def recall_row(i, acc, out_tile, pitch, query_count, dim):
        if uint32(i) < query_count:
            x = ld4(out_tile, uint32(uint32(i) * pitch + dim))
            acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def store_row(i, acc, shared, out_tile, pitch, query_count, dim, done):
        if uint32(i) < query_count:
            factor = float32(1.0)
            if done:
                factor = shared[inverse_at + uint32(i)]
            x = make_float4(
                acc[4 * i] * factor, acc[4 * i + 1] * factor, acc[4 * i + 2] * factor, acc[4 * i + 3] * factor
            )
            st4(out_tile, uint32(uint32(i) * pitch + dim), x)

    @cuda.jit(device=True)
    def give_row(i, acc, shared, at):
        at = uint32(at + uint32(i * 2 * threads))
        st4(shared, at, make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]))

    @cuda.jit(device=True)
    def take_row(i, acc, shared, at):
        x = ld4(shared, uint32(at + uint32(i * 2 * threads)))
        acc[4 * i] += x.x
        acc[4 * i + 1] += x.y
        acc[4 * i + 2] += x.z
        acc[4 * i + 3] += x.w

    weigh = repeat(weigh_row, queries)
    rescale, recall, store = (repeat(row, queries) for row in (rescale_row, recall_row, store_row))
    give, take = repeat(give_row, queries), repeat(take_row, queries)

    def attention(q, k, v, out, table, seq_q, seq_k, dims, embedded_dim, q_offset, causal, softmax_scale):
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        warp_id = tid // uint32(32)
        lane_id = tid % uint32(32)
        tiles = uint32((seq_q + uint32(queries - 1)) // uint32(queries))
        batch, kv_head = uint32(cuda.blockIdx.z), uint32(cuda.blockIdx.y)
        sharers = uint32(cuda.gridDim.x) // tiles  # heads that share keys
        head = uint32(kv_head * sharers + uint32(cuda.blockIdx.x) // tiles)
        bias_head = uint32(batch * uint32(cuda.gridDim.y) * sharers + head)
        if of_batch is not None:
            table = of_batch(table, batch)
        first_query = uint32(uint32(cuda.blockIdx.x) % tiles * uint32(queries))
        query_count = uint32(min(uint32(queries), uint32(seq_q - first_query)))
        first_position = int32(q_offset + int32(first_query))
        q_tile, out_tile = rows_of(q, batch, head, first_query), rows_of(out, batch, head, first_query)
        k_head, v_head = rows_of(k, batch, kv_head, uint32(0)), rows_of(v, batch, kv_head, uint32(0))
        last_key = seq_k
        if causal:
            last_key = uint32(min(seq_k, uint32(first_position + int32(query_count))))

        # This thread's keys of a tile and dims of a step.
        first_key = uint32(warp_id % uint32(across) * uint32(32 // lanes) + lane_id // uint32(lanes))
        first_key = uint32(first_key * uint32(each))
        member = lane_id % uint32(lanes)
        part = warp_id // uint32(across)
        first_dim = uint32((part * uint32(lanes) + member) * uint32(4))
        k_values = cuda.local.array(key_floats, float32)
        k_next = cuda.local.array(key_floats, float32)
        load_keys(k_values, k_head, k.row, first_key, last_key, first_dim, embedded_dim)

        # This thread's keys and dims of the output.
        group = tid // uint32(columns)
        column = uint32(tid % uint32(columns) * uint32(4))
        v_values = cuda.local.array(value_floats, float32)
        v_next = cuda.local.array(value_floats, float32)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)

        q_values = cuda.local.array(query_floats, float32)
        buffer = query_at
        fetch(q_values, q_tile, q.row, query_count, uint32(0), embedded_dim)
        place(shared, q_values, buffer, query_count, uint32(0), first_position, table, embedded_dim, softmax_scale)
        cuda.syncthreads()

        # The softmax state of the rows of a warp.
        row_max = cuda.local.array(rows_each, float32)
        tile_max = cuda.local.array(rows_each, float32)
        corrections = cuda.local.array(rows_each, float32)
        row_sum = cuda.local.array(rows_each, float32)
        for i in range(rows_each):
            row_max[i] = LOWEST
            row_sum[i] = float32(0.0)

        sums_of = cuda.local.array(sums, float32)
        s = cuda.local.array(row_scores, float32)
        greatest = greatest_weight(seq_k)
        tile_start = uint32(0)
        while tile_start < last_key:
            for i in range(sums):
                sums_of[i] = float32(0.0)
            key = uint32(tile_start + first_key)
            slice_start = uint32(0)
            while slice_start < uint32(width):
                next_slice = uint32(slice_start + uint32(staged))
                if sliced:
                    if next_slice >= uint32(width):
                        next_slice = uint32(0)
                    fetch(q_values, q_tile, q.row, query_count, next_slice, embedded_dim)
                dim = first_dim
                while dim < uint32(staged):
                    whole_dim = uint32(slice_start + dim)
                    next_key, next_dim = key, uint32(whole_dim + uint32(step))
                    if next_dim >= uint32(width):
                        next_key, next_dim = uint32(key + uint32(keys)), first_dim
                    if embeds_keys:
                        if whole_dim < embedded_dim:
                            embed_keys(k_values, table, key, last_key, whole_dim, begin(table, whole_dim))
                    if ahead:
                        load_keys(k_next, k_head, k.row, next_key, last_key, next_dim, embedded_dim)
                        multiply(sums_of, k_values, shared, uint32(buffer + dim))
                        for i in range(key_floats):
                            k_values[i] = k_next[i]
                    else:
                        multiply(sums_of, k_values, shared, uint32(buffer + dim))
                        load_keys(k_values, k_head, k.row, next_key, last_key, next_dim, embedded_dim)
                    dim = uint32(dim + uint32(step))
                if sliced:
                    buffer = uint32(query_at + uint32(queries * staged) - (buffer - query_at))
                    place(
                        shared, q_values, buffer, query_count, next_slice, first_position, table, embedded_dim,
                        softmax_scale,
                    )  # fmt: skip
                    cuda.syncthreads()
                slice_start = uint32(slice_start + uint32(staged))

            reduce(sums_of, lane_id)
            if not sliced:
                cuda.syncthreads()
            for i in range(own // together):
                index = uint32(member * uint32(own) + uint32(i * together))
                row = uint32(part * uint32(queries) + index // uint32(each))
                at = uint32(scores_at + row * stride + first_key + index % uint32(each))
                if together == 4:
                    x = make_float4(
                        sums_of[i * together],
                        sums_of[i * together + 1],
                        sums_of[i * together + 2],
                        sums_of[i * together + 3],
                    )
                    st4(shared, at, x)
                elif together == 2:
                    st2(shared, at, sums_of[i * together], sums_of[i * together + 1])
                else:
                    shared[at] = sums_of[i]
            for i in range(value_floats):
                v_values[i] = float32(0.0)
            first_value = uint32(tile_start + group * uint32(BLOCK))
            load_values(v_values, v_head, v.row, first_value, last_key, column, uint32(0))
            cuda.syncthreads()

            # Softmax: first the maxima of all rows of a warp, then the weights. No shuffle is inside a branch: a warp
            # without a row discards its result.
            for i in range(rows_each):
                row = uint32(warp_id + uint32(i * warps))
                query_position = first_position + int32(row)
                for n in range(per_lane):
                    own_key = uint32(lane_id + uint32(32 * n))
                    position = uint32(tile_start + own_key)
                    visible = row < uint32(queries) and own_key < uint32(keys) and position < last_key
                    if causal and int32(position) > query_position:
                        visible = False
                    s[i * per_lane + n] = NEGATIVE_INFINITY
                    if visible:
                        total = float32(0.0)
                        for p in range(depth):
                            total += shared[scores_at + (uint32(p * queries) + row) * stride + own_key]
                        if bias is not None:
                            if row < query_count:
                                total += bias(table, bias_head, query_position - int32(position))
                        s[i * per_lane + n] = total
                tile_max[i] = s[i * per_lane]
                for n in range(1, per_lane):
                    tile_max[i] = max(tile_max[i], s[i * per_lane + n])
            for i in range(rows_each):
                new_max = max(row_max[i], warp_max(tile_max[i]))
                corrections[i] = rescaling(row_max[i], new_max)
                row_max[i] = new_max
                tile_sum = float32(0.0)
                for n in range(per_lane):
                    s[i * per_lane + n] = weight_of(s[i * per_lane + n], new_max, greatest)
                    tile_sum += s[i * per_lane + n]
                row_sum[i] = corrections[i] * row_sum[i] + warp_sum(tile_sum)
            for i in range(rows_each):
                row = uint32(warp_id + uint32(i * warps))
                if row < uint32(queries):
                    for n in range(per_lane):
                        own_key = uint32(lane_id + uint32(32 * n))
                        if keys % 32 == 0 or own_key < uint32(keys):
                            shared[scores_at + row * stride + own_key] = s[i * per_lane + n]
                    if lane_id == 0:
                        shared[rescale_at + row] = corrections[i]
                        shared[inverse_at + row] = inverse_of(row_sum[i])
            cuda.syncthreads()

            next_start = uint32(tile_start + uint32(keys))
            live = uint32(min(uint32(keys), uint32(last_key - tile_start)))
            dim = column
            if resident:
                if tile_start > 0:
                    rescale(acc, shared)
            while dim < uint32(hdim):
                if not resident:
                    for i in range(outputs):
                        acc[i] = float32(0.0)
                    if tile_start > 0:
                        recall(acc, out_tile, out.row, query_count, dim)
                        rescale(acc, shared)
                block = group
                while block * uint32(BLOCK) < live:
                    next_block, next_dim = uint32(block + uint32(groups)), dim
                    if next_block * uint32(BLOCK) >= live:
                        next_block, next_dim = group, uint32(dim + uint32(4 * columns))
                    next_key = uint32(tile_start + next_block * uint32(BLOCK))
                    at = uint32(scores_at + block * uint32(BLOCK))
                    if ahead:
                        load_values(v_next, v_head, v.row, next_key, last_key, next_dim, uint32(0))
                        weigh(acc, v_values, shared, at)
                        for i in range(value_floats):
                            v_values[i] = v_next[i]
                    else:
                        weigh(acc, v_values, shared, at)
                        load_values(v_values, v_head, v.row, next_key, last_key, next_dim, uint32(0))
                    block = uint32(block + uint32(groups))
                if not resident:
                    store(acc, shared, out_tile, out.row, query_count, dim, next_start >= last_key)
                dim = uint32(dim + uint32(4 * columns))
            tile_start = next_start

        if resident:
            count = groups // 2
            at = uint32(query_at + uint32(4) * tid)
            while count > 0:
                if group >= uint32(count) and group < uint32(2 * count):
                    give(acc, shared, uint32(at - uint32(4 * count * columns)))
                cuda.syncthreads()
                if group < uint32(count):
                    take(acc, shared, at)
                cuda.syncthreads()
                count //= 2
            if group == 0 and column < uint32(hdim):
                store(acc, shared, out_tile, out.row, query_count, column, True)

    attention.__name__ = attention.__qualname__ = f"{shape.name}_{embedding.name}"
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any) -> Kernel:
    signature = (ROWS,) * 4 + (table_type,) + (UINT,) * 4 + (INT, UINT, FLOAT)
    return Kernel(make_kernel(shape, embedding), signature, max_threads=shape.threads)


def attend(
    problem: Problem,
    embedding: Embedding = PLAIN,
    table: str | tuple[str | int, ...] = "q",
    embedded_dim: int = 0,
    q: str = "q",
    k: str = "k",
    table_type: Any = FLOATS,
    shape: Shape | None = None,
) -> Launch:
    """The launch that attends to the buffers `q` and `k` and embeds their first `embedded_dim` dims.

    `table` is the buffer that the embedding reads, or the arguments that its `table_type` consists of.

    Raises: Unsupported for a shape of another head dim, or where a tile does not fit shared memory.
    """
    shape = shape or choose(problem)
    require(
        shape.hdim == problem.hdim, "hdim", problem.hdim, shape.hdim, "hdim is {needed}; this shape takes {allowed}"
    )
    require_shared(shape.layout, problem)
    return Launch(
        kernel_of(shape, embedding, table_type),
        grid=(
            -(-problem.seq_q // shape.queries) * (problem.heads // problem.kv_heads),
            problem.kv_heads,
            problem.batch,
        ),
        block=(shape.threads,),
        args=(*tensors(problem, (q, k, "v", "out")), *listed(table), *numbers(problem, embedded_dim)),
        shared=shape.layout,
        shape=shape,
        embedding=embedding,
    )
