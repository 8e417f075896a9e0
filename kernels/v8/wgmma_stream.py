"""The V8 core on wgmma for one tile of keys: a block streams its slice of the head dim, a chunk at a time.

All scores come before the first value is needed, so a chunk of Q and K makes room for the next, and the chunks of V
follow in the same two buffers. Neither shared memory nor registers limit the head dim, a cluster needs no more blocks
than the GPU keeps busy, and two blocks share an SM. The weights take the place of Q.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, int32, uint32

from ..device.asm import cp_async_commit, cp_async_wait_but_one
from ..device.cluster import cluster_wait
from ..device.reduce import FULL_MASK
from ..device.rows import rows_of
from ..device.wgmma import WARPGROUP, fence_products
from .embedding import Embedding
from .mma_shape import COPIERS
from .schedule import tile_of_block, visible_keys
from .wgmma_copy import copiers
from .wgmma_embed import embedders, turning
from .wgmma_multiply import multipliers
from .wgmma_phases import TILE_ALIGNMENT, exchange_of, output_of, parts_of, scores_of
from .wgmma_shape import KEYS, Shape
from .wgmma_softmax import Rows, softmax_of


def make_kernel(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """The attention kernel for that shape and embedding; `paired` groups of a chunk may have embedded dims."""
    cluster, queries, threads, warpgroups = shape.cluster, shape.queries, shape.threads, shape.warpgroups
    rows, groups, chunk_span, chunk_floats = shape.rows, shape.groups, shape.width * cluster, KEYS * shape.width
    size, lane_dims = queries // 2, 2 * shape.abreast
    outputs, begun_floats, raw_floats = shape.panels * shape.abreast * size, 4 * groups, 4 * shape.query_turns * groups
    embeds_query, embeds_keys, half_split = embedding.query, embedding.keys, embedding.half_split
    of_batch = embedding.of_batch
    copy_keys, copy_values, place_query = copiers(shape, half_split, paired)
    embedded_by = embedders(shape, embedding, paired)
    load_query, pair_query, begin_dims, embed_query, begin_keys = embedded_by[:5]
    products = multipliers(shape, ahead=shape.blocks == 1)
    weigh = products.weigh
    sends = exchange_of(shape)
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    begin_rows, softmax = softmax_of(shape, embedding, sends)
    scores_of_chunk = scores_of(shape, embedding, paired, embedded_by, products)
    tile_of = tile_of_block(cluster, queries, heads_last=True)
    send_parts, store_output = parts_of(shape, sends), output_of(shape)
    per_warp = -(-rows // (threads // 32))

    @cuda.jit(device=True)
    def stage_query(shared, raw, table, tile, dim, lane_dim, column, q_offset, embedded_dim, hdim, scale):
        """Embed a thread's part of a chunk of Q and split it into shared memory."""
        begun = cuda.local.array(begun_floats, float32)
        copied_dim = uint32(dim + lane_dim)
        if embeds_query and copied_dim < embedded_dim:
            begin_dims(begun, table, copied_dim, embedded_dim)
        if half_split:
            pair_query(raw)
        if embeds_query and copied_dim < embedded_dim:
            position = int32(q_offset + int32(tile.first_query))
            for i in range(paired):
                embed_query(raw, begun, i, table, position, tile.query_count, copied_dim, embedded_dim, hdim)
        place_query(shared, raw, column, scale)

    def attention(
        q, k, v, out, table, k_embedded, states,
        kv_heads, heads_reciprocal, seq_q, seq_k, hdim, embedded_dim, q_offset, causal, softmax_scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, float32, TILE_ALIGNMENT)
        tid = uint32(cuda.threadIdx.x)
        warp_id, lane_id = tid // uint32(32), tid % uint32(32)
        lane_row, member = lane_id // uint32(4), lane_id % uint32(4)
        warpgroup = uint32(0)
        if warpgroups > 1:
            warpgroup = uint32(cuda.shfl_sync(FULL_MASK, int32(tid // uint32(WARPGROUP)), 0))
        tile = tile_of(kv_heads, heads_reciprocal, seq_q)
        first_dim = tile.first_dim
        first_row = uint32(tile.rank * uint32(rows))  # that the block owns
        owned = min(uint32(rows), max(uint32(queries), first_row) - first_row)
        if of_batch is not None:
            table = of_batch(table, tile.batch)
        q_tile = rows_of(q, tile.batch, tile.head, tile.first_query)
        out_tile = rows_of(out, tile.batch, tile.head, tile.first_query)
        k_head = rows_of(k, tile.batch, tile.kv_head, uint32(0))
        v_head = rows_of(v, tile.batch, tile.kv_head, uint32(0))
        last_key = visible_keys(tile, seq_k, q_offset, causal)
        chunks = uint32((hdim + uint32(chunk_span - 1)) // uint32(chunk_span))
        column = uint32(tid % uint32(COPIERS) * uint32(4))
        lane_dim = column
        if half_split:
            lane_dim = turning(column)
        raw = cuda.local.array(raw_floats, float32)
        begun = cuda.local.array(8, float32)

        copy_keys(shared, uint32(0), k_head, k.row, last_key, first_dim, embedded_dim, hdim)
        cp_async_commit()
        load_query(raw, q_tile, q.row, tile.query_count, first_dim, embedded_dim, hdim)
        second_dim = uint32(first_dim + uint32(chunk_span))
        if chunks > uint32(1):
            copy_keys(shared, uint32(chunk_floats), k_head, k.row, last_key, second_dim, embedded_dim, hdim)
        else:
            copy_values(shared, uint32(chunk_floats), v_head, v.row, last_key, first_dim, embedded_dim, hdim)
        cp_async_commit()
        start_exchange(shared, tid == uint32(threads - 1), owned)

        # This thread's part of the scores, two keys, and of the output.
        key = uint32(warp_id % uint32(4) * uint32(16) + uint32(2) * lane_row)
        dim = uint32((warp_id % uint32(4) * uint32(8) + lane_row) * uint32(lane_dims))
        slot = uint32(tile.rank * uint32(warpgroups) + warpgroup)
        scores = cuda.local.array(size, float32)
        for i in range(size):
            scores[i] = float32(0.0)
        buffer, chunk, chunk_dim = uint32(0), uint32(0), first_dim
        while chunk < chunks:
            stage_query(
                shared, raw, table, tile, chunk_dim, lane_dim, column, q_offset, embedded_dim, hdim, softmax_scale
            )
            cp_async_wait_but_one()
            cuda.syncthreads()
            fence_products()
            next_dim = uint32(chunk_dim + uint32(chunk_span))
            if uint32(chunk + uint32(1)) < chunks:
                load_query(raw, q_tile, q.row, tile.query_count, next_dim, embedded_dim, hdim)
            if embeds_keys:
                begin_keys(begun, table, warpgroup, member, chunk_dim, embedded_dim)
            scores_of_chunk(
                shared, buffer, scores, begun, table, warpgroup, key, member, uint32(0), last_key,
                chunk_dim, embedded_dim, hdim,
            )  # fmt: skip
            cuda.syncthreads()
            ahead = uint32(chunk + uint32(2))
            if ahead < chunks:
                ahead_dim = uint32(next_dim + uint32(chunk_span))
                copy_keys(shared, buffer, k_head, k.row, last_key, ahead_dim, embedded_dim, hdim)
            elif uint32(ahead - chunks) < chunks:
                ahead_dim = uint32(first_dim + (ahead - chunks) * uint32(chunk_span))
                copy_values(shared, buffer, v_head, v.row, last_key, ahead_dim, embedded_dim, hdim)
            cp_async_commit()
            buffer = uint32(uint32(chunk_floats) - buffer)
            chunk, chunk_dim = uint32(chunk + uint32(1)), next_dim

        if cluster > 1:
            cluster_wait()
        send_parts(shared, scores, key, member, slot)
        await_parts(shared, tid, uint32(0), owned, False)
        state = Rows(
            cuda.local.array(per_warp, float32), cuda.local.array(per_warp, float32),
            cuda.local.array(per_warp, float32), cuda.local.array(per_warp, float32),
            cuda.local.array(per_warp, float32),
        )  # fmt: skip
        begin_rows(state, seq_k)
        softmax(shared, state, tile, table, warp_id, lane_id, uint32(0), last_key, q_offset, causal, False)
        cuda.syncthreads()
        await_weights(shared, tid, uint32(0), False)
        fence_products()
        acc = cuda.local.array(outputs, float32)
        chunk, chunk_dim = uint32(0), first_dim
        while chunk < chunks:
            cp_async_wait_but_one()
            cuda.syncthreads()
            for i in range(outputs):
                acc[i] = float32(0.0)
            weigh(shared, buffer, acc, warpgroup, dim, member)
            store_output(shared, acc, out_tile, out.row, tile.query_count, chunk_dim, warpgroup, dim, member, hdim)
            if uint32(chunk + uint32(2)) < chunks:
                cuda.syncthreads()
                ahead_dim = uint32(chunk_dim + uint32(2 * chunk_span))
                copy_values(shared, buffer, v_head, v.row, last_key, ahead_dim, embedded_dim, hdim)
            cp_async_commit()
            buffer = uint32(uint32(chunk_floats) - buffer)
            chunk, chunk_dim = uint32(chunk + uint32(1)), uint32(chunk_dim + uint32(chunk_span))

    name = f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < groups)
    attention.__name__ = attention.__qualname__ = name
    return attention
