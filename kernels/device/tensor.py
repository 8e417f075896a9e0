"""A float32 as two TF32, which tensor cores take."""

from __future__ import annotations

from llvmlite import ir
from numba import cuda, float32, types
from numba.cuda.extending import intrinsic

from .asm import _FLOAT, _I32

_ROUND, _KEEP = 0x1000, 0xFFFFE000  # half of the last bit that TF32 keeps, and the bits it keeps
FACTOR_BOUND = 2.0**67  # of high parts whose products may overflow: 2^5 products with a low part, 2^-12 of it, do not
VALUE_BOUND = float.fromhex("0x1.ffdffep+127")  # of those of values, whose weights are below 1: what rounds to finite


@intrinsic
def tf32(typingctx, value):
    """A float32 rounded to the nearest TF32: 10 bits of mantissa."""
    signature = types.float32(types.float32)

    def codegen(context, builder, signature, args):
        bits = builder.add(builder.bitcast(args[0], _I32), ir.Constant(_I32, _ROUND))
        return builder.bitcast(builder.and_(bits, ir.Constant(_I32, _KEEP)), _FLOAT)

    return signature, codegen


@intrinsic
def truncated(typingctx, value):
    """A float32 without the bits that TF32 lacks."""
    signature = types.float32(types.float32)

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.and_(builder.bitcast(args[0], _I32), ir.Constant(_I32, _KEEP)), _FLOAT)

    return signature, codegen


@intrinsic
def bounded(typingctx, value, bound):
    """A float32 no further from 0 than `bound`, which is positive; NaN becomes the bound."""
    signature = types.float32(types.float32, types.float32)

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_FLOAT, [_FLOAT] * 2)
        text = "min.xorsign.abs.f32 $0, $1, $2;"
        return builder.asm(function, text, "=f,f,f", list(args), side_effect=False)

    return signature, codegen


@cuda.jit(device=True)
def split(value):
    """(high, low): the nearest TF32 of a finite float32, and what is left of it, exactly."""
    high = tf32(value)
    return high, value - high


@cuda.jit(device=True)
def split_bounded(value, bound):
    """(high, low) of any float32; `high` is finite, so that infinities and NaN are in `low` alone.

    Three products then treat them as one product of float32 does: a term that is infinite has one sign.
    """
    high = tf32(bounded(value, float32(bound)))
    return high, value - high


@cuda.jit(device=True)
def split_short(value, bound):
    """`split_bounded` in an instruction less: `high` is not rounded, but cut, and `low` has the sign of the value.

    Of two factors one at most may be split like this: what three products leave out then has no sign of its own. Not
    values: the low part has 13 bits, of which TF32 keeps 11, and a single weight of 1 would show it.
    """
    high = truncated(bounded(value, float32(bound)))
    return high, value - high
