"""Loops as nvcc makes them of the source's: over an int of 32 bits, and unrolled where the source asks for it.

A loop without a hint counts with `plus`: both compilers unroll it as they like. In one with a hint the steps are
written out; it starts with `no_unroll`, and counts in a way that the first compiler cannot, or up to `unknown`.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic


@intrinsic
def plus(typingctx, index, step):
    """`index + step` of two uint32, of which the compiler may take it, as in C of an int, that it does not overflow."""
    signature = types.uint32(types.uint32, types.uint32)

    def codegen(context, builder, signature, args):
        return builder.add(args[0], args[1], flags=["nuw", "nsw"])

    return signature, codegen


@intrinsic
def no_unroll(typingctx):
    """At the start of a loop's body: the assembler unrolls the loop no further. The compiler before it may."""

    def codegen(context, builder, signature, args):
        builder.asm(ir.FunctionType(ir.VoidType(), []), r".pragma \22nounroll\22;", "", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def unknown(typingctx, value):
    """The same uint32, which the compiler cannot know: it does not unroll a loop up to it whose index may overflow."""

    def codegen(context, builder, signature, args):
        word = ir.IntType(32)
        return builder.asm(ir.FunctionType(word, [word]), "mov.u32 $0, $1;", "=r,r", list(args), side_effect=False)

    return types.uint32(types.uint32), codegen
