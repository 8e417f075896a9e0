"""RoPE hybrid on the V8 core: one launch rotates K, attention rotates Q.

Change from rope_v8: a kernel rotates K before the attention, as in rope_v7; on wgmma the attention starts meanwhile.

Source: beyond the documents.
"""

from ..flash.cluster import hybrid, plan, require_problem
from ..version import Plan, Problem, register
from .v8 import ROPE, of_pairs, rates_buffer


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
    dims = problem.rotary_dim
    launches = hybrid(problem, of_pairs(ROPE, dims), "rates", dims, target=target)
    return plan(problem, *launches, rates=rates_buffer(dims))
