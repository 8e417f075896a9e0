"""Decode: attention of a few queries over a long cache of keys, with RoPE on the read of raw keys.

A block takes a split of the keys for a tile of query rows (`schedule`); its warps take batches of them in turn. A
batch: load keys and values, rotate the keys (`embed`), scores, online softmax, weighted sum. Then the warps' results
become one partial result (`epilogue`), and the splits' the output (`combine`).
"""

import functools
from typing import Any

from numba import cuda, float32, uint64

from ...device.cint import cint
from ...device.vector import advance
from ...version import Kernel
from ..args import types_of
from ..atoms.fma import atoms as fma_atoms
from ..atoms.mma import atoms as mma_atoms
from ..embed import begin, rotate_row
from ..epilogue import finish, store_statistics
from ..loads import columns, load_rows, zero_behind
from ..mask import bounds_of, mask
from ..schedule import DecodeShape, Shape, block_of, query_of
from ..softmax import NO_KEY, lane_sum, update
from ..tiles import constant, floats, launch_dependents, op, zero_words


def prologue(shape: Shape, store: Any, scaled: bool = True) -> Any:
    """stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query): rotated queries, `scaled` or not.

    store(shared, row, chunk, values) takes a chunk of 16 bytes; rows behind the last are 0.
    """
    vector, row_chunks, hdim, threads = shape.element.vector, shape.row_chunks, shape.hdim, shape.threads
    staged = shape.staged_rows
    places = columns(shape, 1, 0, shape.half_split)
    load = load_rows((0,), 1, 1 + shape.half_split, shape.element.size, "ld.global")
    begun, zero, rows = begin(shape, 1, False), constant(vector, 0.0), shape.rows

    @op(floats(vector))
    def embed(b, words, state, rotation, batch, place, chunk, scale):
        x = rotate_row(shape, b, shape.element.floats(b, words), state, rotation, batch, place, chunk)
        return [value * scale for value in x] if scaled else x

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


@functools.cache
def decode_kernel(shape: DecodeShape) -> Kernel:
    """The kernel of a shape, one object for each."""
    atoms = mma_atoms(shape) if shape.atoms == "mma" else fma_atoms(shape)
    lanes, rows, warps, batch_keys, sets = shape.lanes, shape.rows, shape.warps, shape.batch, shape.sets
    offsets, size = tuple(shape.row_step * i for i in range(shape.batch_rows)), shape.element.size
    load_k = load_rows(offsets, shape.chunks, 1 + shape.half_split, size)
    load_v = load_rows(atoms.values, atoms.value_chunks, 1, size)
    there = zero_behind(atoms.values, atoms.value_chunks)
    key_places = columns(shape, shape.chunks, lanes, shape.half_split)
    value_places = columns(shape, atoms.value_chunks, atoms.value_lanes, False)
    no_k, no_v = zero_words(4 * shape.chunks * len(offsets)), zero_words(4 * atoms.value_chunks * len(atoms.values))
    zero_acc, fresh, zero = constant(atoms.size, 0.0), constant(sets, NO_KEY), constant(sets, 0.0)
    softmax = update(sets, len(atoms.keys), atoms.masks, atoms.size, atoms.rescale)
    block, bounds, seen, done = block_of(shape), bounds_of(shape), mask(shape, sets, atoms.keys), finish(shape)
    stage, place, prepare, take = prologue(shape, atoms.store_query), atoms.place, atoms.prepare, atoms.take
    score, weigh, close, sum_rows = atoms.score, atoms.weigh, atoms.close, lane_sum(sets, atoms.masks)
    statistics, max_at, sum_at = store_statistics(shape), shape.layout["row_max"], shape.layout["row_sum"]
    overlap, ahead, state_of = shape.overlap, shape.ahead, begin(shape, shape.chunks)

    def kernel(tensors, sizes, rotation, workspace):
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            launch_dependents()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        batch, head, tile, start, end, first_query = block(sizes)
        slot, chunk = lane // lanes, lane & (lanes - 1)
        value_slot, value_chunk, row, key = place(lane)
        k = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        key_at, value_at = key_places(chunk, rotation.rotary_dim), value_places(value_chunk, 0)
        base, state = start + warp * batch_keys, state_of(rotation, chunk)  # what takes long is asked for first
        k_words, v_words = no_k(), no_v()
        if ahead:
            if base < end:
                k_words = load_k(k, base + slot, end - 1, tensors.k_row, key_at)
                v_words = load_v(v, base + value_slot, end - 1, tensors.v_row, value_at)
        stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query)
        prepared = prepare(shared, tid, state, chunk)
        of_tile = tile * rows + row
        both = bounds(of_tile, end, first_query, batch, head, sizes, rotation)
        acc, row_max, row_sum = zero_acc(), fresh(), zero()
        while base < end:
            after = base + warps * batch_keys
            if not ahead:
                k_words = load_k(k, base + slot, end - 1, tensors.k_row, key_at)
                v_words = load_v(v, base + value_slot, end - 1, tensors.v_row, value_at)
            taken = take(shared, warp, lane, k_words, prepared, rotation, (batch, base + slot, end - 1))
            if ahead:
                if after < end:
                    k_words = load_k(k, after + slot, end - 1, tensors.k_row, key_at)
            scores = seen(score(shared, warp, lane, taken), base + key, both)
            p, row_max, row_sum, acc = softmax(scores, row_max, row_sum, acc, lane)
            if base + batch_keys > end:
                v_words = there(v_words, base + value_slot, end - 1)
            acc = weigh(shared, warp, lane, acc, v_words, p)
            if ahead:
                if after < end:
                    v_words = load_v(v, after + value_slot, end - 1, tensors.v_row, value_at)
            base = after
        close(shared, warp, lane, acc)
        row_sum = sum_rows(row_sum)
        if key == 0:
            statistics(shared, max_at + warp * rows, row, row_max)
            statistics(shared, sum_at + warp * rows, row, row_sum)
        done(shared, tid, tensors, sizes, workspace, (batch, head, tile), cint(cuda.blockIdx.x))

    kernel.__name__ = kernel.__qualname__ = shape.name
    return Kernel(kernel, types_of(shape.element), shape.threads, min_blocks=shape.blocks)
