"""RoPE V8 for every GPU: full fusion in plain float32 arithmetic.

Change from rope_v8: the core of kernels/flash/cluster/portable instead of clusters and tensor cores; a block computes
the whole head dim of its tile of queries.

Source: beyond the documents.
"""

from ..flash.cluster import plan, require_problem
from ..flash.cluster.portable.core import attend
from ..version import Plan, Problem, register
from .v8 import ROPE, of_pairs, rates_buffer


@register(
    title="Full fusion on every GPU",
    parent="rope_v8",
    baseline="rope_separate",
    change="no cluster and no tensor cores: a block streams K and V through registers, K is rotated once a query tile",
    beyond=True,
)
def rope_v8_portable(problem: Problem) -> Plan:
    """Plan float32 RoPE attention on compute capability 7.5 and up. Raises: Unsupported."""
    require_problem(problem, "rope")
    launch = attend(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim)
    return plan(problem, launch, rates=rates_buffer(problem.rotary_dim))
