"""Uninitialised arrays in a thread's local memory, as in CUDA C++.

Numba's `cuda.local.array` fills the array with zeros in every thread.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

ALIGNMENT = 16


def local_array(element: Any, count: int) -> Any:
    """A function without arguments that returns a `CPointer(element)` to `count` elements, aligned to 16 bytes.

    Each call site has its own array; a call site in a loop returns the same array in every iteration.
    """

    @intrinsic
    def allocate(typingctx):
        def codegen(context, builder, signature, args):
            kind = context.get_data_type(element)
            with builder.goto_entry_block():
                array = builder.alloca(ir.ArrayType(kind, count))
                array.align = ALIGNMENT
            return builder.bitcast(array, kind.as_pointer())

        return types.CPointer(element)(), codegen

    return allocate
