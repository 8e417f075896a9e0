"""64-bit and 128-bit loads and stores: one instruction moves two or four consecutive float32.

Numba lowers a struct of four floats to four scalar accesses, so these are plain LLVM vector loads and stores. The
pointer or array determines the address space: the same `ld4` gives `ld.global.v4.f32` or `ld.shared.v4.f32`.
"""

from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from .asm import FLOAT, FLOAT4, I32, I64, TWO, device_op

make_float4 = cuda.float32x4


@intrinsic
def advance(typingctx, pointer, count):
    """The `CPointer` `count` elements after `pointer`, as `pointer + count` in C."""
    signature = pointer(pointer, count)

    def codegen(context, builder, signature, args):
        index_type, index = signature.args[1], args[1]
        if not index_type.signed and index_type.bitwidth < 64:
            index = builder.zext(index, I64)
        return builder.gep(args[0], [index], inbounds=True)

    return signature, codegen


def _load(b, array, index, count):
    place = b.gep(array, [index], inbounds=True)
    loaded = b.load(b.bitcast(place, ir.VectorType(FLOAT, count).as_pointer(place.type.addrspace)), align=4 * count)
    return (b.extract_element(loaded, ir.Constant(I32, lane)) for lane in range(count))


def _store(b, array, index, count, values):
    place, kind = b.gep(array, [index], inbounds=True), ir.VectorType(FLOAT, count)
    place = b.bitcast(place, ir.VectorType(FLOAT, 4).as_pointer(place.type.addrspace))  # first: NVVM keeps the order
    vector = ir.Constant(kind, ir.Undefined)
    for lane, value in enumerate(values):
        vector = b.insert_element(vector, value, ir.Constant(I32, lane))
    b.store(vector, b.bitcast(place, kind.as_pointer(place.type.addrspace)), align=4 * count)


@device_op(FLOAT4)
def ld4(b, array, index):
    """Load `array[index : index + 4]` as a float32x4.

    `array` is a 1-D float32 array or `CPointer(float32)` in global, shared or local memory. The address of its element
    `index` must be a multiple of 16 bytes.
    """
    return _load(b, array, index, 4)


@device_op(types.void, None, None, FLOAT4)
def st4(b, array, index, value):
    """Store the float32x4 `value` to `array[index : index + 4]`; same conditions as `ld4`."""
    _store(b, array, index, 4, value)


@device_op(TWO)
def ld2(b, array, index):
    """Load `array[index : index + 2]` as a tuple; as `ld4`, aligned to 8 bytes."""
    return _load(b, array, index, 2)


@device_op(types.void, None, None, types.float32, types.float32)
def st2(b, array, index, x, y):
    """Store two float32 to `array[index : index + 2]`; same conditions as `ld2`."""
    _store(b, array, index, 2, (x, y))
