"""Chunks of queries against many keys in float32 on tensor cores, with RoPE on the read of raw keys.

A block takes a split of the keys for a tile of query rows (`schedule`). A tile of keys: wait for its copy, rotate it in
shared memory, copy the next one, scores, online softmax, weighted sum. Then the warps' results become one partial
result (`epilogue`), and the splits' the output (`combine`).
"""

import contextlib
import functools
from typing import Any

from numba import cuda, float32, types, uint64

from ...device import advance, cint, cp_async_wait_all
from ...version import Kernel
from ..args import types_of
from ..atoms import tf32
from ..atoms.tile import scaled_rows
from ..embed import begin, cos_sins, pairs_of, rotate, rotate_row
from ..epilogue import finish, store_statistics
from ..loads import columns, copy_async
from ..mask import bounds_of, key_offsets, mask
from ..schedule import block_of, query_of
from ..softmax import NO_KEY, QUAD, lane_sum, online_softmax
from ..tiles import BYTES, I64, constant, i32, launch_dependents, register_op
from .shape import FRAGMENT_ROWS, ChunkShape

SEEDED_KEYS = 8  # of a thread from one exact seed to the next, as `embed` promises


def _copy(b: Any, target: Any, offset: int, row: Any, pieces: list[Any], inside: Any) -> None:
    """Start to copy 16 bytes of a row, in one piece or two; zeros where the row is not `inside`."""
    size = BYTES // len(pieces)
    used = b.select(inside, i32(size), i32(0))
    for number, piece in enumerate(pieces):
        copy_async(b, target, offset + size * number, row + b.zext(piece, I64), used, size)


def _inside(b: Any, row: Any, offset: int, rows: int, step: int) -> Any:
    """A context for a thread's row `offset` rows further: a branch, unless all threads have such a row of the tile."""
    whole = offset + step <= rows
    return contextlib.nullcontext() if whole else b.if_then(row < rows - offset)


@register_op(types.void)
def copy_tile(b, shared, index, pointer, first, last, row_pitch, columns, row, chunk, *, shape, pitch):
    """Copy a thread's chunks of a tile of keys.

    Rows first + row, and every row_step-th, to rows `pitch` floats apart from float `index` on; zeros after `last`.
    """
    step, rows = shape.row_step, shape.batch
    target = b.at_float(shared, index + (row * pitch + (chunk << 2)))
    wide = b.zext(row_pitch << 2, I64)
    for offset in range(0, rows, step):
        with _inside(b, row, offset, rows, step):
            key = first + (row + offset)
            source = pointer + b.zext(key, I64) * wide
            _copy(b, target, 4 * pitch * offset, source, columns, key <= last)


@register_op(types.void)
def rotate_tile(b, shared, index, state, rotation, batch, first, last, row, chunk, *, shape):
    """Rotate a thread's chunks of a tile, in place."""
    step, rows, pitch, pairs = shape.row_step, shape.batch, shape.key_pitch, pairs_of(shape, 1)
    address = b.at_float(shared, index + (row * pitch + (chunk << 2)))
    for number, offset in enumerate(range(0, rows, step)):
        if number % SEEDED_KEYS == 0:
            key = first + (row + offset)
            angles = cos_sins(shape, b, state, rotation, (batch, key, last, chunk, 1), step)
        by, at = next(angles), 4 * pitch * offset
        with _inside(b, row, offset, rows, step):
            b.store_floats(address, rotate(b, b.load_floats(address, 4, at), by, pairs), at)


def stage_queries(shape: ChunkShape) -> tuple[Any, Any]:
    """(copy, embed) of the tile of queries; after the last row come copies of it.

    copy(shared, tensors, sizes, batch, head, tile, columns, row, chunk), with cp.async
    embed(shared, sizes, rotation, state, batch, tile, first_query, row, chunk): rotated and scaled, in place
    """
    rows, step, pitch, at = shape.rows, shape.row_step, shape.key_pitch, shape.query_at

    @register_op(types.void)
    def copy_row(b, shared, pointer, columns, row, chunk):
        target = b.at_float(shared, row * pitch + (chunk << 2))
        _copy(b, target, 4 * at, pointer, columns, row == row)

    @register_op(types.void)
    def embed_row(b, shared, state, rotation, batch, index, scale, row, chunk):
        address = b.at_float(shared, row * pitch + (chunk << 2))
        x = rotate_row(shape, b, b.load_floats(address, 4, 4 * at), state, rotation, batch, index, chunk)
        b.store_floats(address, [value * scale for value in x], 4 * at)

    @cuda.jit(device=True, forceinline=True)
    def copy(shared, tensors, sizes, batch, head, tile, columns, row, chunk):
        of_batch = advance(tensors.q, uint64(batch) * tensors.q_batch)
        while row < rows:
            of_group, query = query_of(min(tile * rows + row, sizes.group * sizes.seq_q - 1), sizes)
            q = advance(of_batch, uint64(head * sizes.group + of_group) * tensors.q_head)
            copy_row(shared, advance(q, uint64(query) * uint64(tensors.q_row)), columns, row, chunk)
            row += step

    @cuda.jit(device=True, forceinline=True)
    def embed(shared, sizes, rotation, state, batch, tile, first_query, row, chunk):
        while row < rows:
            _, query = query_of(min(tile * rows + row, sizes.group * sizes.seq_q - 1), sizes)
            embed_row(shared, state, rotation, batch, first_query + query, sizes.scale, row, chunk)
            row += step

    return copy, embed


@functools.cache
def chunk_kernel(shape: ChunkShape) -> Kernel:
    """The kernel of a shape, one object for each; its grid is that of `schedule`."""
    # tile
    rows = shape.rows
    tile_keys = shape.batch
    row_warps = shape.row_warps
    warp_keys = shape.warp_keys
    block = block_of(shape)
    bounds = bounds_of(shape)
    overlap = shape.overlap
    # shared memory, in floats: two tiles of K from 0 on, two of V, Q; outputs from 0 on at the end
    key_pitch, value_pitch, row_pitch = shape.key_pitch, shape.value_pitch, shape.row_pitch
    key_tile = tile_keys * key_pitch
    value_tile = tile_keys * value_pitch
    v_tiles = shape.values_at
    q_smem = shape.query_at
    row_max_smem = shape.layout["row_max"]
    row_sum_smem = shape.layout["row_sum"]
    # loads
    row_chunks = shape.row_chunks
    row_step = shape.row_step
    copy_k = copy_tile(shape, key_pitch)
    copy_v = copy_tile(shape, value_pitch)
    copy_q, embed_q = stage_queries(shape)
    k_columns_of = columns(shape, 1, 0, shape.half_split)
    v_columns_of = columns(shape, 1, 0, False)
    load_rates = begin(shape, 1)
    rotates = shape.rotates
    rotate_k = rotate_tile(shape)
    # products: fragments of a lane, its rows g and g + 8
    multiply_qk = tf32.scores(shape)
    add_pv = tf32.accumulate(shape)
    # softmax
    lane_keys = key_offsets(warp_keys)
    lane_outputs = shape.hdim // 2
    masked = mask(shape, 2, lane_keys)
    softmax = online_softmax(2, len(lane_keys), QUAD, lane_outputs, scaled_rows)
    sum_over_quad = lane_sum(2, QUAD)
    # initial values, and the store
    zero_acc = constant(lane_outputs, 0.0)
    lowest = constant(2, NO_KEY)
    zero = constant(2, 0.0)
    store_acc = tf32.store_sums(shape)
    store_row_values = store_statistics(shape)
    merge = finish(shape)

    def kernel(tensors, sizes, rotation, workspace):
        # prologue: copies of Q and the first tiles
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            launch_dependents()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        row_warp, key_warp = warp % row_warps, warp // row_warps
        batch, head, tile, start, end, first_query = block(sizes)
        row = tid // row_chunks
        chunk = tid - row * row_chunks
        copies = row < row_step
        # [seq_k, hdim] of the sequence and KV head, rows k_row and v_row elements apart
        k_gmem = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v_gmem = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        k_columns, v_columns = k_columns_of(chunk, rotation.rotary_dim), v_columns_of(chunk, 0)
        base, k_smem, v_smem = start, cint(0), cint(v_tiles)
        if copies:
            copy_q(shared, tensors, sizes, batch, head, tile, k_columns, row, chunk)
            if base < end:
                copy_k(shared, k_smem, k_gmem, base, end - 1, tensors.k_row, k_columns, row, chunk)
                copy_v(shared, v_smem, v_gmem, base, end - 1, tensors.v_row, v_columns, row, chunk)
        cp_async_wait_all()
        if copies:
            embed_q(shared, sizes, rotation, load_rates(rotation, chunk), batch, tile, first_query, row, chunk)
        head_row = tile * rows + row_warp * FRAGMENT_ROWS + (lane >> 2)
        seen = bounds(head_row, end, first_query, batch, head, sizes, rotation)
        first_key, first_row = key_warp * warp_keys, row_warp * FRAGMENT_ROWS
        acc_rmem, row_max, row_sum = zero_acc(), lowest(), zero()
        # main loop
        while base < end:
            # load
            after = base + tile_keys
            cp_async_wait_all()
            if rotates and copies:
                rates = load_rates(rotation, chunk)  # here, as registers are full over the loop
                rotate_k(shared, k_smem, rates, rotation, batch, base, end - 1, row, chunk)
            cuda.syncthreads()
            next_k, next_v = key_tile - k_smem, v_tiles + value_tile - (v_smem - v_tiles)
            if copies and after < end:
                copy_k(shared, next_k, k_gmem, after, end - 1, tensors.k_row, k_columns, row, chunk)
                copy_v(shared, next_v, v_gmem, after, end - 1, tensors.v_row, v_columns, row, chunk)
            # score
            scores = multiply_qk(shared, q_smem + first_row * key_pitch, k_smem + first_key * key_pitch, lane)
            scores = masked(scores, base + first_key + 2 * (lane & 3), seen)
            # softmax
            p, row_max, row_sum, acc_rmem = softmax(scores, row_max, row_sum, acc_rmem, lane)
            # weigh
            acc_rmem = add_pv(shared, v_smem + first_key * value_pitch, lane, acc_rmem, p)
            k_smem, v_smem = next_k, next_v
            base = after
        # epilogue: partial results of all warps to shared memory, their sum to the output or to the workspace
        cuda.syncthreads()
        part_row = key_warp * rows + first_row
        store_acc(shared, part_row * row_pitch, lane, acc_rmem)
        row_sum = sum_over_quad(row_sum)
        if lane & 3 == 0:
            store_row_values(shared, row_max_smem + part_row, lane >> 2, row_max)
            store_row_values(shared, row_sum_smem + part_row, lane >> 2, row_sum)
        merge(shared, tid, tensors, sizes, workspace, (batch, head, tile), cint(cuda.blockIdx.x))

    kernel.__name__ = kernel.__qualname__ = shape.name
    return Kernel(kernel, types_of(shape.element), shape.threads, min_blocks=shape.blocks)
