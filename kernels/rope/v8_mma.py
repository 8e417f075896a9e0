"""RoPE V8 on mma.sync: the same fusion, with products by warps instead of warpgroups.

Change from rope_v8: the core of kernels/flash/cluster/mma for every problem. It runs on every GPU with clusters;
that of kernels/flash/cluster/wgmma runs on compute capability 9.0 only.

Source: beyond the documents.
"""

from ..flash.cluster import plan, require_problem
from ..flash.cluster.mma.core import attend
from ..version import Plan, Problem, register
from .v8 import ROPE, of_pairs, rates_buffer


@register(
    title="Full fusion over a cluster, by warps",
    parent="rope_v8",
    baseline="rope_v8",
    change="mma.sync of single warps in place of wgmma",
    beyond=True,
)
def rope_v8_mma(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on compute capability 9.0 and up. Raises: Unsupported."""
    require_problem(problem, "rope")
    launch = attend(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim, target=target)
    return plan(problem, launch, rates=rates_buffer(problem.rotary_dim))
