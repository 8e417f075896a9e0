"""Sinusoidal V1: naive full fusion, tables read inside the dot product, scalar.

Change from sinusoidal_separate_scalar: one kernel. The dot product embeds the query and the key dim by dim, each from
its own row of the sin and cos tables. The embedding of the query is loaded again for every key.

Source: Fusing Positional Embeddings into Attention Kernels, "V1: Naive Fusion".
"""

import math

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY, block_max, block_sum
from ..device.vector import advance
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import Plan, Problem, register
from .tables import sinusoidal_tables


def attention(q, k, v, sin, cos, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    head = cint(cuda.blockIdx.y)
    q_row = advance(q, (head * seq_q + query) * hdim)
    out_row = advance(out, (head * seq_q + query) * hdim)
    k_head = advance(k, head * seq_k * hdim)
    v_head = advance(v, head * seq_k * hdim)
    sin_q = advance(sin, query * hdim)
    cos_q = advance(cos, query * hdim)
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
            sin_k = advance(sin, (tile_start + key) * hdim)
            cos_k = advance(cos, (tile_start + key) * hdim)
            dim = cint(0)
            while dim < hdim:
                if dim % 2 == 0:
                    a = q_row[dim] + sin_q[dim]
                    b = k_row[dim] + sin_k[dim]
                else:
                    a = q_row[dim] + cos_q[dim]
                    b = k_row[dim] + cos_k[dim]
                score += a * b
                dim += 1
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


@register(
    title="Full fusion: tables, scalar",
    parent="sinusoidal_separate_scalar",
    baseline="sinusoidal_separate_scalar",
    change="everything in one kernel: Q and K embedded in the dot product",
    iterations=100,
    scalar_loads=True,
)
def sinusoidal_v1(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal", multiple=2)
    attend = block_per_query(attention, problem, "q k v sin cos out", online_layout())
    return Plan(
        problem,
        attention_buffers(problem, **sinusoidal_tables(problem)),
        (attend,),
        hazards=(reduction_race("attention"),),
    )
