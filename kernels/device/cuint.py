"""`cuint`: the unsigned int of CUDA C++ inside a kernel: 32 bits that wrap.

Numba computes integers in 64 bits. An operation of a `cuint` with an integer of Numba gives a `cuint`; it does not
promise, as `cint` does, that it never overflows. So compilers hoist less out of loops, and registers suffice for more.
"""

from .cint import cast_to, integer

CUINT = integer("cuint", signed=False)
cuint = cast_to(CUINT)
