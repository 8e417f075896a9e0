"""The V8 core on mma.sync: a block copies its slices of Q and K to shared memory and embeds them there (see README.md).

Copies overlap the arithmetic. Scores and weights go to other blocks by asynchronous stores that count at an mbarrier of
the receiver, so no thread waits for a fence on all memory.
"""

import functools
from typing import Any

from numba import cuda, float32, uint32, uint64

from ....device.asm import cp_async_commit, cp_async_wait, cp_async_wait_but_one
from ....device.cluster import cluster_wait
from ....device.rows import ROWS
from ....device.vector import advance, make_float4, st4
from ....limits import EMULATED_TARGET
from ....version import Kernel, Launch, Problem
from ..card import SMS
from ..embedding import Embedding
from ..exchange import Exchange, exchange
from ..launch import Call, launch
from ..schedule import SIZES, tensors_of, tile_of_block, visible_keys
from ..shape import COPIERS, GROUP
from ..softmax import greatest_weight
from .choose import choose
from .embed import copiers, scaler, tile_embedder
from .multiply import output_by_products, scores_by_products
from .shape import STEP, Shape
from .softmax import softmax_of


def parts_of(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a warp's parts of scores to the blocks that own their rows."""
    columns, rows, keys, parts_at = shape.columns, shape.rows, shape.keys, uint32(shape.layout["parts"])
    send_part = sends.send_part

    @cuda.jit(device=True)
    def send(shared, low, high, top, left, slot, lane_row, member):
        for j in range(columns):
            for half in range(2):
                row = uint32(top + uint32(8 * half) + lane_row)
                at = uint32((slot * uint32(rows) + row % uint32(rows)) * uint32(keys))
                at = uint32(parts_at + at + left + uint32(8 * j) + uint32(2) * member)
                x = high[4 * j + 2 * half] + low[4 * j + 2 * half]
                y = high[4 * j + 2 * half + 1] + low[4 * j + 2 * half + 1]
                send_part(shared, at, row // uint32(rows), x, y)

    return send


def output_of(shape: Shape) -> Any:
    """A device function that stores the output of a warp, divided by the row sums."""
    panels, groups, abreast, span = shape.panels, shape.groups, shape.abreast, GROUP * shape.cluster
    rescale_at = uint32(shape.layout["rescale"])

    @cuda.jit(device=True)
    def store(shared, acc, out_tile, pitch, tile, top, panel, lane_row, member, hdim):
        for half in range(2):
            row = uint32(top + uint32(8 * half) + lane_row)
            if row < tile.query_count:
                by = shared[rescale_at + uint32(2) * row + uint32(1)]
                out_row = advance(out_tile, row * pitch)
                for p in range(panels):
                    group = uint32(panel + uint32(p * abreast))
                    dim = uint32(group * uint32(span) + tile.first_dim + uint32(8) * member)
                    for side in range(2):
                        if group < uint32(groups) and dim + uint32(4 * side) < hdim:
                            i = 16 * p + 2 * half + side
                            x = make_float4(acc[i] * by, acc[i + 4] * by, acc[i + 8] * by, acc[i + 12] * by)
                            st4(out_row, dim + uint32(4 * side), x)

    return store


def make_kernel(shape: Shape, embedding: Embedding) -> Any:
    cluster, keys, rows, passes = shape.cluster, shape.keys, shape.rows, shape.passes
    down, across, columns, span = shape.down, shape.across, shape.columns, GROUP * cluster
    depth, outputs, sums = shape.depth, 16 * shape.panels, 4 * columns  # floats of a thread
    embeds, begin, of_batch = embedding.query or embedding.keys, embedding.begin, embedding.of_batch
    copy_query, copy_keys, copy_values = copiers(shape, embedding.half_split)
    embed_tile, scale_query = tile_embedder(shape, embedding), scaler(shape)
    score, weigh = scores_by_products(shape), output_by_products(shape)
    # The bytes of a row of parts, and of all weights and factors.
    sends = exchange(cluster, shape.layout["arrived"], 4 * cluster * depth * keys, 4 * shape.queries * (keys + 2))
    start_exchange, await_parts, await_weights = sends.start, sends.await_parts, sends.await_weights
    begin_rows, softmax = softmax_of(shape, embedding, sends)
    tile_of, send_parts, store_output = tile_of_block(cluster, shape.queries), parts_of(shape, sends), output_of(shape)

    def attention(q, k, v, out, table, sizes):
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        warp_id, lane_id = tid // uint32(32), tid % uint32(32)
        lane_row, member = lane_id // uint32(4), lane_id % uint32(4)
        tile = tile_of(sizes)
        query_count = tile.query_count
        if of_batch is not None:
            table = of_batch(table, tile.batch)
        q_tile, k_head, v_head, out_tile = tensors_of(tile, q, k, v, out)
        last_key = visible_keys(tile, sizes)

        # A thread embeds the rows and dims that it copies.
        first_row = uint32(tid // uint32(COPIERS) % uint32(passes))
        sharer = uint32(tid // uint32(COPIERS * passes))
        lane_dim = uint32(tid % uint32(COPIERS) * uint32(4))
        column = uint32(lane_dim + sharer * uint32(GROUP))
        copied_dim = uint32(tile.first_dim + lane_dim + sharer * uint32(span))
        begun = make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))
        if embeds and copied_dim < sizes.embedded_dim:
            begun = begin(table, copied_dim)
        copy_query(shared, q_tile, q.row, query_count, first_row, column, copied_dim, sizes)
        copy_keys(shared, k_head, k.row, last_key, first_row, column, copied_dim, sizes)
        cp_async_commit()
        start_exchange(shared, tid == 0, uint32(rows))
        begin_rows(shared, tid)

        top = uint32(warp_id % uint32(down) * uint32(16))
        left = uint32(warp_id // uint32(down) % uint32(across) * uint32(8 * columns))
        slot = uint32(tile.rank * uint32(depth) + warp_id // uint32(down * across))
        first_step = uint32(warp_id // uint32(down * across) * uint32(STEP))
        panel = warp_id // uint32(down)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)
        low = cuda.local.array(sums, float32)
        high = cuda.local.array(sums, float32)

        ceiling = greatest_weight(sizes.seq_k)
        phase = uint32(0)  # the phase of the mbarriers
        tile_start = uint32(0)
        while tile_start < last_key:
            first_tile, next_start = tile_start == 0, uint32(tile_start + uint32(keys))
            more, count = next_start < last_key, uint32(last_key - tile_start)
            v_tile = advance(v_head, uint64(tile_start) * uint64(v.row))
            if embeds:
                key_count = uint32(min(uint32(keys), count))
                embed_tile(shared, table, begun, tile, tile_start, key_count, first_row, column, copied_dim, sizes)
            cp_async_wait()
            if first_tile:
                scale_query(shared, sizes.softmax_scale, query_count, first_row, column)
            cuda.syncthreads()
            if cluster == 1:
                copy_values(shared, v_tile, v.row, count, first_row, column, copied_dim, sizes)
                cp_async_commit()
            score(shared, low, high, top, left, first_step, lane_row, member)
            if cluster > 1 and first_tile:
                cluster_wait()
            send_parts(shared, low, high, top, left, slot, lane_row, member)
            if cluster > 1:
                copy_values(shared, v_tile, v.row, count, first_row, column, copied_dim, sizes)
                cp_async_commit()
            await_parts(shared, tid, phase, uint32(rows), more)

            if more:
                k_tile, k_count = advance(k_head, uint64(next_start) * uint64(k.row)), uint32(last_key - next_start)
                copy_keys(shared, k_tile, k.row, k_count, first_row, column, copied_dim, sizes)
            cp_async_commit()
            softmax(shared, tile, table, warp_id, lane_id, tile_start, ceiling, last_key, sizes)
            cp_async_wait_but_one()
            cuda.syncthreads()
            await_weights(shared, tid, phase, more)
            if cluster > 1:
                phase ^= uint32(1)
            weigh(shared, acc, panel, top, lane_row, member)
            tile_start = next_start

        store_output(shared, acc, out_tile, out.row, tile, top, panel, lane_row, member, sizes.hdim)

    attention.__name__ = attention.__qualname__ = f"{shape.name}_{embedding.name}"
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any) -> Kernel:
    signature = (ROWS,) * 4 + (table_type, SIZES)
    return Kernel(make_kernel(shape, embedding), signature, max_threads=shape.threads, min_blocks=shape.blocks)


def attend(
    problem: Problem,
    *what: Any,
    shape: Shape | None = None,
    target: str = EMULATED_TARGET,
    sms: int = SMS,
    **named: Any,
) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Call(problem, *what, **named)
    shape = shape or choose(problem, call.embedded_dim, target, sms)
    return launch(kernel_of(shape, call.embedding, call.table_type), shape, call)
