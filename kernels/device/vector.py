"""64-bit and 128-bit loads and stores: one instruction moves two or four consecutive float32.

Numba lowers a struct of four floats to four scalar accesses, so these are plain LLVM vector loads and stores. The
pointer or array determines the address space: the same `ld4` gives `ld.global.v4.f32` or `ld.shared.v4.f32`.
"""

from llvmlite import ir
from numba import cuda, types
from numba.core import cgutils
from numba.cuda.extending import intrinsic
from numba.cuda.vector_types import vector_types

float32x4 = vector_types["float32x4"]
make_float4 = cuda.float32x4

_VECTOR = ir.VectorType(ir.FloatType(), 4)
_ALIGNMENT = 16
_FIELDS = "xyzw"
_PAIR = ir.VectorType(ir.FloatType(), 2)
_PAIR_ALIGNMENT = 8


def _element_pointer(context, builder, array_type, array, index_type, index):
    if not index_type.signed and index_type.bitwidth < 64:
        index = builder.zext(index, ir.IntType(64))
    if not isinstance(array_type, types.CPointer):
        array = context.make_array(array_type)(context, builder, array).data
    pointer = builder.gep(array, [index], inbounds=True)
    return builder.bitcast(pointer, _VECTOR.as_pointer(pointer.type.addrspace))


def _elements(context, builder, array_type, array, index):
    """Pointers to four elements of an array, from an index that counts from the first."""
    data = context.make_array(array_type)(context, builder, array).data
    places = (builder.add(index, ir.Constant(index.type, i)) for i in range(4))
    return [builder.gep(data, [place], inbounds=True) for place in places]


@intrinsic
def advance(typingctx, pointer, count):
    """The `CPointer` `count` elements after `pointer`, as `pointer + count` in C."""
    signature = pointer(pointer, count)

    def codegen(context, builder, signature, args):
        index_type, index = signature.args[1], args[1]
        if not index_type.signed and index_type.bitwidth < 64:
            index = builder.zext(index, ir.IntType(64))
        return builder.gep(args[0], [index], inbounds=True)

    return signature, codegen


@intrinsic
def ld4(typingctx, array, index):
    """Load `array[index : index + 4]` as a float32x4.

    `array` is a 1-D float32 array or `CPointer(float32)` in global, shared or local memory. The address of its element
    `index` must be a multiple of 16 bytes.
    """
    signature = float32x4(array, index)

    def codegen(context, builder, signature, args):
        pointer = _element_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        loaded = builder.load(pointer, align=_ALIGNMENT)
        value = cgutils.create_struct_proxy(float32x4)(context, builder)
        for lane, name in enumerate(_FIELDS):
            setattr(value, name, builder.extract_element(loaded, ir.Constant(ir.IntType(32), lane)))
        return value._getvalue()

    return signature, codegen


@intrinsic
def st4(typingctx, array, index, value):
    """Store the float32x4 `value` to `array[index : index + 4]`; same conditions as `ld4`."""
    signature = types.void(array, index, float32x4)

    def codegen(context, builder, signature, args):
        pointer = _element_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        fields = cgutils.create_struct_proxy(float32x4)(context, builder, value=args[2])
        vector = ir.Constant(_VECTOR, ir.Undefined)
        for lane, name in enumerate(_FIELDS):
            vector = builder.insert_element(vector, getattr(fields, name), ir.Constant(ir.IntType(32), lane))
        builder.store(vector, pointer, align=_ALIGNMENT)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def get4(typingctx, array, index):
    """The float32x4 of `array[index : index + 4]`, a local array that the compiler keeps in registers."""
    signature = float32x4(array, index)

    def codegen(context, builder, signature, args):
        value = cgutils.create_struct_proxy(float32x4)(context, builder)
        for name, pointer in zip(_FIELDS, _elements(context, builder, signature.args[0], *args)):
            setattr(value, name, builder.load(pointer))
        return value._getvalue()

    return signature, codegen


@intrinsic
def set4(typingctx, array, index, value):
    """Put a float32x4 into `array[index : index + 4]`, an array as of `get4`."""
    signature = types.void(array, index, float32x4)

    def codegen(context, builder, signature, args):
        fields = cgutils.create_struct_proxy(float32x4)(context, builder, value=args[2])
        for name, pointer in zip(_FIELDS, _elements(context, builder, signature.args[0], *args[:2])):
            builder.store(getattr(fields, name), pointer)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def ld2(typingctx, array, index):
    """Load `array[index : index + 2]` as a tuple; as `ld4`, aligned to 8 bytes."""
    pair = types.UniTuple(types.float32, 2)
    signature = pair(array, index)

    def codegen(context, builder, signature, args):
        pointer = _element_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        loaded = builder.load(builder.bitcast(pointer, _PAIR.as_pointer(pointer.type.addrspace)), align=_PAIR_ALIGNMENT)
        values = [builder.extract_element(loaded, ir.Constant(ir.IntType(32), lane)) for lane in range(2)]
        return context.make_tuple(builder, pair, values)

    return signature, codegen


@intrinsic
def st2(typingctx, array, index, x, y):
    """Store two float32 to `array[index : index + 2]`; same conditions as `ld2`."""
    signature = types.void(array, index, types.float32, types.float32)

    def codegen(context, builder, signature, args):
        pointer = _element_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        vector = ir.Constant(_PAIR, ir.Undefined)
        for lane in range(2):
            vector = builder.insert_element(vector, args[2 + lane], ir.Constant(ir.IntType(32), lane))
        pointer = builder.bitcast(pointer, _PAIR.as_pointer(pointer.type.addrspace))
        builder.store(vector, pointer, align=_PAIR_ALIGNMENT)
        return context.get_dummy_value()

    return signature, codegen
