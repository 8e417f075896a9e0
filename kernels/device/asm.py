"""Instructions that Numba does not expose: tensor cores, asynchronous copies, and half precision in shared memory.

All functions take arrays and indices in elements, never addresses.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cuda.extending import intrinsic

_FLOAT, _HALF, _I32, _VOID = ir.FloatType(), ir.HalfType(), ir.IntType(32), ir.VoidType()
_GLOBAL, _SHARED = 1, 3  # LLVM's address spaces


def _asm(builder, text, constraints, result, args):
    """Emit one volatile, convergent PTX statement: the compiler neither deletes it nor makes it depend on more
    conditions.
    """
    function = ir.FunctionType(result, [arg.type for arg in args])
    call = builder.asm(function, text, constraints, args, side_effect=True)
    call.attributes.add("convergent")
    return call


def _pointer(context, builder, array_type, array, index_type, index, element=_FLOAT, space=None):
    """A pointer to element `index` of a float32 array or CPointer, counted in elements of type `element`."""
    if not index_type.signed and index_type.bitwidth < 64:
        index = builder.zext(index, ir.IntType(64))
    if not isinstance(array_type, types.CPointer):
        array = context.make_array(array_type)(context, builder, array).data
    pointer = builder.bitcast(array, element.as_pointer(array.type.addrspace))
    pointer = builder.gep(pointer, [index], inbounds=True)
    return pointer if space is None else builder.addrspacecast(pointer, element.as_pointer(space))


@intrinsic
def mma_m16n8k8_tf32(typingctx, a, b, c):
    """a b + c of one warp on its tensor cores, for a 16 x 8, b 8 x 8 and c 16 x 8; all 32 lanes must call it.

    With g = l // 4 and m = l % 4, lane l holds the elements (row, column)

      a: (g, m), (g + 8, m), (g, m + 4), (g + 8, m + 4);  b: (m, g), (m + 4, g);
      c and the result: (g, 2m), (g, 2m + 1), (g + 8, 2m), (g + 8, 2m + 1).

    Each fragment is a tuple of float32. The tensor core ignores the low 13 bits of a and b.
    """
    four, two = types.UniTuple(types.float32, 4), types.UniTuple(types.float32, 2)
    signature = four(four, two, four)

    def codegen(context, builder, signature, args):
        a, b, c = (cgutils.unpack_tuple(builder, arg) for arg in args)
        bits = [builder.bitcast(value, _I32) for value in (*a, *b)]
        result = _asm(
            builder,
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
            ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4),
            ir.LiteralStructType([_FLOAT] * 4),
            [*bits, *c],
        )
        return context.make_tuple(builder, four, [builder.extract_value(result, i) for i in range(4)])

    return signature, codegen


@intrinsic
def mma_m16n8k16_f16(typingctx, a, b, c):
    """a b + c of one warp on its tensor cores, for a 16 x 16, b 16 x 8 and c 16 x 8; all 32 lanes must call it.

    With g = l // 4 and m = l % 4, lane l holds the elements (row, column)

      a: (g, 2m), (g + 8, 2m), (g, 2m + 8), (g + 8, 2m + 8);  b: (2m, g), (2m + 8, g);
      c and the result: (g, 2m), (g, 2m + 1), (g + 8, 2m), (g + 8, 2m + 1).

    c and the result are tuples of float32. Each element of a and b is a uint32 with the bits of two halves: the listed
    element in the low half and the next element in the high half, which is in the same row of a or the same column of
    b.
    """
    four, pairs = types.UniTuple(types.float32, 4), types.UniTuple(types.uint32, 4)
    signature = four(pairs, types.UniTuple(types.uint32, 2), four)

    def codegen(context, builder, signature, args):
        result = _asm(
            builder,
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
            ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4),
            ir.LiteralStructType([_FLOAT] * 4),
            [value for arg in args for value in cgutils.unpack_tuple(builder, arg)],
        )
        return context.make_tuple(builder, four, [builder.extract_value(result, i) for i in range(4)])

    return signature, codegen


@intrinsic
def cp_async4(typingctx, shared, index, array, offset):
    """Start an asynchronous copy of `array[offset : offset + 4]` in global memory to `shared[index : index + 4]`.

    Both arrays are float32 and both addresses are aligned to 16 bytes. The issuing thread may read the data after
    `cp_async_wait_all`, other threads after a barrier that follows it.
    """
    signature = types.void(shared, index, array, offset)

    def codegen(context, builder, signature, args):
        shared_type, index_type, array_type, offset_type = signature.args
        to = _pointer(context, builder, shared_type, args[0], index_type, args[1], space=_SHARED)
        source = _pointer(context, builder, array_type, args[2], offset_type, args[3], space=_GLOBAL)
        addresses = [builder.ptrtoint(to, _I32), builder.ptrtoint(source, ir.IntType(64))]
        _asm(builder, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l,~{memory}", _VOID, addresses)
        return context.get_dummy_value()

    return signature, codegen


def _copy_or_zero(context, builder, signature, args, nbytes, level):
    shared_type, index_type, array_type, offset_type, _ = signature.args
    there = builder.trunc(args[4], ir.IntType(1)) if args[4].type.width > 1 else args[4]
    to = _pointer(context, builder, shared_type, args[0], index_type, args[1], space=_SHARED)
    source = _pointer(context, builder, array_type, args[2], offset_type, args[3], space=_GLOBAL)
    size = builder.select(there, ir.Constant(_I32, nbytes), ir.Constant(_I32, 0))
    operands = [builder.ptrtoint(to, _I32), builder.ptrtoint(source, ir.IntType(64)), size]
    _asm(builder, f"cp.async.{level}.shared.global [$0], [$1], {nbytes}, $2;", "r,l,r,~{memory}", _VOID, operands)
    return context.get_dummy_value()


@intrinsic
def cp_async4_or_zero(typingctx, shared, index, array, offset, there):
    """`cp_async4` where `there` is true; elsewhere the four floats become 0 and nothing is read. One instruction."""
    signature = types.void(shared, index, array, offset, types.boolean)

    def codegen(context, builder, signature, args):
        return _copy_or_zero(context, builder, signature, args, 16, "cg")

    return signature, codegen


@intrinsic
def cp_async2_or_zero(typingctx, shared, index, array, offset, there):
    """`cp_async4_or_zero` for two floats, aligned to 8 bytes."""
    signature = types.void(shared, index, array, offset, types.boolean)

    def codegen(context, builder, signature, args):
        return _copy_or_zero(context, builder, signature, args, 8, "ca")

    return signature, codegen


@intrinsic
def exp2(typingctx, x):
    """2^x of a float32 within 2 units in the last place, in one instruction; results below 2^-126 are flushed to 0."""
    signature = types.float32(types.float32)

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_FLOAT, [_FLOAT])
        return builder.asm(function, "ex2.approx.ftz.f32 $0, $1;", "=f,f", list(args), side_effect=False)

    return signature, codegen


@intrinsic
def cp_async_commit(typingctx):
    """Commit the copies that this thread started since the last commit as one group."""

    def codegen(context, builder, signature, args):
        _asm(builder, "cp.async.commit_group;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cp_async_wait_all(typingctx):
    """Wait for all copies that this thread started, committed or not."""

    def codegen(context, builder, signature, args):
        _asm(builder, "cp.async.wait_all;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cp_async_wait_but_one(typingctx):
    """Wait for all groups that this thread committed, except the last."""

    def codegen(context, builder, signature, args):
        _asm(builder, "cp.async.wait_group 1;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cp_async_wait(typingctx):
    """Wait for all groups that this thread committed, but not for copies that it started after the last commit."""

    def codegen(context, builder, signature, args):
        _asm(builder, "cp.async.wait_group 0;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def store_half(typingctx, array, index, value):
    """Round a float32 to half precision and store it as the `index`-th half of a float32 array."""
    signature = types.void(array, index, types.float32)

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], _HALF)
        builder.store(builder.fptrunc(args[2], _HALF), pointer, align=2)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def load_half2(typingctx, array, index):
    """The halves `index` (even) and `index + 1` of a float32 array as two float32, loaded as one half2."""
    pair = types.UniTuple(types.float32, 2)
    signature = pair(array, index)

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], _HALF)
        vector = ir.VectorType(_HALF, 2)
        loaded = builder.load(builder.bitcast(pointer, vector.as_pointer(pointer.type.addrspace)), align=4)
        halves = [builder.extract_element(loaded, ir.Constant(_I32, lane)) for lane in range(2)]
        return context.make_tuple(builder, pair, [builder.fpext(half, _FLOAT) for half in halves])

    return signature, codegen
