"""Atomic operations on int32 in global memory, and the fence by which blocks hand each other what they wrote.

The operations order nothing by themselves. What a block wrote is there for another if the one fences between its writes
and an operation on some element, and the other between an operation that saw the first and its reads:

    cuda.syncthreads()
    if warp == 0:
        fence()
        atomic_add(states, i, 1, lane == 0)

    if warp == 0:
        seen = cuda.shfl_sync(FULL_MASK, atomic_add(states, i, 0, lane == 0), 0)
        fence()
    cuda.syncthreads()

Which threads take part is an argument: a branch that the threads of a warp do not take together would cost products of
warpgroups in the same loop their uniform registers.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

from .asm import _GLOBAL, _I32, _VOID, _asm, _pointer


def _address(context, builder, signature, args):
    pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], _I32, _GLOBAL)
    return builder.ptrtoint(pointer, ir.IntType(64))


def _where(builder, text, constraints, operands, where):
    """An operation on int32 of the threads for which `where` holds; the others get 0."""
    flag = builder.zext(where, _I32) if where.type.width < 32 else where
    number = len(operands) + 1
    text = f"{{ .reg .pred here; setp.ne.u32 here, ${number}, 0; mov.u32 $0, 0; @here {text} }}"
    return _asm(builder, text, f"=&r,{constraints},r,~{{memory}}", _I32, [*operands, flag])


@intrinsic
def fence(typingctx):
    """What this thread knows of before is ordered before what it does behind, for the whole GPU."""

    def codegen(context, builder, signature, args):
        _asm(builder, "fence.acq_rel.gpu;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def atomic_add(typingctx, array, index, value, where):
    """Add to `array[index]`. Returns what was there; 0 in threads for which `where` does not hold, which do nothing."""
    signature = types.int32(array, index, types.int32, types.boolean)

    def codegen(context, builder, signature, args):
        operands = [_address(context, builder, signature, args), args[2]]
        text = "atom.relaxed.gpu.global.add.s32 $0, [$1], $2;"
        return _where(builder, text, "l,r", operands, args[3])

    return signature, codegen


@intrinsic
def give_way(typingctx):
    """Let other warps run for a moment, in a loop that waits for what they do."""

    def codegen(context, builder, signature, args):
        _asm(builder, "nanosleep.u32 20;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen
