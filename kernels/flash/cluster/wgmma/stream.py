"""The V8 core on wgmma for one tile of keys a cluster: a block streams its slice of the head dim, a chunk at a time.

All scores come before the first value is needed, so a chunk of Q and K makes room for the next, and the chunks of V
follow in the same two buffers. Neither shared memory nor registers limit the head dim, a cluster needs no more blocks
than the GPU keeps busy, and two blocks share an SM. The weights take the place of Q.
"""

from typing import Any

from numba import cuda, float32

from ....device.asm import cp_async_commit, cp_async_wait_but_one
from ....device.cluster import cluster_wait
from ....device.cuint import cuint
from ....device.wgmma import fence_products
from ...tiles import launch_dependents, wait_for_launch
from ..core import Phases
from ..embedding import Embedding
from ..schedule import Scope, Slice, rows_from, split_of, tensors_of, tile_of_block
from .embed import key_embedder, loader
from .phases import query_stager
from .shape import KEYS, Shape


def make_kernel(shape: Shape, embedding: Embedding, phases: Phases, paired: int, name: str) -> Any:
    """The attention kernel of these phases; `paired` groups of a chunk may have embedded dims."""
    cluster, starter, alignment = shape.cluster, phases.starter, phases.alignment
    chunk_span, chunk_floats = shape.width * cluster, KEYS * shape.width
    table_of_batch, embeds_keys, sends = embedding.table_of_batch, embedding.keys, phases.exchange
    query_floats, query_dim_floats, key_dim_floats, score_floats, output_floats, row_floats = phases.registers
    load_query = loader(shape, embedding.half_split, paired, shape.query_passes)
    stage_query, (load_key_dims, _) = query_stager(shape, embedding, paired), key_embedder(shape, embedding)
    splits, stored, thread_of = shape.splits, embedding.stored, phases.thread_of
    tile_of, (range_of, result_of) = tile_of_block(cluster, shape.queries, True, splits), split_of(splits)
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    copy_keys, copy_values, add_scores = phases.copy_keys, phases.copy_values, phases.score
    send_parts, begin_rows, softmax = phases.send_parts, phases.begin, phases.softmax
    weigh, store_output = phases.weigh, phases.store

    def attention(q, k, v, out, table, parts, sizes):
        shared = cuda.shared.array(0, float32, alignment)
        tile = tile_of(sizes)
        thread = thread_of(tile.rank)
        if table_of_batch is not None:
            table = table_of_batch(table, tile.batch)
        first_key, last_key = range_of(tile, parts, sizes)
        queries, keys, values, results = tensors_of(tile, q, k, v, out, last_key)
        results, totals = result_of(tile, results, parts, sizes)
        scope = Scope(table, last_key, totals, sizes)
        keys, values = rows_from(keys, first_key), rows_from(values, first_key)
        if splits:
            launch_dependents()
        if stored:
            wait_for_launch()
        chunks = (sizes.hdim + chunk_span - 1) // chunk_span
        query = cuda.local.array(query_floats, float32)
        query_dims = cuda.local.array(query_dim_floats, float32)
        key_dims = cuda.local.array(key_dim_floats, float32)

        copy_keys(shared, keys, Slice(tile.first_dim, cuint(0)), sizes)
        cp_async_commit()
        load_query(query, queries, tile.first_dim, sizes)
        if chunks > 1:
            second_dim = tile.first_dim + chunk_span
            copy_keys(shared, keys, Slice(second_dim, chunk_floats), sizes)
        else:
            copy_values(shared, values, Slice(tile.first_dim, chunk_floats), sizes)
        cp_async_commit()
        start_exchange(shared, thread.tid == starter, thread.owned)

        scores = cuda.local.array(score_floats, float32)
        for i in range(score_floats):
            scores[i] = float32(0.0)
        buffer, chunk, chunk_dim = cuint(0), cuint(0), tile.first_dim
        while chunk < chunks:
            dims = Slice(chunk_dim, buffer)
            stage_query(shared, query, query_dims, tile, scope, thread, chunk_dim)
            cp_async_wait_but_one()
            cuda.syncthreads()
            fence_products()
            next_dim = chunk_dim + chunk_span
            if chunk + 1 < chunks:
                load_query(query, queries, next_dim, sizes)
            if embeds_keys:
                load_key_dims(key_dims, table, thread.warpgroup, thread.member, chunk_dim, sizes)
            add_scores(shared, scores, key_dims, scope, thread, dims, first_key)
            cuda.syncthreads()
            ahead = chunk + 2
            if ahead < chunks:
                ahead_dim = next_dim + chunk_span
                copy_keys(shared, keys, Slice(ahead_dim, buffer), sizes)
            elif ahead - chunks < chunks:
                ahead_dim = tile.first_dim + (ahead - chunks) * chunk_span
                copy_values(shared, values, Slice(ahead_dim, buffer), sizes)
            cp_async_commit()
            buffer = chunk_floats - buffer
            chunk, chunk_dim = chunk + 1, next_dim

        if cluster > 1:
            cluster_wait()
        send_parts(shared, scores, thread)
        await_parts(shared, thread.tid, cuint(0), thread.owned, False)
        rows = cuda.local.array(row_floats, float32)
        begin_rows(rows, sizes.seq_k)
        softmax(shared, rows, tile, scope, thread, first_key, False)
        cuda.syncthreads()
        await_weights(shared, thread.tid, cuint(0), False)
        fence_products()
        output = cuda.local.array(output_floats, float32)
        chunk, chunk_dim = cuint(0), tile.first_dim
        while chunk < chunks:
            dims = Slice(chunk_dim, buffer)
            cp_async_wait_but_one()
            cuda.syncthreads()
            for i in range(output_floats):
                output[i] = float32(0.0)
            weigh(shared, output, thread, dims)
            store_output(shared, output, results, thread, dims, sizes)
            if chunk + 2 < chunks:
                cuda.syncthreads()
                ahead_dim = chunk_dim + 2 * chunk_span
                copy_values(shared, values, Slice(ahead_dim, buffer), sizes)
            cp_async_commit()
            buffer = chunk_floats - buffer
            chunk, chunk_dim = chunk + 1, chunk_dim + chunk_span

    attention.__name__ = attention.__qualname__ = name
    return attention
