"""Reductions over a block of 256 threads (8 warps), as the log's kernels do them.

`block_*` is the corrected form. `block_*_unshared` leaves out the last store, as the log's first kernels did: warp 0
returns the result of the block and every other warp returns its own partial result. Each function takes the dynamic
shared array and the offset of its reduction buffer of 32 floats. No barrier separates the last read of one reduction
from the first store of the next. Every caller declares that race.
"""

from numba import cuda, float32

from .cint import cint

FULL_MASK = 0xFFFFFFFF
WARPS = 8
NEGATIVE_INFINITY = float32(float("-inf"))


@cuda.jit(device=True)
def warp_max(value):
    for offset in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(FULL_MASK, value, offset))
    return value


@cuda.jit(device=True)
def warp_sum(value):
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(FULL_MASK, value, offset)
    return value


def of_block(of_warp, neutral):
    @cuda.jit(device=True)
    def reduced(value, shared, reduction):
        tid = cint(cuda.threadIdx.x)
        warp_id = tid // 32
        lane_id = tid % 32
        value = of_warp(value)
        if lane_id == 0:
            shared[reduction + warp_id] = value
        cuda.syncthreads()
        if warp_id == 0:
            value = neutral
            if lane_id < WARPS:
                value = shared[reduction + lane_id]
            value = of_warp(value)
            if lane_id == 0:
                shared[reduction] = value
        cuda.syncthreads()
        return shared[reduction]

    return reduced


def of_block_unshared(of_warp, neutral):
    @cuda.jit(device=True)
    def reduced_unshared(value, shared, reduction):
        tid = cint(cuda.threadIdx.x)
        warp_id = tid // 32
        lane_id = tid % 32
        value = of_warp(value)
        if lane_id == 0:
            shared[reduction + warp_id] = value
        cuda.syncthreads()
        if warp_id == 0:
            value = neutral
            if lane_id < WARPS:
                value = shared[reduction + lane_id]
            value = of_warp(value)
        cuda.syncthreads()
        return value

    return reduced_unshared


block_max, block_sum = of_block(warp_max, NEGATIVE_INFINITY), of_block(warp_sum, float32(0.0))
block_max_unshared = of_block_unshared(warp_max, NEGATIVE_INFINITY)
block_sum_unshared = of_block_unshared(warp_sum, float32(0.0))


@cuda.jit(device=True, inline="always")
def shared_by_thread_0(value, shared, reduction):
    """The value of thread 0, for all threads; the function has a block barrier."""
    if cint(cuda.threadIdx.x) == 0:
        shared[reduction] = value
    cuda.syncthreads()
    return shared[reduction]
