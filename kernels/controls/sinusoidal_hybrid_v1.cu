#include "online.cuh"

extern "C" __global__ void attention(const float *q, const float *k, const float *v, const float *sin, const float *cos,
                                     float *out, int seq_q, int seq_k, int hdim, float softmax_scale)
{
    float *query = shared + BLOCK_K + WARP;
    int position = blockIdx.x;
    int head = blockIdx.y;
    int row = head * seq_q + position;
    const float *k_head = k + head * seq_k * hdim;

    for (int dim = 4 * threadIdx.x; dim < hdim; dim += 4 * THREADS) {
        float4 a = ld4(q + row * hdim + dim);
        float4 s = ld4(sin + position * hdim + dim);
        float4 c = ld4(cos + position * hdim + dim);
        st4(query + dim, make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w));
    }
    __syncthreads();

    attend<true>(v + head * seq_k * hdim, out + row * hdim, seq_k, hdim, [=](int key) {
        const float *k_row = k_head + key * hdim;
        float score = 0.0f;
#pragma unroll 4
        for (int dim = 0; dim < hdim; dim += 4) {
            float4 a = ld4(query + dim);
            float4 b = ld4(k_row + dim);
            score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        return score * softmax_scale;
    });
}
