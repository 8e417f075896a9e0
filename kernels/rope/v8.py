"""RoPE V8: full fusion on a core that spreads the head dim over a thread-block cluster.

Change from rope_v7: one launch; K is rotated on its way to its product, once a tile of queries, or, where these are
many, once by all blocks together; each block its part of the dims; and the core of kernels/v8 in place of one thread a
key.

Source: beyond the documents.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numba import cuda, float32

from ..constants import FREQUENCY_BASE
from ..device.angle import sincospi
from ..device.trig import rotate
from ..device.vector import ld4, make_float4
from ..v8 import Embedding, attend, plan, require_problem
from ..version import Buffer, Plan, Problem, register


@cuda.jit(device=True)
def rates_of(rates, dim):
    """Two parts of the rate of each of two pairs."""
    return ld4(rates, dim)


@cuda.jit(device=True)
def turns(rates, position, dim, rate, hdim):
    sin0, cos0 = sincospi(float32(position), rate.x, rate.y)
    sin1, cos1 = sincospi(float32(position), rate.z, rate.w)
    return cos0, sin0, cos1, sin1


@cuda.jit(device=True)
def turned_by(x, cos0, sin0, cos1, sin1):
    x0, x1 = rotate(x.x, x.y, cos0, sin0)
    x2, x3 = rotate(x.z, x.w, cos1, sin1)
    return make_float4(x0, x1, x2, x3)


@cuda.jit(device=True)
def turned_by_odd(x, cos0, sin0, cos1, sin1):
    """As `turned_by`; a pair that does not turn stays as it is, infinite or not, as the one behind an odd number."""
    y = turned_by(x, cos0, sin0, cos1, sin1)
    if cos1 == float32(1.0) and sin1 == float32(0.0):
        y = make_float4(y.x, y.y, x.z, x.w)
    return y


ROPE = Embedding("rope", rates_of, turns, turned_by)


def of_pairs(embedding: Embedding, rotary_dim: int) -> Embedding:
    """The embedding for so many dims: kernels turn two pairs at a time, and an odd number leaves one that stays."""
    if rotary_dim % 4 == 0:
        return embedding
    return replace(embedding, name=f"{embedding.name}_odd", embed=turned_by_odd)


def rates_of_turning(rotary_dim: int, base: float = FREQUENCY_BASE) -> np.ndarray:
    """float32[pairs, 2]: half turns of a pair from one position to the next, and what the first lacks of them.

    Kernels turn two pairs at a time: behind an odd number of pairs one stays as it is.
    """
    pairs = rotary_dim // 2
    turning = np.append(base ** (-np.arange(pairs) / max(pairs, 1)) / np.pi, np.zeros(pairs % 2))
    high = turning.astype(np.float32)
    return np.stack([high, (turning - high).astype(np.float32)], axis=1)


def rates_buffer(rotary_dim: int) -> Buffer:
    """The rates of the documents' base, in a plan."""
    return Buffer((-(-rotary_dim // 4) * 2, 2), init=partial(rates_of_turning, rotary_dim))


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
    launch = attend(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim, target=target)
    return plan(problem, launch, rates=rates_buffer(problem.rotary_dim))
