"""The V8 core on wgmma for one tile of keys a cluster: a block streams its slice of the head dim, a chunk at a time.

All scores are complete before the first value is needed. So two buffers take the chunks of K and then those of V, and
neither shared memory nor registers limit the head dim. A cluster needs no more blocks than keep the GPU busy, and two
blocks share an SM. The weights take the space of Q.
"""

from typing import Any

from numba import cuda, float32

from ....device import cp_async_commit, cp_async_wait_but_one, cuint
from ....device.cluster import cluster_wait
from ....device.wgmma import fence_products
from ...tiles import launch_dependents, wait_for_launch
from ..core import ALIGNMENT, Phases
from ..embedding import Embedding
from ..exchange import Exchange
from ..schedule import Slice, block_of, rows_from
from .embed import key_embedder
from .query import query_of
from .shape import KEYS, Shape


def make_kernel(shape: Shape, embedding: Embedding, sends: Exchange, phases: Phases, paired: int, name: str) -> Any:
    """The attention kernel of these phases; `paired` groups of a chunk may have embedded dims."""
    # tile
    cluster = shape.cluster
    splits = shape.splits
    stored = embedding.stored
    embeds_keys = embedding.keys
    chunk_span = shape.width * cluster  # dims from a block's chunk to its next
    chunk_floats = KEYS * shape.width  # of a buffer
    block = block_of(shape, embedding, heads_last=True)
    thread_of = phases.thread_of
    last_thread = shape.threads - 1
    # registers of a thread, in floats
    query_floats, query_dim_floats, key_dim_floats, score_floats, output_floats, row_floats = phases.registers
    # loads
    load_query, load_query_dims, stage_query = query_of(shape, embedding, paired)
    load_key_dims, _ = key_embedder(shape, embedding)
    copy_keys = phases.copy_keys
    copy_values = phases.copy_values
    # products
    add_scores = phases.score
    weigh = phases.weigh
    store_output = phases.store
    # softmax, and the exchange between blocks
    begin_rows = phases.begin
    softmax = phases.softmax
    send_scores = phases.send_scores
    start_exchange = sends.start
    await_scores = sends.await_scores
    await_weights = sends.await_weights

    @cuda.jit(device=True)
    def copy_chunk(shared, number, buffer, chunks, keys, values, tile, thread, sizes):
        """Start to copy chunk `number` to a buffer: of K, then of V; none after the last."""
        if number < chunks:
            copy_keys(shared, keys, Slice(tile.first_dim + number * chunk_span, buffer), thread, sizes)
        elif number < 2 * chunks:
            first_dim = tile.first_dim + (number - chunks) * chunk_span
            copy_values(shared, values, Slice(first_dim, buffer), thread, sizes)
        cp_async_commit()

    @cuda.jit(device=True)
    def stage_chunk(shared, query, tile, scope, thread, first_dim):
        query_dims = cuda.local.array(query_dim_floats, float32)  # here, so that registers end with the chunk
        load_query_dims(query_dims, scope, thread, first_dim)
        stage_query(shared, query, query_dims, tile, scope, thread, first_dim)

    def attention(q, k, v, out, table, parts, sizes):
        # prologue
        shared = cuda.shared.array(0, float32, ALIGNMENT)
        tile, scope, queries, keys, values, results = block(q, k, v, out, table, parts, sizes)
        thread = thread_of(tile.rank)
        keys, values = rows_from(keys, tile.first_key), rows_from(values, tile.first_key)
        if splits:
            launch_dependents()
        if stored:
            wait_for_launch()
        chunks = (sizes.hdim + chunk_span - 1) // chunk_span
        query = cuda.local.array(query_floats, float32)
        key_dims = cuda.local.array(key_dim_floats, float32)
        copy_keys(shared, keys, Slice(tile.first_dim, cuint(0)), thread, sizes)
        cp_async_commit()
        load_query(query, queries, thread, tile.first_dim, sizes)
        copy_chunk(shared, cuint(1), cuint(chunk_floats), chunks, keys, values, tile, thread, sizes)
        start_exchange(shared, tile.rank, thread.tid == last_thread)

        # score: chunks of Q and K
        scores = cuda.local.array(score_floats, float32)
        for i in range(score_floats):
            scores[i] = float32(0.0)
        dims, chunk = Slice(tile.first_dim, cuint(0)), cuint(0)
        while chunk < chunks:
            stage_chunk(shared, query, tile, scope, thread, dims.first_dim)
            cp_async_wait_but_one()
            cuda.syncthreads()
            fence_products()
            next_dim = dims.first_dim + chunk_span
            if chunk + 1 < chunks:
                load_query(query, queries, thread, next_dim, sizes)
            if embeds_keys:
                load_key_dims(key_dims, scope, thread, thread.warpgroup, dims.first_dim)
            add_scores(shared, scores, key_dims, scope, thread, dims, tile.first_key)
            cuda.syncthreads()
            copy_chunk(shared, chunk + 2, dims.buffer, chunks, keys, values, tile, thread, sizes)
            dims, chunk = Slice(next_dim, chunk_floats - dims.buffer), chunk + 1

        # softmax
        if cluster > 1:
            cluster_wait()
        send_scores(shared, scores, thread)
        await_scores(shared, tile.rank, thread.tid, cuint(0), False)
        rows = cuda.local.array(row_floats, float32)
        begin_rows(rows, sizes.seq_k)
        softmax(shared, rows, tile, scope, thread, tile.first_key, False)
        cuda.syncthreads()
        await_weights(shared, thread.tid, cuint(0), False)
        fence_products()

        # weigh, store: chunks of V
        output = cuda.local.array(output_floats, float32)
        dims = Slice(tile.first_dim, dims.buffer)
        while chunk < 2 * chunks:
            cp_async_wait_but_one()
            cuda.syncthreads()
            for i in range(output_floats):
                output[i] = float32(0.0)
            weigh(shared, output, thread, dims)
            store_output(shared, output, results, thread, dims, sizes)
            if chunk + 2 < 2 * chunks:
                cuda.syncthreads()
                ahead_dim = dims.first_dim + 2 * chunk_span
                copy_values(shared, values, Slice(ahead_dim, dims.buffer), thread, sizes)
            cp_async_commit()
            dims, chunk = Slice(dims.first_dim + chunk_span, chunk_floats - dims.buffer), chunk + 1

    attention.__name__ = attention.__qualname__ = name
    return attention
