"""Load four consecutive values of a table as float32, in one instruction: tables of float32, half or float8 (e4m3).

Halves and float8 are stored as their bits. A pointer to float8 counts 32-bit words of four values.
"""

from numba import cuda, float32, types, uint16, uint32
from numba.cuda import libdevice

from .half import half2float
from .vector import ld2, ld4, make_float4

WORDS = types.CPointer(types.uint32)
FLOAT8_SCALE = 256.0  # the exponent bias of a half is 15, that of e4m3 is 7


@cuda.jit(device=True)
def load_floats(table, index):
    """`table[index : index + 4]` of a `CPointer(float32)` as a float32x4; `index` is a multiple of 4."""
    return ld4(table, index)


@cuda.jit(device=True)
def load_halves(table, index):
    """Four values from a `CPointer(uint16)` to halves: a load of 8 bytes; `index` is a multiple of 4."""
    first, second = ld2(table, index)
    low, high = uint32(libdevice.float_as_int(first)), uint32(libdevice.float_as_int(second))
    return make_float4(
        half2float(uint16(low)),
        half2float(uint16(low >> uint32(16))),
        half2float(uint16(high)),
        half2float(uint16(high >> uint32(16))),
    )


@cuda.jit(device=True)
def scaled_halves(codes):
    """Two halves with 1/256 of the float8 in the upper byte of each half of a uint32, in the same positions.

    The bits of sign, exponent and mantissa keep their order, so every value is exact, subnormals included, except NaN.
    """
    return uint32((codes & uint32(0x80008000)) | ((codes & uint32(0x7F007F00)) >> uint32(1)))


@cuda.jit(device=True)
def load_float8(table, index):
    """Four values from a `CPointer(uint32)` to float8 (e4m3): a load of 4 bytes; `index` is a multiple of 4.

    A NaN comes out finite; tables contain none.
    """
    codes = uint32(table[index // uint32(4)])
    even, odd = scaled_halves(uint32(codes << uint32(8))), scaled_halves(codes)
    scale = float32(FLOAT8_SCALE)
    return make_float4(
        scale * half2float(uint16(even)),
        scale * half2float(uint16(odd)),
        scale * half2float(uint16(even >> uint32(16))),
        scale * half2float(uint16(odd >> uint32(16))),
    )
