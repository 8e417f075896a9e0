"""Shared arrays that a kernel declares itself, like `__shared__` in CUDA C++: no two of them overlap.

The compiler knows that, so a store to one does not invalidate values loaded from another. It does not know it of views
of dynamic shared memory, or of parts of one array.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cuda.extending import intrinsic

from ..version import SharedLayout

SHARED = 3  # LLVM's address space
# Halves are aligned for 16-byte accesses; floats are not, or their scalar loads of the source would be merged.
ALIGNMENT = {types.uint16: 16, types.float32: 4}


def shared_array(layout: SharedLayout, name: str, element: Any) -> Any:
    """A function without arguments that returns `name` of `layout` as a 1-D array of `element`; to be called once."""
    count = 4 * layout.sizes[name] * 8 // element.bitwidth
    kind = types.Array(element, 1, "C")

    @intrinsic
    def declare(typingctx):
        def codegen(context, builder, signature, args):
            item = context.get_data_type(element)
            memory = cgutils.add_global_variable(builder.module, ir.ArrayType(item, count), name, SHARED)
            memory.linkage, memory.initializer = "internal", ir.Constant(memory.type.pointee, ir.Undefined)
            memory.align = ALIGNMENT[element]
            size, length = element.bitwidth // 8, context.get_constant(types.intp, count)
            array = context.make_array(kind)(context, builder)
            context.populate_array(
                array,
                data=builder.addrspacecast(builder.bitcast(memory, item.as_pointer(SHARED)), item.as_pointer()),
                shape=cgutils.pack_array(builder, [length]),
                strides=cgutils.pack_array(builder, [context.get_constant(types.intp, size)]),
                itemsize=context.get_constant(types.intp, size),
                meminfo=None,
            )
            return array._getvalue()

        return kind(), codegen

    return declare
