"""Attention of prompts on wgmma; a launch before rotates the keys, this one rotates the queries.

The producer, one thread, waits for that launch and copies tiles of keys and values by TMA; two warpgroups consume them.
A tile: start its scores and the weighted sum of the tile before together, wait for the scores, and compute the online
softmax.

With `split` a block has a split of the keys, and `combine` adds up what the blocks leave.
"""

import functools
from typing import Any

from numba import cuda, float32, types

from ...constants import INTS
from ...device.cint import cint
from ...device.wgmma import fence_products
from ...version import Kernel
from ..args import Workspace, types_of
from ..atoms import wgmma as atoms
from ..atoms.tile import rescale as rescale_rows
from ..embed import begin, state_size
from ..epilogue import inverse
from ..mask import bounds_of, mask_tile
from ..shapes import SLAB_ROW, WgmmaShape
from ..softmax import NO_KEY, QUAD, lane_sum, softmax, update_row_max
from ..tiles import I64, constant, i32, launch_dependents, register_op, wait_for_launch, zero_words
from .phases import asked_words, chunk_address, gather_queries, key_tiles, rows_written, stage_queries, tile_of
from .pipeline import REGISTERS, begin_barriers, next_stage, pipeline_of, producer, release

THREADS = 384


def query_address(shape: WgmmaShape) -> Any:
    """where(b, base, row, chunk): the address of a chunk in the tile of the row's warpgroup."""

    def where(b: Any, base: Any, row: Any, chunk: Any) -> Any:
        group = (row >> 6) * (shape.slabs * atoms.GROUP_ROWS * SLAB_ROW)
        return chunk_address(b, base + group, row & 63, chunk, atoms.GROUP_ROWS)

    return where


def transpose_quad(b: Any, member: Any, words: list[Any]) -> list[Any]:
    """Transpose the 4 x 4 words that the lanes of a quad hold, four each; `member` is the lane's number in its quad."""
    for bit in (1, 2):
        upper = member & bit != 0
        for low in (i for i in range(4) if not i & bit):
            high = low + bit
            kept, sent = b.select(upper, words[high], words[low]), b.select(upper, words[low], words[high])
            (got,) = b.as_words([b.shuffle("bfly", b.as_floats([sent])[0], bit)])
            words[low], words[high] = b.select(upper, got, kept), b.select(upper, kept, got)
    return words


@register_op(types.void)
def store_row(b, pointer, valid, member, acc, row_sum, *, shape, half):
    """Store row g + 8 half of fragments, divided by its row sum and rounded, for `phases.rows_written`."""
    tiles, by = shape.hdim // 8, inverse(b, row_sum[half])
    packed = shape.element.words(b, [acc[4 * tile + 2 * half + i] * by for tile in range(tiles) for i in range(2)])
    address = pointer + b.zext(member << 4, I64)
    for first in range(0, tiles, 4):
        words = transpose_quad(b, member, (packed[first : first + 4] + [i32(0)] * 4)[:4])
        with b.if_then(valid & (member < tiles - first)):
            b.store_words("st.global", address, words, 16 * first)


@register_op(types.void)
def store_parts(b, workspace, row, valid, member, acc, row_max, row_sum, *, shape):
    """Store rows g and g + 8 of fragments, from row `row` of the workspace on, for `combine`."""
    part, totals = Workspace(*workspace)
    values, statistics = b.as_words(acc), [b.as_words(each) for each in (row_max, row_sum)]
    for half in range(2):
        of = b.zext(row + 8 * half, I64)
        address = part + ((of * shape.hdim + b.zext(member << 1, I64)) << 2)
        with b.if_then(valid[half]):
            for tile in range(shape.hdim // 8):
                b.store_words("st.global", address, values[4 * tile + 2 * half :][:2], 32 * tile)
            with b.if_then(member == 0):
                b.store_words("st.global", totals + (of << 3), [each[half] for each in statistics])


def parts_written(shape: WgmmaShape) -> Any:
    """write(sizes, workspace, batch, head, row, lane, acc, row_max, row_sum), for `combine`: rows `row` and row + 8."""
    store = store_parts(shape)

    @cuda.jit(device=True, forceinline=True)
    def write(sizes, workspace, batch, head, row, lane, acc, row_max, row_sum):
        rows, split = sizes.group * sizes.seq_q, cint(cuda.blockIdx.x)
        first = ((split * cint(cuda.gridDim.z) + batch) * sizes.kv_heads + head) * rows
        store(workspace, first + row, (row < rows, row + 8 < rows), lane & 3, acc, row_max, row_sum)

    return write


@functools.cache
def wgmma_kernel(shape: WgmmaShape) -> Kernel:
    """The kernel of a shape, with the grid of `phases.tile_of`. Its last arguments are tensor maps of keys and values.

    Thread 0 copies tiles, the other threads of its warpgroup end at once; two warpgroups have 64 rows each.
    """
    # tile
    at = pipeline_of(shape)
    rows = shape.rows
    tile_keys = shape.tile_keys
    row_chunks = shape.row_chunks
    split = shape.split
    block = tile_of(shape.rows, split)
    share = key_tiles(tile_keys)
    bounds = bounds_of(shape)
    # loads
    init_barriers = begin_barriers(shape, 8, 256)
    fill_stage = producer(shape)
    following = next_stage(shape)
    load_q, store_q = (gather_queries if split else stage_queries)(shape, at.query, query_address(shape))
    load_rates = begin(shape, 1)
    wait, arrive, open_map = atoms.wait_barrier, atoms.arrive, atoms.open_map
    producer_waits = shape.overlap and shape.rotates  # for the launch that rotates keys
    all_wait = shape.overlap and not shape.rotates
    starts_next = split and shape.overlap
    fewer_registers = atoms.set_registers("dec", REGISTERS[0])
    more_registers = atoms.set_registers("inc", REGISTERS[1])
    # products: fragments of a lane, float32[lane_scores] and float32[lane_outputs] for its rows g and g + 8
    lane_scores = tile_keys // 2
    lane_outputs = shape.hdim // 2
    start_qk = atoms.start_scores(shape)
    start_qk_and_pv = atoms.start_both(shape)
    start_pv = atoms.start_sums(shape)
    wait_first_scores = atoms.wait(lane_scores, 0)
    wait_scores = atoms.wait(lane_scores, 1)
    wait_outputs = atoms.wait(lane_outputs, 0)
    by_rows = atoms.by_rows(lane_scores)
    pack_p = atoms.pack(shape)
    # softmax
    mask = mask_tile(shape, tile_keys)
    new_max = update_row_max(lane_scores // 2)
    weigh = softmax(lane_scores // 2)
    rescale_acc = rescale_rows(lane_outputs)
    sum_over_quad = lane_sum(2, QUAD)
    alibi = shape.embedding == "alibi"
    # initial values, and the store
    zero_acc = constant(lane_outputs, 0.0)
    lowest = constant(2, NO_KEY)
    zero = constant(2, 0.0)
    no_words = zero_words(asked_words(shape))
    no_rates = constant(state_size(shape, 1), 0.0)
    write = rows_written(shape, store_row)
    write_parts = parts_written(shape)

    def kernel(tensors, sizes, rotation, workspace, k_map, v_map):
        # prologue
        shared = cuda.shared.array(0, float32, 1024)
        tid = cint(cuda.threadIdx.x)
        batch, head, tile, all_keys, end, first_query = block(sizes)
        first, tiles = cint(0), (end + tile_keys - 1) // tile_keys
        if split:
            first, tiles = share(sizes, all_keys, tiles)
        if tid == 0:
            init_barriers(shared)
        q_rmem, rates = no_words(), no_rates()
        if all_wait:
            wait_for_launch()
        if starts_next:
            launch_dependents()
        if tid >= 128:
            q_rmem = load_q(tid - 128, tensors, sizes, rotation, batch, head, tile)
            rates = load_rates(rotation, (tid - 128) % row_chunks)
        cuda.syncthreads()
        stage, parity, number = cint(0), cint(0), first
        if tid < 128:
            # producer
            fewer_registers()
            if tid == 0:
                open_map(k_map)
                open_map(v_map)
                parity = cint(1)  # of the phase before the first
                if producer_waits:
                    wait_for_launch()
                while number < tiles:
                    fill_stage(shared, stage, parity, k_map, v_map, number, head, batch)
                    stage, parity = following(stage, parity)
                    number += 1
        else:
            # consumers: queries to shared memory
            more_registers()
            lane, group = tid & 31, (tid >> 7) - 1
            store_q(shared, tid - 128, tensors, sizes, rotation, batch, head, tile, first_query, q_rmem, rates)
            fence_products()
            arrive(shared, at.queries_full)
            wait(shared, at.queries_full, 0)
            row = tile * rows + ((tid >> 5) - 4) * 16 + (lane >> 2)
            seen = bounds(row, all_keys, first_query, batch, head, sizes, rotation)
            q_smem, scale, acc_rmem = at.query + group * at.group, sizes.scale, zero_acc()
            if alibi:  # the bias is one of scaled scores
                scale = float32(1.0)
            # first tile: scores, softmax
            wait(shared, at.keys_full, 0)
            scores = wait_first_scores(start_qk(shared, q_smem, at.keys))
            release(shared, at.keys_empty, lane)
            scores = mask(by_rows(scores), first * tile_keys, lane, seen, sizes.scale)
            row_max = new_max(scores, lowest(), scale)
            p, row_sum, rescale = weigh(scores, row_max, row_max, zero(), scale)
            p_rmem = pack_p(p)
            number += 1
            # main loop: scores of a tile, the weighted sum of the tile before
            while number < tiles:
                after, parity_after = following(stage, parity)
                wait(shared, at.values_full + 2 * stage, parity)
                wait(shared, at.keys_full + 2 * after, parity_after)
                k_smem, v_smem = at.keys + after * at.tile, at.values + stage * at.tile
                scores, acc_rmem = start_qk_and_pv(shared, q_smem, k_smem, p_rmem, acc_rmem, v_smem)
                scores = wait_scores(scores)
                release(shared, at.keys_empty + 2 * after, lane)
                scores = mask(by_rows(scores), number * tile_keys, lane, seen, sizes.scale)
                old_max = row_max
                row_max = new_max(scores, old_max, scale)
                p, row_sum, rescale = weigh(scores, old_max, row_max, row_sum, scale)
                acc_rmem = wait_outputs(acc_rmem)
                release(shared, at.values_empty + 2 * stage, lane)
                p_rmem = pack_p(p)
                acc_rmem = rescale_acc(acc_rmem, rescale)
                stage, parity = after, parity_after
                number += 1
            # epilogue: the last weighted sum, divided by the row sums
            wait(shared, at.values_full + 2 * stage, parity)
            acc_rmem = start_pv(shared, p_rmem, acc_rmem, at.values + stage * at.tile)
            row_sum = sum_over_quad(row_sum)
            acc_rmem = wait_outputs(acc_rmem)
            if split:
                write_parts(sizes, workspace, batch, head, row, lane, acc_rmem, row_max, row_sum)
            else:
                write(tensors, sizes, batch, head, row, lane, acc_rmem, row_sum)

    kernel.__name__ = kernel.__qualname__ = shape.name
    signature = (*types_of(shape.element), INTS, INTS)
    return Kernel(kernel, signature, THREADS, min_blocks=1, architecture="sm_90a")
