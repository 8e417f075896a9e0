"""Loops as nvcc makes them of the originals: over an int of 32 bits, and unrolled where the source has a hint.

Every loop of a port over the head dim counts with `add_nowrap`; without a hint, both compilers unroll it as they like.
In a loop with a hint the steps are written out, and it starts with `no_unroll`. The compiler would still unroll one
whose number of rounds it knows: that runs up to an `opaque` end.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic


@intrinsic
def add_nowrap(typingctx, index, step):
    """`index + step` in 32 bits, of which the compiler may assume, as of an int of C++, that it does not overflow.

    Numba's own sum has 64 bits, and cut to 32 it may wrap, so that addresses are computed anew in every round.
    """
    signature = types.uint32(types.uint32, types.uint32)

    def codegen(context, builder, signature, args):
        return builder.add(*args, flags=("nuw", "nsw"))

    return signature, codegen


@intrinsic
def no_unroll(typingctx):
    """At the start of a loop's body: the assembler unrolls the loop no further. The compiler before it may."""

    def codegen(context, builder, signature, args):
        builder.asm(ir.FunctionType(ir.VoidType(), []), r".pragma \22nounroll\22;", "", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def opaque(typingctx, value):
    """The same uint32, as a number that the compiler does not know."""

    def codegen(context, builder, signature, args):
        word = ir.IntType(32)
        return builder.asm(ir.FunctionType(word, [word]), "mov.u32 $0, $1;", "=r,r", list(args), side_effect=False)

    return types.uint32(types.uint32), codegen
