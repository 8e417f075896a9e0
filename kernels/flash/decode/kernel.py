"""Decode: attention of a few queries over a long cache of keys, with RoPE on the read of raw keys.

A block takes a split of the keys for a tile of query rows (`schedule`); its warps take batches of them in turn. A
batch: load keys and values, rotate the keys (`embed`), scores, online softmax, weighted sum. Then the warps' results
become one partial result (`epilogue`), and the splits' the output (`combine`).
"""

import functools
from typing import Any

from numba import cuda, float32, uint64

from ...device import advance, cint
from ...version import Kernel
from ..args import types_of
from ..atoms.fma import atoms as fma_atoms
from ..atoms.mma import atoms as mma_atoms
from ..embed import begin, rotate_row
from ..epilogue import finish, store_statistics
from ..loads import columns, load_rows, zero_after
from ..mask import bounds_of, mask
from ..schedule import DecodeShape, Shape, block_of, query_of
from ..softmax import NO_KEY, lane_sum, online_softmax
from ..tiles import constant, floats, launch_dependents, register_op, zero_words


def prologue(shape: Shape, store: Any, scaled: bool = True) -> Any:
    """stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query): rotated queries, `scaled` or not.

    store(shared, row, chunk, values) takes a chunk of 16 bytes; rows after the last are 0.
    """
    rows = shape.rows
    staged_rows = shape.staged_rows
    row_chunks = shape.row_chunks
    vector, hdim, threads = shape.element.vector, shape.hdim, shape.threads
    chunk_columns = columns(shape, 1, 0, shape.half_split)
    load = load_rows((0,), 1, 1 + shape.half_split, shape.element.size, "ld.global")
    load_rates = begin(shape, 1, False)
    zero = constant(vector, 0.0)

    @register_op(floats(vector))
    def embed(b, words, state, rotation, batch, index, chunk, scale):
        x = rotate_row(shape, b, shape.element.floats(b, words), state, rotation, batch, index, chunk)
        return [value * scale for value in x] if scaled else x

    @cuda.jit(device=True, forceinline=True)
    def stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query):
        item = tid
        while item < staged_rows * row_chunks:
            row = item // row_chunks
            chunk = item - row * row_chunks
            head_row = tile * rows + row
            x = zero()
            if row < rows and head_row < sizes.group * sizes.seq_q and chunk * vector < hdim:
                of_group, query = query_of(head_row, sizes)
                q_gmem = advance(tensors.q, uint64(batch) * tensors.q_batch)
                q_gmem = advance(q_gmem, uint64(head * sizes.group + of_group) * tensors.q_head)
                words = load(q_gmem, query, query, tensors.q_row, chunk_columns(chunk, rotation.rotary_dim))
                state = load_rates(rotation, chunk)
                x = embed(words, state, rotation, batch, first_query + query, chunk, sizes.scale)
            store(shared, row, chunk, x)
            item += threads

    return stage


@functools.cache
def decode_kernel(shape: DecodeShape) -> Kernel:
    """The kernel of a shape, one object for each; its grid is that of `schedule`."""
    # tile
    atoms = mma_atoms(shape) if shape.atoms == "mma" else fma_atoms(shape)
    rows = shape.rows
    warps = shape.warps
    lanes = shape.lanes
    batch_keys = shape.batch
    block = block_of(shape)
    bounds = bounds_of(shape)
    lane_indices = atoms.indices
    overlap = shape.overlap
    # loads: raw 32-bit registers of a lane's chunks
    prefetch = shape.ahead
    size = shape.element.size
    key_rows = tuple(shape.row_step * i for i in range(shape.batch_rows))
    load_k = load_rows(key_rows, shape.chunks, 1 + shape.half_split, size)
    load_v = load_rows(atoms.values, atoms.value_chunks, 1, size)
    zero_tail = zero_after(atoms.values, atoms.value_chunks)
    k_columns_of = columns(shape, shape.chunks, lanes, shape.half_split)
    v_columns_of = columns(shape, atoms.value_chunks, atoms.value_lanes, False)
    load_rates = begin(shape, shape.chunks)
    stage_q = prologue(shape, atoms.store_q)
    # products
    prepare = atoms.prepare
    consume_k = atoms.consume_k
    score = atoms.score
    weigh = atoms.weigh
    # softmax
    sets = shape.sets
    masked = mask(shape, sets, atoms.keys)
    softmax = online_softmax(sets, len(atoms.keys), atoms.masks, atoms.size, atoms.rescale)
    sum_over_lanes = lane_sum(sets, atoms.masks)
    # initial values, and the store
    no_k = zero_words(4 * shape.chunks * len(key_rows))
    no_v = zero_words(4 * atoms.value_chunks * len(atoms.values))
    zero_acc = constant(atoms.size, 0.0)
    lowest = constant(sets, NO_KEY)
    zero = constant(sets, 0.0)
    store_acc = atoms.store_acc
    store_row_values = store_statistics(shape)
    row_max_smem = shape.layout["row_max"]
    row_sum_smem = shape.layout["row_sum"]
    merge = finish(shape)

    def kernel(tensors, sizes, rotation, workspace):
        # prologue: loads of the first batch, then Q
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            launch_dependents()
        tid = cint(cuda.threadIdx.x)
        lane, warp = tid & 31, tid >> 5
        batch, head, tile, start, end, first_query = block(sizes)
        k_slot, k_chunk = lane // lanes, lane & (lanes - 1)
        v_slot, v_chunk, row, key = lane_indices(lane)
        # [seq_k, hdim] of the sequence and KV head, rows k_row and v_row elements apart
        k_gmem = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v_gmem = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        k_columns, v_columns = k_columns_of(k_chunk, rotation.rotary_dim), v_columns_of(v_chunk, 0)
        base, rates = start + warp * batch_keys, load_rates(rotation, k_chunk)  # the slowest loads first
        k_rmem, v_rmem = no_k(), no_v()
        if prefetch:
            if base < end:
                k_rmem = load_k(k_gmem, base + k_slot, end - 1, tensors.k_row, k_columns)
                v_rmem = load_v(v_gmem, base + v_slot, end - 1, tensors.v_row, v_columns)
        stage_q(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query)
        prepared = prepare(shared, tid, rates, k_chunk)
        head_row = tile * rows + row
        seen = bounds(head_row, end, first_query, batch, head, sizes, rotation)
        acc_rmem, row_max, row_sum = zero_acc(), lowest(), zero()
        # main loop
        while base < end:
            # load
            after = base + warps * batch_keys
            if not prefetch:
                k_rmem = load_k(k_gmem, base + k_slot, end - 1, tensors.k_row, k_columns)
                v_rmem = load_v(v_gmem, base + v_slot, end - 1, tensors.v_row, v_columns)
            # score
            consumed = consume_k(shared, warp, lane, k_rmem, prepared, rotation, (batch, base + k_slot, end - 1))
            if prefetch:
                if after < end:
                    k_rmem = load_k(k_gmem, after + k_slot, end - 1, tensors.k_row, k_columns)
            scores = masked(score(shared, warp, lane, consumed), base + key, seen)
            # softmax
            p, row_max, row_sum, acc_rmem = softmax(scores, row_max, row_sum, acc_rmem, lane)
            # weigh
            if base + batch_keys > end:
                v_rmem = zero_tail(v_rmem, base + v_slot, end - 1)
            acc_rmem = weigh(shared, warp, lane, acc_rmem, v_rmem, p)
            if prefetch:
                if after < end:
                    v_rmem = load_v(v_gmem, after + v_slot, end - 1, tensors.v_row, v_columns)
            base = after
        # epilogue: partial results of all warps to shared memory, their sum to the output or to the workspace
        store_acc(shared, warp, lane, acc_rmem)
        row_sum = sum_over_lanes(row_sum)
        if key == 0:
            store_row_values(shared, row_max_smem + warp * rows, row, row_max)
            store_row_values(shared, row_sum_smem + warp * rows, row, row_sum)
        merge(shared, tid, tensors, sizes, workspace, (batch, head, tile), cint(cuda.blockIdx.x))

    kernel.__name__ = kernel.__qualname__ = shape.name
    return Kernel(kernel, types_of(shape.element), shape.threads, min_blocks=shape.blocks)
