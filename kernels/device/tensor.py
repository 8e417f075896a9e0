"""A float32 as two TF32, which tensor cores take."""

from __future__ import annotations

from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from .asm import _FLOAT, _I32

_ROUND, _KEEP = 0x1000, 0xFFFFE000  # half of the last bit that TF32 keeps, and the bits it keeps


@intrinsic
def tf32(typingctx, value):
    """A float32 rounded to the nearest TF32: 10 bits of mantissa."""
    signature = types.float32(types.float32)

    def codegen(context, builder, signature, args):
        bits = builder.add(builder.bitcast(args[0], _I32), ir.Constant(_I32, _ROUND))
        return builder.bitcast(builder.and_(bits, ir.Constant(_I32, _KEEP)), _FLOAT)

    return signature, codegen


@cuda.jit(device=True)
def split(value):
    """(high, low): the nearest TF32 of a float32, and what is left of it, exactly."""
    high = tf32(value)
    return high, value - high
