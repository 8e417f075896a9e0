"""A float32 split into two TF32 numbers, for the tensor cores."""

from llvmlite import ir
from numba import cuda, float32, types

from .asm import FLOAT, I32, device_op, pure

_ROUND, _KEEP = 0x1000, 0xFFFFE000  # half a unit in the last place of TF32, and the mask of its bits
FACTOR_BOUND = 2.0**67  # for factors whose products may overflow: 2^5 products with a low part stay finite
VALUE_BOUND = float.fromhex("0x1.ffdffep+127")  # for V, with weights below 1: it rounds to a finite TF32


@device_op(types.float32, types.float32)
def tf32(b, value):
    """A float32 rounded to the nearest TF32 (10 bits of mantissa)."""
    bits = b.add(b.bitcast(value, I32), ir.Constant(I32, _ROUND))
    return b.bitcast(b.and_(bits, ir.Constant(I32, _KEEP)), FLOAT)


@device_op(types.float32, types.float32)
def truncated(b, value):
    """A float32 with the bits that TF32 does not have set to 0."""
    return b.bitcast(b.and_(b.bitcast(value, I32), ir.Constant(I32, _KEEP)), FLOAT)


@device_op(types.float32, types.float32, types.float32)
def bounded(b, value, bound):
    """A float32 clamped to [-bound, bound], for a positive bound; NaN becomes the bound."""
    return pure(b, "min.xorsign.abs.f32 $0, $1, $2;", "=f,f,f", FLOAT, value, bound)


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
