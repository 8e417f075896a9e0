"""Sinusoidal, separate, 128-bit loads: embed Q, embed K, then attention; three launches, one sync.

Change from sinusoidal_separate_scalar: float4 loads and stores in the embed kernel, float4 loads of Q
and K in the attention kernel; one sync at the end of each call. The baseline of the hybrid analysis.

Source: Sinusoidal Hybrid Optimization Analysis, "Separate (Baseline)".
"""

from __future__ import annotations

from numba import cuda, uint32

from ..attention.online_fixed import launch_attention
from ..constants import FLOATS, THREADS, UINT, attention_buffers, reduction_race, require_log_problem
from ..device.vector import ld4, make_float4, st4
from ..version import SYNC, Buffer, Kernel, Launch, Plan, Problem, register
from .tables import sinusoidal_tables


def embed_tokens(x, sin, cos, embedded, seq, hdim):
    token = uint32(cuda.blockIdx.x)
    position = token % seq
    dim = uint32(4) * uint32(cuda.threadIdx.x)
    while dim < hdim:
        a = ld4(x, token * hdim + dim)
        s = ld4(sin, position * hdim + dim)
        c = ld4(cos, position * hdim + dim)
        st4(embedded, token * hdim + dim, make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w))
        dim += uint32(4) * THREADS


def launch_embed(problem: Problem, x: str, embedded: str) -> Launch:
    """Add the sinusoidal embedding to every token of buffer `x` into `embedded`: one block a token."""
    return Launch(
        Kernel(embed_tokens, (FLOATS,) * 4 + (UINT,) * 2),
        grid=(problem.batch * problem.heads * problem.seq_q,),
        block=(THREADS,),
        args=(x, "sin", "cos", embedded, problem.seq_q, problem.hdim),
    )


@register(
    family="sinusoidal",
    title="Separate, float4",
    parent="sinusoidal_separate_scalar",
    source='Sinusoidal Hybrid Optimization Analysis, "Separate (Baseline)"',
    change="float4 loads and stores; a sync a call",
    iterations=100,
)
def sinusoidal_separate_float4(problem: Problem) -> Plan:
    """Plan float32 attention with sinusoidal embeddings, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "sinusoidal")
    return Plan(
        problem,
        attention_buffers(
            problem,
            q_embedded=Buffer(problem.q_shape),
            k_embedded=Buffer(problem.kv_shape),
            **sinusoidal_tables(problem),
        ),
        (
            launch_embed(problem, "q", "q_embedded"),
            launch_embed(problem, "k", "k_embedded"),
            launch_attention(problem, "q_embedded", "k_embedded"),
            SYNC,
        ),
        hazards=(reduction_race("attention"),),
    )
