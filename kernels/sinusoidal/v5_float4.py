"""Sinusoidal V5: full fusion, frequencies cached in shared memory, 128-bit loads, fast sine and cosine.

Change from sinusoidal_v4: float4 loads of Q, K and the frequencies; `__sincosf` instead of sinf and cosf, one call for
every dim of the query and of the key, of which one result is used. The embedding of the query is still computed again
for every key.

Source: Fusing Positional Embeddings into Attention Kernels, "V4-V5".
"""

from numba import cuda, float32

from ..constants import BLOCK_K, EXTRA, FREQUENCY_BASE, REDUCTION, SCORES, THREADS
from ..device.block import rows_of_query
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY
from ..device.softmax import add_values, divide_output, softmax_tile
from ..device.trig import fast_cos, fast_sin, powf
from ..device.vector import advance, ld4
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import Plan, Problem, register


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    dim = tid
    while dim < hdim:
        exponent = float32(2 * (dim // 2)) / float32(hdim)
        shared[EXTRA + dim] = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
        dim += THREADS
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
            score = float32(0.0)
            position = float32(tile_start + key)
            dim = cint(0)
            while dim < hdim:
                a = ld4(q_row, dim)
                b = ld4(k_row, dim)
                freq = ld4(shared, EXTRA + dim)
                score += (
                    (a.x + fast_sin(float32(query) * freq.x)) * (b.x + fast_sin(position * freq.x))
                    + (a.y + fast_cos(float32(query) * freq.y)) * (b.y + fast_cos(position * freq.y))
                    + (a.z + fast_sin(float32(query) * freq.z)) * (b.z + fast_sin(position * freq.z))
                    + (a.w + fast_cos(float32(query) * freq.w)) * (b.w + fast_cos(position * freq.w))
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
    title="Full fusion: cached frequencies, float4",
    parent="sinusoidal_v4",
    baseline="sinusoidal_separate_scalar",
    change="float4 loads; fast sine and cosine",
    iterations=100,
)
def sinusoidal_v5(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q k v out", online_layout(frequency=problem.hdim))
    return Plan(problem, attention_buffers(problem), (attend,), hazards=(reduction_race("attention"),))
