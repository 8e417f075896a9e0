"""Attention of short prompts on mma.sync; a launch before rotates the keys, this one rotates the queries.

A block's warps share a tile of queries by rows and each tile of keys by keys. A tile: wait for its keys, scores, online
softmax, wait for its values, weighted sum. The epilogue merges the partial results of warps that share keys.

With `split` a block has a split of the keys, which it rotates itself, and `combine` adds up what the blocks leave.
"""

import functools
from functools import partial
from typing import Any

from numba import cuda, float32, uint64

from ...device.asm import cp_async_commit
from ...device.cint import cint
from ...device.vector import advance
from ...version import Kernel
from ..args import types_of
from ..atoms import tile as atoms
from ..embed import begin
from ..epilogue import finish, store_statistics
from ..loads import columns
from ..mask import bounds_of, mask_tile
from ..shapes import FRAGMENT_ROWS, PromptShape
from ..softmax import NO_KEY, QUAD, lane_sum, softmax, update_row_max
from ..tiles import constant, launch_dependents, wait_for_launch
from .phases import (
    chunk_address,
    copy_rows,
    gather_queries,
    key_tiles,
    merge_keys,
    rotate_tile,
    stage_queries,
    tile_of,
    wait_groups,
)  # fmt: skip


def copy_tile(shape: PromptShape) -> Any:
    """copy(shared, index, pointer, pitch, number, tiles, all_keys, row, chunk): tile `number` as one cp.async group.

    The group is empty after the last tile.
    """
    vector, hdim, tile_keys = shape.element.vector, shape.hdim, shape.tile_keys
    columns_of, copy = columns(shape, 1, 0, False), copy_rows(shape)

    @cuda.jit(device=True, forceinline=True)
    def copy_group(shared, index, pointer, pitch, number, tiles, all_keys, row, chunk):
        if chunk * vector < hdim and number < tiles:
            copy(shared, index, pointer, number * tile_keys, all_keys, pitch, columns_of(chunk, 0), row, chunk)
        cp_async_commit()

    return copy_group


@functools.cache
def prompt_kernel(shape: PromptShape) -> Kernel:
    """The kernel of a shape, one object for each, with the grid of `phases.tile_of`.

    Warps share a tile: `row_warps` by rows, and each 16 rows `key_warps` by keys, each with partial results.
    """
    # tile
    rows = shape.rows
    tile_keys = shape.tile_keys
    warp_keys = shape.warp_keys
    row_warps = shape.row_warps
    row_chunks = shape.row_chunks
    split = shape.split
    block = tile_of(rows, split)
    share = key_tiles(tile_keys)
    bounds = bounds_of(shape)
    # shared memory, in floats: Q, then stages of K, stages of V; the warps' outputs take the place of K
    q_smem = shape.layout["query"]
    k_stages = shape.layout["sums"]
    tile_floats = shape.tile_bytes // 4
    stages = shape.stages
    v_stages = k_stages + stages * tile_floats
    row_max_smem = shape.layout["row_max"]
    row_sum_smem = shape.layout["row_sum"]
    outputs_reach_v = shape.sums > stages * tile_floats
    # loads
    prefetched = shape.ahead  # tiles in flight
    reuses_stages = prefetched < stages
    rotates_keys = split and shape.rotates
    halves_apart = shape.half_split  # other threads copied them
    starts_next = split and shape.overlap
    keys_wait = shape.overlap and shape.rotates and not split  # for the launch that rotates keys
    all_wait = shape.overlap and not shape.rotates and not split
    copy = copy_tile(shape)
    load_q, store_q = (gather_queries if split else stage_queries)(shape, q_smem, partial(chunk_address, rows=rows))
    load_rates = begin(shape, 1)
    rotate_k = rotate_tile(shape)
    wait_first_keys = wait_groups(max(prefetched - 1, 0))  # where values were copied before the first keys
    wait_keys = wait_groups(2 * prefetched - 1 if prefetched else 1)
    wait_values = wait_groups(2 * prefetched)
    # products: fragments of a lane, float32[lane_scores] and float32[lane_outputs] for its rows g and g + 8
    lane_scores = warp_keys // 2
    lane_outputs = shape.hdim // 2
    load_q_fragments = atoms.query_fragments(shape)
    multiply_qk = atoms.scores(shape)
    add_pv = atoms.accumulate(shape) if shape.weigh == "mma" else atoms.accumulate_fma(shape)
    # softmax
    mask = mask_tile(shape, warp_keys)
    new_max = update_row_max(lane_scores // 2)
    weigh = softmax(lane_scores // 2)
    rescale_acc = atoms.rescale(lane_outputs)
    sum_over_quad = lane_sum(2, QUAD)
    alibi = shape.embedding == "alibi"
    # initial values, and the store
    zero_acc = constant(lane_outputs, 0.0)
    lowest = constant(2, NO_KEY)
    zero = constant(2, 0.0)
    store_outputs = atoms.store_sums(shape)
    store_row_values = store_statistics(shape)
    merge = finish(shape) if split else merge_keys(shape)

    def kernel(tensors, sizes, rotation, workspace):
        # prologue: loads of Q, the first tiles of K and V
        shared = cuda.shared.array(0, float32, 1024)
        if all_wait:
            wait_for_launch()
        if starts_next:
            launch_dependents()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        row_warp, key_warp = warp % row_warps, warp // row_warps
        batch, head, tile, all_keys, end, first_query = block(sizes)
        first, tiles = cint(0), (end + tile_keys - 1) // tile_keys
        if split:
            first, tiles = share(sizes, all_keys, tiles)
        chunk, row = tid % row_chunks, tid // row_chunks
        # [seq_k, hdim] of the sequence and KV head, rows k_row and v_row elements apart
        k_gmem = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v_gmem = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        q_rmem = load_q(tid, tensors, sizes, rotation, batch, head, tile)
        rates = load_rates(rotation, chunk)
        for i in range(prefetched):
            if not keys_wait:
                copy(shared, k_stages + i * tile_floats, k_gmem, tensors.k_row, first + i, tiles, all_keys, row, chunk)
            copy(shared, v_stages + i * tile_floats, v_gmem, tensors.v_row, first + i, tiles, all_keys, row, chunk)
        store_q(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query, q_rmem, rates)
        if keys_wait:
            wait_for_launch()
            for i in range(prefetched):
                copy(shared, k_stages + i * tile_floats, k_gmem, tensors.k_row, first + i, tiles, all_keys, row, chunk)
        cuda.syncthreads()
        q_fragments = load_q_fragments(shared, q_smem, row_warp * FRAGMENT_ROWS, lane)
        lane_row = tile * rows + row_warp * FRAGMENT_ROWS + (lane >> 2)
        seen = bounds(lane_row, all_keys, first_query, batch, head, sizes, rotation)
        acc_rmem, row_max, row_sum, scale = zero_acc(), lowest(), zero(), sizes.scale
        if alibi:  # the bias is one of scaled scores
            scale = float32(1.0)
        stage, number = cint(0), first
        # main loop
        while number < tiles:
            k_smem, v_smem = k_stages + stage * tile_floats, v_stages + stage * tile_floats
            # load
            if not prefetched:
                cuda.syncthreads()
                copy(shared, k_smem, k_gmem, tensors.k_row, number, tiles, all_keys, row, chunk)
                copy(shared, v_smem, v_gmem, tensors.v_row, number, tiles, all_keys, row, chunk)
            if keys_wait and number < prefetched:
                wait_first_keys()
            else:
                wait_keys()
            if rotates_keys:
                if halves_apart:
                    cuda.syncthreads()
                rotate_k(shared, k_smem, rotation, batch, number * tile_keys, all_keys - 1, row, chunk)
            cuda.syncthreads()
            if reuses_stages and prefetched:
                free = stage + prefetched
                if free >= stages:
                    free -= stages
                after = number + prefetched
                copy(shared, k_stages + free * tile_floats, k_gmem, tensors.k_row, after, tiles, all_keys, row, chunk)
                copy(shared, v_stages + free * tile_floats, v_gmem, tensors.v_row, after, tiles, all_keys, row, chunk)
            elif prefetched:
                cp_async_commit()
                cp_async_commit()
            # score
            scores = multiply_qk(shared, k_smem, key_warp * warp_keys, q_fragments, lane)
            scores = mask(scores, number * tile_keys + key_warp * warp_keys, lane, seen, sizes.scale)
            # softmax
            old_max = row_max
            row_max = new_max(scores, old_max, scale)
            p, row_sum, rescale = weigh(scores, old_max, row_max, row_sum, scale)
            acc_rmem = rescale_acc(acc_rmem, rescale)
            # weigh
            wait_values()
            cuda.syncthreads()
            acc_rmem = add_pv(shared, v_smem, key_warp * warp_keys, p, acc_rmem, lane)
            number += 1
            stage += 1
            if stage == stages:
                stage = cint(0)
        # epilogue: partial results of all warps to shared memory, their sum to the output
        row_sum = sum_over_quad(row_sum)
        if outputs_reach_v:
            cuda.syncthreads()
        first_row = key_warp * rows + row_warp * FRAGMENT_ROWS
        store_outputs(shared, k_stages, acc_rmem, first_row, lane)
        if lane & 3 == 0:
            store_row_values(shared, row_max_smem + first_row, lane >> 2, row_max)
            store_row_values(shared, row_sum_smem + first_row, lane >> 2, row_sum)
        if split:
            merge(shared, tid, tensors, sizes, workspace, (batch, head, tile), cint(cuda.blockIdx.x))
        else:
            merge(shared, tid, tensors, sizes, batch, head, tile)

    kernel.__name__ = kernel.__qualname__ = shape.name
    return Kernel(kernel, types_of(shape.element), shape.threads, min_blocks=1)
