"""Sinusoidal, separate, 128-bit loads: embed Q, embed K, then attention; three launches, one sync.

Change from sinusoidal_separate_scalar: the embed kernel loads and stores float4; the attention kernel loads Q and K as
float4 and unrolls its dot product by four; one sync at the end of each call. The baseline of the hybrid analysis.

Source: Sinusoidal Hybrid Optimization Analysis, "Separate (Baseline)".
"""

from numba import cuda, float32

from ...constants import THREADS
from ...device import cint, ld4, make_float4, online_attention, rows_of_query, st4
from ...version import SYNC, Buffer, Launch, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, block_per_token, log_plan, online_layout, require_log_problem
from .dot import unrolled_dot
from .tables import sinusoidal_tables


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


score = unrolled_dot(ld4)
attend_to_keys = online_attention(score)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    attend_to_keys(q_row, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


def launch_embed(problem: Problem, x: str, embedded: str) -> Launch:
    """Add the embedding to every token of buffer `x` and store it in `embedded`."""
    return block_per_token(embed_tokens, problem, f"{x} sin cos {embedded}", problem.seq_q, problem.hdim)


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
    buffers = {"q_embedded": Buffer(problem.q_shape), "k_embedded": Buffer(problem.kv_shape)}
    buffers |= sinusoidal_tables(problem)
    embed = launch_embed(problem, "q", "q_embedded"), launch_embed(problem, "k", "k_embedded")
    return log_plan(problem, *embed, attend, SYNC, hazards=(REDUCTION_RACE,), buffers=buffers)
