"""Fast trigonometry: the special-function unit's sine and cosine, as CUDA C++ reaches them with `__sincosf`."""

from __future__ import annotations

from numba import cuda
from numba.cuda import libdevice


@cuda.jit(device=True)
def fast_sin(angle):
    """sin of a float32 angle in radians; the half of `__sincosf` that an even dim uses."""
    return libdevice.fast_sincosf(angle)[0]


@cuda.jit(device=True)
def fast_cos(angle):
    """cos of a float32 angle in radians; the half of `__sincosf` that an odd dim uses."""
    return libdevice.fast_sincosf(angle)[1]
