// Reductions over a block of 256 threads. Without `shared_result` the last store is left out, as in the log's first
// kernels: warp 0 returns the block's value, every other warp its own.

#include "block.cuh"

#define NEGATIVE_INFINITY __int_as_float(0xff800000)

template <class Combine>
__device__ float warp_reduce(float value, Combine combine)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        value = combine(value, __shfl_xor_sync(0xffffffff, value, offset));
    return value;
}

template <bool shared_result, class Combine>
__device__ float block_reduce(float value, float identity, float *reduction, Combine combine)
{
    int tid = threadIdx.x;
    int warp_id = tid / WARP;
    int lane_id = tid % WARP;
    value = warp_reduce(value, combine);
    if (lane_id == 0)
        reduction[warp_id] = value;
    __syncthreads();
    if (warp_id == 0) {
        value = lane_id < THREADS / WARP ? reduction[lane_id] : identity;
        value = warp_reduce(value, combine);
        if (shared_result && lane_id == 0)
            reduction[0] = value;
    }
    __syncthreads();
    return shared_result ? reduction[0] : value;
}

template <bool shared_result>
__device__ float block_max(float value, float *reduction)
{
    return block_reduce<shared_result>(value, NEGATIVE_INFINITY, reduction, [](float a, float b) { return fmaxf(a, b); });
}

template <bool shared_result>
__device__ float block_sum(float value, float *reduction)
{
    return block_reduce<shared_result>(value, 0.0f, reduction, [](float a, float b) { return a + b; });
}
