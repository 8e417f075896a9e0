"""Chunks of queries against many keys in float32 on tensor cores, with RoPE on the read of raw keys.

A block takes a split of the keys for a tile of query rows (`schedule`). A tile of keys: wait for its copy, rotate it in
shared memory, ask for the next one, scores, online softmax, weighted sum. Then the warps' results become one partial
result (`epilogue`), and the splits' the output (`combine`).
"""

import contextlib
import functools
from typing import Any

from numba import cuda, float32, types, uint64

from ...device.asm import cp_async_wait_all
from ...device.cint import cint
from ...device.vector import advance
from ...version import Kernel
from ..args import types_of
from ..atoms import tf32
from ..atoms.tile import scaled_rows
from ..embed import begin, pairs_of, rotate, rotate_row, turns
from ..epilogue import finish, store_statistics
from ..loads import columns, copy_async
from ..mask import bounds_of, key_offsets, mask
from ..schedule import block_of, query_of
from ..softmax import NO_KEY, QUAD, lane_sum, update
from ..tiles import BYTES, I64, constant, i32, launch_dependents, op
from .shape import FRAGMENT_ROWS, ChunkShape

SEEDED_KEYS = 8  # of a thread from one exact seed to the next, as `embed` promises


def _copy(b: Any, target: Any, offset: int, row: Any, pieces: list[Any], inside: Any) -> None:
    """Start to copy 16 bytes of a row, in one piece or two; zeros where the row is not `inside`."""
    size = BYTES // len(pieces)
    used = b.select(inside, i32(size), i32(0))
    for number, piece in enumerate(pieces):
        copy_async(b, target, offset + size * number, row + b.zext(piece, I64), used, size)


def _inside(b: Any, row: Any, offset: int, rows: int, step: int) -> Any:
    """A block for a thread's row `offset` rows on, where a tile has so many `rows`: not all threads may have one."""
    whole = offset + step <= rows
    return contextlib.nullcontext() if whole else b.if_then(row < rows - offset)


@op(lambda shape, pitch: types.void)
def copy_tile(b, shape, pitch, shared, index, pointer, first, last, row_pitch, columns, row, chunk):
    """Copy a thread's chunks of a tile of keys.

    Rows first + row, and every row_step-th, to rows `pitch` floats apart from float `index` on; zeros behind `last`.
    """
    step, rows = shape.row_step, shape.batch
    target = b.at_float(shared, index + (row * pitch + (chunk << 2)))
    wide = b.zext(row_pitch << 2, I64)
    for offset in range(0, rows, step):
        with _inside(b, row, offset, rows, step):
            place = first + (row + offset)
            source = pointer + b.zext(place, I64) * wide
            _copy(b, target, 4 * pitch * offset, source, columns, place <= last)


@op(lambda shape: types.void)
def rotate_tile(b, shape, shared, index, state, rotation, batch, first, last, row, chunk):
    """Rotate a thread's chunks of a tile, in place."""
    step, rows, pitch, pairs = shape.row_step, shape.batch, shape.key_pitch, pairs_of(shape, 1)
    address = b.at_float(shared, index + (row * pitch + (chunk << 2)))
    for number, offset in enumerate(range(0, rows, step)):
        if number % SEEDED_KEYS == 0:
            place = first + (row + offset)
            turned = turns(shape, b, state, rotation, (batch, place, last, chunk, 1), step)
        by, at = next(turned), 4 * pitch * offset
        with _inside(b, row, offset, rows, step):
            b.store_floats(address, rotate(b, b.load_floats(address, 4, at), by, pairs), at)


def stage_queries(shape: ChunkShape) -> tuple[Any, Any]:
    """The tile of queries, by two functions: rows behind the last are the last again.

    copy(shared, tensors, sizes, batch, head, tile, columns, row, chunk), with cp.async
    embed(shared, sizes, rotation, state, batch, tile, first_query, row, chunk): rotated and scaled, in place
    """
    rows, step, pitch, at = shape.rows, shape.row_step, shape.key_pitch, shape.query_at

    @op(types.void)
    def copy_row(b, shared, pointer, columns, row, chunk):
        target = b.at_float(shared, row * pitch + (chunk << 2))
        _copy(b, target, 4 * at, pointer, columns, row == row)

    @op(types.void)
    def embed_row(b, shared, state, rotation, batch, place, scale, row, chunk):
        address = b.at_float(shared, row * pitch + (chunk << 2))
        x = rotate_row(shape, b, b.load_floats(address, 4, 4 * at), state, rotation, batch, place, chunk)
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
    """The kernel of a shape, one object for each."""
    rows, row_warps, warp_keys, step = shape.rows, shape.row_warps, shape.warp_keys, shape.row_step
    chunks, tile_keys, rotates = shape.row_chunks, shape.batch, shape.rotates
    key_pitch, value_pitch, row_pitch = shape.key_pitch, shape.value_pitch, shape.row_pitch
    values_at, query_at, fragment = shape.values_at, shape.query_at, FRAGMENT_ROWS
    key_tile, value_tile = tile_keys * key_pitch, tile_keys * value_pitch
    copy_keys, copy_values, turn = copy_tile(shape, key_pitch), copy_tile(shape, value_pitch), rotate_tile(shape)
    copy_queries, embed_queries = stage_queries(shape)
    key_places, value_places = columns(shape, 1, 0, shape.half_split), columns(shape, 1, 0, False)
    state_of, keys = begin(shape, 1), key_offsets(warp_keys)
    dots, add, store_sums = tf32.scores(shape), tf32.accumulate(shape), tf32.store_sums(shape)
    size = shape.hdim // 2
    zero_acc, fresh, zero = constant(size, 0.0), constant(2, NO_KEY), constant(2, 0.0)
    softmax = update(2, len(keys), QUAD, size, scaled_rows)
    block, bounds, seen, done = block_of(shape), bounds_of(shape), mask(shape, 2, keys), finish(shape)
    sum_rows, statistics, overlap = lane_sum(2, QUAD), store_statistics(shape), shape.overlap
    max_at, sum_at = shape.layout["row_max"], shape.layout["row_sum"]

    def kernel(tensors, sizes, rotation, workspace):
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            launch_dependents()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        row_warp, key_warp = warp % row_warps, warp // row_warps
        batch, head, tile, start, end, first_query = block(sizes)
        row = tid // chunks
        chunk = tid - row * chunks
        copies = row < step
        k = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        key_at, value_at = key_places(chunk, rotation.rotary_dim), value_places(chunk, 0)
        base, k_tile, v_tile = start, cint(0), cint(values_at)
        if copies:
            copy_queries(shared, tensors, sizes, batch, head, tile, key_at, row, chunk)
            if base < end:
                copy_keys(shared, k_tile, k, base, end - 1, tensors.k_row, key_at, row, chunk)
                copy_values(shared, v_tile, v, base, end - 1, tensors.v_row, value_at, row, chunk)
        cp_async_wait_all()
        if copies:
            embed_queries(shared, sizes, rotation, state_of(rotation, chunk), batch, tile, first_query, row, chunk)
        of_tile = tile * rows + row_warp * fragment + (lane >> 2)
        both = bounds(of_tile, end, first_query, batch, head, sizes, rotation)
        first_key, first_row = key_warp * warp_keys, row_warp * fragment
        acc, row_max, row_sum = zero_acc(), fresh(), zero()
        while base < end:
            after = base + tile_keys
            cp_async_wait_all()
            if rotates and copies:
                state = state_of(rotation, chunk)  # here, as registers are full over the loop
                turn(shared, k_tile, state, rotation, batch, base, end - 1, row, chunk)
            cuda.syncthreads()
            next_k, next_v = key_tile - k_tile, values_at + value_tile - (v_tile - values_at)
            if copies and after < end:
                copy_keys(shared, next_k, k, after, end - 1, tensors.k_row, key_at, row, chunk)
                copy_values(shared, next_v, v, after, end - 1, tensors.v_row, value_at, row, chunk)
            scores = dots(shared, query_at + first_row * key_pitch, k_tile + first_key * key_pitch, lane)
            scores = seen(scores, base + first_key + 2 * (lane & 3), both)
            p, row_max, row_sum, acc = softmax(scores, row_max, row_sum, acc, lane)
            acc = add(shared, v_tile + first_key * value_pitch, lane, acc, p)
            k_tile, v_tile = next_k, next_v
            base = after
        cuda.syncthreads()
        place = key_warp * rows + first_row
        store_sums(shared, place * row_pitch, lane, acc)
        row_sum = sum_rows(row_sum)
        if lane & 3 == 0:
            statistics(shared, max_at + place, lane >> 2, row_max)
            statistics(shared, sum_at + place, lane >> 2, row_sum)
        done(shared, tid, tensors, sizes, workspace, (batch, head, tile), cint(cuda.blockIdx.x))

    kernel.__name__ = kernel.__qualname__ = shape.name
    return Kernel(kernel, types_of(shape.element), shape.threads, min_blocks=shape.blocks)
