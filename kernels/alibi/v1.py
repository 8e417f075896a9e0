"""ALiBi V1: a bias by distance, added to the scores inside the V8 core.

Change from attention_v8: each score gets -slope * |query position - key position|; Q and K are not embedded.

Source: beyond the documents, which name it as future work.
"""

from functools import partial

import numpy as np
from numba import cuda, float32, int32

from ..checking.reference import alibi_slopes, require_table
from ..flash.cluster import Embedding, attend, plan, require_problem
from ..version import Buffer, Plan, Problem, register


@cuda.jit(device=True)
def by_distance(slopes, head, distance):
    return -slopes[head] * abs(float32(int32(distance)))


ALIBI = Embedding("alibi", bias=by_distance, query=False, keys=False)


def _slopes(batch: int, heads: int) -> np.ndarray:
    return np.tile(alibi_slopes(heads), batch).astype(np.float32)


@register(
    title="Bias over a cluster",
    parent="attention_v8",
    source="beyond the documents",
    change="a bias by distance on the scores",
    beyond=True,
    variant_of="rope_v8",
)
def alibi_v1(problem: Problem, target: str) -> Plan:
    """Plan float32 attention with linear biases. Raises: Unsupported."""
    require_problem(problem, "alibi")
    require_table(problem)
    slopes = Buffer((problem.batch * problem.heads,), init=partial(_slopes, problem.batch, problem.heads))
    return plan(problem, attend(problem, ALIBI, "slopes", target=target), slopes=slopes)
