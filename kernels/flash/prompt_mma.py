"""Attention of prompts on mma.sync, with RoPE on queries and keys on their way to shared memory: for short sequences.

A block's warps share a tile of queries by rows and each tile of keys by keys. A tile: wait for its keys, scores, online
softmax, wait for its values, weighted sum, rotate the next tile's keys. Then the partial results become the output.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, uint64

from ..device.cint import cint
from ..device.vector import advance
from ..version import Kernel
from . import atoms_tile
from .args import types_of
from .embed import begin, state_size
from .epilogue import store_statistics
from .loads import columns
from .mask import bounds_of, mask
from .prompt import (
    FRAGMENT_ROWS,
    ROW_STEPS,
    PromptShape,
    commit,
    copy_rows,
    merge_keys,
    scale_scores,
    stage_queries,
    tile_of,
    wait_groups,
)
from .prompt import place as place_of
from .prompt_embed import SEEDED_TILES, rotate_rows
from .softmax import FULL_MASK, NO_KEY, lane_sum, step
from .tiles import constant, load_shared, part, store_shared, zero_words


def build(shape: PromptShape) -> Any:
    at, rows, tile_keys, keys = shape.layout, shape.rows, shape.tile_keys, shape.warp_keys
    row_warps, row_chunks, stages, ahead = shape.row_warps, shape.row_chunks, shape.stages, shape.ahead
    tile_floats, vector, hdim, fragment = shape.tile_bytes // 4, shape.element.vector, shape.hdim, FRAGMENT_ROWS
    key_places, value_places = columns(shape, 1, 0, shape.half_split), columns(shape, 1, 0, False)
    copy, (load_keys, seed, put_keys) = copy_rows(shape), rotate_rows(shape)
    reloads, rotates, alibi, reused = shape.reloads, shape.rotates, shape.embedding == "alibi", ahead < stages
    keys_there, values_there = wait_groups(abs(2 * ahead - 1)), wait_groups(ahead if rotates else 2 * ahead)
    state_of, kept = begin(shape, 1), state_size(shape, 1)
    keep_state, kept_state = store_shared(kept), load_shared(kept)
    queries_of = atoms_tile.query_fragments(shape)
    dots, sums_to = atoms_tile.scores(shape), atoms_tile.store_sums(shape)
    add = atoms_tile.accumulate(shape) if shape.weigh == "mma" else atoms_tile.accumulate_fma(shape)
    masked, bounds = mask(shape, 2, atoms_tile.key_offsets(keys)), bounds_of(shape)
    (tops, weigh), scale_acc, scaled = step(keys // 4, (1, 2)), atoms_tile.rescale(hdim // 2), scale_scores(keys // 2)
    held = keys // 2
    weights_of, row_sums_of, factors_of = part(0, held), part(held, 2), part(held + 2, 2)
    no_keys, zero_acc, fresh, zero = (
        zero_words(4 * shape.rows_at_once),
        constant(hdim // 2, 0.0),
        constant(2, NO_KEY),
        constant(2, 0.0),
    )
    sum_rows = lane_sum(2, (1, 2))
    statistics, done = store_statistics(shape), merge_keys(shape)
    block, of_rows, end_group = tile_of(rows), query_index(rows), commit
    query, sums, turns_at, row_max_at, row_sum_at = (
        at[name] for name in ("query", "sums", "turns", "row_max", "row_sum")
    )
    values_at, keys_ahead = sums + shape.key_stages * tile_floats, shape.keys_ahead
    by_parts, part_rows = shape.rows_at_once < ROW_STEPS, shape.rows_at_once * shape.row_step
    at_once = rotates and not by_parts
    meet, seeded = not rotates and shape.sums > stages * tile_floats, SEEDED_TILES

    ask, stage = stage_queries(shape, query, lambda b, base, row, chunk: place_of(b, base, row, chunk, rows))

    @cuda.jit(device=True, forceinline=True)
    def rotate_parts(shared, k, turned, state, rotation, batch, first, last, pitch, key_at, row, chunk):
        while row < tile_keys:
            words = load_keys(k, first + row, last, pitch, key_at)
            put_keys(shared, sums, words, turned, state, rotation, batch, first, last, row, chunk)
            row += part_rows

    @cuda.jit(device=True, forceinline=True)
    def copy_tile(shared, tensors, k, v, number, buffer, tiles, all_keys, row, chunk, key_at, value_at):
        there = chunk * vector < hdim and number < tiles
        if not rotates:
            if there:
                copy(shared, sums + buffer * tile_floats, k, number * tile_keys, all_keys, tensors.k_row, key_at, row,
                     chunk)  # fmt: skip
            end_group()
        if there:
            copy(shared, values_at + buffer * tile_floats, v, number * tile_keys, all_keys, tensors.v_row, value_at,
                 row, chunk)  # fmt: skip
        end_group()

    def kernel(tensors, sizes, rotation, workspace):
        shared = cuda.shared.array(0, float32, 1024)
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        row_warp, key_warp = warp % row_warps, warp // row_warps
        batch, head, tile, all_keys, end, first_query = block(sizes)
        tiles = (end + tile_keys - 1) // tile_keys
        chunk, row = tid % row_chunks, tid // row_chunks
        k = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        key_at, value_at = key_places(chunk, rotation.rotary_dim), value_places(chunk, 0)
        mine, k_words = chunk * vector < hdim, no_keys()
        if at_once:
            if mine and 0 < tiles:
                k_words = load_keys(k, row, all_keys - 1, tensors.k_row, key_at)
        words = ask(tid, tensors, sizes, rotation, batch, head, tile)
        state = state_of(rotation, chunk)
        for first_tile in range(ahead):
            copy_tile(shared, tensors, k, v, cint(first_tile), cint(first_tile), tiles, all_keys, row, chunk, key_at,
                      value_at)  # fmt: skip
        stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query, words, state)
        turned = seed(state, cint(0), row)
        if rotates:
            if tid < row_chunks:
                keep_state(shared, turns_at + tid * kept, state)
            if mine and 0 < tiles:
                if by_parts:
                    rotate_parts(shared, k, turned, state, rotation, batch, cint(0), all_keys - 1, tensors.k_row,
                                 key_at, row, chunk)  # fmt: skip
                else:
                    turned = put_keys(shared, sums, k_words, turned, state, rotation, batch, cint(0), all_keys - 1,
                                      row, chunk)  # fmt: skip
                if keys_ahead:
                    k_words = load_keys(k, tile_keys + row, all_keys - 1, tensors.k_row, key_at)
        cuda.syncthreads()
        q = queries_of(shared, query, row_warp * fragment, lane)
        place = of_rows(tile, row_warp, lane)
        seen = (bounds(place, all_keys, first_query, batch, head, sizes, rotation),
                bounds(place + 8, all_keys, first_query, batch, head, sizes, rotation))  # fmt: skip
        acc, row_max, row_sum, scale = zero_acc(), fresh(), zero(), sizes.scale
        if alibi:  # the bias is one of scaled scores
            scale = float32(1.0)
        buffer, number = cint(0), cint(0)
        while number < tiles:
            k_tile, v_tile = sums + buffer * tile_floats, values_at + buffer * tile_floats
            if not ahead:
                cuda.syncthreads()
                copy_tile(shared, tensors, k, v, number, buffer, tiles, all_keys, row, chunk, key_at, value_at)
            if rotates:
                k_tile = cint(sums)
            else:
                keys_there()
                cuda.syncthreads()
            if reused and ahead:
                free = buffer + ahead
                if free >= stages:
                    free -= stages
                copy_tile(shared, tensors, k, v, number + ahead, free, tiles, all_keys, row, chunk, key_at, value_at)
            elif ahead:
                end_group()
                if not rotates:
                    end_group()
            if reloads:
                q = queries_of(shared, query, row_warp * fragment, lane)
            scores = dots(shared, k_tile, key_warp * keys, q, lane)
            key = number * tile_keys + key_warp * keys
            beyond = (key + keys > seen[0][0]) or (key + keys > seen[1][0])
            if alibi:
                beyond = True
                scores = scaled(scores, sizes.scale)
            if cuda.any_sync(FULL_MASK, beyond):
                scores = masked(scores, key + 2 * (lane & 3), seen)
            top = tops(scores, row_max, scale)
            made = weigh(scores, row_max, top, row_sum, scale)
            row_max, row_sum = top, row_sums_of(made)
            acc = scale_acc(acc, factors_of(made), lane)
            values_there()
            cuda.syncthreads()
            acc = add(shared, v_tile, key_warp * keys, weights_of(made), acc, lane)
            number += 1
            buffer += 1
            if buffer == stages:
                buffer = cint(0)
            if rotates:
                if mine and number < tiles:  # all warps have read the tile before
                    if not keys_ahead and at_once:
                        k_words = load_keys(k, number * tile_keys + row, all_keys - 1, tensors.k_row, key_at)
                    state = kept_state(shared, turns_at + chunk * kept)
                    if number % seeded == 0:
                        turned = seed(state, number * tile_keys, row)
                    if by_parts:
                        rotate_parts(shared, k, turned, state, rotation, batch, number * tile_keys, all_keys - 1,
                                     tensors.k_row, key_at, row, chunk)  # fmt: skip
                    else:
                        turned = put_keys(shared, sums, k_words, turned, state, rotation, batch, number * tile_keys,
                                          all_keys - 1, row, chunk)  # fmt: skip
                    if keys_ahead:
                        k_words = load_keys(k, (number + 1) * tile_keys + row, all_keys - 1, tensors.k_row, key_at)
                cuda.syncthreads()
        row_sum = sum_rows(row_sum)
        if meet:  # else accumulators take the place of keys alone, which nobody reads any more
            cuda.syncthreads()
        first = key_warp * rows + row_warp * fragment
        sums_to(shared, sums, acc, first, lane)
        if lane & 3 == 0:
            statistics(shared, row_max_at + first, lane >> 2, row_max)
            statistics(shared, row_sum_at + first, lane >> 2, row_sum)
        done(shared, tid, tensors, sizes, batch, head, tile)

    return kernel


def query_index(rows: int) -> Any:
    """place(tile, row warp, lane): the first of a lane's two rows of a KV head; the other is 8 behind."""

    @cuda.jit(device=True, forceinline=True)
    def place(tile, row_warp, lane):
        return tile * rows + row_warp * 16 + (lane >> 2)

    return place


@functools.cache
def prompt_kernel(shape: PromptShape) -> Kernel:
    """The kernel of a shape, one object for each: grid (KV heads, tiles of rows, batch)."""
    made = build(shape)
    made.__name__ = made.__qualname__ = shape.name
    return Kernel(made, types_of(shape.element), shape.threads, min_blocks=1)
