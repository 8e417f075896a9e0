"""Reductions over a block of 256 threads (8 warps), as the log's kernels do them.

`block_*` is the corrected form. `block_*_unshared` leaves out the last store, as the log's first kernels did: warp 0
returns the result of the block and every other warp returns its own partial result. Each function takes the dynamic
shared array and the offset of its reduction buffer of 32 floats. No barrier separates the last read of one reduction
from the first store of the next. Every caller declares that race.
"""

from typing import Any

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


def block_reduction(over_warp: Any, identity: Any, shares: bool) -> Any:
    """A function (value, shared, reduction) -> value; `shares`: whether it stores the block's result for all warps."""

    @cuda.jit(device=True)
    def reduce_block(value, shared, reduction):
        tid = cint(cuda.threadIdx.x)
        warp_id = tid // 32
        lane_id = tid % 32
        value = over_warp(value)
        if lane_id == 0:
            shared[reduction + warp_id] = value
        cuda.syncthreads()
        if warp_id == 0:
            value = identity
            if lane_id < WARPS:
                value = shared[reduction + lane_id]
            value = over_warp(value)
            if shares and lane_id == 0:
                shared[reduction] = value
        cuda.syncthreads()
        return shared[reduction] if shares else value

    return reduce_block


block_max_unshared = block_reduction(warp_max, NEGATIVE_INFINITY, shares=False)
block_sum_unshared = block_reduction(warp_sum, float32(0.0), shares=False)
block_max = block_reduction(warp_max, NEGATIVE_INFINITY, shares=True)
block_sum = block_reduction(warp_sum, float32(0.0), shares=True)


@cuda.jit(device=True, inline="always")
def shared_by_thread_0(value, shared, reduction):
    """The value of thread 0, for all threads, behind a barrier of its own."""
    if cint(cuda.threadIdx.x) == 0:
        shared[reduction] = value
    cuda.syncthreads()
    return shared[reduction]
