"""Attention of long prompts on wgmma, by blocks that stay: as `wgmma`, but a block takes tile after tile of queries.

The producers run ahead: keys of the next queries come, and these are rotated, while the consumers are at those before.
So the first scores of a tile of queries and the last weighted sum of the tile before run together. Keys come from the
last tile to the first: the loop over those that all rows see has no mask. A tile has queries of one head.
"""

import functools
from typing import Any

from numba import cuda, float32, types, uint64

from ...constants import INTS
from ...device.cint import CINT, cint
from ...device.vector import advance
from ...device.wgmma import fence_products
from ...version import Kernel
from ..args import Sizes, types_of
from ..atoms import wgmma as atoms
from ..atoms.tile import rescale as rescale_rows
from ..embed import begin, cos_sins, pairs_of, rotate
from ..loads import columns, copy_async
from ..mask import bounds_of, mask_tile
from ..schedule import ROW_STEPS
from ..shapes import PersistentShape
from ..softmax import NO_KEY, QUAD, lane_sum, softmax, update_row_max
from ..tiles import BYTES, I32, I64, VOID, constant, i32, register_op, wait_for_launch
from .phases import chunk_address, rows_written
from .pipeline import begin_barriers, next_stage, pipeline_of, producer, release
from .wgmma import THREADS, store_row

REGISTERS = (56, 224)  # a thread, of the producers and of the consumers (setmaxnreg)
STAGERS = 96  # threads that stage queries


@cuda.jit(device=True, forceinline=True)
def by_query_head(sizes):
    """The sizes of a call in which no query heads share keys."""
    return Sizes(
        sizes.kv_heads * sizes.group, cint(1), sizes.seq_q, sizes.seq_k, sizes.tiles, sizes.tile_rows, sizes.split_keys,
        sizes.splits, sizes.q_offset, sizes.causal, sizes.scale, sizes.lengths, sizes.by_length,
    )  # fmt: skip


def work_of(shape: PersistentShape) -> Any:
    """work(sizes, batches, turn) -> (whether there is one, batch, query head, tile, end of the keys that it sees).

    Tiles of a head follow each other, as they share keys. Causal, tiles that see the most keys come first, and every
    second turn takes them in reverse order, so that all blocks have as many keys.
    """
    rows = shape.rows

    @cuda.jit(device=True, forceinline=True)
    def work(sizes, batches, turn):
        blocks, block, heads = cint(cuda.gridDim.x), cint(cuda.blockIdx.x), sizes.kv_heads
        if sizes.causal != 0 and turn & 1 != 0:
            block = blocks - 1 - block
        number = turn * blocks + block
        tile, head = number % sizes.tiles, number // sizes.tiles
        end = sizes.seq_k
        if sizes.causal != 0:
            tile, head = sizes.tiles - 1 - number // (heads * batches), number % (heads * batches)
            end = min(end, sizes.q_offset + min(tile * rows + rows, sizes.seq_q))
        return number < sizes.tiles * heads * batches, head // heads, head % heads, tile, end

    return work


def begin_query_barriers(shape: PersistentShape) -> Any:
    """begin(shared), by one thread: initialise the barriers behind `queries_full` of the first tile of queries.

    They are: full of the second, empty of the first and of the second, and full of the one that the consumers stage.
    """
    at = pipeline_of(shape).queries_full
    counts = STAGERS, 8, 8, shape.threads

    @cuda.jit(device=True, forceinline=True)
    def begin(shared):
        for number in range(4):
            atoms.init_barrier(shared, at + 2 + 2 * number, counts[number])

    return begin


def stage_queries(shape: PersistentShape, threads: int) -> Any:
    """stage(shared, t, index, tensors, sizes, rotation, batch, head, tile): rotated queries of a tile to shared memory.

    Each of `threads` copies and rotates chunks of its own; the tile begins at float `index`. Rows behind the last are
    zeros.
    """
    # tile
    at = pipeline_of(shape)
    rows, hdim, element, vector = shape.rows, shape.hdim, shape.element, shape.element.vector
    chunks, step, rotates = shape.row_chunks, shape.row_step, shape.rotates
    few = shape.embedding not in ("none", "alibi", "rates")  # where more at a time would spill
    count = min(rows // step, (2 if hdim <= 128 else 1) if few else ROW_STEPS)
    part_rows = count * step
    apart = threads // chunks  # from the rows of a thread to its next ones
    # loads
    columns_of = columns(shape, 1, 0, shape.half_split)
    load_rates = begin(shape, 1)
    pairs = pairs_of(shape, 1)

    def address(b: Any, base: Any, row: Any, chunk: Any) -> Any:
        return chunk_address(b, base + (row >> 6) * (4 * at.group), row & 63, chunk, atoms.GROUP_ROWS)

    @register_op(types.void)
    def copy_rows(b, shared, index, pointer, first, end, pitch, columns, row, chunk):
        base, pitch, size = b.at_float(shared, index), b.zext(pitch, I64) * element.size, BYTES // len(columns)
        for number in range(count):
            of = row + step * number
            target, query = address(b, base, of, chunk), first + of
            inside = query < end
            source = pointer + b.zext(b.select(inside, query, i32(0)), I64) * pitch
            used = b.select(inside, i32(size), i32(0))
            for i, column in enumerate(columns):
                copy_async(b, target, size * i, source + b.zext(column, I64), used, size)

    @register_op(types.void)
    def rotate_rows(b, shared, index, state, rotation, batch, first, last, row, chunk):
        base = b.at_float(shared, index)
        angles = cos_sins(shape, b, state, rotation, (batch, first + row, last, chunk, 1), step)
        for number in range(count):
            where = address(b, base, row + step * number, chunk)
            x = rotate(b, element.floats(b, b.load_words("ld.shared", where, 4)), next(angles), pairs)
            b.store_words("st.shared", where, element.words(b, x))

    @cuda.jit(device=True, forceinline=True)
    def stage(shared, t, index, tensors, sizes, rotation, batch, head, tile):
        chunk, first, end, start = t % chunks, tile * rows, sizes.seq_q, t // chunks
        if chunk * vector < hdim:
            q_gmem = advance(advance(tensors.q, uint64(batch) * tensors.q_batch), uint64(head) * tensors.q_head)
            here = columns_of(chunk, rotation.rotary_dim)
            while start < step:
                row = start
                while row < rows:
                    copy_rows(shared, index, q_gmem, first, end, tensors.q_row, here, row, chunk)
                    row += part_rows
                start += apart
            wait_copies()
            if rotates:
                rates, start, last = load_rates(rotation, chunk), t // chunks, sizes.q_offset + sizes.seq_q - 1
                while start < step:
                    row = start
                    while row < rows:
                        rotate_rows(shared, index, rates, rotation, batch, sizes.q_offset + first, last, row, chunk)
                        row += part_rows
                    start += apart

    return stage


@register_op(CINT)
def first_lanes(b, x):
    """The value of a warp's first lane, of which ptxas knows that the warp shares it: so descriptors are uniform."""
    return b.ptx("shfl.sync.idx.b32 $0, $1, 0, 31, -1;", "=r,r", I32, [x])


@register_op(types.void)
def wait_copies(b):
    """Wait for all of this thread's cp.async."""
    b.ptx("cp.async.wait_all;", "~{memory}", VOID, [])


def tile_step(shape: PersistentShape, masked: bool, first: bool = False) -> Any:
    """step(shared, q_smem, stage, parity, number, lane, seen, sizes, row_max, row_sum, acc, p) -> the state behind it.

    Starts the scores of tile `number` of keys and the weighted sum of the tile before, whose values are in `stage`. The
    state is (stage, parity, row_max, row_sum, acc, p). With `first` these are the first keys of other queries: the
    weighted sum is the last of those before, and is not rescaled.
    """
    at, lane_scores, lane_outputs = pipeline_of(shape), shape.tile_keys // 2, shape.hdim // 2
    tile_keys, alibi = shape.tile_keys, shape.embedding == "alibi"
    following = next_stage(shape)
    wait = atoms.wait_barrier
    start_qk_and_pv = atoms.start_both(shape)
    wait_scores = atoms.wait(lane_scores, 1)
    wait_outputs = atoms.wait(lane_outputs, 0)
    by_rows = atoms.by_rows(lane_scores)
    mask = mask_tile(shape, tile_keys)
    new_max = update_row_max(lane_scores // 2)
    weigh = softmax(lane_scores // 2)
    rescale_acc = rescale_rows(lane_outputs)
    pack_p = atoms.pack(shape)

    @cuda.jit(device=True, forceinline=True)
    def step(shared, q_smem, stage, parity, number, lane, seen, sizes, row_max, row_sum, acc_rmem, p_rmem):
        after, parity_after = following(stage, parity)
        wait(shared, at.values_full + 2 * stage, parity)
        wait(shared, at.keys_full + 2 * after, parity_after)
        k_smem, v_smem = at.keys + after * at.tile, at.values + stage * at.tile
        scores, acc_rmem = start_qk_and_pv(shared, q_smem, k_smem, p_rmem, acc_rmem, v_smem)
        scores = wait_scores(scores)
        release(shared, at.keys_empty + 2 * after, lane)
        scores, scale = by_rows(scores), sizes.scale
        if masked:
            scores = mask(scores, number * tile_keys, lane, seen, scale)
        if alibi:  # the bias is one of scaled scores
            scale = float32(1.0)
        old_max = row_max
        row_max = new_max(scores, old_max, scale)
        if first:
            old_max = row_max
        p, row_sum, rescale = weigh(scores, old_max, row_max, row_sum, scale)
        acc_rmem = wait_outputs(acc_rmem)
        release(shared, at.values_empty + 2 * stage, lane)
        p_rmem = pack_p(p)
        if not first:
            acc_rmem = rescale_acc(acc_rmem, rescale)
        return after, parity_after, row_max, row_sum, acc_rmem, p_rmem

    return step


@functools.cache
def persistent_kernel(shape: PersistentShape) -> Kernel:
    """The kernel of a shape; any number of blocks shares the tiles. Its last arguments are tensor maps, and `batches`.

    In the first warpgroup thread 0 copies keys and values, and warps 1 to 3 stage queries. The other two have 64 rows
    each.
    """
    # tile
    at = pipeline_of(shape)
    rows = shape.rows
    tile_keys = shape.tile_keys
    work = work_of(shape)
    bounds = bounds_of(shape)
    # loads
    init_barriers = begin_barriers(shape, 8, STAGERS)
    init_more_barriers = begin_query_barriers(shape)
    fill_stage = producer(shape)
    following = next_stage(shape)
    stage_q = stage_queries(shape, STAGERS)
    stage_first_q = stage_queries(shape, shape.threads)
    q_full, q_empty, q_first = (at.queries_full + 4 * i for i in range(3))  # of the first of two tiles of queries
    q_tile = 2 * at.group
    wait, arrive, open_map = atoms.wait_barrier, atoms.arrive, atoms.open_map
    producer_waits = shape.overlap and shape.rotates  # for the launch that rotates keys
    all_wait = shape.overlap and not shape.rotates
    fewer_registers = atoms.set_registers("dec", REGISTERS[0])
    more_registers = atoms.set_registers("inc", REGISTERS[1])
    # products: fragments of a lane, float32[lane_scores] and float32[lane_outputs] for its rows g and g + 8
    lane_scores = tile_keys // 2
    lane_outputs = shape.hdim // 2
    start_qk = atoms.start_scores(shape)
    start_pv = atoms.start_sums(shape)
    wait_scores = atoms.wait(lane_scores, 0)
    wait_outputs = atoms.wait(lane_outputs, 0)
    by_rows = atoms.by_rows(lane_scores)
    pack_p = atoms.pack(shape)
    masked_step = tile_step(shape, True)
    step = tile_step(shape, False)
    first_step = tile_step(shape, True, True)
    # softmax
    mask = mask_tile(shape, tile_keys)
    new_max = update_row_max(lane_scores // 2)
    weigh = softmax(lane_scores // 2)
    sum_over_quad = lane_sum(2, QUAD)
    alibi = shape.embedding == "alibi"
    # initial values, and the store
    zero_acc = constant(lane_outputs, 0.0)
    lowest = constant(2, NO_KEY)
    zero = constant(2, 0.0)
    write = rows_written(shape, store_row)

    def kernel(tensors, of, rotation, workspace, k_map, v_map, batches):
        # prologue
        shared = cuda.shared.array(0, float32, 1024)
        tid, sizes, turn = cint(cuda.threadIdx.x), by_query_head(of), cint(0)
        if tid == 0:
            init_more_barriers(shared)
            init_barriers(shared)
        if all_wait:
            wait_for_launch()
        cuda.syncthreads()
        found, batch, head, tile, end = work(sizes, batches, turn)
        stage, parity, number = cint(0), cint(0), (end + tile_keys - 1) // tile_keys - 1
        if tid < 128:
            fewer_registers()
            parity = cint(1)  # of the phase before the first
            if tid == 0:
                # producer: keys, values
                open_map(k_map)
                open_map(v_map)
                if producer_waits:
                    wait_for_launch()
                while found:
                    while number >= 0:
                        fill_stage(shared, stage, parity, k_map, v_map, number, head // of.group, batch)
                        stage, parity = following(stage, parity)
                        number -= 1
                    turn += 1
                    found, batch, head, tile, end = work(sizes, batches, turn)
                    number = (end + tile_keys - 1) // tile_keys - 1
            elif tid >= 32:
                # producers: queries, from the second tile on
                turn += 1
                found, batch, head, tile, end = work(sizes, batches, turn)
                while found:
                    odd = turn & 1
                    wait(shared, q_empty + 2 * odd, (turn >> 1) + 1 & 1)
                    stage_q(shared, tid - 32, at.query + odd * q_tile, tensors, sizes, rotation, batch, head, tile)
                    fence_products()
                    arrive(shared, q_full + 2 * odd)
                    turn += 1
                    found, batch, head, tile, end = work(sizes, batches, turn)
        else:
            # consumers
            more_registers()
            lane, group, scale = tid & 31, first_lanes(tid >> 7) - 1, sizes.scale
            if alibi:  # the bias is one of scaled scores
                scale = float32(1.0)
            of_group, of_lane = group * 64, ((tid >> 5) & 3) * 16 + (lane >> 2)
            # first tile of keys of the first queries: scores, softmax
            q_smem, first = at.query + group * at.group, tile * rows + of_group
            seen = bounds(first + of_lane, end, sizes.q_offset, batch, head, sizes, rotation)
            stage_first_q(shared, tid - 128, at.query, tensors, sizes, rotation, batch, head, tile)
            fence_products()
            arrive(shared, q_first)
            wait(shared, q_first, 0)
            wait(shared, at.keys_full, 0)
            scores = wait_scores(start_qk(shared, q_smem, at.keys))
            release(shared, at.keys_empty, lane)
            scores = mask(by_rows(scores), number * tile_keys, lane, seen, sizes.scale)
            row_max = new_max(scores, lowest(), scale)
            p, row_sum, _ = weigh(scores, row_max, row_max, zero(), scale)
            p_rmem, acc_rmem = pack_p(p), zero_acc()
            while found:
                # main loop: scores of a tile of keys, the weighted sum of the tile before
                all_see = end
                if sizes.causal != 0:
                    all_see = min(end, sizes.q_offset + tile * rows + 1)
                masked_from = all_see // tile_keys
                if alibi:
                    masked_from = cint(0)
                number -= 1
                while number >= masked_from:
                    stage, parity, row_max, row_sum, acc_rmem, p_rmem = masked_step(
                        shared, q_smem, stage, parity, number, lane, seen, sizes, row_max, row_sum, acc_rmem, p_rmem
                    )
                    number -= 1
                while number >= 0:
                    stage, parity, row_max, row_sum, acc_rmem, p_rmem = step(
                        shared, q_smem, stage, parity, number, lane, seen, sizes, row_max, row_sum, acc_rmem, p_rmem
                    )
                    number -= 1
                # epilogue: the last weighted sum, divided by the row sums, and the first scores of the next queries
                odd = turn & 1
                release(shared, q_empty + 2 * odd, lane)
                totals, out_batch, out_head, out_row = sum_over_quad(row_sum), batch, head, first + of_lane
                turn += 1
                found, batch, head, tile, end = work(sizes, batches, turn)
                if found:
                    odd ^= 1
                    wait(shared, q_full + 2 * odd, (turn - 1 >> 1) & 1)
                    q_smem, first = at.query + odd * q_tile + group * at.group, tile * rows + of_group
                    number = (end + tile_keys - 1) // tile_keys - 1
                    seen = bounds(first + of_lane, end, sizes.q_offset, batch, head, sizes, rotation)
                    stage, parity, row_max, row_sum, acc_rmem, p_rmem = first_step(
                        shared, q_smem, stage, parity, number, lane, seen, sizes, lowest(), zero(), acc_rmem, p_rmem
                    )
                else:
                    wait(shared, at.values_full + 2 * stage, parity)
                    acc_rmem = wait_outputs(start_pv(shared, p_rmem, acc_rmem, at.values + stage * at.tile))
                write(tensors, sizes, out_batch, out_head, out_row, lane, acc_rmem, totals)
                acc_rmem = zero_acc()

    kernel.__name__ = kernel.__qualname__ = shape.name
    signature = (*types_of(shape.element), INTS, INTS, CINT)
    return Kernel(kernel, signature, THREADS, min_blocks=1, architecture="sm_90a")
