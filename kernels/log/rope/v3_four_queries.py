"""RoPE V3: full fusion, computed, four queries a block.

Change from rope_v2: a block takes four query rows and rotates every key once for all of them. Softmax and the product
with V follow for one query after the other, each with its own pass over V. Each thread holds the running maxima and
sums of the four in arrays.

Source: RoPE Fusion Implementation Log, V3, items 12-14.
"""

import math

from numba import cuda, float32

from ...constants import BLOCK_K, FREQUENCY_BASE, SCORES, THREADS
from ...device import NEGATIVE_INFINITY, advance, block_max, block_sum, cint, fast_sincos, powf, rotate, rows_of_query
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, require_log_problem

QUERIES = 4
REDUCTION = QUERIES * BLOCK_K
EXTRA = REDUCTION + 32


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    first = cint(QUERIES) * cint(cuda.blockIdx.x)
    queries = min(QUERIES, seq_q - first)
    q_rows, out_rows, k_head, v_head = rows_of_query(q, k, v, out, first, seq_q, seq_k, hdim)

    row = cint(0)
    while row < queries:
        dim = 2 * tid
        while dim < hdim:
            exponent = float32(dim) / float32(hdim)
            inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
            sin, cos = fast_sincos(float32(first + row) * inv_freq)
            x, y = rotate(q_rows[row * hdim + dim], q_rows[row * hdim + dim + 1], cos, sin)
            shared[EXTRA + row * hdim + dim] = x
            shared[EXTRA + row * hdim + dim + 1] = y
            dim += 2 * THREADS
        row += 1
    cuda.syncthreads()

    row_max = cuda.local.array(QUERIES, float32)
    row_sum = cuda.local.array(QUERIES, float32)
    row = cint(0)
    while row < queries:
        row_max[row] = NEGATIVE_INFINITY
        row_sum[row] = float32(0.0)
        row += 1
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            score = cuda.local.array(QUERIES, float32)
            row = cint(0)
            while row < queries:
                score[row] = float32(0.0)
                row += 1
            position = float32(tile_start + key)
            dim = cint(0)
            while dim < hdim:
                exponent = float32(dim) / float32(hdim)
                inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
                sin, cos = fast_sincos(position * inv_freq)
                x, y = rotate(k_row[dim], k_row[dim + 1], cos, sin)
                row = cint(0)
                while row < queries:
                    query = EXTRA + row * hdim + dim
                    score[row] += shared[query] * x + shared[query + 1] * y
                    row += 1
                dim += 2
            row = cint(0)
            while row < queries:
                shared[SCORES + row * BLOCK_K + key] = score[row] * softmax_scale
                row += 1
            key += THREADS
        cuda.syncthreads()

        row = cint(0)
        while row < queries:
            scores = SCORES + row * BLOCK_K
            tile_max = NEGATIVE_INFINITY
            key = tid
            while key < tile:
                tile_max = max(tile_max, shared[scores + key])
                key += THREADS
            new_max = max(row_max[row], block_max(tile_max, shared, REDUCTION))
            correction = math.exp(row_max[row] - new_max)
            tile_sum = float32(0.0)
            key = tid
            while key < tile:
                p = math.exp(shared[scores + key] - new_max)
                shared[scores + key] = p
                tile_sum += p
                key += THREADS
            row_sum[row] = correction * row_sum[row] + block_sum(tile_sum, shared, REDUCTION)

            dim = tid
            while dim < hdim:
                acc = float32(0.0)
                if tile_start > 0:
                    acc = out_rows[row * hdim + dim] * correction
                key = cint(0)
                while key < tile:
                    acc += shared[scores + key] * v_tile[key * hdim + dim]
                    key += 1
                out_rows[row * hdim + dim] = acc
                dim += THREADS
            row_max[row] = new_max
            cuda.syncthreads()
            row += 1
        tile_start += BLOCK_K

    row = cint(0)
    while row < queries:
        dim = tid
        while dim < hdim:
            out_rows[row * hdim + dim] = out_rows[row * hdim + dim] / row_sum[row]
            dim += THREADS
        row += 1


@register(
    title="Full fusion, four queries a block",
    parent="rope_v2",
    baseline="rope_separate",
    change="four queries a block share each rotated key",
    scalar_loads=True,
)
def rope_v3(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=2, all_dims=True)
    layout = SharedLayout(scores=QUERIES * BLOCK_K, reduction=32, query=QUERIES * problem.hdim)
    launch = block_per_query(attention, problem, "q k v out", layout, queries=QUERIES)
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
