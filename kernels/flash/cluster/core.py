"""The main loop of the cluster kernels: load, embed, score, exchange, softmax, weigh, store.

kernels/flash/README.md draws it. A phase is a device function that `wgmma` or `mma` makes for a shape and an embedding;
`wgmma.stream` has a loop of its own, with the same phases.
"""

from collections import namedtuple
from typing import Any

from numba import cuda, float32

from ...device import cp_async_commit, cp_async_wait_but_one, cuint
from ...device.cluster import cluster_wait
from ...device.wgmma import fence_products
from ..tiles import launch_dependents, wait_for_launch
from .embedding import Embedding
from .exchange import Exchange
from .schedule import Slice, block_of, rows_from

ALIGNMENT = 1024  # bytes, of shared memory: what wgmma reads there needs it

# The phases of a set of atoms. `registers`: shapes of a thread's float32 arrays: its part of Q, the embedding's values
# per dim of Q and of K, scores, output, the state of its rows. The others are device functions:
#     thread_of(rank) -> Thread: with fields tid, warp_id and lane_id
#     load(shared, query, query_dims, key_dims, queries, tile, scope, thread): Q, and the embedding's values per dim
#     stage(shared, query, query_dims, tile, scope, thread, first_dim): Q to shared memory, while keys are copied
#     copy_keys, copy_values(shared, source, dims, thread, sizes): start asynchronous copies
#     begin(rows, seq_k): row max = lowest, row sum = 0
#     embed(shared, key_dims, tile, scope, thread, start): wait for the copies; Q and K in shared memory
#     score(shared, scores, key_dims, scope, thread, dims, start): add a part of each score
#     send_scores(shared, scores, thread): to the blocks that own the rows
#     softmax(shared, rows, tile, scope, thread, start, more): weights of the block's rows, to all blocks
#     weigh(shared, output, thread, dims): rescale the output and add weights times V
#     store(shared, output, results, thread, dims, sizes): divide by the row sums unless keys are split, and store
Phases = namedtuple(
    "Phases", "registers thread_of load stage copy_keys copy_values begin embed score send_scores softmax weigh store"
)


def make_kernel(shape: Any, embedding: Embedding, sends: Exchange, phases: Phases, name: str) -> Any:
    """The attention kernel of these phases."""
    # tile
    cluster = shape.cluster
    tile_keys = shape.keys
    splits = shape.splits
    stored = embedding.stored
    block = block_of(shape, embedding)
    thread_of = phases.thread_of
    last_thread = shape.threads - 1
    fences = shape.core == "wgmma"
    # registers of a thread, in floats
    query_floats, query_dim_floats, key_dim_floats, score_floats, output_floats, row_floats = phases.registers
    # loads
    load = phases.load
    stage = phases.stage
    copy_keys = phases.copy_keys
    copy_values = phases.copy_values
    embed = phases.embed
    # products
    score = phases.score
    weigh = phases.weigh
    store = phases.store
    # softmax, and the exchange between blocks
    begin = phases.begin
    softmax = phases.softmax
    send_scores = phases.send_scores
    start_exchange = sends.start
    await_scores = sends.await_scores
    await_weights = sends.await_weights

    def attention(q, k, v, out, table, parts, sizes):
        # prologue
        shared = cuda.shared.array(0, float32, ALIGNMENT)
        tile, scope, queries, keys, values, results = block(q, k, v, out, table, parts, sizes)
        thread, dims = thread_of(tile.rank), Slice(tile.first_dim, cuint(0))
        if splits:
            launch_dependents()
        query = cuda.local.array(query_floats, float32)
        query_dims = cuda.local.array(query_dim_floats, float32)
        key_dims = cuda.local.array(key_dim_floats, float32)
        load(shared, query, query_dims, key_dims, queries, tile, scope, thread)
        if not stored:
            copy_keys(shared, rows_from(keys, tile.first_key), dims, thread, sizes)
            cp_async_commit()
        start_exchange(shared, tile.rank, thread.tid == last_thread)
        stage(shared, query, query_dims, tile, scope, thread, tile.first_dim)
        if stored:
            wait_for_launch()
            copy_keys(shared, rows_from(keys, tile.first_key), dims, thread, sizes)
            cp_async_commit()
        output = cuda.local.array(output_floats, float32)
        for i in range(output_floats):
            output[i] = float32(0.0)
        scores = cuda.local.array(score_floats, float32)
        rows = cuda.local.array(row_floats, float32)
        begin(rows, sizes.seq_k)

        # main loop
        phase, start, more = cuint(0), tile.first_key, True  # the phase of the mbarriers
        while more:
            # load: K has come; embed it
            first_tile, next_start = start == tile.first_key, start + tile_keys
            more = next_start < scope.last_key
            embed(shared, key_dims, tile, scope, thread, start)
            cuda.syncthreads()
            if fences and first_tile:
                fence_products()
            if cluster == 1:
                copy_values(shared, rows_from(values, start), dims, thread, sizes)
                cp_async_commit()
            # score, and send the parts
            for i in range(score_floats):
                scores[i] = float32(0.0)
            score(shared, scores, key_dims, scope, thread, dims, start)
            if cluster > 1 and first_tile:
                cluster_wait()
            send_scores(shared, scores, thread)
            if cluster > 1:
                copy_values(shared, rows_from(values, start), dims, thread, sizes)
                cp_async_commit()
            await_scores(shared, tile.rank, thread.tid, phase, more)
            if more:
                copy_keys(shared, rows_from(keys, next_start), dims, thread, sizes)
            cp_async_commit()
            # softmax, and send the weights
            softmax(shared, rows, tile, scope, thread, start, more)
            cp_async_wait_but_one()
            cuda.syncthreads()
            await_weights(shared, thread.tid, phase, more)
            phase ^= 1
            # weigh
            if fences:
                fence_products()
            weigh(shared, output, thread, dims)
            start = next_start
        # epilogue
        store(shared, output, results, thread, dims, sizes)

    attention.__name__ = attention.__qualname__ = name
    return attention
