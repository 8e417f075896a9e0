"""Attention of prompts on wgmma, with RoPE on queries as they come and on keys in a launch of its own before.

One thread waits for that launch, and copies tiles of keys and values with tensor maps; two warpgroups multiply. The
scores of a tile and the weighted sum of the tile before are started together, then the online softmax follows.
"""

import functools
from typing import Any

from numba import cuda, float32, types

from ...constants import INTS
from ...device.cint import cint
from ...device.wgmma import fence_products
from ...version import Kernel
from ..args import types_of
from ..atoms import wgmma as atoms
from ..atoms.tile import rescale
from ..embed import begin, state_size
from ..epilogue import inverse
from ..mask import bounds_of, mask_tile
from ..shapes import SLAB_ROW, WgmmaShape
from ..softmax import NO_KEY, QUAD, lane_sum, step
from ..tiles import I64, constant, i32, op, part, wait_for_launch, zero_words
from .phases import asked_words, place, rows_written, stage_queries, tile_of
from .pipeline import REGISTERS, begin_barriers, next_stage, pipeline_of, producer, release

THREADS = 384


def query_place(shape: WgmmaShape) -> Any:
    """where(b, base, row, chunk): the address of a chunk in the tile of the row's warpgroup."""

    def where(b: Any, base: Any, row: Any, chunk: Any) -> Any:
        group = (row >> 6) * (shape.slabs * atoms.GROUP_ROWS * SLAB_ROW)
        return place(b, base + group, row & 63, chunk, atoms.GROUP_ROWS)

    return where


def transpose_quad(b: Any, member: Any, words: list[Any]) -> list[Any]:
    """Of the four words of each of four lanes, the `member`-th of all, in the order of the lanes."""
    for bit in (1, 2):
        upper = member & bit != 0
        for low in (i for i in range(4) if not i & bit):
            high = low + bit
            kept, sent = b.select(upper, words[high], words[low]), b.select(upper, words[low], words[high])
            (got,) = b.as_words([b.shuffle("bfly", b.as_floats([sent])[0], bit)])
            words[low], words[high] = b.select(upper, got, kept), b.select(upper, kept, got)
    return words


@op(lambda shape, half: types.void)
def store_row(b, shape, half, pointer, valid, member, acc, row_sum):
    """What `rows_written` takes: divided, rounded."""
    tiles, by = shape.hdim // 8, inverse(b, row_sum[half])
    packed = shape.element.words(b, [acc[4 * tile + 2 * half + i] * by for tile in range(tiles) for i in range(2)])
    address = pointer + b.zext(member << 4, I64)
    for first in range(0, tiles, 4):
        words = transpose_quad(b, member, (packed[first : first + 4] + [i32(0)] * 4)[:4])
        with b.if_then(valid & (member < tiles - first)):
            b.store_words("st.global", address, words, 16 * first)


@functools.cache
def wgmma_kernel(shape: WgmmaShape) -> Kernel:
    """The kernel of a shape, with the grid of `phases.tile_of`. Its last arguments are maps of keys and values."""
    at, keys, held, sums = pipeline_of(shape), shape.tile_keys, shape.tile_keys // 2, shape.hdim // 2
    rows, row_chunks, alibi = shape.rows, shape.row_chunks, shape.embedding == "alibi"
    give, take = atoms.set_registers("dec", REGISTERS[0]), atoms.set_registers("inc", REGISTERS[1])
    begin_all, fill, following = begin_barriers(shape, 8, 256), producer(shape), next_stage(shape)
    start, both, last = atoms.start_scores(shape), atoms.start_both(shape), atoms.start_sums(shape)
    scores_of, sums_of = part(0, held), part(held, sums)
    first_there, scores_there, sums_there = atoms.wait(held, 0), atoms.wait(held, 1), atoms.wait(sums, 0)
    ordered, pack, scale_acc = atoms.by_rows(held), atoms.pack(shape), rescale(sums)
    tops, weigh, weights_of, row_sums_of, factors_of = step(held // 2, QUAD)
    masked, bounds, block = mask_tile(shape, keys), bounds_of(shape), tile_of(shape.rows)
    zero_acc, fresh, zero, sum_rows = constant(sums, 0.0), constant(2, NO_KEY), constant(2, 0.0), lane_sum(2, QUAD)
    arrive, wait, open_map = atoms.arrive, atoms.wait_barrier, atoms.open_map
    waits, waits_first, there = shape.overlap and shape.rotates, shape.overlap and not shape.rotates, wait_for_launch
    write, (ask, stage_rows) = rows_written(shape, store_row), stage_queries(shape, at.query, query_place(shape))
    no_words, no_state = zero_words(asked_words(shape)), constant(state_size(shape, 1), 0.0)
    state_of = begin(shape, 1)

    def kernel(tensors, sizes, rotation, workspace, k_map, v_map):
        shared = cuda.shared.array(0, float32, 1024)
        tid = cint(cuda.threadIdx.x)
        batch, head, tile, all_keys, end, first_query = block(sizes)
        tiles = (end + keys - 1) // keys
        if tid == 0:
            begin_all(shared)
        words, state = no_words(), no_state()
        if waits_first:
            there()
        if tid >= 128:
            words = ask(tid - 128, tensors, sizes, rotation, batch, head, tile)
            state = state_of(rotation, (tid - 128) % row_chunks)
        cuda.syncthreads()
        stage, parity, number = cint(0), cint(0), cint(0)
        if tid < 128:
            give()
            if tid == 0:
                open_map(k_map)
                open_map(v_map)
                parity = cint(1)  # of the phase before the first
                if waits:
                    there()
                while number < tiles:
                    fill(shared, stage, parity, k_map, v_map, number, head, batch)
                    stage, parity = following(stage, parity)
                    number += 1
        else:
            take()
            lane, group = tid & 31, (tid >> 7) - 1
            stage_rows(shared, tid - 128, tensors, sizes, rotation, batch, head, tile, first_query, words, state)
            fence_products()
            arrive(shared, at.queries_full)
            wait(shared, at.queries_full, 0)
            row = tile * rows + ((tid >> 5) - 4) * 16 + (lane >> 2)
            seen = bounds(row, all_keys, first_query, batch, head, sizes, rotation)
            queries, scale, acc = at.query + group * at.group, sizes.scale, zero_acc()
            if alibi:  # the bias is one of scaled scores
                scale = float32(1.0)
            wait(shared, at.keys_full, 0)
            scores = first_there(start(shared, queries, at.keys))
            release(shared, at.keys_empty, lane)
            scores = masked(ordered(scores), cint(0), lane, seen, sizes.scale)
            row_max = tops(scores, fresh(), scale)
            made = weigh(scores, row_max, row_max, zero(), scale)
            row_sum, p = row_sums_of(made), pack(weights_of(made))
            number = cint(1)
            while number < tiles:
                after, parity_after = following(stage, parity)
                wait(shared, at.values_full + 2 * stage, parity)
                wait(shared, at.keys_full + 2 * after, parity_after)
                started = both(shared, queries, at.keys + after * at.tile, p, acc, at.values + stage * at.tile)
                scores, acc = scores_there(scores_of(started)), sums_of(started)
                release(shared, at.keys_empty + 2 * after, lane)
                scores = masked(ordered(scores), number * keys, lane, seen, sizes.scale)
                top = tops(scores, row_max, scale)
                made = weigh(scores, row_max, top, row_sum, scale)
                row_max, row_sum = top, row_sums_of(made)
                acc = sums_there(acc)
                release(shared, at.values_empty + 2 * stage, lane)
                p = pack(weights_of(made))
                acc = scale_acc(acc, factors_of(made))
                stage, parity = after, parity_after
                number += 1
            wait(shared, at.values_full + 2 * stage, parity)
            acc = last(shared, p, acc, at.values + stage * at.tile)
            row_sum = sum_rows(row_sum)
            acc = sums_there(acc)
            write(tensors, sizes, batch, head, row, lane, acc, row_sum)

    kernel.__name__ = kernel.__qualname__ = shape.name
    signature = (*types_of(shape.element), INTS, INTS)
    return Kernel(kernel, signature, THREADS, min_blocks=1, architecture="sm_90a")
