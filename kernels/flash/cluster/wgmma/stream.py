"""The V8 core on wgmma for one tile of keys: a block streams its slice of the head dim, a chunk at a time.

All scores come before the first value is needed, so a chunk of Q and K makes room for the next, and the chunks of V
follow in the same two buffers. Neither shared memory nor registers limit the head dim, a cluster needs no more blocks
than the GPU keeps busy, and two blocks share an SM. The weights take the place of Q.
"""

from typing import Any

from numba import cuda, float32, uint32, uint64

from ....device.asm import cp_async_commit, cp_async_wait_but_one
from ....device.cluster import cluster_wait
from ....device.vector import advance
from ....device.wgmma import fence_products
from ...tiles import launch_dependents, wait_for_launch
from ..embedding import Embedding
from ..schedule import part_of, range_of_split, tensors_of, tile_of_block
from . import phases
from .copy import copiers
from .embed import key_embedder, loader
from .multiply import output_by_products
from .shape import KEYS, TILE_ALIGNMENT, Shape
from .softmax import STATE, softmax_of


def make_kernel(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """The attention kernel for that shape and embedding; `paired` groups of a chunk may have embedded dims."""
    cluster, threads, per_warp, size = shape.cluster, shape.threads, shape.rows_of_warp, shape.queries // 2
    chunk_span, chunk_floats = shape.width * cluster, KEYS * shape.width
    raw_floats, outputs = 4 * shape.query_turns * shape.groups, shape.panels * shape.abreast * size
    half_split, of_batch, embeds_keys = embedding.half_split, embedding.of_batch, embedding.keys
    copy_keys, copy_values = copiers(shape, embedding.halves, paired)
    load_query, (begin_keys, _) = loader(shape, half_split, paired, shape.query_turns), key_embedder(shape, embedding)
    stage_query = phases.query_stager(shape, embedding, paired)
    scores_of_chunk, sends = phases.scores_of(shape, embedding, paired), phases.exchange_of(shape)
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    begin_rows, softmax = softmax_of(shape, embedding, sends)
    weigh, store_output = output_by_products(shape, ahead=shape.blocks == 1), phases.output_of(shape)
    tile_of, send_parts = tile_of_block(cluster, shape.queries, True, shape.splits), phases.parts_of(shape, sends)
    thread_of_rank, range_of = phases.thread_of(shape, embedding), range_of_split(shape.splits)
    splits, stored = shape.splits, embedding.stored

    def attention(q, k, v, out, table, totals, split_keys, split_rows, sizes):
        shared = cuda.shared.array(0, float32, TILE_ALIGNMENT)
        tile = tile_of(sizes)
        thread = thread_of_rank(tile.rank)
        tid, first_dim, owned = thread.tid, tile.first_dim, thread.owned
        if of_batch is not None:
            table = of_batch(table, tile.batch)
        q_tile, k_head, v_head, out_tile = tensors_of(tile, q, k, v, out)
        first_key, last_key = range_of(tile, split_keys, sizes)
        if splits:
            out_tile, totals = part_of(tile, out_tile, totals, split_rows, sizes)
            launch_dependents()
        if stored:
            wait_for_launch()
        count, k_head = uint32(last_key - first_key), advance(k_head, uint64(first_key) * uint64(k.row))
        v_head = advance(v_head, uint64(first_key) * uint64(v.row))
        chunks = uint32((sizes.hdim + uint32(chunk_span - 1)) // uint32(chunk_span))
        raw = cuda.local.array(raw_floats, float32)
        begun = cuda.local.array(8, float32)

        copy_keys(shared, uint32(0), k_head, k.row, count, first_dim, sizes)
        cp_async_commit()
        load_query(raw, q_tile, q.row, tile.query_count, first_dim, sizes)
        second_dim = uint32(first_dim + uint32(chunk_span))
        if chunks > uint32(1):
            copy_keys(shared, uint32(chunk_floats), k_head, k.row, count, second_dim, sizes)
        else:
            copy_values(shared, uint32(chunk_floats), v_head, v.row, count, first_dim, sizes)
        cp_async_commit()
        start_exchange(shared, tid == uint32(threads - 1), owned)

        scores = cuda.local.array(size, float32)
        for i in range(size):
            scores[i] = float32(0.0)
        buffer, chunk, chunk_dim = uint32(0), uint32(0), first_dim
        while chunk < chunks:
            stage_query(shared, raw, begun, table, tile, thread, chunk_dim, sizes)
            cp_async_wait_but_one()
            cuda.syncthreads()
            fence_products()
            next_dim = uint32(chunk_dim + uint32(chunk_span))
            if uint32(chunk + uint32(1)) < chunks:
                load_query(raw, q_tile, q.row, tile.query_count, next_dim, sizes)
            if embeds_keys:
                begin_keys(begun, table, thread.warpgroup, thread.member, chunk_dim, sizes)
            scores_of_chunk(shared, buffer, scores, begun, table, thread, first_key, last_key, chunk_dim, sizes)
            cuda.syncthreads()
            ahead = uint32(chunk + uint32(2))
            if ahead < chunks:
                ahead_dim = uint32(next_dim + uint32(chunk_span))
                copy_keys(shared, buffer, k_head, k.row, count, ahead_dim, sizes)
            elif uint32(ahead - chunks) < chunks:
                ahead_dim = uint32(first_dim + (ahead - chunks) * uint32(chunk_span))
                copy_values(shared, buffer, v_head, v.row, count, ahead_dim, sizes)
            cp_async_commit()
            buffer = uint32(uint32(chunk_floats) - buffer)
            chunk, chunk_dim = uint32(chunk + uint32(1)), next_dim

        if cluster > 1:
            cluster_wait()
        send_parts(shared, scores, thread)
        await_parts(shared, tid, uint32(0), owned, False)
        state = cuda.local.array((STATE, per_warp), float32)
        begin_rows(state, sizes.seq_k)
        softmax(shared, state, tile, table, thread, first_key, last_key, sizes, False, totals)
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
            weigh(shared, buffer, acc, thread)
            store_output(shared, acc, out_tile, out.row, tile, chunk_dim, thread, sizes)
            if uint32(chunk + uint32(2)) < chunks:
                cuda.syncthreads()
                ahead_dim = uint32(chunk_dim + uint32(2 * chunk_span))
                copy_values(shared, buffer, v_head, v.row, count, ahead_dim, sizes)
            cp_async_commit()
            buffer = uint32(uint32(chunk_floats) - buffer)
            chunk, chunk_dim = uint32(chunk + uint32(1)), uint32(chunk_dim + uint32(chunk_span))

    attention.__name__ = attention.__qualname__ = phases.name_of(shape, embedding, paired)
    return attention
