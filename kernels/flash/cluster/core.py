"""The main loop of the cluster kernels: load, embed, score, exchange, softmax, weigh, store.

kernels/flash/README.md draws it. A phase is a device function that `wgmma` or `mma` makes for a shape and an embedding;
`wgmma.stream` has a loop of its own, with the same phases.
"""

from collections import namedtuple
from typing import Any

from numba import cuda, float32

from ...device.asm import cp_async_commit, cp_async_wait_but_one
from ...device.cluster import cluster_wait
from ...device.cuint import cuint
from ..tiles import launch_dependents, wait_for_launch
from .embedding import Embedding
from .schedule import Scope, Slice, rows_from, split_of, tensors_of, tile_of_block

# What differs between the atoms. `registers`: the shapes of a thread's arrays, its part of Q, what the embedding
# computes per dim of Q and of K, scores, output, the state of its rows. `starter`: the thread that initialises the
# mbarriers. `alignment`: of shared memory, in bytes. The others are device functions, `exchange` a set of them:
#     thread_of(rank) -> Thread: with fields tid and owned, rows of its block
#     load(shared, query, query_dims, key_dims, queries, tile, scope, thread): Q, and the embedding's values per dim
#     stage(shared, query, query_dims, tile, scope, thread): Q, while the keys are on their way
#     copy_keys, copy_values(shared, source, dims, sizes): start asynchronous copies
#     begin(rows, seq_k): no weights yet
#     embed(shared, key_dims, tile, scope, thread, start): behind the copies, Q and K in shared memory
#     fence(): what a barrier made visible is visible to the atoms, too
#     score(shared, scores, key_dims, scope, thread, dims, start): add a part of each score
#     send_parts(shared, scores, thread): to the blocks that own the rows
#     softmax(shared, rows, tile, scope, thread, start, more): weights of the block's rows, to all blocks
#     weigh(shared, output, thread, dims): rescale the output and add weights times V
#     store(shared, output, results, thread, dims, sizes): divided by the row sums, unless keys are split
Phases = namedtuple(
    "Phases",
    "registers starter alignment thread_of exchange load stage copy_keys copy_values begin embed fence score "
    "send_parts softmax weigh store",
)


def make_kernel(shape: Any, embedding: Embedding, phases: Phases, name: str) -> Any:
    """The attention kernel of these phases."""
    cluster, tile_keys, table_of_batch = shape.cluster, shape.keys, embedding.table_of_batch
    alignment, starter, splits, stored = phases.alignment, phases.starter, shape.splits, embedding.stored
    query_floats, query_dim_floats, key_dim_floats, score_floats, output_floats, row_floats = phases.registers
    tile_of, (range_of, result_of) = tile_of_block(cluster, shape.queries, splits=splits), split_of(splits)
    thread_of, sends = phases.thread_of, phases.exchange
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    load, stage, begin = phases.load, phases.stage, phases.begin
    copy_keys, copy_values = phases.copy_keys, phases.copy_values
    embed, score, send_parts, softmax = phases.embed, phases.score, phases.send_parts, phases.softmax
    fence, weigh, store = phases.fence, phases.weigh, phases.store

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
        if splits:
            launch_dependents()
        dims = Slice(tile.first_dim, cuint(0))
        query = cuda.local.array(query_floats, float32)
        query_dims = cuda.local.array(query_dim_floats, float32)
        key_dims = cuda.local.array(key_dim_floats, float32)
        load(shared, query, query_dims, key_dims, queries, tile, scope, thread)
        k_rows = rows_from(keys, first_key)
        if not stored:
            copy_keys(shared, k_rows, dims, sizes)
            cp_async_commit()
        start_exchange(shared, thread.tid == starter, thread.owned)
        stage(shared, query, query_dims, tile, scope, thread)
        if stored:
            wait_for_launch()
            copy_keys(shared, k_rows, dims, sizes)
            cp_async_commit()
        output = cuda.local.array(output_floats, float32)
        for i in range(output_floats):
            output[i] = float32(0.0)
        scores = cuda.local.array(score_floats, float32)
        rows = cuda.local.array(row_floats, float32)
        begin(rows, sizes.seq_k)

        phase, start, more = cuint(0), first_key, True  # the phase of the mbarriers
        while more:
            first_tile, next_start = start == first_key, start + tile_keys
            more = next_start < last_key
            embed(shared, key_dims, tile, scope, thread, start)
            cuda.syncthreads()
            if first_tile:
                fence()
            v_rows = rows_from(values, start)
            if cluster == 1:
                copy_values(shared, v_rows, dims, sizes)
                cp_async_commit()
            for i in range(score_floats):
                scores[i] = float32(0.0)
            score(shared, scores, key_dims, scope, thread, dims, start)
            if cluster > 1 and first_tile:
                cluster_wait()
            send_parts(shared, scores, thread)
            if cluster > 1:
                copy_values(shared, v_rows, dims, sizes)
                cp_async_commit()
            await_parts(shared, thread.tid, phase, thread.owned, more)
            if more:
                copy_keys(shared, rows_from(keys, next_start), dims, sizes)
            cp_async_commit()
            softmax(shared, rows, tile, scope, thread, start, more)
            cp_async_wait_but_one()
            cuda.syncthreads()
            await_weights(shared, thread.tid, phase, more)
            phase ^= 1
            fence()
            weigh(shared, output, thread, dims)
            start = next_start
        store(shared, output, results, thread, dims, sizes)

    attention.__name__ = attention.__qualname__ = name
    return attention
