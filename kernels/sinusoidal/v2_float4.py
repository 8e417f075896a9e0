"""Sinusoidal V2: full fusion, tables, 128-bit loads.

Change from sinusoidal_v1: six float4 loads for four dims: Q, K, and both tables at both positions. Half of each table
vector is unused, and the compiler replaces its load by two scalar loads of the other half. So only Q and K are loaded
four floats at a time; nvcc does the same.

Source: Fusing Positional Embeddings into Attention Kernels, "V2-V3".
"""

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ..device.block import rows_of_query
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY
from ..device.softmax import add_values, divide_output, softmax_tile
from ..device.vector import advance, ld4
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import Plan, Problem, register
from .tables import sinusoidal_tables


def attention(q, k, v, sin, cos, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
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
                a = ld4(q_row, dim)
                b = ld4(k_row, dim)
                sq = ld4(sin_q, dim)
                sk = ld4(sin_k, dim)
                cq = ld4(cos_q, dim)
                ck = ld4(cos_k, dim)
                score += (
                    (a.x + sq.x) * (b.x + sk.x)
                    + (a.y + cq.y) * (b.y + ck.y)
                    + (a.z + sq.z) * (b.z + sk.z)
                    + (a.w + cq.w) * (b.w + ck.w)
                )
                dim += 4
            shared[SCORES + key] = score * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


@register(
    title="Full fusion: tables, float4",
    parent="sinusoidal_v1",
    baseline="sinusoidal_separate_scalar",
    change="float4 loads",
    iterations=100,
)
def sinusoidal_v2(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q k v sin cos out", online_layout())
    return Plan(
        problem,
        attention_buffers(problem, **sinusoidal_tables(problem)),
        (attend,),
        hazards=(reduction_race("attention"),),
    )
