"""RoPE separate on the V8 core: launches rotate Q and K, then attention without an embedding.

Change from rope_v8: a kernel rotates Q and K before the attention, through global memory; the core is the same.

Source: beyond the documents.
"""

from ..flash.cluster import Call, attend, embed_rows, plan, require_problem
from ..version import Buffer, Plan, Problem, register
from .v8 import ROPE, of_pairs, rates_buffer


@register(
    title="Separate, then attention over a cluster",
    parent="rope_v8",
    baseline="rope_v8",
    change="Q and K are rotated by launches of their own, through global memory; the core is the same",
    beyond=True,
    variant_of="rope_v8",
)
def rope_separate_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the V8 core for the target. Raises: Unsupported."""
    require_problem(problem, "rope")
    call = Call(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim)
    attention = attend(problem, q="q_embedded", k="k_embedded", target=target)
    buffers = {"rates": rates_buffer(problem.rotary_dim), "q_embedded": Buffer(problem.q_shape)}
    return plan(problem, embed_rows(call, "q"), embed_rows(call, "k"), attention, **buffers)
