"""RoPE V8: full fusion on a core that spreads the head dim over a thread-block cluster.

Change from rope_v7: one launch; K is rotated on its way to its product, once a tile of queries, or, where these are
many, once by all blocks together; each block its part of the dims; and the core of kernels/v8 in place of one thread a
key.

Source: beyond the documents.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

from ..constants import FREQUENCY_BASE
from ..device.angle import sincospi
from ..device.trig import rotate
from ..device.vector import ld2, make_float4
from ..v8 import Embedding, attend, plan, require_problem
from ..version import Buffer, Plan, Problem, register


@cuda.jit(device=True)
def rates_of(rates, dim):
    return ld2(rates, dim // 2)


@cuda.jit(device=True)
def turns(rates, position, dim, first, second, hdim):
    sin0, cos0 = sincospi(float32(position), first)
    sin1, cos1 = sincospi(float32(position), second)
    return cos0, sin0, cos1, sin1


@cuda.jit(device=True)
def turned_by(x, cos0, sin0, cos1, sin1):
    x0, x1 = rotate(x.x, x.y, cos0, sin0)
    x2, x3 = rotate(x.z, x.w, cos1, sin1)
    return make_float4(x0, x1, x2, x3)


ROPE = Embedding("rope", rates_of, turns, turned_by)


def rates_of_turning(rotary_dim: int) -> Buffer:
    """float32[rotary_dim / 2], and one 0 if that is odd: half turns of a pair from one position to the next.

    Kernels turn two pairs at a time; one behind the rotary dims stays as it is.
    """
    pairs = rotary_dim // 2

    def rates() -> np.ndarray:
        turning = FREQUENCY_BASE ** (-np.arange(pairs) / pairs) / np.pi
        return np.append(turning, np.zeros(pairs % 2)).astype(np.float32)

    return Buffer((pairs + pairs % 2,), init=rates)


@register(
    family="rope",
    title="Full fusion over a cluster",
    parent="rope_v7",
    baseline="rope_separate",
    source="beyond the documents",
    change="one launch; a cluster shares the head dim; K is rotated once a query tile, or once; TF32 tensor cores",
    beyond=True,
)
def rope_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the core for the target. Raises: Unsupported."""
    require_problem(problem, "rope")
    launch = attend(problem, ROPE, "rates", problem.rotary_dim, target=target)
    return plan(problem, launch, rates=rates_of_turning(problem.rotary_dim))
