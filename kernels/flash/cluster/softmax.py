"""The weights of an online softmax, which stay finite wherever those of a softmax over whole rows do.

The running row max starts at the lowest float32, not at minus infinity: keys whose scores are all minus infinity then
have weight 0. A weight is at most one over the number of keys, or half of that, so that no sum of weights times values
overflows before it is divided by the sum of weights. With many keys this costs precision in products with subnormal
values. So `weight_ceiling` adapts the largest weight to the row sum itself, where that is cheap: a key that dominates
then has a weight of almost one.

The rounding error of the row sum can be kept and added later, by `add_weights`: where one of many keys has nearly all
of the weight, each of the others would be rounded away.
"""

import math

from numba import cuda, float32, int32
from numba.cuda import libdevice

from ...device.asm import exp2

LOG2_E = float32(math.log2(math.e))
LOWEST = float32(-3.4028234663852886e38)
EXPONENT_BITS, EXPONENT_OF_ONE = int32(23), int32(127)
INVERSE_BITS = int32(254 << 23)  # the bits of a power of two plus those of its inverse


@cuda.jit(device=True)
def greatest_weight(seq_k):
    """The largest power of two that is at most 1 / seq_k."""
    rounded_up = int32(32) - int32(cuda.clz(int32(int32(seq_k) - int32(1))))
    return libdevice.int_as_float(int32(int32(EXPONENT_OF_ONE - rounded_up) << EXPONENT_BITS))


@cuda.jit(device=True)
def over_power(x, power):
    """x / power, for a power of two above 2^-127."""
    return x * libdevice.int_as_float(int32(INVERSE_BITS - libdevice.float_as_int(power)))


@cuda.jit(device=True)
def weight_ceiling(total, keys):
    """The ceiling of the weights: a power of two with which `keys` more weights and those so far sum to at most 1.

    total: the sum of the weights so far, relative to a largest weight of 1.
    """
    exponent = int32(libdevice.float_as_int(total + keys) >> EXPONENT_BITS)
    return libdevice.int_as_float(int32(int32(int32(2) * EXPONENT_OF_ONE - int32(1) - exponent) << EXPONENT_BITS))


@cuda.jit(device=True)
def weight_of(score, row_max, greatest):
    return exp2((score - row_max) * LOG2_E) * greatest


@cuda.jit(device=True)
def rescaling(old_max, row_max):
    """The factor that rescales sums when the row max rises from `old_max` to `row_max`."""
    return exp2((old_max - row_max) * LOG2_E)


@cuda.jit(device=True)
def add_weights(total, lost, correction, weights):
    """The rescaled row sum with `weights` added, and its rounding error: total + lost is the exact sum."""
    more = cuda.fma(correction, lost, weights)
    old = correction * total
    total = old + more
    return total, more - (total - old)


@cuda.jit(device=True)
def inverse_of(row_sum):
    """1 / row_sum within an ulp; 0 for a row whose keys all have weight 0, as in PyTorch.

    It avoids the function call of `1 / x`, which would serialise the products of warpgroups.
    """
    near = libdevice.fast_fdividef(float32(1.0), row_sum)
    near = cuda.fma(near, cuda.fma(-row_sum, near, float32(1.0)), near)
    return float32(0.0) if row_sum == float32(0.0) else near
