"""The elementary functions of the embeddings, by their names in CUDA C++, and the rotation of a pair.

powf, sinf and cosf are the accurate functions; in a kernel built with fast-math they are the approximate ones, as with
nvcc's -use_fast_math. fast_sin, fast_cos and fast_sincos are always `__sincosf`, computed by the special-function unit.
Angles are float32 radians. Each call is marked, so that the emulator can count it.
"""

import math

from numba import cuda
from numba.cuda import libdevice

from .mark import mark

_rotation, _sin, _cos, _sincos, _pow = map(mark, ("rotation", "sin", "cos", "sincos", "pow"))


@cuda.jit(device=True, inline="always")  # so that it follows the fast-math flag of its kernel
def powf(base, exponent):
    _pow()
    return math.pow(base, exponent)


@cuda.jit(device=True, inline="always")  # so that it follows the fast-math flag of its kernel
def sinf(angle):
    _sin()
    return math.sin(angle)


@cuda.jit(device=True, inline="always")  # so that it follows the fast-math flag of its kernel
def cosf(angle):
    _cos()
    return math.cos(angle)


@cuda.jit(device=True)
def fast_sincos(angle):
    """(sin, cos) of an angle."""
    _sincos()
    return libdevice.fast_sincosf(angle)


@cuda.jit(device=True)
def fast_sin(angle):
    """sin of an angle: the part of `__sincosf` that an even dim uses."""
    return fast_sincos(angle)[0]


@cuda.jit(device=True)
def fast_cos(angle):
    """cos of an angle: the part of `__sincosf` that an odd dim uses."""
    return fast_sincos(angle)[1]


@cuda.jit(device=True)
def rotate(x, y, cos, sin):
    """The pair (x, y) rotated by an angle: (x cos - y sin, x sin + y cos)."""
    _rotation()
    return x * cos - y * sin, x * sin + y * cos
