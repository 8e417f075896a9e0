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

from numba import types

from .asm import I32, VOID, asm, device_op, pure, shared_address, statement


@device_op(types.uint32)
def cluster_rank(b):
    """The rank of this block in its cluster."""
    return pure(b, "mov.u32 $0, %cluster_ctarank;", "=r", I32)


# Arrive at the cluster barrier: with release semantics, so that earlier stores are visible after `cluster_wait`, or
# without a fence, so that all blocks of the cluster have started after it. `cluster_wait` waits until all threads of
# the cluster have arrived; it is also a barrier of the block.
cluster_arrive = statement("barrier.cluster.arrive.release.aligned;")
cluster_start = statement("barrier.cluster.arrive.relaxed.aligned;")
cluster_wait = statement("barrier.cluster.wait.acquire.aligned;")

# Make the mbarriers that this thread initialised visible to the cluster at its next arrival at the cluster barrier.
barrier_init_fence = statement("fence.mbarrier_init.release.cluster;")


@device_op(types.void, None, None, types.uint32)
def barrier_init(b, shared, index, count):
    """Make `shared[index : index + 2]`, aligned to 8 bytes, an mbarrier whose phases expect `count` arrivals.

    One thread calls this. Threads of the same block may use the barrier after a block barrier; other blocks after
    `barrier_init_fence` and the cluster barrier. Phases are numbered from 0.
    """
    address = shared_address(b, shared, index)
    asm(b, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}", VOID, [address, count])


@device_op(types.void, None, None, types.uint32)
def barrier_expect(b, shared, index, nbytes):
    """Arrive at the mbarrier `shared[index]` of this block and add `nbytes` to the bytes that its phase waits for."""
    address = shared_address(b, shared, index)
    asm(b, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}", VOID, [address, nbytes])


@device_op(types.void, None, None, types.uint32)
def barrier_wait(b, shared, index, parity):
    """Wait until the phase with that parity (0 for even phases) of the mbarrier `shared[index]` of this block
    completes.

    Data sent in that phase is then visible, and so is everything the senders wrote before. The caller must not be two
    phases late, or it waits for a parity that does not come and hangs.
    """
    text = (
        "{ .reg .pred complete; $$barrier_wait${:uid}: "
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [$0], $1; "
        "@!complete bra $$barrier_wait${:uid}; }"
    )
    asm(b, text, "r,r,~{memory}", VOID, [shared_address(b, shared, index), parity])


@device_op(types.void, None, None, types.uint32, types.float32, types.float32)
def cluster_send2(b, shared, index, rank, x, y, barrier):
    """Store two float32 to `shared[index : index + 2]`, aligned to 8 bytes, of the block with that rank,
    asynchronously.

    The 8 bytes count in the current phase of that block's mbarrier `shared[barrier]`. Its threads may read them after
    `barrier_wait`.
    """
    text = (
        "{ .reg .b32 there, barrier; mapa.shared::cluster.u32 there, $0, $2; "
        "mapa.shared::cluster.u32 barrier, $1, $2; "
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {$3, $4}, [barrier]; }"
    )
    addresses = [shared_address(b, shared, place) for place in (index, barrier)]
    asm(b, text, "r,r,r,f,f,~{memory}", VOID, [*addresses, rank, x, y])
