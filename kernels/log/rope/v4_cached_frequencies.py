"""RoPE V4: full fusion, frequencies cached in shared memory, the whole block on one key at a time.

Change from rope_v3: one query per block again. The inverse frequencies are computed once per block. The block takes one
key after the other: all threads compute cos and sin of every dim (twice for a pair) into shared memory, then each a
part of the dot product, which a block reduction sums. That takes four barriers per key.

Source: RoPE Fusion Implementation Log, V4, items 15-17.
"""

from numba import cuda, float32

from ...constants import BLOCK_K, EXTRA, REDUCTION, SCORES, THREADS
from ...device import NEGATIVE_INFINITY, advance, block_sum, cint, fast_sincos, rotate, rows_of_query
from ...device.softmax import add_values, divide_output, softmax_tile
from ...version import SYNC, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem
from .query import cache_frequencies


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    inv_freq = EXTRA + hdim
    cos = inv_freq + hdim // 2
    sin = cos + hdim
    cache_frequencies(shared, inv_freq, hdim)
    cuda.syncthreads()
    dim = tid
    while dim < hdim:
        s, c = fast_sincos(float32(query) * shared[inv_freq + dim // 2])
        if dim % 2 == 0:
            shared[EXTRA + dim] = rotate(q_row[dim], q_row[dim + 1], c, s)[0]
        else:
            shared[EXTRA + dim] = rotate(q_row[dim - 1], q_row[dim], c, s)[1]
        dim += THREADS
    cuda.syncthreads()

    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = cint(0)
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            position = float32(tile_start + key)
            dim = tid
            while dim < hdim:
                s, c = fast_sincos(position * shared[inv_freq + dim // 2])
                shared[cos + dim] = c
                shared[sin + dim] = s
                dim += THREADS
            cuda.syncthreads()
            score = float32(0.0)
            dim = 2 * tid
            while dim < hdim:
                x, y = rotate(k_row[dim], k_row[dim + 1], shared[cos + dim], shared[sin + dim])
                score += shared[EXTRA + dim] * x + shared[EXTRA + dim + 1] * y
                dim += 2 * THREADS
            score = block_sum(score, shared, REDUCTION)
            if tid == 0:
                shared[SCORES + key] = score * softmax_scale
            cuda.syncthreads()
            key += 1

        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


@register(
    title="Full fusion, cached frequencies, block a key",
    parent="rope_v3",
    baseline="rope_separate",
    change="frequencies computed once a block; the whole block on one key at a time; one query a block",
    scalar_loads=True,
)
def rope_v4(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=2, all_dims=True)
    layout = online_layout(query=problem.hdim, inv_freq=problem.hdim // 2, cos=problem.hdim, sin=problem.hdim)
    launch = block_per_query(attention, problem, "q k v out", layout)
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
