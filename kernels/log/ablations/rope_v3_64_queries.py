"""RoPE V3 with 64 queries a block: every key is rotated once for all of them, in slices of 32 dims.

Change from rope_v3: 64 queries a block instead of four, and all of them use whatever the block loads. A slice of the
queries and of a tile of keys is rotated into shared memory, and every thread computes its part of 16 of the 4,096
scores. A warp normalises the rows of 8 queries. From a slice of V, every thread computes 16 of 64 x 64 outputs. One
thread per key and one query after the other, as in V3, would leave most of such a block idle.

Source: none; the log holds that 64 queries a block would need 512 KB of shared memory (V3, item 14).
"""

import math

from numba import cuda, float32

from ...constants import BLOCK_K, FREQUENCY_BASE, THREADS
from ...device import NEGATIVE_INFINITY, cint, fast_sincos, powf, rotate, rows_of_query, warp_max, warp_sum
from ...device.vector import advance, ld4, make_float4, st4
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import block_per_query, log_plan, require_log_problem

QUERIES = 64
SLICE = 32  # dims of Q and K
SIDE = 16  # threads along each side of a tile of 64 queries x 64 keys or dims, 4 x 4 per thread
WIDTH = 4 * SIDE  # dims of V
WARPS = 8
ROW = SLICE + 4  # so that the rows read by a warp start in different banks
SCORE_ROW = BLOCK_K + 4
QUERY = 0
KEYS = QUERY + QUERIES * ROW
VALUES = 0  # values overwrite the queries and keys once the scores are done
SCORES = KEYS + BLOCK_K * ROW
CORRECTION = SCORES + QUERIES * SCORE_ROW
ROW_SUM = CORRECTION + QUERIES


@cuda.jit(device=True)
def zeros():
    return make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))


@cuda.jit(device=True)
def add_scaled(acc, start, p, b):
    """Add p b to the four elements of acc from `start` on."""
    acc[start] += p * b.x
    acc[start + 1] += p * b.y
    acc[start + 2] += p * b.z
    acc[start + 3] += p * b.w


@cuda.jit(device=True)
def rotate_slice(shared, place, x, first, rows, slice_start, hdim):
    """Rotate a slice of `rows` rows of x, at positions from `first` on, into the 64 rows from float `place` on; zeros
    after the last.
    """
    tid = cint(cuda.threadIdx.x)
    dim = 4 * (tid % (SLICE // 4))
    exponent = float32(slice_start + dim) / float32(hdim)
    freq0 = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    exponent = float32(slice_start + dim + 2) / float32(hdim)
    freq1 = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    row = tid // (SLICE // 4)
    while row < BLOCK_K:
        turned = zeros()
        if row < rows and slice_start + dim < hdim:
            pairs = ld4(x, row * hdim + slice_start + dim)
            position = float32(first + row)
            sin, cos = fast_sincos(position * freq0)
            x0, x1 = rotate(pairs.x, pairs.y, cos, sin)
            sin, cos = fast_sincos(position * freq1)
            x2, x3 = rotate(pairs.z, pairs.w, cos, sin)
            turned = make_float4(x0, x1, x2, x3)
        st4(shared, place + row * ROW + dim, turned)
        row += THREADS // (SLICE // 4)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    warp_id = tid // 32
    lane_id = tid % 32
    across = tid % SIDE
    down = tid // SIDE
    first = QUERIES * cint(cuda.blockIdx.x)
    queries = min(QUERIES, seq_q - first)
    q_rows, out_rows, k_head, v_head = rows_of_query(q, k, v, out, first, seq_q, seq_k, hdim)

    row_max = cuda.local.array(8, float32)  # of query warp_id + 8 i
    row_sum = cuda.local.array(8, float32)
    for i in range(8):
        row_max[i] = NEGATIVE_INFINITY
        row_sum[i] = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        k_rows = advance(k_head, tile_start * hdim)
        v_rows = advance(v_head, tile_start * hdim)

        score = cuda.local.array(16, float32)  # of query down + 16 i and key across + 16 j
        for i in range(16):
            score[i] = float32(0.0)
        slice_start = cint(0)
        while slice_start < hdim:
            rotate_slice(shared, QUERY, q_rows, first, queries, slice_start, hdim)
            rotate_slice(shared, KEYS, k_rows, tile_start, tile, slice_start, hdim)
            cuda.syncthreads()
            dim = cint(0)
            while dim < SLICE:
                for i in range(4):
                    a = ld4(shared, QUERY + (down + SIDE * i) * ROW + dim)
                    for j in range(4):
                        b = ld4(shared, KEYS + (across + SIDE * j) * ROW + dim)
                        score[4 * i + j] += a.x * b.x
                        score[4 * i + j] += a.y * b.y
                        score[4 * i + j] += a.z * b.z
                        score[4 * i + j] += a.w * b.w
                dim += 4
            cuda.syncthreads()
            slice_start += SLICE
        for i in range(4):
            for j in range(4):
                key = across + SIDE * j
                value = NEGATIVE_INFINITY
                if key < tile:
                    value = score[4 * i + j] * softmax_scale
                shared[SCORES + (down + SIDE * i) * SCORE_ROW + key] = value
        cuda.syncthreads()

        for i in range(8):
            row = warp_id + WARPS * i
            scores = SCORES + row * SCORE_ROW + lane_id
            new_max = max(row_max[i], warp_max(max(shared[scores], shared[scores + 32])))
            correction = math.exp(row_max[i] - new_max)
            p0 = math.exp(shared[scores] - new_max)
            p1 = math.exp(shared[scores + 32] - new_max)
            shared[scores] = p0
            shared[scores + 32] = p1
            row_sum[i] = correction * row_sum[i] + warp_sum(p0 + p1)
            row_max[i] = new_max
            if lane_id == 0:
                shared[CORRECTION + row] = correction
                shared[ROW_SUM + row] = row_sum[i]

        last = tile_start + BLOCK_K >= seq_k
        slice_start = cint(0)
        while slice_start < hdim:
            dim = slice_start + 4 * across
            key = down
            while key < BLOCK_K:
                value = zeros()
                if key < tile and dim < hdim:
                    value = ld4(v_rows, key * hdim + dim)
                st4(shared, VALUES + key * WIDTH + 4 * across, value)
                key += SIDE
            cuda.syncthreads()
            acc = cuda.local.array(16, float32)  # of query down + 16 i and dim + j
            for i in range(16):
                acc[i] = float32(0.0)
            if tile_start > 0 and dim < hdim:
                for i in range(4):
                    row = down + SIDE * i
                    if row < queries:
                        add_scaled(acc, 4 * i, shared[CORRECTION + row], ld4(out_rows, row * hdim + dim))
            key = cint(0)
            while key < BLOCK_K:
                values = VALUES + key * WIDTH + 4 * across
                b0 = ld4(shared, values)
                b1 = ld4(shared, values + WIDTH)
                b2 = ld4(shared, values + 2 * WIDTH)
                b3 = ld4(shared, values + 3 * WIDTH)
                for i in range(4):
                    p = ld4(shared, SCORES + (down + SIDE * i) * SCORE_ROW + key)
                    add_scaled(acc, 4 * i, p.x, b0)
                    add_scaled(acc, 4 * i, p.y, b1)
                    add_scaled(acc, 4 * i, p.z, b2)
                    add_scaled(acc, 4 * i, p.w, b3)
                key += 4
            for i in range(4):
                row = down + SIDE * i
                divisor = float32(1.0)
                if last:
                    divisor = shared[ROW_SUM + row]
                if row < queries and dim < hdim:
                    a0, a1, a2, a3 = acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]
                    result = make_float4(a0 / divisor, a1 / divisor, a2 / divisor, a3 / divisor)
                    st4(out_rows, row * hdim + dim, result)
            cuda.syncthreads()
            slice_start += WIDTH
        tile_start += BLOCK_K


@register(
    title="V3 with 64 queries a block",
    parent="rope_v3",
    baseline="rope_separate",
    source="RoPE Fusion Implementation Log, V3 item 14",
    change="64 queries a block share each rotated key, in slices of 32 dims that fit shared memory",
    ablation=True,
)
def rope_v3_64_queries(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", all_dims=True)
    layout = SharedLayout(
        slices=QUERIES * ROW + BLOCK_K * ROW, scores=QUERIES * SCORE_ROW, correction=QUERIES, row_sum=QUERIES
    )
    launch = block_per_query(attention, problem, "q k v out", layout, queries=QUERIES)
    return log_plan(problem, launch, SYNC)
