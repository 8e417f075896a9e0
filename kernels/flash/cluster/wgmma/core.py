"""The V8 core on wgmma: as `mma`, with the products transposed so that they are large enough for wgmma (see README.md).

Each warpgroup takes some of the dims: as terms of the scores, whose owners sum the parts, and as rows of the output. A
block embeds a tile of K between its load and its products, unless a launch before has embedded all of them.
"""

import functools
from dataclasses import replace
from typing import Any

from numba import cuda, float32, uint32, uint64

from ....constants import FLOATS, UINT
from ....device.asm import cp_async_commit, cp_async_wait, cp_async_wait_but_one
from ....device.cluster import cluster_wait
from ....device.rows import ROWS
from ....device.vector import advance
from ....device.wgmma import fence_products
from ....version import Kernel, Launch, Problem
from ...tiles import launch_dependents, wait_for_launch
from ..card import SMS
from ..embedding import Embedding
from ..launch import Call, launch
from ..schedule import SIZES, part_of, range_of_split, tensors_of, tile_of_block
from ..shape import GROUP
from . import phases
from .choose import choose
from .copy import copiers
from .embed import beginner, key_embedder, loader
from .multiply import output_by_products
from .shape import KEYS, TILE_ALIGNMENT, Shape
from .softmax import STATE, softmax_of
from .stream import make_kernel as stream


def make_kernel(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """The attention kernel for that shape and embedding; `paired` groups of a slice may have embedded dims."""
    cluster, splits, per_warp, size = shape.cluster, shape.splits, shape.rows_of_warp, shape.queries // 2
    last_thread = shape.threads - 1  # in a warp with the fewest queries
    outputs, of_batch, half_split = shape.panels * shape.abreast * size, embedding.of_batch, embedding.half_split
    stored, range_of = embedding.stored, range_of_split(splits)
    raw_floats, begun_floats = 4 * shape.query_turns * shape.groups, 4 * shape.groups
    embeds_query, embeds_keys = embedding.query, embedding.keys
    (copy_keys, copy_values), (begin_keys, _) = copiers(shape, embedding.halves, paired), key_embedder(shape, embedding)
    load_query, begin_dims = loader(shape, half_split, paired, shape.query_turns), beginner(shape, embedding, paired)
    stage_query = phases.query_stager(shape, embedding, paired)
    scores_of_tile, sends = phases.scores_of(shape, embedding, paired), phases.exchange_of(shape)
    weigh = output_by_products(shape, ahead=shape.blocks == 1)  # loads ahead take registers
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    begin_rows, softmax = softmax_of(shape, embedding, sends)
    tile_of, thread_of_rank = tile_of_block(cluster, shape.queries, splits=splits), phases.thread_of(shape, embedding)
    send_parts, store_output = phases.parts_of(shape, sends), phases.output_of(shape)

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
        k_tile, k_count = advance(k_head, uint64(first_key) * uint64(k.row)), uint32(last_key - first_key)
        if not stored:
            cuda.syncthreads()  # keeps the compiler from moving the loads after the copies
            copy_keys(shared, uint32(0), k_tile, k.row, k_count, first_dim, sizes)
            cp_async_commit()
        start_exchange(shared, tid == uint32(last_thread), owned)
        stage_query(shared, raw, begun_query, table, tile, thread, first_dim, sizes)
        if stored:
            wait_for_launch()
            copy_keys(shared, uint32(0), k_tile, k.row, k_count, first_dim, sizes)
            cp_async_commit()
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)
        scores = cuda.local.array(size, float32)
        state = cuda.local.array((STATE, per_warp), float32)
        begin_rows(state, sizes.seq_k)

        phase, tile_start, more = uint32(0), first_key, True  # the phase of the mbarriers
        while more:
            first_tile, next_start = tile_start == first_key, uint32(tile_start + uint32(KEYS))
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
                k_tile, k_count = advance(k_head, uint64(next_start) * uint64(k.row)), uint32(last_key - next_start)
                copy_keys(shared, uint32(0), k_tile, k.row, k_count, first_dim, sizes)
            cp_async_commit()
            softmax(shared, state, tile, table, thread, tile_start, last_key, sizes, more, totals)
            cp_async_wait_but_one()
            cuda.syncthreads()
            await_weights(shared, tid, phase, more)
            phase ^= uint32(1)
            fence_products()
            weigh(shared, uint32(0), acc, thread)
            tile_start = next_start
        store_output(shared, acc, out_tile, out.row, tile, first_dim, thread, sizes)

    attention.__name__ = attention.__qualname__ = phases.name_of(shape, embedding, paired)
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, paired: int) -> Kernel:
    signature = (ROWS,) * 4 + (table_type, FLOATS, UINT, UINT, SIZES)
    make = stream if shape.streams else make_kernel
    return Kernel(
        make(shape, embedding, paired),
        signature,
        max_threads=shape.threads,
        min_blocks=shape.blocks,
        architecture="sm_90a",
    )


def attend(
    problem: Problem, *what: Any, shape: Shape | None = None, splits: int = 0, sms: int = SMS, **named: Any
) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    A shape that splits the keys does so in `splits`, by default one for each tile.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Call(problem, *what, **named)
    if shape is None:
        shape, splits = choose(problem, call.embedded_dim if call.embedding.keys else 0, sms)
    if shape.splits:
        call = replace(call, out="part")
    # Where few of many dims turn, those of one group of each slice, what is compiled for that is shorter.
    few = 0 < call.embedded_dim <= GROUP * shape.cluster and not (call.embedding.stored and call.embedding.half_split)
    kernel = kernel_of(shape, call.embedding, call.table_type, 1 if few else shape.groups)
    split_keys = -(-problem.seq_k // ((splits or problem.seq_k) * KEYS)) * KEYS
    parts = ("totals" if shape.splits else call.k, split_keys, problem.batch * problem.heads * problem.seq_q)
    return launch(kernel, shape, call, parts, shape.streams, -(-problem.seq_k // split_keys) if shape.splits else 1)
