"""Half precision: a half is stored as its bits, a uint16, and converted where it is used, as in CUDA C++.

Numba's own float16 calls functions that need another library at link time. These are single instructions in inline
assembly, as in CUDA's header cuda_fp16.h; the compiler rejects some vectors of LLVM's type `half`. `ld4` and `st4` move
16 bytes of halves: they take arrays of uint16 and pointers to it as well.
"""

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
    """The float32 value of a half given by its bits."""
    signature = types.float32(types.uint16)

    def codegen(context, builder, signature, args):
        return builder.asm(ir.FunctionType(_FLOAT, [_HALF]), "cvt.f32.f16 $0, $1;", "=f,h", args, side_effect=False)

    return signature, codegen


@intrinsic
def float2half(typingctx, value):
    """The bits of a float32 rounded to the nearest half."""
    signature = types.uint16(types.float32)

    def codegen(context, builder, signature, args):
        return _rounded(builder, args[0])

    return signature, codegen


@intrinsic
def floats2half2(typingctx, first, second):
    """Two float32 rounded to halves and packed in the bits of one float32; `st4` stores four of these."""
    signature = types.float32(types.float32, types.float32)

    def codegen(context, builder, signature, args):
        low, high = (builder.zext(_rounded(builder, value), _PAIR) for value in args)
        return builder.bitcast(builder.or_(low, builder.shl(high, ir.Constant(_PAIR, 16))), _FLOAT)

    return signature, codegen
