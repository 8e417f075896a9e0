"""Half precision: a half is kept as its bits, a uint16, and converted where it is used, as in CUDA C++.

Numba's own float16 calls functions that only a link with other code provides. These are one instruction each, as
inline assembly, which is how CUDA's own header has them; the compiler rejects some vectors of LLVM's `half`.
16 bytes of halves move with `ld4` and `st4`: they take pointers to uint16 and arrays of it as well.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

HALVES = types.CPointer(types.uint16)

_HALF = ir.IntType(16)
_PAIR = ir.IntType(32)
_FLOAT = ir.FloatType()


def _rounded(builder, value):
    return builder.asm(ir.FunctionType(_HALF, [_FLOAT]), "cvt.rn.f16.f32 $0, $1;", "=h,f", [value], side_effect=False)


@intrinsic
def half2float(typingctx, bits):
    """The float32 equal to a half, given by its bits."""
    signature = types.float32(types.uint16)

    def codegen(context, builder, signature, args):
        return builder.asm(ir.FunctionType(_FLOAT, [_HALF]), "cvt.f32.f16 $0, $1;", "=f,h", args, side_effect=False)

    return signature, codegen


@intrinsic
def float2half(typingctx, value):
    """The bits of the half nearest to a float32."""
    signature = types.uint16(types.float32)

    def codegen(context, builder, signature, args):
        return _rounded(builder, args[0])

    return signature, codegen


@intrinsic
def floats2half2(typingctx, first, second):
    """Two float32 rounded to halves, side by side in the bits of one float32: a quarter of what `st4` stores."""
    signature = types.float32(types.float32, types.float32)

    def codegen(context, builder, signature, args):
        low, high = (builder.zext(_rounded(builder, value), _PAIR) for value in args)
        return builder.bitcast(builder.or_(low, builder.shl(high, ir.Constant(_PAIR, 16))), _FLOAT)

    return signature, codegen
