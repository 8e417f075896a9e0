"""Loops that unroll as the hints of the originals say.

Without a hint, both compilers unroll a loop as they like. In a loop with a hint the steps are written out; it and the
loop over what is left start with `no_unroll`. The compiler would still unroll one whose number of rounds it knows:
that runs up to an `opaque` end.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

from .cint import CINT


@intrinsic
def no_unroll(typingctx):
    """At the start of a loop's body: the assembler unrolls the loop no further. The compiler before it may."""

    def codegen(context, builder, signature, args):
        builder.asm(ir.FunctionType(ir.VoidType(), []), r".pragma \22nounroll\22;", "", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def opaque(typingctx, value):
    """The same int, as a number that the compiler does not know."""

    def codegen(context, builder, signature, args):
        word, words = ir.IntType(32), [context.cast(builder, args[0], signature.args[0], CINT)]
        return builder.asm(ir.FunctionType(word, [word]), "mov.b32 $0, $1;", "=r,r", words, side_effect=False)

    return CINT(value), codegen
