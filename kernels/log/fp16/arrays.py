"""Shared arrays that a kernel declares itself, like `__shared__` in CUDA C++: no two of them overlap.

The compiler knows that, so a store to one does not invalidate values loaded from another. It does not know it of views
of dynamic shared memory, or of parts of one array.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cuda.extending import intrinsic

from ...version import SharedLayout

SHARED = 3  # LLVM's address space
# Halves are aligned for 16-byte accesses; floats are not, or their scalar loads of the source would be merged.
ALIGNMENT = {types.uint16: 16, types.float32: 4}


def shared_arrays(layout: SharedLayout, *halves: str) -> Any:
    """A function without arguments that returns the arrays of `layout`, each 1-D; to be called once.

    Those in `halves` are of uint16, the bits of half precision, the others of float32.
    """

    @intrinsic
    def declare(typingctx):
        elements = [types.uint16 if name in halves else types.float32 for name in layout.sizes]
        kinds = types.Tuple([types.Array(element, 1, "C") for element in elements])

        def codegen(context, builder, signature, args):
            arrays = []
            for (name, floats), element, kind in zip(layout.sizes.items(), elements, kinds):
                item, size = context.get_data_type(element), element.bitwidth // 8
                count = 4 * floats // size
                memory = cgutils.add_global_variable(builder.module, ir.ArrayType(item, count), name, SHARED)
                memory.linkage, memory.initializer = "internal", ir.Constant(memory.type.pointee, ir.Undefined)
                memory.align = ALIGNMENT[element]
                array = context.make_array(kind)(context, builder)
                context.populate_array(
                    array,
                    data=builder.addrspacecast(builder.bitcast(memory, item.as_pointer(SHARED)), item.as_pointer()),
                    shape=cgutils.pack_array(builder, [context.get_constant(types.intp, count)]),
                    strides=cgutils.pack_array(builder, [context.get_constant(types.intp, size)]),
                    itemsize=context.get_constant(types.intp, size),
                    meminfo=None,
                )
                arrays.append(array._getvalue())
            return context.make_tuple(builder, kinds, arrays)

        return kinds(), codegen

    return declare
