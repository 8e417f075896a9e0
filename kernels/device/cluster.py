"""Thread-block clusters: the rank of a block, the cluster barrier, and stores to the shared memory of other blocks.

They need compute capability 9.0. Like the other intrinsics they take arrays and indices in elements, never addresses.

`cluster_send2` stores to another block and counts the bytes at an mbarrier of that block. A wait for that barrier
acquires the data. So no thread waits for its own stores, as it would at the cluster barrier:

    if tid == 0:
        barrier_init(shared, at, 1)  # one arrival a phase
        barrier_init_fence()
    cluster_arrive()
    cluster_wait()
    for phase in range(phases):
        if tid == 0:
            barrier_expect(shared, at, nbytes)
        cluster_send2(shared, index, rank, x, y, at)
        barrier_wait(shared, at, phase & 1)
"""

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

from .asm import _I32, _SHARED, _VOID, _asm, _pointer


@intrinsic
def cluster_rank(typingctx):
    """The rank of this block in its cluster."""

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_I32, [])
        return builder.asm(function, "mov.u32 $0, %cluster_ctarank;", "=r", [], side_effect=False)

    return types.uint32(), codegen


@intrinsic
def cluster_arrive(typingctx):
    """Arrive at the cluster barrier with release semantics: earlier stores are visible after `cluster_wait`."""

    def codegen(context, builder, signature, args):
        _asm(builder, "barrier.cluster.arrive.release.aligned;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cluster_start(typingctx):
    """Arrive at the cluster barrier without a fence: after `cluster_wait`, all blocks of the cluster have started."""

    def codegen(context, builder, signature, args):
        _asm(builder, "barrier.cluster.arrive.relaxed.aligned;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def cluster_wait(typingctx):
    """Wait until all threads of the cluster have arrived at its barrier; this is also a barrier of the block."""

    def codegen(context, builder, signature, args):
        _asm(builder, "barrier.cluster.wait.acquire.aligned;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


def _shared_address(context, builder, array_type, array, index_type, index):
    pointer = _pointer(context, builder, array_type, array, index_type, index, space=_SHARED)
    return builder.ptrtoint(pointer, _I32)


@intrinsic
def barrier_init(typingctx, shared, index, count):
    """Make `shared[index : index + 2]`, aligned to 8 bytes, an mbarrier whose phases expect `count` arrivals.

    One thread calls this. Threads of the same block may use the barrier after a block barrier; other blocks after
    `barrier_init_fence` and the cluster barrier. Phases are numbered from 0.
    """
    signature = types.void(shared, index, types.uint32)

    def codegen(context, builder, signature, args):
        address = _shared_address(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        _asm(builder, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", _VOID, [address, args[2]])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def barrier_init_fence(typingctx):
    """Make the mbarriers that this thread initialised visible to the cluster at its next arrival at the cluster
    barrier.
    """

    def codegen(context, builder, signature, args):
        _asm(builder, "fence.mbarrier_init.release.cluster;", "~{memory}", _VOID, [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def barrier_expect(typingctx, shared, index, nbytes):
    """Arrive at the mbarrier `shared[index]` of this block and add `nbytes` to the bytes that its phase waits for."""
    signature = types.void(shared, index, types.uint32)

    def codegen(context, builder, signature, args):
        address = _shared_address(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
        _asm(builder, text, "r,r,~{memory}", _VOID, [address, args[2]])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def barrier_wait(typingctx, shared, index, parity):
    """Wait until the phase with that parity (0 for even phases) of the mbarrier `shared[index]` of this block
    completes.

    Data sent in that phase is then visible, and so is everything the senders wrote before. The caller must not fall two
    phases behind, or it waits for a parity that does not come and hangs.
    """
    signature = types.void(shared, index, types.uint32)

    def codegen(context, builder, signature, args):
        address = _shared_address(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        text = (
            "{ .reg .pred complete; $$barrier_wait${:uid}: "
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [$0], $1; "
            "@!complete bra $$barrier_wait${:uid}; }"
        )
        _asm(builder, text, "r,r,~{memory}", _VOID, [address, args[2]])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def cluster_send2(typingctx, shared, index, rank, x, y, barrier):
    """Store two float32 to `shared[index : index + 2]`, aligned to 8 bytes, of the block with that rank,
    asynchronously.

    The 8 bytes count in the current phase of that block's mbarrier `shared[barrier]`. Its threads may read them after
    `barrier_wait`.
    """
    signature = types.void(shared, index, types.uint32, types.float32, types.float32, barrier)

    def codegen(context, builder, signature, args):
        shared_type, index_type, barrier_type = signature.args[0], signature.args[1], signature.args[-1]
        addresses = [
            _shared_address(context, builder, shared_type, args[0], kind, index)
            for kind, index in ((index_type, args[1]), (barrier_type, args[-1]))
        ]
        text = (
            "{ .reg .b32 there, barrier; mapa.shared::cluster.u32 there, $0, $2; "
            "mapa.shared::cluster.u32 barrier, $1, $2; "
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {$3, $4}, [barrier]; }"
        )
        _asm(builder, text, "r,r,r,f,f,~{memory}", _VOID, [*addresses, args[2], *args[3:5]])
        return context.get_dummy_value()

    return signature, codegen
