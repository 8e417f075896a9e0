"""Sinusoidal, separate, 128-bit loads: embed Q, embed K, then attention; three launches, one sync.

Change from sinusoidal_separate_scalar: the embed kernel loads and stores float4; the attention kernel loads Q and K as
float4 and unrolls its dot product by four; one sync at the end of each call. The baseline of the hybrid analysis.

Source: Sinusoidal Hybrid Optimization Analysis, "Separate (Baseline)".
"""

from functools import partial

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ..device.block import rows_of_query
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY
from ..device.softmax import add_values, divide_output, softmax_tile
from ..device.vector import advance, ld4, make_float4, st4
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import SYNC, Buffer, Plan, Problem, register
from .dot import HINT, unrolled_dot
from .tables import launch_tokens, sinusoidal_tables


def embed_tokens(x, sin, cos, embedded, seq, hdim):
    token = cint(cuda.blockIdx.x)
    position = token % seq
    dim = cint(4 * cuda.threadIdx.x)
    while dim < hdim:
        a = ld4(x, token * hdim + dim)
        s = ld4(sin, position * hdim + dim)
        c = ld4(cos, position * hdim + dim)
        st4(embedded, token * hdim + dim, make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w))
        dim += 4 * THREADS


dot = unrolled_dot(ld4, HINT)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            shared[SCORES + key] = dot(q_row, k_row, hdim) * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


launch_embed = partial(launch_tokens, embed_tokens)


@register(
    title="Separate, float4",
    parent="sinusoidal_separate_scalar",
    change="float4 loads and stores, the dot product unrolled by four; a sync a call",
    iterations=100,
)
def sinusoidal_separate_float4(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    attend = block_per_query(attention, problem, "q_embedded k_embedded v out", online_layout())
    return Plan(
        problem,
        attention_buffers(
            problem,
            q_embedded=Buffer(problem.q_shape),
            k_embedded=Buffer(problem.kv_shape),
            **sinusoidal_tables(problem),
        ),
        (launch_embed(problem, "q", "q_embedded"), launch_embed(problem, "k", "k_embedded"), attend, SYNC),
        hazards=(reduction_race("attention"),),
    )
