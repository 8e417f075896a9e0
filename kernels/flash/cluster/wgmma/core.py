"""The V8 core on wgmma: as `mma`, with the products transposed so that they are large enough for wgmma (see README.md).

Each warpgroup takes some of the dims: as terms of the scores, whose owners sum the parts, and as rows of the output. A
block embeds a tile of K between its load and its products, or, with `Shape.once`, together with all blocks that need
it.
"""

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, uint32, uint64

from ....constants import FLOATS, INTS
from ....device.asm import cp_async_commit, cp_async_wait, cp_async_wait_but_one
from ....device.cluster import cluster_wait
from ....device.rows import ROWS
from ....device.vector import advance
from ....device.wgmma import fence_products
from ....version import Buffer, Kernel, Launch, Problem
from ..card import SMS
from ..embedding import Embedding
from ..launch import Call, launch
from ..schedule import SIZES, tensors_of, tile_of_block, visible_keys
from ..shape import GROUP
from . import phases
from .choose import choose
from .copy import copiers
from .embed import beginner, key_embedder, loader, tile_embedder
from .multiply import output_by_products
from .prerotate import COUNTERS, end_prerotation, prerotation
from .shape import KEYS, TILE_ALIGNMENT, Shape
from .softmax import STATE, softmax_of
from .stream import make_kernel as stream


def make_kernel(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """The attention kernel for that shape and embedding; `paired` groups of a slice may have embedded dims."""
    cluster, once, per_warp, size = shape.cluster, shape.once, shape.rows_of_warp, shape.queries // 2
    last_thread = shape.threads - 1  # in a warp with the fewest queries
    outputs, of_batch, half_split = shape.panels * shape.abreast * size, embedding.of_batch, embedding.half_split
    raw_floats, begun_floats = 4 * shape.query_turns * shape.groups, 4 * shape.groups
    embeds_query, embeds_keys = embedding.query, embedding.keys and not once
    (copy_keys, copy_values), (begin_keys, _) = copiers(shape, half_split, paired), key_embedder(shape, embedding)
    begin_together, embed_together, await_together = prerotation(shape, tile_embedder(shape, embedding, paired))
    load_query, begin_dims = loader(shape, half_split, paired, shape.query_turns), beginner(shape, embedding, paired)
    stage_query = phases.query_stager(shape, embedding, paired)
    scores_of_tile, sends = phases.scores_of(shape, embedding, paired), phases.exchange_of(shape)
    weigh = output_by_products(shape, ahead=shape.blocks == 1)  # loads ahead take registers
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    begin_rows, softmax = softmax_of(shape, embedding, sends)
    tile_of, thread_of_rank = tile_of_block(cluster, shape.queries), phases.thread_of(shape, half_split)
    send_parts, store_output = phases.parts_of(shape, sends), phases.output_of(shape)

    def attention(q, k, v, out, table, k_embedded, states, sizes):
        shared = cuda.shared.array(0, float32, TILE_ALIGNMENT)
        tile = tile_of(sizes)
        thread = thread_of_rank(tile.rank)
        tid, first_dim, owned = thread.tid, tile.first_dim, thread.owned
        if of_batch is not None:
            table = of_batch(table, tile.batch)
        q_tile, k_head, v_head, out_tile = tensors_of(tile, q, k, v, out)
        k_pitch, last_key = k.row, visible_keys(tile, sizes)
        if once:
            work = begin_together(states, tile, tid)
        # The copy of K overlaps the embedding and the split of Q.
        copied_dim = uint32(first_dim + thread.lane_dim)
        raw = cuda.local.array(raw_floats, float32)
        begun = cuda.local.array(8, float32)
        begun_query = cuda.local.array(begun_floats, float32)
        load_query(raw, q_tile, q.row, tile.query_count, first_dim, sizes)
        if embeds_keys:
            begin_keys(begun, table, thread.warpgroup, thread.member, first_dim, sizes)
        if embeds_query and copied_dim < sizes.embedded_dim:
            begin_dims(begun_query, table, copied_dim, sizes)
        if once:
            to = advance(k_embedded, uint64(tile.shared_head) * uint64(sizes.seq_k) * uint64(sizes.hdim))
            done = embed_together(shared, work, tid, k_head, k_pitch, to, table, first_dim, copied_dim, sizes)
            k_head, k_pitch = to, sizes.hdim
        else:
            cuda.syncthreads()  # keeps the compiler from moving the loads after the copies
            copy_keys(shared, uint32(0), k_head, k_pitch, last_key, first_dim, sizes)
            cp_async_commit()
        start_exchange(shared, tid == uint32(last_thread), owned)
        stage_query(shared, raw, begun_query, table, tile, thread, first_dim, sizes)
        if once:
            served = await_together(work, done, tid, sizes.seq_k)
            copy_keys(shared, uint32(0), k_head, k_pitch, last_key, first_dim, sizes)
            cp_async_commit()
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)
        scores = cuda.local.array(size, float32)
        state = cuda.local.array((STATE, per_warp), float32)
        begin_rows(state, sizes.seq_k)

        phase, tile_start = uint32(0), uint32(0)  # the phase of the mbarriers
        while tile_start < last_key:
            first_tile, next_start = tile_start == 0, uint32(tile_start + uint32(KEYS))
            more = next_start < last_key
            cp_async_wait()
            cuda.syncthreads()
            if first_tile:
                fence_products()
            v_tile, v_count = advance(v_head, uint64(tile_start) * uint64(v.row)), uint32(last_key - tile_start)
            if cluster == 1:
                copy_values(shared, uint32(0), v_tile, v.row, v_count, first_dim, sizes)
                cp_async_commit()
            for i in range(size):
                scores[i] = float32(0.0)
            scores_of_tile(shared, uint32(0), scores, begun, table, thread, tile_start, last_key, first_dim, sizes)
            if cluster > 1 and first_tile:
                cluster_wait()
            send_parts(shared, scores, thread)
            if cluster > 1:
                copy_values(shared, uint32(0), v_tile, v.row, v_count, first_dim, sizes)
                cp_async_commit()
            await_parts(shared, tid, phase, owned, more)
            if more:
                k_tile, k_count = advance(k_head, uint64(next_start) * uint64(k_pitch)), uint32(last_key - next_start)
                copy_keys(shared, uint32(0), k_tile, k_pitch, k_count, first_dim, sizes)
            cp_async_commit()
            softmax(shared, state, tile, table, thread, tile_start, last_key, sizes, more)
            cp_async_wait_but_one()
            cuda.syncthreads()
            await_weights(shared, tid, phase, more)
            phase ^= uint32(1)
            fence_products()
            weigh(shared, uint32(0), acc, thread)
            tile_start = next_start
        store_output(shared, acc, out_tile, out.row, tile, first_dim, thread, sizes)
        if once:
            end_prerotation(work.counters, served, tid)

    attention.__name__ = attention.__qualname__ = phases.name_of(shape, embedding, paired)
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, paired: int) -> Kernel:
    signature = (ROWS,) * 4 + (table_type, FLOATS, INTS, SIZES)
    make = stream if shape.streams else make_kernel
    return Kernel(
        make(shape, embedding, paired),
        signature,
        max_threads=shape.threads,
        min_blocks=shape.blocks,
        architecture="sm_90a",
    )


def attend(problem: Problem, *what: Any, shape: Shape | None = None, sms: int = SMS, **named: Any) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Call(problem, *what, **named)
    shape = shape or choose(problem, call.embedded_dim if call.embedding.keys else 0, sms)
    # Where few of many dims turn, those of one group of each slice, what is compiled for that is shorter.
    few = 0 < call.embedded_dim <= GROUP * shape.cluster and not shape.once
    kernel = kernel_of(shape, call.embedding, call.table_type, 1 if few else shape.groups)
    others = ("k_embedded", "states") if shape.once else (call.k, call.k)
    return launch(kernel, shape, call, others, shape.streams)


def workspace(problem: Problem, launch: Launch) -> dict[str, Buffer]:
    """The buffers that a launch needs beyond its tensors; concurrent launches need separate ones."""
    if "states" not in launch.args:
        return {}
    states = COUNTERS * problem.batch * problem.kv_heads * launch.cluster
    return {
        "k_embedded": Buffer(problem.kv_shape),
        "states": Buffer((states,), "int32", init=functools.partial(np.zeros, states, np.int32)),
    }
