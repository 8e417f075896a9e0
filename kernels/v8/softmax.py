"""The weights of an online softmax, which stay finite wherever those of a softmax over whole rows do.

The greatest score of a row so far begins at the least float32, not at minus infinity: keys whose scores are all minus
infinity then weigh nothing. And a weight is at most one over the number of keys, or half of that, so that no sum of
weights times values overflows before it is divided by the sum of weights. Of a subnormal value that leaves few bits
where keys are many. So `greatest_beside` follows the sum itself, where that costs little: a key that alone weighs much
weighs almost one.

What rounding takes from the sum of weights can be kept and added later, by `add_weights`: where one of many keys weighs
nearly all, the rest of a hundred thousand would each be rounded away.
"""

from __future__ import annotations

import math

from numba import cuda, float32, int32
from numba.cuda import libdevice

from ..device.asm import exp2

LOG2_E = float32(math.log2(math.e))
LOWEST = float32(-3.4028234663852886e38)
EXPONENT_BITS, EXPONENT_OF_ONE = int32(23), int32(127)
INVERSE_BITS = int32(254 << 23)  # of a power of two and of its inverse together


@cuda.jit(device=True)
def greatest_weight(seq_k):
    """The greatest power of two that is not above 1 / seq_k."""
    rounded_up = int32(32) - int32(cuda.clz(int32(int32(seq_k) - int32(1))))
    return libdevice.int_as_float(int32(int32(EXPONENT_OF_ONE - rounded_up) << EXPONENT_BITS))


@cuda.jit(device=True)
def over_power(x, power):
    """x / power, a power of two above 2^-127."""
    return x * libdevice.int_as_float(int32(INVERSE_BITS - libdevice.float_as_int(power)))


@cuda.jit(device=True)
def greatest_beside(total, keys):
    """A power of two. With it as the greatest, `keys` more weights and those so far sum to 1 at most.

    total: the sum of those so far if one were the greatest.
    """
    exponent = int32(libdevice.float_as_int(total + keys) >> EXPONENT_BITS)
    return libdevice.int_as_float(int32(int32(int32(2) * EXPONENT_OF_ONE - int32(1) - exponent) << EXPONENT_BITS))


@cuda.jit(device=True)
def weight_of(score, row_max, greatest):
    return exp2((score - row_max) * LOG2_E) * greatest


@cuda.jit(device=True)
def rescaling(old_max, row_max):
    """What sums are multiplied by as the greatest score of their row rises."""
    return exp2((old_max - row_max) * LOG2_E)


@cuda.jit(device=True)
def add_weights(total, lost, correction, weights):
    """The sum of weights, rescaled, with more of them, and what rounding took from it: total + lost is the sum."""
    more = cuda.fma(correction, lost, weights)
    old = correction * total
    total = old + more
    return total, more - (total - old)


@cuda.jit(device=True)
def inverse_of(row_sum):
    """1 / row_sum within an ulp; 0 where nothing weighs anything, as in PyTorch.

    Without the function that `1 / x` calls: a call would let no two products of warpgroups overlap.
    """
    near = libdevice.fast_fdividef(float32(1.0), row_sum)
    near = cuda.fma(near, cuda.fma(-row_sum, near, float32(1.0)), near)
    return float32(0.0) if row_sum == float32(0.0) else near
