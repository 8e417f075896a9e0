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
from ..device.cluster import cluster_wait
from ..device.reduce import FULL_MASK
from ..device.rows import ROWS as TENSOR
from ..device.rows import rows_of
from ..device.vector import advance
from ..device.wgmma import WARPGROUP, fence_products
from ..version import Buffer, Kernel, Launch, Problem
from .embedding import PLAIN, Embedding
from .launch import launch, listed
from .mma_shape import COPIERS, GROUP
from .schedule import tile_of_block, visible_keys
from .wgmma_copy import copiers
from .wgmma_embed import embedders, turning
from .wgmma_multiply import multipliers
from .wgmma_phases import TILE_ALIGNMENT, exchange_of, output_of, parts_of, scores_of
from .wgmma_prerotate import COUNTERS, prerotation
from .wgmma_shape import KEYS, Shape, choose
from .wgmma_softmax import Rows, softmax_of
from .wgmma_stream import make_kernel as stream


def make_kernel(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """The attention kernel for that shape and embedding; `paired` groups of a slice may have embedded dims."""
    cluster, queries, threads, warpgroups, once = (
        shape.cluster, shape.queries, shape.threads, shape.warpgroups, shape.once
    )  # fmt: skip
    rows, groups, span = shape.rows, shape.groups, GROUP * cluster
    per_warp = -(-rows // (threads // 32))
    size, lane_dims = queries // 2, 2 * shape.abreast
    outputs, begun_floats, raw_floats = shape.panels * shape.abreast * size, 4 * groups, 4 * shape.query_turns * groups
    embeds_query, embeds_keys, half_split = embedding.query, embedding.keys and not once, embedding.half_split
    halves = half_split and not once  # the halves of a pair are apart in shared memory
    of_batch = embedding.of_batch
    copy_keys, copy_values, place_query = copiers(shape, halves, paired)
    embedded_by = embedders(shape, embedding, paired)
    load_query, pair_query, begin_dims, embed_query, begin_keys = embedded_by[:5]
    products = multipliers(shape, ahead=shape.blocks == 1)  # loads ahead take registers
    weigh = products.weigh
    sends = exchange_of(shape)
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    begin_rows, softmax = softmax_of(shape, embedding, sends)
    begin_together, embed_together, await_together, end_together = prerotation(shape, embedded_by.embed_tile)
    scores_of_tile = scores_of(shape, embedding, paired, embedded_by, products)
    tile_of, send_parts, store_output = tile_of_block(cluster, queries), parts_of(shape, sends), output_of(shape)

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
        tile = tile_of(kv_heads, heads_reciprocal, seq_q)
        first_dim, query_count = tile.first_dim, tile.query_count
        first_row = uint32(tile.rank * uint32(rows))  # that the block owns
        owned = min(uint32(rows), max(uint32(queries), first_row) - first_row)
        if of_batch is not None:
            table = of_batch(table, tile.batch)
        q_tile = rows_of(q, tile.batch, tile.head, tile.first_query)
        out_tile = rows_of(out, tile.batch, tile.head, tile.first_query)
        k_head = rows_of(k, tile.batch, tile.kv_head, uint32(0))
        v_head = rows_of(v, tile.batch, tile.kv_head, uint32(0))
        k_pitch = k.row
        last_key = visible_keys(tile, seq_k, q_offset, causal)
        first_warp = cuda.shfl_sync(FULL_MASK, int32(warp_id), 0) == 0
        if once:
            counters, taken, done = begin_together(states, tile, tid)

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
            to = advance(k_embedded, uint64(tile.shared_head) * uint64(seq_k) * uint64(hdim))
            done = embed_together(
                shared, counters, taken, done, first_warp, tid, k_head, k_pitch, to, table, seq_k,
                first_dim, copied_dim, embedded_dim, hdim,
            )  # fmt: skip
            k_head, k_pitch = to, hdim
        else:
            cuda.syncthreads()  # keeps the compiler from moving the loads after the copies
            copy_keys(shared, uint32(0), k_head, k_pitch, last_key, first_dim, embedded_dim, hdim)
            cp_async_commit()
        start_exchange(shared, tid == uint32(threads - 1), owned)  # in a warp with the fewest queries
        first_position = int32(q_offset + int32(tile.first_query))
        if half_split and not once:
            pair_query(raw)  # here, as it waits for Q, and the copy of K must not wait
        if embeds_query and copied_dim < embedded_dim:
            embed_query(raw, begun_query, 0, table, first_position, query_count, copied_dim, embedded_dim, hdim)
            if paired > 1 and uint32(copied_dim + uint32(span)) < embedded_dim:
                for i in range(1, paired):
                    embed_query(raw, begun_query, i, table, first_position, query_count, copied_dim, embedded_dim, hdim)
        place_query(shared, raw, column, softmax_scale)
        if once:
            served = await_together(counters, done, first_warp, tid, seq_k)
            copy_keys(shared, uint32(0), k_head, k_pitch, last_key, first_dim, embedded_dim, hdim)
            cp_async_commit()

        # This thread's part of the scores, two keys, and of the output.
        key = uint32(warp_id % uint32(4) * uint32(16) + uint32(2) * lane_row)
        dim = uint32((warp_id % uint32(4) * uint32(8) + lane_row) * uint32(lane_dims))
        slot = uint32(tile.rank * uint32(warpgroups) + warpgroup)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)
        scores = cuda.local.array(size, float32)
        state = Rows(
            cuda.local.array(per_warp, float32), cuda.local.array(per_warp, float32),
            cuda.local.array(per_warp, float32), cuda.local.array(per_warp, float32),
            cuda.local.array(per_warp, float32),
        )  # fmt: skip
        begin_rows(state, seq_k)

        phase = uint32(0)  # the phase of the mbarriers
        tile_start = uint32(0)
        while tile_start < last_key:
            first_tile, next_start = tile_start == 0, uint32(tile_start + uint32(KEYS))
            more = next_start < last_key
            cp_async_wait()
            cuda.syncthreads()
            if first_tile:
                fence_products()
            v_tile, v_count = advance(v_head, uint64(tile_start) * uint64(v.row)), uint32(last_key - tile_start)
            if cluster == 1:
                copy_values(shared, uint32(0), v_tile, v.row, v_count, first_dim, embedded_dim, hdim)
                cp_async_commit()
            for i in range(size):
                scores[i] = float32(0.0)
            scores_of_tile(
                shared, uint32(0), scores, begun, table, warpgroup, key, member, tile_start, last_key,
                first_dim, embedded_dim, hdim,
            )  # fmt: skip
            if cluster > 1 and first_tile:
                cluster_wait()
            send_parts(shared, scores, key, member, slot)
            if cluster > 1:
                copy_values(shared, uint32(0), v_tile, v.row, v_count, first_dim, embedded_dim, hdim)
                cp_async_commit()
            await_parts(shared, tid, phase, owned, more)

            k_tile, k_count = advance(k_head, uint64(next_start) * uint64(k_pitch)), uint32(last_key - next_start)
            if more:
                copy_keys(shared, uint32(0), k_tile, k_pitch, k_count, first_dim, embedded_dim, hdim)
            cp_async_commit()
            softmax(shared, state, tile, table, warp_id, lane_id, tile_start, last_key, q_offset, causal, more)
            cp_async_wait_but_one()
            cuda.syncthreads()
            await_weights(shared, tid, phase, more)
            if cluster > 1:
                phase ^= uint32(1)
            fence_products()

            weigh(shared, uint32(0), acc, warpgroup, dim, member)
            tile_start = next_start

        store_output(shared, acc, out_tile, out.row, query_count, first_dim, warpgroup, dim, member, hdim)
        if once:
            end_together(counters, served, tid)

    name = f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < groups)
    attention.__name__ = attention.__qualname__ = name
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, paired: int) -> Kernel:
    signature = (TENSOR,) * 4 + (table_type, FLOATS, INTS) + (UINT,) * 6 + (INT, UINT, FLOAT)
    make = stream if shape.streams else make_kernel
    return Kernel(
        make(shape, embedding, paired),
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
    others = (*listed(table), *shared)
    return launch(kernel, shape, embedding, problem, (q, k, "v", "out"), others, embedded_dim, shape.streams)


def workspace(problem: Problem, launch: Launch) -> dict[str, Buffer]:
    """The buffers that a launch needs beyond its tensors; concurrent launches need separate ones."""
    if "states" not in launch.args:
        return {}
    states = COUNTERS * problem.batch * problem.kv_heads * launch.cluster
    return {
        "k_embedded": Buffer(problem.kv_shape),
        "states": Buffer((states,), "int32", init=functools.partial(np.zeros, states, np.int32)),
    }
