"""Loops as CUDA C++ compiles them: counters that do not overflow, and no unrolling beyond what is written."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic


@intrinsic
def step(typingctx, counter, count):
    """counter + count in 32 bits, without overflow: what the compiler may assume of an int of C++.

    Numba's own sum has 64 bits, and cut to 32 it may wrap, so that addresses are computed anew in every round.
    """
    signature = types.uint32(types.uint32, types.uint32)

    def codegen(context, builder, signature, args):
        return builder.add(*args, flags=("nuw", "nsw"))

    return signature, codegen


@intrinsic
def no_unroll(typingctx):
    """In a loop's first line: the assembler leaves the loop as it is written."""

    def codegen(context, builder, signature, args):
        text = '.pragma "nounroll";'.replace('"', r"\22")
        builder.asm(ir.FunctionType(ir.VoidType(), []), text, "", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen
