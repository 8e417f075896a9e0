"""Attention of prompts on mma.sync, with RoPE on queries as they come, and on keys in a launch before: for short ones.

A block's warps share a tile of queries by rows and each tile of keys by keys. A tile: wait for its keys, scores, online
softmax, wait for its values, weighted sum. Then the partial results become the output.
"""

import functools
from typing import Any

from numba import cuda, float32, uint64

from ...device.asm import cp_async_commit
from ...device.cint import cint
from ...device.vector import advance
from ...version import Kernel
from ..args import types_of
from ..atoms import tile
from ..embed import begin
from ..epilogue import store_statistics
from ..loads import columns
from ..mask import bounds_of, mask_tile
from ..shapes import FRAGMENT_ROWS, PromptShape
from ..softmax import NO_KEY, QUAD, lane_sum, step
from ..tiles import constant, wait_for_launch
from .phases import copy_rows, merge_keys, stage_queries, tile_of, wait_groups
from .phases import place as place_of


def copy_tile(shape: PromptShape) -> Any:
    """copy(shared, index, pointer, pitch, number, tiles, all_keys, row, chunk): tile `number` as a group of copies.

    It is empty where there is no such tile.
    """
    vector, hdim, tile_keys = shape.element.vector, shape.hdim, shape.tile_keys
    places, copy = columns(shape, 1, 0, False), copy_rows(shape)

    @cuda.jit(device=True, forceinline=True)
    def copy_group(shared, index, pointer, pitch, number, tiles, all_keys, row, chunk):
        if chunk * vector < hdim and number < tiles:
            copy(shared, index, pointer, number * tile_keys, all_keys, pitch, places(chunk, 0), row, chunk)
        cp_async_commit()

    return copy_group


@functools.cache
def prompt_kernel(shape: PromptShape) -> Kernel:
    """The kernel of a shape, one object for each, with the grid of `phases.tile_of`."""
    at, rows, tile_keys, keys = shape.layout, shape.rows, shape.tile_keys, shape.warp_keys
    row_warps, row_chunks, stages, ahead = shape.row_warps, shape.row_chunks, shape.stages, shape.ahead
    tile_floats, fragment, held, sums = shape.tile_bytes // 4, FRAGMENT_ROWS, keys // 2, shape.hdim // 2
    alibi, reused, there = shape.embedding == "alibi", ahead < stages, wait_for_launch
    waits, waits_first = shape.overlap and shape.rotates, shape.overlap and not shape.rotates
    copy, state_of = copy_tile(shape), begin(shape, 1)
    first_there, keys_there, values_there = map(wait_groups, (max(ahead - 1, 0), abs(2 * ahead - 1), 2 * ahead))
    queries_of, dots, sums_to = tile.query_fragments(shape), tile.scores(shape), tile.store_sums(shape)
    add = tile.accumulate(shape) if shape.weigh == "mma" else tile.accumulate_fma(shape)
    tops, weigh, weights_of, row_sums_of, factors_of = step(held // 2, QUAD)
    scale_acc, sum_rows = tile.rescale(sums), lane_sum(2, QUAD)
    masked, bounds, block = mask_tile(shape, keys), bounds_of(shape), tile_of(rows)
    zero_acc, fresh, zero = constant(sums, 0.0), constant(2, NO_KEY), constant(2, 0.0)
    statistics, done = store_statistics(shape), merge_keys(shape)
    query, keys_at, row_max_at, row_sum_at = (at[name] for name in ("query", "sums", "row_max", "row_sum"))
    values_at, meet = keys_at + stages * tile_floats, shape.sums > stages * tile_floats
    ask, stage = stage_queries(shape, query, lambda b, base, row, chunk: place_of(b, base, row, chunk, rows))

    def kernel(tensors, sizes, rotation, workspace):
        shared = cuda.shared.array(0, float32, 1024)
        if waits_first:
            there()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        row_warp, key_warp = warp % row_warps, warp // row_warps
        batch, head, tile, all_keys, end, first_query = block(sizes)
        tiles = (end + tile_keys - 1) // tile_keys
        chunk, row = tid % row_chunks, tid // row_chunks
        k = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        words = ask(tid, tensors, sizes, rotation, batch, head, tile)
        state = state_of(rotation, chunk)
        for i in range(ahead):
            if not waits:
                copy(shared, keys_at + i * tile_floats, k, tensors.k_row, cint(i), tiles, all_keys, row, chunk)
            copy(shared, values_at + i * tile_floats, v, tensors.v_row, cint(i), tiles, all_keys, row, chunk)
        stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query, words, state)
        if waits:
            there()
            for i in range(ahead):
                copy(shared, keys_at + i * tile_floats, k, tensors.k_row, cint(i), tiles, all_keys, row, chunk)
        cuda.syncthreads()
        q = queries_of(shared, query, row_warp * fragment, lane)
        place = tile * rows + row_warp * fragment + (lane >> 2)
        seen = bounds(place, all_keys, first_query, batch, head, sizes, rotation)
        acc, row_max, row_sum, scale = zero_acc(), fresh(), zero(), sizes.scale
        if alibi:  # the bias is one of scaled scores
            scale = float32(1.0)
        buffer, number = cint(0), cint(0)
        while number < tiles:
            k_tile, v_tile = keys_at + buffer * tile_floats, values_at + buffer * tile_floats
            if not ahead:
                cuda.syncthreads()
                copy(shared, k_tile, k, tensors.k_row, number, tiles, all_keys, row, chunk)
                copy(shared, v_tile, v, tensors.v_row, number, tiles, all_keys, row, chunk)
            if waits and number < ahead:  # values were asked for before the first keys
                first_there()
            else:
                keys_there()
            cuda.syncthreads()
            if reused and ahead:
                free = buffer + ahead
                if free >= stages:
                    free -= stages
                after = number + ahead
                copy(shared, keys_at + free * tile_floats, k, tensors.k_row, after, tiles, all_keys, row, chunk)
                copy(shared, values_at + free * tile_floats, v, tensors.v_row, after, tiles, all_keys, row, chunk)
            elif ahead:
                cp_async_commit()
                cp_async_commit()
            scores = dots(shared, k_tile, key_warp * keys, q, lane)
            key = number * tile_keys + key_warp * keys
            scores = masked(scores, key, lane, seen, sizes.scale)
            top = tops(scores, row_max, scale)
            made = weigh(scores, row_max, top, row_sum, scale)
            row_max, row_sum = top, row_sums_of(made)
            acc = scale_acc(acc, factors_of(made))
            values_there()
            cuda.syncthreads()
            acc = add(shared, v_tile, key_warp * keys, weights_of(made), acc, lane)
            number += 1
            buffer += 1
            if buffer == stages:
                buffer = cint(0)
        row_sum = sum_rows(row_sum)
        if meet:  # else accumulators take the place of keys alone, which nobody reads any more
            cuda.syncthreads()
        first = key_warp * rows + row_warp * fragment
        sums_to(shared, keys_at, acc, first, lane)
        if lane & 3 == 0:
            statistics(shared, row_max_at + first, lane >> 2, row_max)
            statistics(shared, row_sum_at + first, lane >> 2, row_sum)
        done(shared, tid, tensors, sizes, batch, head, tile)

    kernel.__name__ = kernel.__qualname__ = shape.name
    return Kernel(kernel, types_of(shape.element), shape.threads, min_blocks=1)
