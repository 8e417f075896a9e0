"""A float32 split into two TF32 numbers, for the tensor cores."""

from llvmlite import ir
from numba import cuda, float32, types
from numba.cuda.extending import intrinsic

from .asm import _FLOAT, _I32

_ROUND, _KEEP = 0x1000, 0xFFFFE000  # half a unit in the last place of TF32, and the mask of its bits
FACTOR_BOUND = 2.0**67  # for factors whose products may overflow: 2^5 products with a low part stay finite
VALUE_BOUND = float.fromhex("0x1.ffdffep+127")  # for V, with weights below 1: it rounds to a finite TF32


@intrinsic
def tf32(typingctx, value):
    """A float32 rounded to the nearest TF32 (10 bits of mantissa)."""
    signature = types.float32(types.float32)

    def codegen(context, builder, signature, args):
        bits = builder.add(builder.bitcast(args[0], _I32), ir.Constant(_I32, _ROUND))
        return builder.bitcast(builder.and_(bits, ir.Constant(_I32, _KEEP)), _FLOAT)

    return signature, codegen


@intrinsic
def truncated(typingctx, value):
    """A float32 with the bits that TF32 does not have set to 0."""
    signature = types.float32(types.float32)

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.and_(builder.bitcast(args[0], _I32), ir.Constant(_I32, _KEEP)), _FLOAT)

    return signature, codegen


@intrinsic
def bounded(typingctx, value, bound):
    """A float32 clamped to [-bound, bound], for a positive bound; NaN becomes the bound."""
    signature = types.float32(types.float32, types.float32)

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_FLOAT, [_FLOAT] * 2)
        text = "min.xorsign.abs.f32 $0, $1, $2;"
        return builder.asm(function, text, "=f,f,f", list(args), side_effect=False)

    return signature, codegen


@cuda.jit(device=True)
def split(value):
    """(high, low): the nearest TF32 of a finite float32, and the exact remainder."""
    high = tf32(value)
    return high, value - high


@cuda.jit(device=True)
def split_bounded(value, bound):
    """(high, low) of any float32; `high` is finite, so that infinities and NaN are in `low` alone.

    So three TF32 products give the infinity or NaN that one float32 product gives: all infinite terms have one sign.
    """
    high = tf32(bounded(value, float32(bound)))
    return high, value - high


@cuda.jit(device=True)
def split_short(value, bound):
    """`split_bounded` in one instruction less: `high` is truncated and not rounded, and `low` has the sign of the
    value.

    Split at most one of two factors like this, or the omitted products, low times low, would all have the sign of their
    terms and add up to a bias. Do not split V like this: `low` has 13 significant bits, of which TF32 keeps 11, and the
    error shows where a single weight is 1.
    """
    high = truncated(bounded(value, float32(bound)))
    return high, value - high
