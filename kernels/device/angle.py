"""sin and cos of one angle together, accurate to 2 units in the last place up to about 100,000 radians.

libdevice's accurate sincosf has a slow path for larger angles, which uses local memory and double precision. Positions
times frequencies never reach it, so this module has the fast path alone. It subtracts the nearest multiple of pi / 2,
which is stored in three parts so that the difference is exact, and evaluates both polynomials on the remainder.
"""

from numba import cuda, float32, int32
from numba.cuda import libdevice

from .mark import mark

_sincos = mark("sincos")
TWO_OVER_PI = 0.636619772
HALF_PI = (1.57079601, 3.13916473e-07, 5.39030253e-15)
ROUND = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer and leaves that integer in the low bits of the mantissa


@cuda.jit(device=True)
def sincos(angle):
    """(sin, cos) of an angle in radians, float32."""
    _sincos()
    rounded = libdevice.fmaf(angle, float32(TWO_OVER_PI), float32(ROUND))
    quadrant = libdevice.float_as_int(rounded)
    turns = rounded - float32(ROUND)
    x = libdevice.fmaf(turns, float32(-HALF_PI[0]), angle)
    x = libdevice.fmaf(turns, float32(-HALF_PI[1]), x)
    x = libdevice.fmaf(turns, float32(-HALF_PI[2]), x)
    square = x * x
    sin = libdevice.fmaf(float32(-1.95152959e-4), square, float32(8.33216087e-3))
    sin = libdevice.fmaf(sin, square, float32(-1.66666546e-1))
    sin = libdevice.fmaf(sin * square, x, x)
    cos = libdevice.fmaf(float32(2.44331571e-5), square, float32(-1.38873163e-3))
    cos = libdevice.fmaf(cos, square, float32(4.16666456e-2))
    cos = libdevice.fmaf(cos, square, float32(-0.5))
    cos = libdevice.fmaf(cos, square, float32(1.0))
    if quadrant & int32(1):
        sin, cos = cos, -sin
    if quadrant & int32(2):
        sin, cos = -sin, -cos
    return sin, cos


# sin(pi x) / x and cos(pi x) as polynomials of x^2 for |x| <= 1/2; their errors are 3e-9 and 2e-10
SIN_PI = (3.14159250, -5.16770697, 2.55003166, -0.598046422, 0.0772222430)
COS_PI = (1.0, -4.93480206, 4.05870914, -1.33521211, 0.234937564, -0.0243967157)


@cuda.jit(device=True)
def sincospi(position, rate, rest):
    """(sin, cos) of pi * position * (rate + rest), float32, for positions up to 2^20 and rates up to 1 / pi.

    `rest` is the rounding error of `rate` as a float32. A fused multiply-add subtracts the nearest integer from the
    unrounded product, so the remainder is exact and the error does not grow with the position. `rest` moves the
    remainder by at most 2^-6. From about 4 million positions on it would move the remainder out of the polynomials'
    range. The angle counts half turns, so the range reduction needs a sign but no quadrants.
    """
    _sincos()
    rounded = libdevice.fmaf(position, rate, float32(ROUND))
    x = libdevice.fmaf(position, rate, float32(ROUND) - rounded)
    x = libdevice.fmaf(position, rest, x)
    square = x * x
    sin = libdevice.fmaf(float32(SIN_PI[4]), square, float32(SIN_PI[3]))
    sin = libdevice.fmaf(sin, square, float32(SIN_PI[2]))
    sin = libdevice.fmaf(sin, square, float32(SIN_PI[1]))
    sin = libdevice.fmaf(sin, square, float32(SIN_PI[0]))
    cos = libdevice.fmaf(float32(COS_PI[5]), square, float32(COS_PI[4]))
    cos = libdevice.fmaf(cos, square, float32(COS_PI[3]))
    cos = libdevice.fmaf(cos, square, float32(COS_PI[2]))
    cos = libdevice.fmaf(cos, square, float32(COS_PI[1]))
    cos = libdevice.fmaf(cos, square, float32(COS_PI[0]))
    sign = libdevice.float_as_int(rounded) << int32(31)
    sin = libdevice.int_as_float(libdevice.float_as_int(sin * x) ^ sign)
    return sin, libdevice.int_as_float(libdevice.float_as_int(cos) ^ sign)
