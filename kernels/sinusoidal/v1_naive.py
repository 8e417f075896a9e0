"""Sinusoidal V1: naive full fusion, tables read inside the dot product, scalar.

Change from sinusoidal_separate_scalar: one kernel. The dot product embeds the query and the key dim by dim, each from
its own row of the sin and cos tables. The embedding of the query is loaded again for every key.

Source: Fusing Positional Embeddings into Attention Kernels, "V1: Naive Fusion".
"""

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ..device.block import rows_of_query
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY
from ..device.softmax import add_values, divide_output, softmax_tile
from ..device.vector import advance
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
        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


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
