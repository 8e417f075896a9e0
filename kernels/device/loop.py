"""Control over loop unrolling, to match the unroll hints of the original kernels.

Without a hint both compilers choose for themselves. A loop with a hint is unrolled by hand in the source. It and the
loop over the remainder start with `no_unroll`. The compiler would still unroll a loop whose trip count it knows, so
such a loop runs up to an `opaque` end.
"""

from typing import Any

from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from .cint import CINT


@intrinsic
def no_unroll(typingctx):
    """Put at the start of a loop body: the assembler does not unroll the loop further. The compiler before it still
    may.
    """

    def codegen(context, builder, signature, args):
        builder.asm(ir.FunctionType(ir.VoidType(), []), r".pragma \22nounroll\22;", "", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def opaque(typingctx, value):
    """The same int, with its value hidden from the compiler."""

    def codegen(context, builder, signature, args):
        word, words = ir.IntType(32), [context.cast(builder, args[0], signature.args[0], CINT)]
        return builder.asm(ir.FunctionType(word, [word]), "mov.b32 $0, $1;", "=r,r", words, side_effect=False)

    return CINT(value), codegen


def repeat(body: Any, count: int, first: int = 0) -> Any:
    """A device function that calls body(first, ...), body(first + 1, ...) and so on, `count` times.

    Whether the compiler unrolls a loop depends on its size, and an array that a loop indexes leaves the registers.
    """
    if count == 1:

        @cuda.jit(device=True)
        def once(*args):
            body(first, *args)

        return once
    left, right = repeat(body, count // 2, first), repeat(body, count - count // 2, first + count // 2)

    @cuda.jit(device=True)
    def both(*args):
        left(*args)
        right(*args)

    return both
