"""Thread-block clusters: a block's rank, the cluster's barrier, and stores to other blocks' shared memory.

They need compute capability 9.0. Like the other intrinsics they take arrays and indices in elements, never addresses.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

from .asm import _I32, _SHARED, _VOID, _asm, _pointer

_MAP = "{ .reg .b32 there; mapa.shared::cluster.u32 there, $0, $1; "


@intrinsic
def cluster_rank(typingctx):
    """The rank of this block in its cluster."""

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_I32, [])
        return builder.asm(function, "mov.u32 $0, %cluster_ctarank;", "=r", [], side_effect=False)

    return types.uint32(), codegen


@intrinsic
def cluster_arrive(typingctx):
    """Arrive at the cluster's barrier; what this thread stored before is there for all behind `cluster_wait`."""

    def codegen(context, builder, signature, args):
        _asm(builder, "barrier.cluster.arrive.release.aligned;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cluster_start(typingctx):
    """Arrive at the cluster's barrier without a fence: behind `cluster_wait`, all its blocks have begun."""

    def codegen(context, builder, signature, args):
        _asm(builder, "barrier.cluster.arrive.relaxed.aligned;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cluster_wait(typingctx):
    """Wait until all threads of the cluster have arrived at its barrier; it is also a barrier of the block."""

    def codegen(context, builder, signature, args):
        _asm(builder, "barrier.cluster.wait.acquire.aligned;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cluster_store(typingctx, shared, index, rank, value):
    """Store a float32 as `shared[index]` of the block with that rank."""
    signature = types.void(shared, index, types.uint32, types.float32)

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], space=_SHARED)
        operands = [builder.ptrtoint(pointer, _I32), args[2], args[3]]
        _asm(builder, _MAP + "st.shared::cluster.f32 [there], $2; }", "r,r,f,~{memory}", _VOID, operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def cluster_store2(typingctx, shared, index, rank, x, y):
    """Store two float32 as `shared[index : index + 2]`, on an 8-byte boundary, of the block with that rank."""
    signature = types.void(shared, index, types.uint32, types.float32, types.float32)

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], space=_SHARED)
        operands = [builder.ptrtoint(pointer, _I32), *args[2:]]
        text = _MAP + "st.shared::cluster.v2.f32 [there], {$2, $3}; }"
        _asm(builder, text, "r,r,f,f,~{memory}", _VOID, operands)
        return context.get_dummy_value()

    return signature, codegen
