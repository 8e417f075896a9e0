"""RoPE V8: full fusion on a core that distributes the head dim over a thread-block cluster.

Change from rope_v7: one launch, on the core of kernels/flash/cluster instead of one thread per key; each block has a
slice of the dims. K is rotated between its load and its product, once per tile of queries. Where few queries meet many
keys, clusters share the keys, and a second launch combines their parts.

Source: beyond the documents.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from numba import cuda, float32

from ..constants import FREQUENCY_BASE
from ..device.angle import sincospi
from ..device.trig import rotate
from ..device.vector import ld4, make_float4
from ..flash.cluster import Embedding, attend, plan, require_problem
from ..version import Buffer, Plan, Problem, register


@cuda.jit(device=True)
def rates_of(rates, dim):
    """The two parts of the rate of each of two pairs."""
    return ld4(rates, dim)


@cuda.jit(device=True)
def cos_sin(rates, position, dim, rate, hdim):
    sin0, cos0 = sincospi(float32(position), rate.x, rate.y)
    sin1, cos1 = sincospi(float32(position), rate.z, rate.w)
    return cos0, sin0, cos1, sin1


@cuda.jit(device=True)
def rotate_pairs(x, cos0, sin0, cos1, sin1):
    x0, x1 = rotate(x.x, x.y, cos0, sin0)
    x2, x3 = rotate(x.z, x.w, cos1, sin1)
    return make_float4(x0, x1, x2, x3)


@cuda.jit(device=True)
def rotate_pairs_odd(x, cos0, sin0, cos1, sin1):
    """As `rotate_pairs`, but a pair with cos 1 and sin 0 stays as it is even if infinite: the one after
    an odd number of pairs.
    """
    y = rotate_pairs(x, cos0, sin0, cos1, sin1)
    if cos1 == float32(1.0) and sin1 == float32(0.0):
        y = make_float4(y.x, y.y, x.z, x.w)
    return y


ROPE = Embedding("rope", rates_of, cos_sin, rotate_pairs)


def of_pairs(embedding: Embedding, rotary_dim: int) -> Embedding:
    """`embedding` for `rotary_dim` dims: two pairs are rotated at a time, so an odd number leaves one unrotated."""
    if rotary_dim % 4 == 0:
        return embedding
    return replace(embedding, name=f"{embedding.name}_odd", apply=rotate_pairs_odd)


def rates_of_turning(rotary_dim: int, base: float = FREQUENCY_BASE) -> np.ndarray:
    """float32[pairs, 2]: the rate of each pair in half turns per position, and its rounding error.

    Kernels rotate two pairs at a time: after an odd number of pairs one with rate 0 follows.
    """
    pairs = rotary_dim // 2
    turning = np.append(base ** (-np.arange(pairs) / max(pairs, 1)) / np.pi, np.zeros(pairs % 2))
    high = turning.astype(np.float32)
    return np.stack([high, (turning - high).astype(np.float32)], axis=1)


def rates_buffer(rotary_dim: int) -> Buffer:
    """The rates of the documents' base, as a buffer of a plan."""
    return Buffer((-(-rotary_dim // 4) * 2, 2), init=partial(rates_of_turning, rotary_dim))


@register(
    title="Full fusion over a cluster",
    parent="rope_v7",
    baseline="rope_separate",
    change="one launch; a cluster shares the head dim; K is rotated once a query tile; TF32 tensor cores",
    beyond=True,
)
def rope_v8(problem: Problem, target: str) -> Plan:
    """Plan float32 RoPE attention on the V8 core for the target. Raises: Unsupported."""
    require_problem(problem, "rope")
    launch = attend(problem, of_pairs(ROPE, problem.rotary_dim), "rates", problem.rotary_dim, target=target)
    return plan(problem, launch, rates=rates_buffer(problem.rotary_dim))
