"""Sinusoidal hybrid V1: K embedded once by its own kernel, Q embedded inside the attention kernel.

Change from sinusoidal_separate_float4: no kernel for Q. The attention kernel embeds its query row from the tables into
shared memory and reads it from there.

Source: Sinusoidal Hybrid Optimization Analysis, "Hybrid V1".
"""

import math

from numba import cuda, float32

from ..constants import BLOCK_K, EXTRA, REDUCTION, SCORES, THREADS
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY, block_max, block_sum
from ..device.vector import advance, ld4, make_float4, st4
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import SYNC, Buffer, Plan, Problem, register
from .dot import HINT, unrolled_dot
from .separate_float4 import launch_embed
from .tables import sinusoidal_tables


@cuda.jit(device=True)
def cached_query(shared, dim):
    return ld4(shared, EXTRA + dim)


dot = unrolled_dot(cached_query, HINT)


def attention(q, k, v, sin, cos, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    head = cint(cuda.blockIdx.y)
    q_row = advance(q, (head * seq_q + query) * hdim)
    out_row = advance(out, (head * seq_q + query) * hdim)
    k_head = advance(k, head * seq_k * hdim)
    v_head = advance(v, head * seq_k * hdim)

    dim = 4 * tid
    while dim < hdim:
        a = ld4(q_row, dim)
        s = ld4(sin, query * hdim + dim)
        c = ld4(cos, query * hdim + dim)
        st4(shared, EXTRA + dim, make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w))
        dim += 4 * THREADS
    cuda.syncthreads()

    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            shared[SCORES + key] = dot(shared, k_row, hdim) * softmax_scale
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


@register(
    title="Hybrid: K embedded before, Q inside",
    parent="sinusoidal_separate_float4",
    baseline="sinusoidal_separate_float4",
    change="Q embedded inside the attention kernel; one launch fewer",
    iterations=100,
)
def sinusoidal_hybrid_v1(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q k_embedded v sin cos out", online_layout(query=problem.hdim))
    return Plan(
        problem,
        attention_buffers(problem, k_embedded=Buffer(problem.kv_shape), **sinusoidal_tables(problem)),
        (launch_embed(problem, "k", "k_embedded"), attend, SYNC),
        hazards=(reduction_race("attention"),),
    )
