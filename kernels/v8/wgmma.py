"""The V8 core on wgmma: as `mma`, with the products transposed so that they are large enough for wgmma.

K and V are the larger operands: their rows are the 64 rows of A and come from registers, where each element is split
into high and low once. Q and the weights are split when they are written; they are the columns of B and come from
shared memory. Each warpgroup takes some of the dims: as terms of the scores, whose owners sum the parts, and as rows of
the output.

Slices are interleaved and blocks exchange scores and weights as in `mma`.

A block embeds a tile of K between its load and its products. Where many blocks need the same keys, they embed the keys
once, together, before their main loop (`Shape.once`). Every block takes tiles until none is left, embeds them in global
memory, loads its Q, and waits for the last tile. A waiting block has found no tile left, so no block waits for one that
has not started.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, int32, uint32, uint64

from ..constants import FLOAT, FLOATS, INT, INTS, UINT
from ..device.asm import cp_async_commit, cp_async_wait, cp_async_wait_but_one
from ..device.atomic import atomic_add, fence, give_way
from ..device.cluster import (
    barrier_expect,
    barrier_init,
    barrier_init_fence,
    barrier_wait,
    cluster_rank,
    cluster_send2,
    cluster_start,
    cluster_wait,
)
from ..device.reduce import FULL_MASK, NEGATIVE_INFINITY
from ..device.rows import ROWS as TENSOR
from ..device.rows import quotient, rows_of
from ..device.tensor import split
from ..device.vector import advance, ld2, ld4, make_float4, st2, st4
from ..device.wgmma import ROWS, TERMS, WARPGROUP, fence_products, tile_index
from ..version import Buffer, Kernel, Launch, Problem
from .embedding import PLAIN, Embedding
from .launch import launch, listed
from .mma_shape import BARRIER, COPIERS, GROUP
from .softmax import (
    LOWEST,
    add_weights,
    greatest_beside,
    greatest_weight,
    inverse_of,
    over_power,
    rescaling,
    weight_of,
)
from .wgmma_copy import copiers, exchanged
from .wgmma_embed import embedders, turning
from .wgmma_multiply import multipliers
from .wgmma_shape import KEYS, Shape, choose

TILE_ALIGNMENT = 1024
TAKEN, EMBEDDED, SERVED, STATES = range(4)  # tiles of K taken, tiles embedded, blocks past the wait


def make_kernel(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """The attention kernel for that shape and embedding; `paired` groups of a slice may have embedded dims."""
    cluster, queries, width, threads = shape.cluster, shape.queries, shape.width, shape.threads
    layout, rows, warpgroups, abreast, panels = shape.layout, shape.rows, shape.warpgroups, shape.abreast, shape.panels
    in_place, once, apart = shape.in_place, shape.once, shape.apart
    weights_at, parts_at, rescale_at = (uint32(layout[name]) for name in ("weights", "parts", "rescale"))
    parts_arrived, taken_at = uint32(layout["arrived"]), uint32(layout["taken"])
    weights_arrived = uint32(parts_arrived + uint32(BARRIER))
    row_bytes = uint32(4 * cluster * warpgroups * KEYS)  # that the owner of a row receives per tile
    weights_bytes = uint32(4 * queries * (2 * KEYS + 2))  # that every block receives per tile
    tile, weights_low = uint32(queries * TERMS), uint32(queries * KEYS)
    warps, groups, parts = threads // 32, shape.groups, cluster * warpgroups
    query_turns = shape.query_turns
    span = GROUP * cluster  # dims from one group of a slice to the next
    size = queries // 2  # accumulators of one product per thread
    panel_dims, lane_dims = abreast * ROWS, 2 * abreast
    outputs = panels * abreast * size
    inverses, begun_floats = queries // 4, 4 * groups
    raw_floats = 4 * query_turns * groups
    embeds_query, embeds_keys = embedding.query, embedding.keys and not once
    bias, of_batch = embedding.bias, embedding.of_batch
    half_split = embedding.half_split
    halves = half_split and not once  # the halves of a pair are apart in shared memory
    copy_keys, copy_values, place_query = copiers(shape, halves, paired)
    embedded_by = embedders(shape, embedding, paired)
    load_query, pair_query, begin_dims, embed_query, begin_keys, embed_keys, embed_tile = embedded_by
    ahead = shape.blocks == 1  # load the next fragments of V while products run, which takes registers
    load_keys, score, weigh = multipliers(shape, ahead)
    per_warp = -(-rows // warps)  # rows of the scores, owned throughout
    all_rows = cluster * rows == queries and rows % warps == 0

    def attention(
        q, k, v, out, table, k_embedded, states,
        kv_heads, heads_reciprocal, seq_q, seq_k, hdim, embedded_dim, q_offset, causal, softmax_scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, float32, TILE_ALIGNMENT)
        tid = uint32(cuda.threadIdx.x)
        warp_id = tid // uint32(32)
        lane_id = tid % uint32(32)
        lane_row = lane_id // uint32(4)
        member = lane_id % uint32(4)
        warpgroup = uint32(0)
        if warpgroups > 1:
            # broadcast from one lane, so that the compiler knows it is uniform
            warpgroup = uint32(cuda.shfl_sync(FULL_MASK, int32(tid // uint32(WARPGROUP)), 0))
        rank = uint32(0)
        if cluster > 1:
            rank = cluster_rank()
            owned = min(uint32(rows), max(uint32(queries), uint32(rank * uint32(rows))) - uint32(rank * uint32(rows)))
        shared_head = uint32(uint32(cuda.blockIdx.x) // uint32(cluster))  # counted through the batch
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
        k_pitch = k.row
        last_key = seq_k
        if causal:
            last_key = uint32(min(seq_k, uint32(q_offset + int32(first_query + query_count))))

        first_warp = cuda.shfl_sync(FULL_MASK, int32(warp_id), 0) == 0
        taken, ready, served = int32(0), int32(0), int32(0)
        if once:
            own_states = advance(states, uint32((shared_head * uint32(cluster) + rank) * uint32(STATES)))
            taken = atomic_add(own_states, TAKEN, 1, tid == 0)
            ready = atomic_add(own_states, EMBEDDED, 0, tid == 0)

        # The copy of K overlaps the embedding and the split of Q.
        column = uint32(tid % uint32(COPIERS) * uint32(4))
        copied_dim = uint32(first_dim + column)
        if half_split:
            copied_dim = uint32(first_dim + turning(column))
            if once:
                column = turning(column)  # the order in which blocks have stored K
        raw = cuda.local.array(raw_floats, float32)
        begun = cuda.local.array(8, float32)
        begun_query = cuda.local.array(begun_floats, float32)
        load_query(raw, q_tile, q.row, query_count, first_dim, embedded_dim, hdim)
        if half_split and once:
            pair_query(raw)
        if embeds_keys:
            begin_keys(begun, table, warpgroup, member, first_dim, embedded_dim)
        if embeds_query and copied_dim < embedded_dim:
            begin_dims(begun_query, table, copied_dim, embedded_dim)
        if once:
            embedded_head = advance(k_embedded, uint64(shared_head) * uint64(seq_k) * uint64(hdim))
            all_tiles = int32(uint32(seq_k + uint32(KEYS - 1)) // uint32(KEYS))
            if tid == 0:
                shared[taken_at] = float32(taken)
            cuda.syncthreads()
            taken, turn = int32(shared[taken_at]), uint32(0)
            while taken < all_tiles:
                turn ^= uint32(1)
                next_taken = atomic_add(own_states, TAKEN, 1, tid == 0)
                first_key = uint32(taken * KEYS)
                embed_tile(
                    advance(k_head, uint64(first_key) * uint64(k_pitch)),
                    k_pitch,
                    advance(embedded_head, uint64(first_key) * uint64(hdim)),
                    table,
                    first_key,
                    uint32(seq_k - first_key),
                    first_dim,
                    copied_dim,
                    embedded_dim,
                    hdim,
                )
                if tid == 0:
                    shared[taken_at + turn] = float32(next_taken)
                cuda.syncthreads()
                if first_warp:
                    fence()
                    ready = atomic_add(own_states, EMBEDDED, 1, tid == 0) + int32(1)
                taken = int32(shared[taken_at + turn])
            k_head, k_pitch = embedded_head, hdim
        else:
            cuda.syncthreads()  # keeps the compiler from moving the loads after the copies
            copy_keys(shared, k_head, k_pitch, last_key, first_dim, embedded_dim, hdim)
            cp_async_commit()
        if cluster > 1:
            if tid == uint32(threads - 1):  # in a warp with the fewest queries
                barrier_init(shared, parts_arrived, 1)
                barrier_init(shared, weights_arrived, 1)
                barrier_init_fence()
                barrier_expect(shared, parts_arrived, owned * row_bytes)
                barrier_expect(shared, weights_arrived, weights_bytes)
            cluster_start()
        first_position = int32(q_offset + int32(first_query))
        if half_split and not once:
            pair_query(raw)  # here, as it waits for Q, and the copy of K must not wait
        if embeds_query and copied_dim < embedded_dim:
            embed_query(raw, begun_query, 0, table, first_position, query_count, copied_dim, embedded_dim, hdim)
            if paired > 1 and uint32(copied_dim + uint32(span)) < embedded_dim:
                for i in range(1, paired):
                    embed_query(raw, begun_query, i, table, first_position, query_count, copied_dim, embedded_dim, hdim)
        place_query(shared, raw, column, softmax_scale)
        if once:
            if first_warp:
                ready = cuda.shfl_sync(FULL_MASK, ready, 0)
                while ready < all_tiles:
                    give_way()
                    ready = cuda.shfl_sync(FULL_MASK, atomic_add(own_states, EMBEDDED, 0, tid == 0), 0)
                fence()
                served = atomic_add(own_states, SERVED, 1, tid == 0) + int32(1)
            cuda.syncthreads()
            copy_keys(shared, k_head, k_pitch, last_key, first_dim, embedded_dim, hdim)
            cp_async_commit()

        # This thread's part of the scores, two keys, and of the output.
        key = uint32(warp_id % uint32(4) * uint32(16) + uint32(2) * lane_row)
        dim = uint32((warp_id % uint32(4) * uint32(8) + lane_row) * uint32(lane_dims))
        slot = uint32(rank * uint32(warpgroups) + warpgroup)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)
        scores = cuda.local.array(size, float32)
        fragment = cuda.local.array(16, float32)
        # For the rows of this warp: the row max, and each lane's part of the row sum.
        row_max = cuda.local.array(per_warp, float32)
        row_sum = cuda.local.array(per_warp, float32)
        row_lost = cuda.local.array(per_warp, float32)
        # The weight ceiling of a row, and its ratio to the previous one.
        greatest = cuda.local.array(per_warp, float32)
        change = cuda.local.array(per_warp, float32)
        for i in range(per_warp):
            row_max[i] = LOWEST
            row_sum[i], row_lost[i] = float32(0.0), float32(0.0)
            greatest[i], change[i] = greatest_weight(min(seq_k, uint32(KEYS)) if apart else seq_k), float32(1.0)

        phase = uint32(0)  # the phase of the mbarriers
        tile_start = uint32(0)
        while tile_start < last_key:
            first_tile = tile_start == 0
            cp_async_wait()
            cuda.syncthreads()
            if first_tile:
                fence_products()
            v_tile = advance(v_head, uint64(tile_start) * uint64(v.row))
            if cluster == 1:
                copy_values(shared, v_tile, v.row, uint32(last_key - tile_start), first_dim, embedded_dim, hdim)
                cp_async_commit()

            for i in range(size):
                scores[i] = float32(0.0)
            group = warpgroup
            while group < uint32(groups):
                next_group = uint32(group + uint32(warpgroups))
                load_keys(shared, fragment, group, key, member)
                if embeds_keys and uint32(first_dim + group * uint32(span)) < embedded_dim:
                    embed_keys(
                        fragment, begun, table, group, key, member, tile_start, last_key, first_dim, embedded_dim, hdim
                    )
                    if paired > 1:
                        next_dim = uint32(first_dim + next_group * uint32(span))
                        more = next_group < uint32(groups) and next_dim < embedded_dim
                        begin_keys(begun, table, next_group if more else warpgroup, member, first_dim, embedded_dim)
                score(shared, scores, fragment, group)
                group = next_group

            if cluster > 1 and first_tile:
                cluster_wait()
            for j in range(queries // 8):
                for side in range(2):
                    row = uint32(uint32(8 * j + side) + uint32(2) * member)
                    owner = row // uint32(rows)
                    at = uint32(parts_at + (slot * uint32(rows) + row % uint32(rows)) * uint32(KEYS))
                    at = uint32(at + exchanged(key, row // uint32(2)))
                    x, y = scores[4 * j + side], scores[4 * j + side + 2]
                    if cluster > 1:
                        cluster_send2(shared, at, owner, x, y, parts_arrived)
                    else:
                        st2(shared, at, x, y)
            next_start = uint32(tile_start + uint32(KEYS))
            if cluster > 1:
                if in_place:
                    cuda.syncthreads()
                copy_values(shared, v_tile, v.row, uint32(last_key - tile_start), first_dim, embedded_dim, hdim)
                cp_async_commit()
                barrier_wait(shared, parts_arrived, phase)
                if next_start < last_key:
                    cuda.syncthreads()
                    if tid == 0:
                        barrier_expect(shared, parts_arrived, owned * row_bytes)
            else:
                cuda.syncthreads()

            k_tile = advance(k_head, uint64(next_start) * uint64(k_pitch))
            if next_start < last_key and not in_place:
                copy_keys(shared, k_tile, k_pitch, uint32(last_key - next_start), first_dim, embedded_dim, hdim)
            cp_async_commit()

            s0 = cuda.local.array(per_warp, float32)
            s1 = cuda.local.array(per_warp, float32)
            new_max = cuda.local.array(per_warp, float32)
            correction = cuda.local.array(per_warp, float32)
            key_of_lane = uint32(tile_start + uint32(2) * lane_id)
            for i in range(per_warp):
                own = uint32(warp_id + uint32(i * warps))
                row = uint32(rank * uint32(rows) + own)
                new_max[i] = NEGATIVE_INFINITY
                if all_rows or (own < uint32(rows) and row < uint32(queries)):
                    at = uint32(parts_at + own * uint32(KEYS) + exchanged(lane_id * uint32(2), row // uint32(2)))
                    x, y = ld2(shared, at)
                    for part in range(1, parts):
                        z, w = ld2(shared, at + uint32(part * rows * KEYS))
                        x += z
                        y += w
                    if bias is not None:
                        distance = int32(q_offset + int32(first_query + row) - int32(key_of_lane))
                        bias_head = uint32(shared_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
                        x += bias(table, bias_head, distance)
                        y += bias(table, bias_head, distance - int32(1))
                    visible = last_key
                    if causal:
                        visible = uint32(min(last_key, uint32(q_offset + int32(first_query + row) + int32(1))))
                    s0[i] = x if key_of_lane < visible else NEGATIVE_INFINITY
                    s1[i] = y if key_of_lane + uint32(1) < visible else NEGATIVE_INFINITY
                    new_max[i] = max(s0[i], s1[i])
            for bit in range(5):
                for i in range(per_warp):
                    new_max[i] = max(new_max[i], cuda.shfl_xor_sync(FULL_MASK, new_max[i], 16 >> bit))
            for i in range(per_warp):
                own = uint32(warp_id + uint32(i * warps))
                row = uint32(rank * uint32(rows) + own)
                if all_rows or (own < uint32(rows) and row < uint32(queries)):
                    new_max[i] = max(row_max[i], new_max[i])
                    correction[i] = rescaling(row_max[i], new_max[i])
                    row_max[i] = new_max[i]
                    s0[i] = weight_of(s0[i], new_max[i], greatest[i])
                    s1[i] = weight_of(s1[i], new_max[i], greatest[i])
                    if apart:
                        correction[i] *= change[i]
                        row_sum[i], row_lost[i] = add_weights(row_sum[i], row_lost[i], correction[i], s0[i] + s1[i])
                    else:
                        row_sum[i] = correction[i] * row_sum[i] + (s0[i] + s1[i])
                    x, xl = split(s0[i])
                    y, yl = split(s1[i])
                    at = tile_index(row, uint32(lane_id % uint32(16) // uint32(2)))
                    at = uint32(at + lane_id // uint32(16) * tile + lane_id % uint32(2) * uint32(2))
                    at = uint32(weights_at + at)
                    for to in range(cluster):
                        if cluster > 1:
                            cluster_send2(shared, at, uint32(to), x, y, weights_arrived)
                            cluster_send2(shared, at + weights_low, uint32(to), xl, yl, weights_arrived)
                        else:
                            st2(shared, at, x, y)
                            st2(shared, at + weights_low, xl, yl)
            if next_start >= last_key:
                for bit in range(5):
                    for i in range(per_warp):
                        row_sum[i] += cuda.shfl_xor_sync(FULL_MASK, row_sum[i], 16 >> bit)
                for i in range(per_warp):
                    row_sum[i] = inverse_of(row_sum[i])
            for i in range(per_warp):
                own = uint32(warp_id + uint32(i * warps))
                row = uint32(rank * uint32(rows) + own)
                if lane_id < uint32(cluster) and (all_rows or (own < uint32(rows) and row < uint32(queries))):
                    at = uint32(rescale_at + uint32(2) * row)
                    if cluster > 1:
                        cluster_send2(shared, at, lane_id, correction[i], row_sum[i], weights_arrived)
                    else:
                        st2(shared, at, correction[i], row_sum[i])
            if apart and next_start < last_key:
                for i in range(per_warp):
                    change[i] = row_sum[i]
                for bit in range(5):
                    for i in range(per_warp):
                        change[i] += cuda.shfl_xor_sync(FULL_MASK, change[i], 16 >> bit)
                for i in range(per_warp):
                    beside = greatest_beside(over_power(change[i], greatest[i]), float32(KEYS))
                    greatest[i], change[i] = beside, over_power(beside, greatest[i])
            cp_async_wait_but_one()
            cuda.syncthreads()
            if cluster > 1:
                barrier_wait(shared, weights_arrived, phase)
                if tid == 0 and next_start < last_key:
                    barrier_expect(shared, weights_arrived, weights_bytes)
                phase ^= uint32(1)
            fence_products()

            weigh(shared, acc, warpgroup, dim, member)
            if in_place and next_start < last_key:
                cuda.syncthreads()
                copy_keys(shared, k_tile, k_pitch, uint32(last_key - next_start), first_dim, embedded_dim, hdim)
                cp_async_commit()
            tile_start = next_start

        inverse = cuda.local.array(inverses, float32)
        for j in range(queries // 8):
            rescales = ld4(shared, uint32(rescale_at + uint32(16 * j) + uint32(4) * member))
            inverse[2 * j], inverse[2 * j + 1] = rescales.y, rescales.w
        for p in range(panels):
            panel = uint32(warpgroup + uint32(p * warpgroups))
            local = uint32(panel * uint32(panel_dims) + dim)
            out_dim = uint32(local // uint32(GROUP) * uint32(span) + first_dim + local % uint32(GROUP))
            if panel < uint32(width // panel_dims) and out_dim < hdim:
                out_start = advance(out_tile, uint32(uint32(2) * member * out.row + out_dim))
                for j in range(queries // 8):
                    for side in range(2):
                        if uint32(uint32(8 * j + side) + uint32(2) * member) < query_count:
                            i = p * abreast * size + 4 * j + side
                            by = inverse[2 * j + side]
                            at = uint32(uint32(8 * j + side) * out.row)
                            if abreast == 2:
                                st4(
                                    out_start,
                                    at,
                                    make_float4(
                                        acc[i] * by, acc[i + 2] * by, acc[i + size] * by, acc[i + size + 2] * by
                                    ),
                                )
                            else:
                                st2(out_start, at, acc[i] * by, acc[i + 2] * by)
        if once and tid == 0 and served == int32(cuda.gridDim.y * cuda.gridDim.z):
            # no block needs the states any more: reset them for the next launch
            fence()
            own_states[TAKEN], own_states[EMBEDDED] = 0, 0
            atomic_add(own_states, SERVED, -served, True)

    name = f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < groups)
    attention.__name__ = attention.__qualname__ = name
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, paired: int) -> Kernel:
    signature = (TENSOR,) * 4 + (table_type, FLOATS, INTS) + (UINT,) * 6 + (INT, UINT, FLOAT)
    return Kernel(
        make_kernel(shape, embedding, paired),
        signature,
        max_threads=shape.threads,
        min_blocks=shape.blocks,
        architecture="sm_90a",
    )


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

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    shape = shape or choose(problem, embedded_dim if embedding.keys else 0)
    shared = ("k_embedded", "states") if shape.once else (k, k)
    # Where few of many dims turn, those of one group of each slice, what is compiled for that is shorter.
    few = 0 < embedded_dim <= GROUP * shape.cluster and not shape.once
    kernel = kernel_of(shape, embedding, table_type, 1 if few else shape.groups)
    return launch(kernel, shape, embedding, problem, (q, k, "v", "out"), (*listed(table), *shared), embedded_dim)


def workspace(problem: Problem, launch: Launch) -> dict[str, Buffer]:
    """The buffers that a launch needs beyond its tensors; concurrent launches need separate ones."""
    if "states" not in launch.args:
        return {}
    states = STATES * problem.batch * problem.kv_heads * launch.cluster
    return {
        "k_embedded": Buffer(problem.kv_shape),
        "states": Buffer((states,), "int32", init=functools.partial(np.zeros, states, np.int32)),
    }
