"""Decode of wide heads: a head dim spread over all threads of a block, or of a cluster of blocks.

The threads take batches of keys of their split together, each its own dims. A batch: load keys and values, rotate the
keys (`embed`), partial scores, their sum over all warps, online softmax, weighted sum. Every warp has all scores and
computes the same weights; a thread has its dims of the output, which it stores itself.
"""

import functools
from typing import Any

from numba import cuda, float32, types, uint64

from ...device import advance, cint
from ...device.cluster import (
    barrier_expect,
    barrier_init,
    barrier_init_fence,
    barrier_wait,
    cluster_arrive,
    cluster_rank,
    cluster_send2,
    cluster_wait,
)
from ...version import Kernel
from ..args import Sizes, Tensors, types_of
from ..atoms.fma import first_bit, indices, reduce_scatter
from ..cluster.shape import BARRIER
from ..embed import begin, cos_sins, pairs_of, rotate
from ..epilogue import exact_inverse
from ..loads import beyond, columns, load_rows, zero_after
from ..mask import bounds_of, mask
from ..schedule import WARP, block_of
from ..softmax import NO_KEY, lane_sum, masks_of, online_softmax
from ..tiles import BYTES, I64, constant, f32, floats, launch_dependents, register_op, zero_words
from .shape import WideShape


def row_of(b: Any, pointer: Any, strides: Any, sizes: Any, where: Any, row: Any) -> tuple[Any, Any]:
    """The address of a row of the KV head `where` = (batch, head), and its query."""
    batch, head = where
    of_group = b.sdiv(row, sizes.seq_q)
    query = row - of_group * sizes.seq_q
    for index, stride in zip((batch, head * sizes.group + of_group, query), strides, strict=True):
        pointer = pointer + (b.zext(index, I64) * b.zext(stride, I64) << 2)
    return pointer, query


def _places(shape: WideShape, row: int) -> list[int]:
    """Bytes in shared memory of a thread's chunks of a row of queries, counted from 16 times the thread."""
    first = 4 * shape.layout["query"] + BYTES * shape.threads * row * shape.chunks
    return [first + BYTES * shape.threads * number for number in range(shape.chunks)]


@register_op(types.void)
def stage_queries(
    b, shared, tid, tensors, sizes, rotation, state, columns, where, tile, first_query, chunk, *, shape
):  # fmt: skip
    """Store a thread's dims of all rows of queries, rotated and scaled, which it alone reads.

    After the last row come copies of it.
    """
    given, of, pieces = Tensors(*tensors), Sizes(*sizes), 1 + shape.half_split
    last, strides, made = of.group * of.seq_q - 1, (given.q_batch, given.q_head, given.q_row), []
    for number in range(shape.rows):
        address, query = row_of(b, given.q, strides, of, where, b.smaller(tile * shape.rows + number, last))
        places = [address + b.zext(column, I64) for column in columns]
        words = [word for at in places for word in b.load_words("ld.global", at, BYTES // 4 // pieces)]
        made.append((first_query + query, b.as_floats(words)))
    target = b.at_float(shared, tid << 2)
    for number, (index, x) in enumerate(made):
        if shape.rotates:
            angles = cos_sins(shape, b, state, rotation, (where[0], index, index, chunk, shape.chunks), 1)
            x = rotate(b, x, next(angles), pairs_of(shape, shape.chunks))
        for i, place in enumerate(_places(shape, number)):
            b.store_floats(target, [value * of.scale for value in x[4 * i : 4 * i + 4]], place)


@register_op(lambda shape: floats(shape.scores))
def dot(b, shared, tid, chunk, keys, state, rotation, batch, first, last, *, shape):
    """A thread's part of each score: its dims of a batch of keys, rotated, times those of each row; 0 of no row."""
    size, pairs, made, rows = shape.elements, pairs_of(shape, shape.chunks), [], []
    angles = cos_sins(shape, b, state, rotation, (batch, first, last, chunk, shape.chunks), 1)
    for key in range(shape.batch_rows):
        x = b.as_floats(keys[size * key : size * (key + 1)])
        for i in range(size):
            outside = beyond(shape, b, chunk, i // 4)
            x[i] = x[i] if outside is None else b.select(outside, f32(0.0), x[i])
        made.append(rotate(b, x, next(angles), pairs) if shape.rotates else x)
    for row in range(shape.rows):
        q = [value for place in _places(shape, row) for value in b.load_floats(b.at_float(shared, tid << 2), 4, place)]
        for x in made:
            total = x[0] * q[0]
            for value, by in zip(x[1:], q[1:], strict=True):
                total = b.fma(value, by, total)
            rows.append(total)
    rows += [f32(0.0)] * (shape.scores - len(rows))
    return [rows[key :: shape.batch_rows][row] for key in range(shape.batch_rows) for row in range(shape.of_warp.rows)]


@register_op(floats(1))
def add_parts(b, shared, index, *, count):
    """The sum of `count` parts of a score, a power of two of them, pair by pair."""
    width, address = min(count, 4), b.at_float(shared, index)
    words = [word for at in range(0, count, width) for word in b.load_words("ld.shared", address, width, 4 * at)]
    parts = b.as_floats(words)
    while len(parts) > 1:
        parts = [x + y for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts


def sum_over_warps(shape: WideShape) -> Any:
    """total(shared, number, rank, warp, lane, part): a lane's score of batch `number`, of the parts of all warps.

    The warps of a block add their parts, and send the sum to the blocks of the cluster. Two batches have places of
    their own: before a warp writes to one again, all have read it and written the other.
    """
    scores, warps, cluster, bit, at = shape.scores, shape.warps, shape.cluster, first_bit(shape.of_warp), shape.layout
    copies, nbytes = (1 << bit) - 1, 8 * scores * cluster
    parts_smem, sums_smem, barriers_smem = at["parts"], at["sums"], at["barriers"]
    add_warps, add_blocks, nothing = add_parts(warps), add_parts(2 * cluster), float32(0.0)

    @cuda.jit(device=True, forceinline=True)
    def total(shared, number, rank, warp, lane, part):
        even, first = number & 1, lane & copies == 0  # of the lanes that have the same score
        row = even * scores + (lane >> bit)
        if first:
            shared[parts_smem + row * warps + warp] = part[0]
        cuda.syncthreads()
        score = add_warps(shared, parts_smem + row * warps)
        if cluster > 1:
            barrier = barriers_smem + even * BARRIER
            if warp == 0 and lane == 0:
                barrier_expect(shared, barrier, nbytes)
            other = warp
            while other < cluster:  # each warp sends to a block
                if first:
                    cluster_send2(shared, sums_smem + 2 * (row * cluster + rank), other, score[0], nothing, barrier)
                other += warps
            barrier_wait(shared, barrier, (number >> 1) & 1)
            score = add_blocks(shared, sums_smem + 2 * row * cluster)
        return score

    return total


@register_op(lambda shape: floats(shape.rows * shape.elements))
def accumulate(b, shared, warp, lane, acc, values, weights, *, shape):
    """acc[row][dim] plus the sum over keys of weights[key][row] values[key][dim]; lanes exchange their weights."""
    keys, size, at = shape.batch_rows, shape.elements, shape.layout["weights"]
    score, width, first = lane >> first_bit(shape.of_warp), min(keys, 4), b.at_float(shared, warp * WARP)
    row, key = score & (shape.of_warp.rows - 1), score >> (shape.of_warp.rows.bit_length() - 1)
    b.store_words("st.shared", b.at_float(first, row * keys + key), b.as_words(weights), 4 * at)
    b.sync_warp()
    for row in range(shape.rows):
        starts = range(4 * (at + row * keys), 4 * (at + row * keys + keys), 4 * width)
        by = b.as_floats([word for start in starts for word in b.load_words("ld.shared", first, width, start)])
        for key in range(keys):
            for i, x in enumerate(b.as_floats(values[size * key : size * (key + 1)]), size * row):
                acc[i] = b.fma(x, by[key], acc[i])
    return acc


def rescale(shape: WideShape) -> Any:
    """scale(b, acc, factors, lane): multiply each row by the factor of a lane that has the row's scores."""

    def scale(b, acc, factors, lane):
        by = [b.shuffle("idx", factors[0], row << first_bit(shape.of_warp)) for row in range(shape.rows)]
        return [x * by[i // shape.elements] for i, x in enumerate(acc)]

    return scale


@register_op(types.void)
def store_rows(b, tensors, sizes, workspace, where, tile, split, batches, lane, chunk, acc, row_max, row_sum, *, shape):
    """Store a thread's dims of all rows: of the output, or of the partial result that `combine` reads."""
    given, of, (part, totals), (batch, head) = Tensors(*tensors), Sizes(*sizes), workspace, where
    strides, head_rows = (given.out_batch, given.out_head, given.out_row), of.group * of.seq_q
    first_row = ((split * batches + batch) * of.kv_heads + head) * head_rows
    whole = of.splits == 1
    for number in range(shape.rows):
        m, d = (b.shuffle("idx", value, number << first_bit(shape.of_warp)) for value in (*row_max, *row_sum))
        row, x = tile * shape.rows + number, acc[number * shape.elements : (number + 1) * shape.elements]
        with b.if_then(row < head_rows):
            part_row = b.zext(first_row + row, I64)
            address, _ = row_of(b, given.out, strides, of, where, row)
            address = b.select(whole, address, part + (part_row * shape.hdim << 2))
            by = b.select(whole, exact_inverse(b, d), f32(1.0))
            for i in range(0, shape.elements, 4):
                dim = (chunk << 2) + shape.lanes * i
                with b.if_then(dim < shape.hdim):
                    words = b.as_words([value * by for value in x[i : i + 4]])
                    b.store_words("st.global", address + (b.zext(dim, I64) << 2), words)
            with b.if_then(b.and_(of.splits != 1, chunk == 0)):
                b.store_words("st.global", totals + (part_row << 3), b.as_words([m, d]))


@functools.cache
def wide_kernel(shape: WideShape) -> Kernel:
    """The kernel of a shape, one object for each; its grid is that of `schedule`, in clusters along x."""
    # tile
    threads = shape.threads
    cluster = shape.cluster
    of_warp = shape.of_warp
    batch_keys = shape.batch
    rows = shape.rows
    block = block_of(shape)
    bounds = bounds_of(shape)
    lane_indices = indices(of_warp)
    overlap = shape.overlap
    # loads: raw 32-bit registers of a thread's chunks
    keys = tuple(range(batch_keys))
    load_k = load_rows(keys, shape.chunks, 1 + shape.half_split, 4)
    load_v = load_rows(keys, shape.chunks, 1, 4)
    zero_tail = zero_after(keys, shape.chunks)
    k_columns_of = columns(shape, shape.chunks, shape.lanes, shape.half_split)
    v_columns_of = columns(shape, shape.chunks, shape.lanes, False)
    load_rates = begin(shape, shape.chunks)
    stage_q = stage_queries(shape)
    # products
    multiply_qk = dot(shape)
    sum_lanes = reduce_scatter(of_warp)
    sum_warps = sum_over_warps(shape)
    add_pv = accumulate(shape)
    # softmax
    size = shape.rows * shape.elements
    masks = masks_of(first_bit(of_warp) + of_warp.rows.bit_length() - 1, WARP.bit_length() - 1)
    masked = mask(shape, 1, (0,))
    softmax = online_softmax(1, 1, masks, size, rescale(shape))
    sum_over_lanes = lane_sum(1, masks)
    # initial values, and the store
    no_words = zero_words(4 * shape.chunks * batch_keys)
    zero_acc = constant(size, 0.0)
    lowest = constant(1, NO_KEY)
    zero = constant(1, 0.0)
    barriers_smem = shape.layout["barriers"]
    store = store_rows(shape)

    def kernel(tensors, sizes, rotation, workspace):
        # prologue: loads of the first batch, then Q
        shared = cuda.shared.array(0, float32, 16)
        if overlap:
            launch_dependents()
        tid, rank = cint(cuda.threadIdx.x), cint(0)
        lane, warp = tid & 31, tid >> 5
        if cluster > 1:
            rank = cint(cluster_rank())
            if tid == 0:
                barrier_init(shared, barriers_smem, 1)
                barrier_init(shared, barriers_smem + BARRIER, 1)
                barrier_init_fence()
            cluster_arrive()
        thread = rank * threads + tid
        batch, head, tile, start, end, first_query = block(sizes)
        _, _, row, key = lane_indices(lane)
        # [seq_k, hdim] of the sequence and KV head, rows k_row and v_row elements apart
        k_gmem = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
        v_gmem = advance(advance(tensors.v, uint64(batch) * tensors.v_batch), uint64(head) * tensors.v_head)
        k_columns, v_columns = k_columns_of(thread, rotation.rotary_dim), v_columns_of(thread, 0)
        base, rates = start, load_rates(rotation, thread)
        k_rmem, v_rmem, where = no_words(), no_words(), (batch, head)
        if base < end:
            k_rmem = load_k(k_gmem, base, end - 1, tensors.k_row, k_columns)
            v_rmem = load_v(v_gmem, base, end - 1, tensors.v_row, v_columns)
        stage_q(shared, tid, tensors, sizes, rotation, rates, k_columns, where, tile, first_query, thread)
        seen = bounds(tile * rows + row, end, first_query, batch, head, sizes, rotation)
        acc_rmem, row_max, row_sum = zero_acc(), lowest(), zero()
        number = cint(0)
        if cluster > 1:
            cluster_wait()
        # main loop
        while base < end:
            # score
            after = base + batch_keys
            parts = multiply_qk(shared, tid, thread, k_rmem, rates, rotation, batch, base, end - 1)
            if after < end:
                k_rmem = load_k(k_gmem, after, end - 1, tensors.k_row, k_columns)
            part = sum_lanes(shared, warp, lane, parts)
            scores = masked(sum_warps(shared, number, rank, warp, lane, part), base + key, seen)
            # softmax
            p, row_max, row_sum, acc_rmem = softmax(scores, row_max, row_sum, acc_rmem, lane)
            # weigh
            if after > end:
                v_rmem = zero_tail(v_rmem, base, end - 1)
            acc_rmem = add_pv(shared, warp, lane, acc_rmem, v_rmem, p)
            if after < end:
                v_rmem = load_v(v_gmem, after, end - 1, tensors.v_row, v_columns)
            base = after
            number += 1
        # epilogue
        row_sum = sum_over_lanes(row_sum)
        split, batches = cint(cuda.blockIdx.x) // cluster, cint(cuda.gridDim.z)
        store(tensors, sizes, workspace, where, tile, split, batches, lane, thread, acc_rmem, row_max, row_sum)

    kernel.__name__ = kernel.__qualname__ = shape.name
    return Kernel(kernel, types_of(shape.element), shape.threads, min_blocks=shape.blocks)
