"""The V8 core on mma.sync: attention over a thread-block cluster that shares the head dim, with an inlined embedding.

Each cluster computes one tile of queries of one head; each of its blocks has a slice of the head dim. A block copies
its slice of Q and K to shared memory and embeds it there. It multiplies the slices and sends its partial scores to the
block that owns the row. The owner sums the partial scores, computes the softmax and sends the weights to all blocks.
Each block multiplies them with its slice of V. So a cluster reads and embeds every element once, and no score or
embedded value goes through global memory. Copies overlap the arithmetic. Scores and weights go to other blocks by
asynchronous stores that count at an mbarrier of the receiver, so no thread waits for a fence on all memory.

Both products run on the tensor cores as three TF32 products: each float is split into a TF32 number and a remainder,
and only remainder times remainder is left out. Tensor cores truncate when they add. So the partial sums of the large
products are taken from them every 16 terms and added in float32.

Slices are interleaved: rank r has the dims 32 (r + cluster i) to 32 (r + cluster i) + 31 for all i, so that a partial
rotation is distributed over as many blocks as possible.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, int32, uint32, uint64

from ..constants import FLOAT, FLOATS, INT, UINT
from ..device.asm import (
    cp_async2_or_zero,
    cp_async4_or_zero,
    cp_async_commit,
    cp_async_wait,
    cp_async_wait_but_one,
    mma_m16n8k8_tf32,
)
from ..device.cluster import (
    barrier_expect,
    barrier_init,
    barrier_init_fence,
    barrier_wait,
    cluster_rank,
    cluster_send,
    cluster_send2,
    cluster_start,
    cluster_wait,
)
from ..device.reduce import NEGATIVE_INFINITY, warp_max, warp_sum
from ..device.rows import ROWS, quotient, rows_of
from ..device.tensor import FACTOR_BOUND, VALUE_BOUND, split, split_bounded, split_short
from ..device.vector import advance, ld2, ld4, make_float4, st4
from ..limits import EMULATED_TARGET
from ..version import Kernel, Launch, Problem
from .embedding import PLAIN, Embedding, halves_of
from .launch import launch, listed
from .mma_shape import BARRIER, COPIERS, GROUP, STEP, Shape, choose
from .repeat import repeat
from .softmax import LOWEST, add_weights, greatest_weight, inverse_of, rescaling, weight_of


def make_kernel(shape: Shape, embedding: Embedding) -> Any:
    """The attention kernel for that shape and embedding."""
    cluster, queries, keys, width, threads = shape.cluster, shape.queries, shape.keys, shape.width, shape.threads
    layout, rows, down, across, depth = shape.layout, shape.rows, shape.down, shape.across, shape.depth
    query_at, keys_at, values_at = (uint32(layout[name]) for name in ("query", "keys", "values"))
    parts_at, weights_at, rescale_at = (uint32(layout[name]) for name in ("parts", "weights", "rescale"))
    running_at, parts_arrived = uint32(layout["running"]), uint32(layout["arrived"])
    weights_arrived = uint32(parts_arrived + uint32(BARRIER))
    row_bytes = uint32(4 * cluster * depth * keys)  # that the owner of a row receives per tile
    weights_bytes = uint32(4 * queries * (keys + 2))  # that every block receives per tile
    stride, v_stride, w_stride = uint32(width + 16), uint32(width + 4), uint32(keys + 8)
    columns = keys // 8 // across  # mma tiles of a warp along the keys
    warps, abreast, panels = shape.warps, shape.abreast, shape.panels
    per_lane = max(keys // 32, 1)
    groups = width // GROUP
    height = max(queries, keys)
    sharers = next(n for n in (4, 2, 1) if n == 1 or (n * height * COPIERS <= threads and groups % n == 0))
    passes = threads // COPIERS // sharers  # rows that one pass copies; the sharers alternate between groups
    turns = -(-height // passes)
    parts = cluster * depth
    span = GROUP * cluster  # dims from one group of a slice to the next
    unroll = next(n for n in (4, 2, 1) if n == 1 or width % (STEP * depth * n) == 0)
    outputs, sums, fragment = 16 * panels, 4 * columns, 4 * columns  # floats of a thread
    embedded_floats = 8 * turns  # of the rows that a thread embeds at once
    embeds_query, embeds_keys = embedding.query, embedding.keys
    embeds = embeds_query or embeds_keys
    begin, prepare, embed, bias = embedding.begin, embedding.prepare, embedding.embed, embedding.bias
    half_split, of_batch = embedding.half_split, embedding.of_batch

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

    apply_keys, apply_query = embedder(keys_at, 0), embedder(query_at, 4)

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

    def multiplier(count):
        """A function that multiplies one A fragment by `count` B fragments and adds the products to as many
        accumulators.
        """

        @cuda.jit(device=True)
        def multiply(c, a, b, at):
            for j in range(count):
                old = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
                d = mma_m16n8k8_tf32(a, (b[4 * j + at], b[4 * j + at + 1]), old)
                c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d

        return multiply

    times_keys, times_values = multiplier(columns), multiplier(4)

    @cuda.jit(device=True)
    def score(shared, low, high, top, left, dim, lane_row, member):
        """Add the products of 16 dims to a warp's scores: the large ones to `high`, the others to `low`."""
        at = uint32(query_at + (top + lane_row) * stride + dim + uint32(4) * member)
        upper = ld4(shared, at)
        lower = ld4(shared, at + uint32(8) * stride)
        bh = cuda.local.array(fragment, float32)
        bl = cuda.local.array(fragment, float32)
        large = cuda.local.array(fragment, float32)
        for j in range(columns):
            at = uint32(keys_at + (left + uint32(8 * j) + lane_row) * stride + dim + uint32(4) * member)
            x = ld4(shared, at)
            bh[4 * j], bl[4 * j] = split_short(x.x, FACTOR_BOUND)
            bh[4 * j + 1], bl[4 * j + 1] = split_short(x.y, FACTOR_BOUND)
            bh[4 * j + 2], bl[4 * j + 2] = split_short(x.z, FACTOR_BOUND)
            bh[4 * j + 3], bl[4 * j + 3] = split_short(x.w, FACTOR_BOUND)
        ux, uxl = split_bounded(upper.x, FACTOR_BOUND)
        uy, uyl = split_bounded(upper.y, FACTOR_BOUND)
        uz, uzl = split_bounded(upper.z, FACTOR_BOUND)
        uw, uwl = split_bounded(upper.w, FACTOR_BOUND)
        lx, lxl = split_bounded(lower.x, FACTOR_BOUND)
        ly, lyl = split_bounded(lower.y, FACTOR_BOUND)
        lz, lzl = split_bounded(lower.z, FACTOR_BOUND)
        lw, lwl = split_bounded(lower.w, FACTOR_BOUND)
        for i in range(fragment):
            large[i] = float32(0.0)
        times_keys(large, (ux, lx, uy, ly), bh, 0)
        times_keys(low, (uxl, lxl, uyl, lyl), bh, 0)
        times_keys(large, (uz, lz, uw, lw), bh, 2)
        times_keys(low, (uzl, lzl, uwl, lwl), bh, 2)
        times_keys(low, (ux, lx, uy, ly), bl, 0)
        times_keys(low, (uz, lz, uw, lw), bl, 2)
        for i in range(fragment):
            high[i] += large[i]

    @cuda.jit(device=True)
    def weigh_step(shared, acc, p, group, top, key, lane_row, member):
        """Add weights times values of 16 keys to panel `p` of this warp's output."""
        at = uint32(values_at + (key + uint32(2) * member) * v_stride)
        at = uint32(at + group * uint32(GROUP) + uint32(4) * lane_row)
        v0 = ld4(shared, at)
        v1 = ld4(shared, at + v_stride)
        v2 = ld4(shared, at + uint32(8) * v_stride)
        v3 = ld4(shared, at + uint32(9) * v_stride)
        at = uint32(weights_at + (top + lane_row) * w_stride + key + uint32(2) * member)
        ux, uy = ld2(shared, at)
        lx, ly = ld2(shared, at + uint32(8) * w_stride)
        uz, uw = ld2(shared, at + uint32(8))
        lz, lw = ld2(shared, at + uint32(8) * w_stride + uint32(8))
        b = cuda.local.array(16, float32)
        bl = cuda.local.array(16, float32)
        c = cuda.local.array(16, float32)
        b[0], b[4], b[8], b[12] = v0.x, v0.y, v0.z, v0.w
        b[1], b[5], b[9], b[13] = v1.x, v1.y, v1.z, v1.w
        b[2], b[6], b[10], b[14] = v2.x, v2.y, v2.z, v2.w
        b[3], b[7], b[11], b[15] = v3.x, v3.y, v3.z, v3.w
        for i in range(16):
            b[i], bl[i] = split_bounded(b[i], VALUE_BOUND)
            c[i] = float32(0.0)
        ux, uxl = split(ux)
        uy, uyl = split(uy)
        uz, uzl = split(uz)
        uw, uwl = split(uw)
        lx, lxl = split(lx)
        ly, lyl = split(ly)
        lz, lzl = split(lz)
        lw, lwl = split(lw)
        times_values(c, (uxl, lxl, uyl, lyl), b, 0)
        times_values(c, (uzl, lzl, uwl, lwl), b, 2)
        times_values(c, (ux, lx, uy, ly), bl, 0)
        times_values(c, (uz, lz, uw, lw), bl, 2)
        times_values(c, (ux, lx, uy, ly), b, 0)
        times_values(c, (uz, lz, uw, lw), b, 2)
        for i in range(16):
            acc[16 * p + i] += c[i]

    @cuda.jit(device=True)
    def weigh_panel(p, shared, acc, panel, top, lane_row, member):
        """Rescale panel `p` of this warp's output and add weights times values."""
        group = uint32(panel + uint32(p * abreast))
        if groups % abreast == 0 or group < uint32(groups):
            correction0 = shared[rescale_at + uint32(2) * (top + lane_row)]
            correction1 = shared[rescale_at + uint32(2) * (top + lane_row + uint32(8))]
            for j in range(4):
                acc[16 * p + 4 * j] *= correction0
                acc[16 * p + 4 * j + 1] *= correction0
                acc[16 * p + 4 * j + 2] *= correction1
                acc[16 * p + 4 * j + 3] *= correction1
            key = uint32(0)
            while key < uint32(keys):
                weigh_step(shared, acc, p, group, top, key, lane_row, member)
                if keys % (2 * STEP) == 0:
                    weigh_step(shared, acc, p, group, top, uint32(key + uint32(STEP)), lane_row, member)
                key = uint32(key + uint32(STEP if keys % (2 * STEP) else 2 * STEP))

    weigh = repeat(weigh_panel, panels)

    def attention(
        q, k, v, out, table,
        kv_heads, heads_reciprocal, seq_q, seq_k, hdim, embedded_dim, q_offset, causal, softmax_scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        warp_id = tid // uint32(32)
        lane_id = tid % uint32(32)
        lane_row = lane_id // uint32(4)
        member = lane_id % uint32(4)
        rank = uint32(0)
        if cluster > 1:
            rank = cluster_rank()
        shared_head = uint32(uint32(cuda.blockIdx.x) // uint32(cluster))  # counted through the batch
        bias_head = uint32(shared_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        batch = quotient(shared_head, kv_heads, heads_reciprocal)
        kv_head = uint32(shared_head - batch * kv_heads)
        head = uint32(kv_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        if of_batch is not None:
            table = of_batch(table, batch)
        # the last queries first: with a mask they attend to the most keys
        first_query = uint32((uint32(cuda.gridDim.z) - uint32(cuda.blockIdx.z) - uint32(1)) * uint32(queries))
        first_dim = uint32(rank * uint32(GROUP))
        query_count = uint32(min(uint32(queries), uint32(seq_q - first_query)))
        q_tile, out_tile = rows_of(q, batch, head, first_query), rows_of(out, batch, head, first_query)
        k_head, v_head = rows_of(k, batch, kv_head, uint32(0)), rows_of(v, batch, kv_head, uint32(0))
        last_key = seq_k
        if causal:
            last_key = uint32(min(seq_k, uint32(q_offset + int32(first_query + query_count))))

        # A thread embeds the rows and dims that it copies.
        first_row = uint32(tid // uint32(COPIERS) % uint32(passes))
        sharer = uint32(tid // uint32(COPIERS * passes))
        lane_dim = uint32(tid % uint32(COPIERS) * uint32(4))
        column = uint32(lane_dim + sharer * uint32(GROUP))
        copied_dim = uint32(first_dim + lane_dim + sharer * uint32(span))
        if embeds:
            begun = make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))
            if copied_dim < embedded_dim:
                begun = begin(table, copied_dim)
        copy_query(shared, q_tile, q.row, query_count, first_row, column, copied_dim, embedded_dim, hdim)
        copy_keys(shared, k_head, k.row, last_key, first_row, column, copied_dim, embedded_dim, hdim)
        cp_async_commit()
        if cluster > 1:
            if tid == 0:
                barrier_init(shared, parts_arrived, 1)
                barrier_init(shared, weights_arrived, 1)
                barrier_init_fence()
                barrier_expect(shared, parts_arrived, uint32(rows) * row_bytes)
                barrier_expect(shared, weights_arrived, weights_bytes)
            cluster_start()
        if tid < uint32(rows):
            nothing = float32(0.0)
            st4(shared, running_at + uint32(4) * tid, make_float4(LOWEST, nothing, nothing, nothing))

        # This warp's part of the scores, and of the output.
        top = uint32(warp_id % uint32(down) * uint32(16))
        left = uint32(warp_id // uint32(down) % uint32(across) * uint32(8 * columns))
        slot = uint32(rank * uint32(depth) + warp_id // uint32(down * across))
        first_step = uint32(warp_id // uint32(down * across) * uint32(STEP))
        panel = warp_id // uint32(down)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)
        low = cuda.local.array(sums, float32)
        high = cuda.local.array(sums, float32)

        greatest = greatest_weight(seq_k)
        phase = uint32(0)  # the phase of the mbarriers
        tile_start = uint32(0)
        first_position = int32(q_offset + int32(first_query))
        while tile_start < last_key:
            key_count = uint32(min(uint32(keys), uint32(last_key - tile_start)))
            first_tile = tile_start == 0
            v_tile = advance(v_head, uint64(tile_start) * uint64(v.row))
            if embeds:
                values = cuda.local.array(embedded_floats, float32)
                next_begun = begun
                other, dim = column, copied_dim
                while other < uint32(width) and dim < embedded_dim:
                    now = next_begun
                    next_dim = uint32(dim + uint32(sharers * span))
                    if next_dim < embedded_dim:
                        next_begun = begin(table, next_dim)
                    compute_keys(values, table, tile_start, key_count, first_row, dim, now, hdim)
                    if first_tile:
                        compute_query(values, table, first_position, query_count, key_count, first_row, dim, now, hdim)
                    cp_async_wait()  # waits in the first iteration only
                    if embeds_keys:
                        apply_keys(shared, values, key_count, first_row, other)
                    if embeds_query and first_tile:
                        apply_query(shared, values, query_count, first_row, other)
                    other = uint32(other + uint32(sharers * GROUP))
                    dim = next_dim
            cp_async_wait()
            if first_tile:
                scale_query(shared, softmax_scale, query_count, first_row, column)
            cuda.syncthreads()
            value_count = uint32(last_key - tile_start)
            if cluster == 1:
                copy_values(shared, v_tile, v.row, value_count, first_row, column, copied_dim, embedded_dim, hdim)
                cp_async_commit()

            for i in range(sums):
                low[i] = float32(0.0)
                high[i] = float32(0.0)
            dim = first_step
            while dim < uint32(width):
                score(shared, low, high, top, left, dim, lane_row, member)
                if unroll > 1:
                    score(shared, low, high, top, left, uint32(dim + uint32(STEP * depth)), lane_row, member)
                if unroll > 2:
                    score(shared, low, high, top, left, uint32(dim + uint32(2 * STEP * depth)), lane_row, member)
                    score(shared, low, high, top, left, uint32(dim + uint32(3 * STEP * depth)), lane_row, member)
                dim = uint32(dim + uint32(STEP * depth * unroll))

            if cluster > 1 and first_tile:
                cluster_wait()
            for j in range(columns):
                for half in range(2):
                    row = uint32(top + uint32(8 * half) + lane_row)
                    owner = row // uint32(rows)
                    at = uint32((slot * uint32(rows) + row % uint32(rows)) * uint32(keys))
                    at = uint32(parts_at + at + left + uint32(8 * j) + uint32(2) * member)
                    x = high[4 * j + 2 * half] + low[4 * j + 2 * half]
                    y = high[4 * j + 2 * half + 1] + low[4 * j + 2 * half + 1]
                    if cluster > 1:
                        cluster_send2(shared, at, owner, x, y, parts_arrived)
                    else:
                        shared[at] = x
                        shared[at + uint32(1)] = y
            next_start = uint32(tile_start + uint32(keys))
            if cluster > 1:
                copy_values(shared, v_tile, v.row, value_count, first_row, column, copied_dim, embedded_dim, hdim)
                cp_async_commit()
                barrier_wait(shared, parts_arrived, phase)
                if next_start < last_key:
                    cuda.syncthreads()
                    if tid == 0:
                        barrier_expect(shared, parts_arrived, uint32(rows) * row_bytes)
            else:
                cuda.syncthreads()

            if next_start < last_key:
                k_tile = advance(k_head, uint64(next_start) * uint64(k.row))
                key_count = uint32(last_key - next_start)
                copy_keys(shared, k_tile, k.row, key_count, first_row, column, copied_dim, embedded_dim, hdim)
            cp_async_commit()

            s = cuda.local.array(per_lane, float32)
            own = warp_id
            while own < uint32(rows):
                row = uint32(rank * uint32(rows) + own)
                visible = last_key
                if causal:
                    visible = uint32(min(last_key, uint32(q_offset + int32(first_query + row) + int32(1))))
                at = uint32(parts_at + own * uint32(keys) + lane_id * uint32(per_lane))
                for i in range(per_lane):
                    s[i] = float32(0.0)
                if lane_id * uint32(per_lane) < uint32(keys):
                    for part in range(parts):
                        if per_lane == 1:
                            s[0] += shared[at + uint32(part * rows * keys)]
                        else:
                            x, y = ld2(shared, at + uint32(part * rows * keys))
                            s[0] += x
                            s[per_lane - 1] += y
                tile_max = NEGATIVE_INFINITY
                for i in range(per_lane):
                    key = uint32(lane_id * uint32(per_lane) + uint32(i))
                    if bias is not None:
                        s[i] += bias(table, bias_head, q_offset + int32(first_query + row) - int32(tile_start + key))
                    if key >= uint32(keys) or tile_start + key >= visible:
                        s[i] = NEGATIVE_INFINITY
                    tile_max = max(tile_max, s[i])
                running = ld4(shared, running_at + uint32(4) * own)
                row_max = running.x
                new_max = max(row_max, warp_max(tile_max))
                tile_sum = float32(0.0)
                for i in range(per_lane):
                    s[i] = weight_of(s[i], new_max, greatest)
                    tile_sum += s[i]
                at = uint32(weights_at + row * w_stride + lane_id * uint32(per_lane))
                if lane_id * uint32(per_lane) < uint32(keys):
                    for other in range(cluster):
                        if cluster == 1:
                            for i in range(per_lane):
                                shared[at + uint32(i)] = s[i]
                        elif per_lane == 1:
                            cluster_send(shared, at, uint32(other), s[0], weights_arrived)
                        else:
                            cluster_send2(shared, at, uint32(other), s[0], s[per_lane - 1], weights_arrived)
                correction = rescaling(row_max, new_max)
                row_sum, row_lost = add_weights(running.y, running.z, correction, warp_sum(tile_sum))
                cuda.syncwarp()
                if lane_id == 0:
                    st4(shared, running_at + uint32(4) * own, make_float4(new_max, row_sum, row_lost, float32(0.0)))
                if lane_id < uint32(cluster):
                    at = uint32(rescale_at + uint32(2) * row)
                    if cluster > 1:
                        cluster_send2(shared, at, lane_id, correction, inverse_of(row_sum), weights_arrived)
                    else:
                        shared[at] = correction
                        shared[at + uint32(1)] = inverse_of(row_sum)
                own += uint32(warps)
            cp_async_wait_but_one()
            cuda.syncthreads()
            if cluster > 1:
                barrier_wait(shared, weights_arrived, phase)
                if tid == 0 and next_start < last_key:
                    barrier_expect(shared, weights_arrived, weights_bytes)
                phase ^= uint32(1)

            weigh(shared, acc, panel, top, lane_row, member)
            tile_start = next_start

        for half in range(2):
            row = uint32(top + uint32(8 * half) + lane_row)
            if row < query_count:
                inverse = shared[rescale_at + uint32(2) * row + uint32(1)]
                out_row = advance(out_tile, row * out.row)
                for p in range(panels):
                    group = uint32(panel + uint32(p * abreast))
                    dim = uint32(group * uint32(span) + first_dim + uint32(8) * member)
                    for side in range(2):
                        if group < uint32(groups) and dim + uint32(4 * side) < hdim:
                            i = 16 * p + 2 * half + side
                            weighted = make_float4(
                                acc[i] * inverse, acc[i + 4] * inverse, acc[i + 8] * inverse, acc[i + 12] * inverse
                            )
                            st4(out_row, dim + uint32(4 * side), weighted)

    attention.__name__ = attention.__qualname__ = f"{shape.name}_{embedding.name}"
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any) -> Kernel:
    signature = (ROWS,) * 4 + (table_type,) + (UINT,) * 6 + (INT, UINT, FLOAT)
    return Kernel(make_kernel(shape, embedding), signature, max_threads=shape.threads, min_blocks=shape.blocks)


def attend(
    problem: Problem,
    embedding: Embedding = PLAIN,
    table: str | tuple[str | int, ...] = "q",
    embedded_dim: int = 0,
    q: str = "q",
    k: str = "k",
    table_type: Any = FLOATS,
    shape: Shape | None = None,
    target: str = EMULATED_TARGET,
) -> Launch:
    """The launch that attends to the buffers `q` and `k` and embeds their first `embedded_dim` dims.

    `table` is the buffer that the embedding reads, or the arguments that its `table_type` consists of.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    shape = shape or choose(problem, embedded_dim, target)
    kernel = kernel_of(shape, embedding, table_type)
    return launch(kernel, shape, embedding, problem, (q, k, "v", "out"), listed(table), embedded_dim)
