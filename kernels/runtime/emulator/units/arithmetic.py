"""Arithmetic of PTX on NumPy arrays, where NumPy's own functions differ from it.

Every function takes arrays or NumPy scalars of the instruction's type and returns a new array.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

F16, F32, F64 = np.float16, np.float32, np.float64
U8, U16, U32, U64 = np.uint8, np.uint16, np.uint32, np.uint64
I32, I64 = np.int32, np.int64

SMALLEST_NORMAL = F32(2.0**-126)
_BELOW_F32 = I64(0x1FFFFFFF)
_HALF_ULP_OF_F32 = I64(0x10000000)


# --- floating point -------------------------------------------------------------------------------


def flush(x):
    """Flush subnormal float32 to zero of the same sign (.ftz)."""
    small = np.abs(x) < SMALLEST_NORMAL
    return np.where(small, np.copysign(F32(0), x), x) if np.count_nonzero(small) else x


def saturate(x):
    """Clamp to [0, 1], NaN to 0 (.sat)."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def sum_to_odd(x, y):
    """x + y in float64, rounded to odd: a later rounding to a narrower format is then exact."""
    total = np.asarray(x + y)
    part = total - x
    error = (x - (total - part)) + (y - part)
    inexact = (error != 0) & np.isfinite(total)
    even = (total.view(I64) & 1) == 0
    return np.where(inexact & even, np.nextafter(total, np.copysign(np.inf, error)), total)


def fma32(a, b, c):
    """a * b + c with one rounding to nearest.

    The product is exact in float64, so the float64 sum rounds wrongly only where it is exactly half-way between two
    float32, or where the result is subnormal. Those few are summed again with rounding to odd.
    """
    product = np.multiply(a, b, dtype=F64)
    total = product + c
    suspect = (total.view(I64) & _BELOW_F32) == _HALF_ULP_OF_F32
    small = np.abs(total) < SMALLEST_NORMAL
    if np.count_nonzero(small):
        suspect = suspect | small & (total != 0)
    if np.count_nonzero(suspect):
        total = np.where(suspect, sum_to_odd(product, np.asarray(c, F64)), total)
    return total.astype(F32)


def fma32_down(a, b, c):
    """a * b + c rounded down; an exact zero is -0 where a summand is negative."""
    x, y = np.multiply(a, b, dtype=F64), np.asarray(c, F64)
    total = sum_to_odd(x, y)
    nearest = total.astype(F32)
    result = np.where(nearest > total, np.nextafter(nearest, F32(-np.inf)), nearest)
    return np.where((x + y == 0) & (np.signbit(x) | np.signbit(y)), F32(-0.0), result)


def _bits_type(x):
    return np.dtype(f"u{np.asarray(x).dtype.itemsize}")


def _select_zero(result, a, b, combine):
    zero = result == 0
    if np.count_nonzero(zero):
        kind = _bits_type(result)
        signs = combine(np.asarray(a).view(kind), np.asarray(b).view(kind)).view(result.dtype)
        result = np.where(zero & (a == b), signs, result)
    return result


def ptx_max(a, b):
    """The larger; NaN only if both are; -0 < +0."""
    return _select_zero(np.fmax(a, b), a, b, np.bitwise_and)


def ptx_min(a, b):
    """The smaller; NaN only if both are; -0 < +0."""
    return _select_zero(np.fmin(a, b), a, b, np.bitwise_or)


def in_float64(function):
    """An .approx instruction as the float64 function, rounded once. The hardware's error is larger."""
    return lambda x: function(np.asarray(x, F64)).astype(F32)


def bfloat16_bits(x):
    """float32 to the bits of the nearest bfloat16 (uint16)."""
    bits = np.asarray(x, F32).view(U32)
    rounded = (bits + U32(0x7FFF) + ((bits >> U32(16)) & U32(1))) >> U32(16)
    return np.where(np.isnan(x), U32(0x7FFF), rounded).astype(U16)


def from_bfloat16(bits):
    return (np.asarray(bits).astype(U32) << U32(16)).view(F32)


def factors(words: np.ndarray, kind: str) -> np.ndarray:
    """Factors of a product as float32, from raw registers of one or two numbers each."""
    if kind == "tf32":
        return (words & U32(0xFFFFE000)).view(F32)
    halves = words.view(U16)
    return from_bfloat16(halves) if kind == "bf16" else halves.view(F16).astype(F32)


INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def float_to_int(x: np.ndarray, rounding: str, dtype: np.dtype) -> np.ndarray:
    """Float to integer as `cvt` does: rounded, saturated; NaN gives 0, or the top bit if either side has 64 bits."""
    info = np.iinfo(dtype)
    wide = INTEGRAL[rounding](np.asarray(x, F64))
    upper, lower = F64(float(info.max) + 1) if info.bits < 64 else F64(2.0 ** (63 + (info.min == 0))), F64(info.min)
    inside = (wide >= lower) & (wide < upper)
    whole = np.where(inside, wide, 0).astype(dtype)
    whole = np.where(wide >= upper, dtype.type(info.max), np.where(wide < lower, dtype.type(info.min), whole))
    wide_type = info.bits == 64 or np.asarray(x).dtype == F64
    nan = np.array(1 << (info.bits - 1), f"u{dtype.itemsize}").view(dtype) if wide_type else dtype.type(0)
    return np.where(np.isnan(wide), nan, whole).astype(dtype)


# --- integers -------------------------------------------------------------------------------------


def _unsigned(x):
    return np.asarray(x).view(_bits_type(x))


def divide_int(a, b):
    """Quotient rounded toward zero; all ones for a zero divisor, as the hardware gives."""
    a, b = np.asarray(a), np.asarray(b)
    magnitude = _unsigned(np.abs(a)) // np.where(b == 0, 1, _unsigned(np.abs(b))).astype(_bits_type(b))
    quotient = magnitude.view(a.dtype)
    quotient = np.where((a < 0) != (b < 0), np.negative(quotient), quotient)
    return np.where(b == 0, ~a.dtype.type(0), quotient)


def remainder_int(a, b):
    """Remainder with the sign of the dividend; the dividend for a zero divisor."""
    safe = np.where(np.equal(b, 0), np.asarray(b).dtype.type(1), b)
    return np.where(np.equal(b, 0), a, a - divide_int(a, safe) * safe)


def multiply_high(a, b):
    """The upper half of the product."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.itemsize < 8:
        bits = 8 * a.dtype.itemsize
        wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(bits)).astype(a.dtype)
    low, half = U64(0xFFFFFFFF), U64(32)
    x, y = a.view(U64), b.view(U64)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    carry = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (carry >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, U64(0)) - np.where(b < 0, x, U64(0))
    return high.view(a.dtype)


def shift_right_signed(x, amount):
    bits = 8 * np.asarray(x).dtype.itemsize
    return np.right_shift(x, np.minimum(amount, U32(bits - 1)).astype(np.asarray(x).dtype))


def funnel(left: bool, clamp: bool) -> Callable:
    """shf: shift the 64 bits high:low, return the upper (left) or lower (right) word."""

    def shift(low, high, amount):
        count = (np.minimum(amount, U32(32)) if clamp else amount & U32(31)).astype(U64)
        both = (np.asarray(high).astype(U64) << U64(32)) | np.asarray(low).astype(U64)
        return (both << count >> U64(32) if left else both >> count).astype(U32)

    return shift


def insert_bits(a, b, position, length):
    """bfi: the low `length` bits of `a` put into `b` at `position`."""
    unsigned = np.asarray(a).dtype.type
    bits = 8 * np.asarray(a).dtype.itemsize
    position, length = np.asarray(position & U32(255)), np.asarray(length & U32(255))
    mask = np.left_shift(unsigned(1), np.minimum(length, U32(bits)).astype(unsigned)) - unsigned(1)
    place = position.astype(unsigned)
    return (b & ~np.left_shift(mask, place)) | np.left_shift(a & mask, place)


def leading_zeros(x):
    x = np.array(x)
    bits = 8 * x.dtype.itemsize
    for shift in (1, 2, 4, 8, 16, 32)[: bits.bit_length() - 1]:
        x |= x >> x.dtype.type(shift)
    return U32(bits) - np.bitwise_count(x).astype(U32)


def count_bits(x):
    return np.bitwise_count(x).astype(U32)


def permute_bytes(a, b, selector):
    """prmt: four bytes picked from b:a; a selector with its top bit set replicates the sign of the byte."""
    both = (np.asarray(b).astype(U64) << U64(32)) | np.asarray(a).astype(U64)
    result: Any = U32(0)
    for byte in range(4):
        pick = (np.asarray(selector) >> U32(4 * byte)) & U32(15)
        value = ((both >> ((pick & U32(7)).astype(U64) * U64(8))) & U64(255)).astype(U32)
        value = np.where(pick & U32(8), np.where(value & U32(128), U32(255), U32(0)), value)
        result = result | (value << U32(8 * byte))
    return result
