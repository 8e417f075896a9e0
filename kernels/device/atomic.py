"""Atomic operations on int32 in global memory, and the fence with which blocks publish and acquire data.

The atomics are relaxed: they order no other accesses. Data that one block wrote is visible to another block if the
writer executes a fence between its writes and an atomic on some element, and the reader executes a fence between an
atomic that observes the writer's and its reads:

    cuda.syncthreads()
    if warp == 0:
        fence()
        atomic_add(states, i, 1, lane == 0)

    if warp == 0:
        seen = cuda.shfl_sync(FULL_MASK, atomic_add(states, i, 0, lane == 0), 0)
        fence()
    cuda.syncthreads()

The threads that take part are chosen by the argument `where`, not by a branch. A branch that diverges within a warp
would make the compiler give up uniform registers for the wgmma instructions in the same loop.
"""

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

from .asm import _GLOBAL, _I32, _VOID, _asm, _pointer


def _address(context, builder, signature, args):
    pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], _I32, _GLOBAL)
    return builder.ptrtoint(pointer, ir.IntType(64))


def _where(builder, text, constraints, operands, where):
    """An atomic on int32 by the threads for which `where` is true; the others get 0."""
    flag = builder.zext(where, _I32) if where.type.width < 32 else where
    number = len(operands) + 1
    text = f"{{ .reg .pred here; setp.ne.u32 here, ${number}, 0; mov.u32 $0, 0; @here {text} }}"
    return _asm(builder, text, f"=&r,{constraints},r,~{{memory}}", _I32, [*operands, flag])


@intrinsic
def fence(typingctx):
    """Like `__threadfence()`: earlier memory accesses become visible to the whole GPU before later ones."""

    def codegen(context, builder, signature, args):
        _asm(builder, "fence.acq_rel.gpu;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def atomic_add(typingctx, array, index, value, where):
    """Add to `array[index]` and return the old value. Threads whose `where` is false do nothing and get 0."""
    signature = types.int32(array, index, types.int32, types.boolean)

    def codegen(context, builder, signature, args):
        operands = [_address(context, builder, signature, args), args[2]]
        text = "atom.relaxed.gpu.global.add.s32 $0, [$1], $2;"
        return _where(builder, text, "l,r", operands, args[3])

    return signature, codegen
