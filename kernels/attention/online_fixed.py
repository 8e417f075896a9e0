"""Online softmax, with reductions that share their result.

Change from attention_online: the block reductions store the result of the block and every thread reads it. The separate
embedding paths use this attention, too.

Source: the log's best version with its bug fixed. The check in the log's own file does not detect NaN.
"""

import math

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY, block_max, block_sum
from ..device.vector import advance, ld4
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import SYNC, Launch, Plan, Problem, register


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    head = cint(cuda.blockIdx.y)
    q_row = advance(q, (head * seq_q + query) * hdim)
    out_row = advance(out, (head * seq_q + query) * hdim)
    k_head = advance(k, head * seq_k * hdim)
    v_head = advance(v, head * seq_k * hdim)
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            score = float32(0.0)
            dim = cint(0)
            while dim < hdim:
                a = ld4(q_row, dim)
                b = ld4(k_row, dim)
                score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
                dim += 4
            shared[SCORES + key] = score * softmax_scale
            key += THREADS
        cuda.syncthreads()

        tile_max = NEGATIVE_INFINITY
        key = tid
        while key < tile:
            tile_max = max(tile_max, shared[SCORES + key])
            key += THREADS
        new_max = max(row_max, block_max(tile_max, shared, REDUCTION))
        correction = math.exp(row_max - new_max)
        tile_sum = float32(0.0)
        key = tid
        while key < tile:
            p = math.exp(shared[SCORES + key] - new_max)
            shared[SCORES + key] = p
            tile_sum += p
            key += THREADS
        row_sum = correction * row_sum + block_sum(tile_sum, shared, REDUCTION)

        dim = tid
        while dim < hdim:
            acc = float32(0.0)
            if tile_start > 0:
                acc = out_row[dim] * correction
            key = cint(0)
            while key < tile:
                acc += shared[SCORES + key] * v_tile[key * hdim + dim]
                key += 1
            out_row[dim] = acc
            dim += THREADS
        row_max = new_max
        cuda.syncthreads()
        tile_start += BLOCK_K

    dim = tid
    while dim < hdim:
        out_row[dim] = out_row[dim] / row_sum
        dim += THREADS


def launch_attention(problem: Problem, q: str, k: str) -> Launch:
    """Attention of buffers `q` and `k` (and v) into out: one block a query row."""
    return block_per_query(attention, problem, f"{q} {k} v out", online_layout())


@register(
    title="Online softmax, fixed",
    parent="attention_online",
    baseline="attention_baseline",
    source='Final Summary, "Best Performance", with the reduction corrected',
    change="reductions share their result",
    iterations=10,
)
def attention_online_fixed(problem: Problem) -> Plan:
    """Plan float32 attention without a mask. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    return Plan(
        problem,
        attention_buffers(problem),
        (launch_attention(problem, "q", "k"), SYNC),
        hazards=(reduction_race("attention"),),
    )
