"""Decode: attention of a few queries over a long cache of keys, with RoPE on the read of raw keys.

A block takes a split of the keys for a tile of query rows (`schedule`); its warps take batches of them in turn. A
batch: load keys and values, rotate the keys (`embed`), scores, online softmax, weighted sum. Then the warps' results
become one partial result (`epilogue`), and the splits' the output (`combine`).
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float32, types, uint64

from ..device.cint import cint
from ..device.vector import advance
from ..version import Kernel
from . import atoms_fma, atoms_mma
from .args import types_of
from .embed import begin, pairs_of, rotate, state_size, turns
from .epilogue import finish
from .loads import columns, load_rows
from .mask import bounds_of, mask
from .schedule import WARP, DecodeShape, block_of, query_of
from .softmax import NO_KEY, lane_sum, masks_of, reduce_scatter, update
from .tiles import (
    as_words,
    constant,
    floats,
    i32,
    launch_dependents,
    load_shared,
    op,
    store_shared,
    store_words,
    zero_words,
)


def prologue(shape: DecodeShape, store: Any) -> Any:
    """stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query): rotated and scaled queries.

    store(shared, row, chunk, values) takes a chunk of 16 bytes; rows behind the last are 0.
    """
    vector, row_chunks, hdim, threads = shape.element.vector, shape.row_chunks, shape.hdim, shape.threads
    staged = 8 * shape.sets if shape.atoms == "mma" else shape.rows
    places = columns(shape, 1, 0, shape.half_split)
    load = load_rows((0,), 1, 1 + shape.half_split, shape.element.size, "ld.global")
    begun, zero, pairs, rows = begin(shape, 1, 1), constant(vector, 0.0), pairs_of(shape, 1), shape.rows

    @op(floats(vector))
    def embed(b, words, state, rotation, batch, place, chunk, scale):
        x = shape.element.floats(b, words)
        if shape.rotates:
            x = rotate(b, x, next(turns(shape, b, state, rotation, (batch, place, place, chunk, 1), 1)), pairs)
        return [b.fmul(value, scale) for value in x]

    @cuda.jit(device=True, forceinline=True)
    def stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query):
        item = tid
        while item < staged * row_chunks:
            row = item // row_chunks
            chunk = item - row * row_chunks
            of_tile = tile * rows + row
            x = zero()
            if row < rows and of_tile < sizes.group * sizes.seq_q and chunk * vector < hdim:
                of_group, query = query_of(of_tile, sizes)
                q = advance(tensors.q, uint64(batch) * tensors.q_batch)
                q = advance(q, uint64(head * sizes.group + of_group) * tensors.q_head)
                words = load(q, query, query, tensors.q_row, places(chunk, rotation.rotary_dim))
                state = begun(rotation, chunk)
                x = embed(words, state, rotation, batch, first_query + query, chunk, sizes.scale)
            store(shared, row, chunk, x)
            item += threads

    return stage


def fma_kernel(shape: DecodeShape) -> Any:
    """The decode kernel on FMA units."""
    at, chunks, lanes, abreast, rows = shape.layout, shape.chunks, shape.lanes, shape.keys_abreast, shape.rows
    dims, vector, warps, batch_keys = shape.dims, shape.element.vector, shape.warps, shape.batch
    batch_rows = shape.batch_rows
    held = batch_rows * rows  # scores of a key group's lanes, at most one a lane
    shift, row_bits, key_bits = (lanes // held).bit_length() - 1, rows.bit_length() - 1, WARP.bit_length() - 1
    offsets, pieces, size = tuple(abreast * i for i in range(batch_rows)), 1 + shape.half_split, shape.element.size
    load_k, load_v = load_rows(offsets, chunks, pieces, size), load_rows(offsets, chunks, 1, size)
    key_places, value_places = columns(shape, chunks, lanes, shape.half_split), columns(shape, chunks, lanes, False)
    state_of, block, done = begin(shape, chunks, abreast), block_of(shape), finish(shape)
    dots, scatter, seen = atoms_fma.scores(shape), reduce_scatter(held, lanes), mask(shape, 1, (0,))
    masks = masks_of(shift + row_bits, key_bits)
    softmax, bounds = update(1, 1, masks, atoms_fma.rescale(shape, shift)), bounds_of(shape)
    weigh, weights_of, queries_of = atoms_fma.accumulate(shape), load_shared(held), atoms_fma.load_queries(shape)
    held_acc, slots = rows * shape.elements, masks_of(lanes.bit_length() - 1, key_bits)
    sum_rows, sum_lanes, none = lane_sum(1, masks), lane_sum(held_acc, slots), zero_words(4 * chunks * batch_rows)
    zero_acc, fresh, zero = constant(held_acc, 0.0), constant(1, NO_KEY), constant(1, 0.0)
    stage_row, store_chunk, overlap = store_shared(vector), atoms_fma.store_sums(shape), shape.overlap
    ahead, middle, at_end = shape.ahead != "never", shape.ahead == "middle", shape.ahead == "end"
    query, sums, weights_at = at["query"], at["sums"], at["weights"]
    row_max_at, row_sum_at = at["row_max"], at["row_sum"]

    @cuda.jit(device=True, forceinline=True)
    def store_query(shared, row, chunk, x):
        stage_row(shared, query + row * dims + chunk * vector, x)

    stage = prologue(shape, store_query)

    def kernel(tensors, sizes, rotation, workspace):
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            launch_dependents()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        batch, head, tile, flat, start, end, first_query = block(sizes)
        slot, chunk = lane // lanes, lane & (lanes - 1)
        value = chunk >> shift
        row, number = value & (rows - 1), value >> row_bits
        k = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        key_at, value_at = key_places(chunk, rotation.rotary_dim), value_places(chunk, 0)
        base = start + warp * batch_keys
        k_words, v_words = none(), none()
        if ahead:
            if base < end:  # the first batch is asked for before the queries
                k_words = load_k(k, base + slot, end - 1, tensors.k_row, key_at)
                v_words = load_v(v, base + slot, end - 1, tensors.v_row, value_at)
        stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query)
        state = state_of(rotation, chunk)
        cuda.syncthreads()
        q = queries_of(shared, query + chunk * vector)
        bound = (bounds(tile * rows + row, end, first_query, batch, head, sizes, rotation),)
        acc, row_max, row_sum = zero_acc(), fresh(), zero()
        while base < end:
            after = base + warps * batch_keys
            if not ahead:
                k_words = load_k(k, base + slot, end - 1, tensors.k_row, key_at)
                v_words = load_v(v, base + slot, end - 1, tensors.v_row, value_at)
            parts = dots(k_words, q, state, rotation, batch, base + slot, end - 1, chunk)
            if middle:
                if after < end:
                    k_words = load_k(k, after + slot, end - 1, tensors.k_row, key_at)
            scores = seen(scatter(parts, lane), base + number * abreast + slot, bound)
            p, row_max, row_sum, acc = softmax(scores, row_max, row_sum, acc, lane)
            cuda.syncwarp()
            shared[weights_at + warp * 32 + slot * held + value] = p[0]
            cuda.syncwarp()
            acc = weigh(acc, v_words, weights_of(shared, weights_at + warp * 32 + slot * held))
            if ahead:
                if after < end:
                    if at_end:
                        k_words = load_k(k, after + slot, end - 1, tensors.k_row, key_at)
                    v_words = load_v(v, after + slot, end - 1, tensors.v_row, value_at)
            base = after
        acc, row_sum = sum_lanes(acc), sum_rows(row_sum)
        if slot == 0:
            store_chunk(shared, sums + warp * (rows * dims) + chunk * vector, acc)
            if number == 0:
                shared[row_max_at + warp * rows + row] = row_max[0]
                shared[row_sum_at + warp * rows + row] = row_sum[0]
        done(shared, tid, tensors, sizes, workspace, (batch, head, tile, flat), cint(cuda.blockIdx.x))

    return kernel


def mma_kernel(shape: DecodeShape) -> Any:
    """The decode kernel on tensor cores. Queries and the rotation's constants stay in shared memory: registers."""
    at, lanes, warps, sets, batch_keys = shape.layout, shape.lanes, shape.warps, shape.sets, shape.batch
    offsets, pieces, size = tuple(shape.keys_abreast * i for i in range(shape.batch_rows)), 1 + shape.half_split, 2
    halves, kept = shape.dims // 64, state_size(shape, 1)
    load_k, load_v = load_rows(offsets, 1, pieces, size), load_rows(atoms_mma.VALUE_ROWS, halves, 1, size)
    key_places, value_places = columns(shape, 1, lanes, shape.half_split), columns(shape, halves, 8, False)
    state_of, block, done = begin(shape, 1, shape.keys_abreast), block_of(shape), finish(shape)
    keep_state, kept_state = store_shared(kept), load_shared(kept)
    store_keys, dots, seen = (
        atoms_mma.store_keys(shape),
        atoms_mma.scores(shape),
        mask(shape, sets, atoms_mma.VALUE_ROWS),
    )
    softmax, bounds = update(sets, 4, (1, 2), atoms_mma.rescale(shape)), bounds_of(shape)
    weigh, sum_rows, sums_to = atoms_mma.accumulate(shape), lane_sum(sets, (1, 2)), atoms_mma.store_sums(shape)
    zero_acc, fresh, zero = constant(16 * halves * sets, 0.0), constant(sets, NO_KEY), constant(sets, 0.0)
    no_k, no_v, keep_query = zero_words(4 * shape.batch_rows), zero_words(16 * halves), atoms_mma.store_queries(shape)
    overlap, ahead = shape.overlap, shape.ahead != "never"
    middle, at_end = shape.ahead == "middle", shape.ahead == "end"
    query, sums, turns_at, row_max_at, row_sum_at = at["query"], at["sums"], at["turns"], at["row_max"], at["row_sum"]
    rows, pitch, tile_floats, statistics = shape.rows, shape.row_pitch, 8 * shape.dims, store_statistics(shape)

    @cuda.jit(device=True, forceinline=True)
    def store_query(shared, row, chunk, x):
        keep_query(shared, query, row, chunk, x)

    stage = prologue(shape, store_query)

    def kernel(tensors, sizes, rotation, workspace):
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            launch_dependents()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        batch, head, tile, flat, start, end, first_query = block(sizes)
        slot, chunk, g, m = lane // lanes, lane & (lanes - 1), lane >> 2, lane & 3
        k = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        key_at, value_at = key_places(chunk, rotation.rotary_dim), value_places(g, 0)
        base = start + warp * batch_keys
        k_words, v_words = no_k(), no_v()
        if ahead:
            if base < end:  # the first batch is asked for before the queries
                k_words = load_k(k, base + slot, end - 1, tensors.k_row, key_at)
                v_words = load_v(v, base + 2 * m, end - 1, tensors.v_row, value_at)
        stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query)
        if tid < lanes:
            keep_state(shared, turns_at + tid * kept, state_of(rotation, chunk))
        cuda.syncthreads()
        of_tile = tile * rows + g
        low = bounds(of_tile, end, first_query, batch, head, sizes, rotation)
        both = (low, bounds(of_tile + 8, end, first_query, batch, head, sizes, rotation))
        acc, row_max, row_sum = zero_acc(), fresh(), zero()
        k_tile = sums + warp * tile_floats
        while base < end:
            after = base + warps * batch_keys
            if not ahead:
                k_words = load_k(k, base + slot, end - 1, tensors.k_row, key_at)
                v_words = load_v(v, base + 2 * m, end - 1, tensors.v_row, value_at)
            state = kept_state(shared, turns_at + chunk * kept)
            cuda.syncwarp()
            store_keys(shared, k_tile, k_words, state, rotation, batch, base + slot, end - 1, chunk, slot)
            if middle:
                if after < end:
                    k_words = load_k(k, after + slot, end - 1, tensors.k_row, key_at)
            cuda.syncwarp()
            scores = seen(dots(shared, k_tile, query, lane), base + 2 * m, both)
            p, row_max, row_sum, acc = softmax(scores, row_max, row_sum, acc, lane)
            acc = weigh(acc, v_words, p)
            if ahead:
                if after < end:
                    if at_end:
                        k_words = load_k(k, after + slot, end - 1, tensors.k_row, key_at)
                    v_words = load_v(v, after + 2 * m, end - 1, tensors.v_row, value_at)
            base = after
        row_sum = sum_rows(row_sum)
        cuda.syncthreads()
        sums_to(shared, sums + warp * (rows * pitch), acc, lane)
        if m == 0:
            statistics(shared, row_max_at + warp * rows, g, row_max)
            statistics(shared, row_sum_at + warp * rows, g, row_sum)
        done(shared, tid, tensors, sizes, workspace, (batch, head, tile, flat), cint(cuda.blockIdx.x))

    return kernel


def store_statistics(shape: DecodeShape) -> Any:
    """store(shared, index, g, values): that of row g of each set of 8, where the shape has that row."""

    @op(types.void)
    def store(b, shared, index, g, values):
        for number, value in enumerate(as_words(b, values)):
            row = b.add(g, i32(8 * number))
            with b.if_then(b.icmp_signed("<", row, i32(shape.rows))):
                store_words(b, "st.shared", b.add(shared, b.shl(b.add(index, row), i32(2))), [value])

    return store


@functools.cache
def decode_kernel(shape: DecodeShape) -> Kernel:
    """The kernel of a shape, one object for each."""
    made = mma_kernel(shape) if shape.atoms == "mma" else fma_kernel(shape)
    made.__name__ = made.__qualname__ = shape.name
    return Kernel(made, types_of(shape.element), shape.threads, min_blocks=shape.blocks)
