"""Half precision: a half is stored as its bits, a uint16, and converted where it is used, as in CUDA C++.

Numba's own float16 calls functions that need another library at link time. These are single instructions in inline
assembly, as in CUDA's header cuda_fp16.h; the compiler rejects some vectors of LLVM's type `half`. `ld4` and `st4` move
16 bytes of halves: they take arrays of uint16 and pointers to it as well.
"""

from llvmlite import ir
from numba import types

from .asm import FLOAT, I32, device_op, pure

HALVES = types.CPointer(types.uint16)


def _rounded(b, value):
    return pure(b, "cvt.rn.f16.f32 $0, $1;", "=h,f", ir.IntType(16), value)


@device_op(types.float32, types.uint16)
def half2float(b, bits):
    """The float32 value of a half given by its bits."""
    return pure(b, "cvt.f32.f16 $0, $1;", "=f,h", FLOAT, bits)


@device_op(types.uint16, types.float32)
def float2half(b, value):
    """The bits of a float32 rounded to the nearest half."""
    return _rounded(b, value)


@device_op(types.float32, types.float32, types.float32)
def floats2half2(b, first, second):
    """Two float32 rounded to halves and packed in the bits of one float32; `st4` stores four of these."""
    low, high = (b.zext(_rounded(b, value), I32) for value in (first, second))
    return b.bitcast(b.or_(low, b.shl(high, ir.Constant(I32, 16))), FLOAT)
