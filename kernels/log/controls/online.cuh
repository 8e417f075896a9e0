// What the log's kernels of online softmax share: a block takes one query row, or a few, and tiles of 64 keys, and keeps
// its running output in global memory. Indices are int, pointers are not __restrict__.

#include "reduce.cuh"

constexpr int BLOCK_K = 64;

extern __shared__ __align__(16) float shared[];  // scores, reduction, then what a kernel adds

__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
