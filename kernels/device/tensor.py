"""What tensor-core kernels need beside the mma: pairs of floats, the TF32 split, groups of asynchronous copies."""

from __future__ import annotations

from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from .asm import _FLOAT, _GLOBAL, _I32, _SHARED, _VOID, _asm, _pointer

_PAIR = ir.VectorType(_FLOAT, 2)
_ROUND, _KEEP = 0x1000, 0xFFFFE000  # half of the last bit that TF32 keeps, and the bits it keeps


@intrinsic
def ld2(typingctx, array, index):
    """The float32 `index` and `index + 1` of an array or CPointer as a tuple, in one load from an 8-byte boundary."""
    pair = types.UniTuple(types.float32, 2)
    signature = pair(array, index)

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        loaded = builder.load(builder.bitcast(pointer, _PAIR.as_pointer(pointer.type.addrspace)), align=8)
        values = [builder.extract_element(loaded, ir.Constant(_I32, lane)) for lane in range(2)]
        return context.make_tuple(builder, pair, values)

    return signature, codegen


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


@intrinsic
def cp_async4_or_zero(typingctx, shared, index, array, offset, there):
    """`cp_async4` where `there` holds; elsewhere the four floats become 0 and nothing is read. One instruction."""
    signature = types.void(shared, index, array, offset, types.boolean)

    def codegen(context, builder, signature, args):
        shared_type, index_type, array_type, offset_type, _ = signature.args
        there = builder.trunc(args[4], ir.IntType(1)) if args[4].type.width > 1 else args[4]
        to = _pointer(context, builder, shared_type, args[0], index_type, args[1], space=_SHARED)
        source = _pointer(context, builder, array_type, args[2], offset_type, args[3], space=_GLOBAL)
        size = builder.select(there, ir.Constant(_I32, 16), ir.Constant(_I32, 0))
        operands = [builder.ptrtoint(to, _I32), builder.ptrtoint(source, ir.IntType(64)), size]
        _asm(builder, "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r,~{memory}", _VOID, operands)
        return context.get_dummy_value()

    return signature, codegen


def wait_groups(pending):
    """A function that waits for all groups of copies that this thread committed but the last `pending`."""

    @intrinsic
    def wait(typingctx):
        def codegen(context, builder, signature, args):
            _asm(builder, f"cp.async.wait_group {pending};", "~{memory}", _VOID, [])
            return context.get_dummy_value()

        return types.void(), codegen

    return wait


cp_async_wait_but_one = wait_groups(1)
