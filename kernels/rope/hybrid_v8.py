"""RoPE hybrid on the V8 core: one launch rotates K, attention rotates Q.

Change from rope_v8: a kernel rotates K before the attention, as in rope_v7.

Source: beyond the documents.
"""

from dataclasses import replace

from ..flash.cluster import attend, require_problem
from ..planning import attention_buffers
from ..version import Buffer, Plan, Problem, register
from .separate_v8 import launch_rotation
from .v8 import ROPE, of_pairs, rates_buffer

ROPE_OF_QUERIES = replace(ROPE, name="rope_of_queries", keys=False)


@register(
    title="Hybrid, attention over a cluster",
    parent="rope_v8",
    baseline="rope_separate_v8",
    change="K is rotated by a launch of its own; Q inside; the core is the same",
    beyond=True,
    variant_of="rope_v8",
)
def rope_hybrid_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the V8 core for the target. Raises: Unsupported."""
    require_problem(problem, "rope")
    rates = rates_buffer(problem.rotary_dim)
    buffers = attention_buffers(problem, rates=rates, k_turned=Buffer(problem.kv_shape))
    embedding = of_pairs(ROPE_OF_QUERIES, problem.rotary_dim)
    attention = attend(problem, embedding, "rates", problem.rotary_dim, k="k_turned", target=target)
    return Plan(problem, buffers, (launch_rotation(problem, "k"), attention))
