"""Attention on the V8 core: no embedding.

Change from attention_online_fixed: the core of kernels/flash/cluster instead of one thread per key.

Source: beyond the documents.
"""

from ..flash.cluster import attend, plan, require_problem
from ..version import Plan, Problem, register


@register(
    title="Head dim over a cluster",
    parent="attention_online_fixed",
    baseline="attention_online_fixed",
    change="a cluster shares the head dim and sums the scores in shared memory; TF32 tensor cores, three products",
    beyond=True,
    variant_of="rope_v8",
)
def attention_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 attention on the V8 core for the target. Raises: Unsupported."""
    require_problem(problem, "attention")
    return plan(problem, attend(problem, target=target))
