"""Online softmax over tiles of 64 keys, 128-bit loads; reductions that do not share their result.

Change from attention_baseline: float4 loads; a running maximum and sum over key tiles; the output is rescaled in global
memory and divided at the end. The reductions still leave out the last store. So warp 1 divides by the sum of its own
keys, and a warp without keys keeps a maximum of -inf, whose correction exp(-inf + inf) is NaN in every dim it owns.

Source: Final Summary, "Best Performance"; as timed.
"""

import math

from numba import cuda, float32

from ..checking.models import Array, online_unshared, scaled_scores
from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY, block_max_unshared, block_sum_unshared
from ..device.vector import advance, ld4
from ..planning import UNSHARED_DEFECT, attention_buffers, block_per_query, online_layout, require_log_problem
from ..version import SYNC, Plan, Problem, register


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
        new_max = max(row_max, block_max_unshared(tile_max, shared, REDUCTION))
        correction = math.exp(row_max - new_max)
        tile_sum = float32(0.0)
        key = tid
        while key < tile:
            p = math.exp(shared[SCORES + key] - new_max)
            shared[SCORES + key] = p
            tile_sum += p
            key += THREADS
        row_sum = correction * row_sum + block_sum_unshared(tile_sum, shared, REDUCTION)

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


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: the online softmax with a maximum and a sum per warp."""
    return online_unshared(scaled_scores(problem, q, k), v)


@register(
    title="Online softmax, as published",
    parent="attention_baseline",
    baseline="attention_baseline",
    source='Final Summary, "Best Performance"',
    change="float4 loads, online softmax over key tiles",
    iterations=10,
    wrong_output=wrong_output,
)
def attention_online(problem: Problem) -> Plan:
    """Plan float32 attention without a mask; wrong unless one warp holds all keys and dims. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    wrong = problem.seq_k > 32 or problem.hdim > 32
    return Plan(
        problem,
        attention_buffers(problem),
        (block_per_query(attention, problem, "q k v out", online_layout()), SYNC),
        defect=UNSHARED_DEFECT if wrong else "",
    )
