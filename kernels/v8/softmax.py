"""The weights of an online softmax, which stay finite wherever those of a softmax over whole rows do.

The greatest score of a row so far begins at the least float32, not at minus infinity: keys whose scores are all minus
infinity then weigh nothing. Weights are 2^-24 of what they are usually, so that no sum of weights times values
overflows before it is divided by the sum of weights.
"""

from __future__ import annotations

import math

from numba import cuda, float32
from numba.cuda.libdevice import exp2f as exp2

LOG2_E = float32(math.log2(math.e))
LOWEST = float32(-3.4028234663852886e38)
LESS = float32(24.0)


@cuda.jit(device=True)
def weight_of(score, row_max):
    """The weight of a score, times 2^-24."""
    return exp2((score - row_max) * LOG2_E - LESS)


@cuda.jit(device=True)
def rescaling(old_max, row_max):
    """What sums are multiplied by as the greatest score of their row rises."""
    return exp2((old_max - row_max) * LOG2_E)
