"""Sinusoidal, separate, scalar: embed Q, embed K, then attention; three launches, no sync.

The baseline of the write-up's fused versions V1 to V5. Every load and store moves one float32, also in the attention
kernel.

Source: Fusing Positional Embeddings into Attention Kernels, "Baseline Separate".
"""

from numba import cuda, float32

from ...constants import THREADS
from ...device import cint, online_attention, rows_of_query
from ...version import Buffer, Launch, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, block_per_token, log_plan, online_layout, require_log_problem
from .tables import sinusoidal_tables


def embed_tokens(x, sin, cos, embedded, seq, hdim):
    token = cint(cuda.blockIdx.x)
    position = token % seq
    dim = cint(cuda.threadIdx.x)
    while dim < hdim:
        if dim % 2 == 0:
            embedding = sin[position * hdim + dim]
        else:
            embedding = cos[position * hdim + dim]
        embedded[token * hdim + dim] = x[token * hdim + dim] + embedding
        dim += THREADS


@cuda.jit(device=True, inline="always")
def score(q_row, k_row, key, hdim):
    total = float32(0.0)
    dim = cint(0)
    while dim < hdim:
        total += q_row[dim] * k_row[dim]
        dim += 1
    return total


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


@register(title="Separate, scalar", iterations=100, scalar_loads=True)
def sinusoidal_separate_scalar(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal", multiple=2)
    attend = block_per_query(attention, problem, "q_embedded k_embedded v out", online_layout())
    buffers = {"q_embedded": Buffer(problem.q_shape), "k_embedded": Buffer(problem.kv_shape)}
    buffers |= sinusoidal_tables(problem)
    embed = launch_embed(problem, "q", "q_embedded"), launch_embed(problem, "k", "k_embedded")
    return log_plan(problem, *embed, attend, hazards=(REDUCTION_RACE,), buffers=buffers)
