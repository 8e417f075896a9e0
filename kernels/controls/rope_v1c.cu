#include "online.cuh"
#include "rotate.cuh"

extern "C" __global__ void attention(const float *q, const float *k, const float *v, const float *cos, const float *sin,
                                     float *out, int seq_q, int seq_k, int hdim, float softmax_scale)
{
    float *query = shared + BLOCK_K + WARP;
    Row row{q, k, v, out, seq_q, seq_k, hdim};

    for (int dim = 4 * threadIdx.x; dim < hdim; dim += 4 * THREADS) {
        float4 x = ld4(q + row.index * hdim + dim);
        float4 c = ld4(cos + row.position * hdim + dim);
        float4 s = ld4(sin + row.position * hdim + dim);
        rotate(x, c, s);
        st4(query + dim, x);
    }
    __syncthreads();

    attend<true>(row, softmax_scale, [=](int key) {
        const float *k_row = row.keys + key * hdim;
        float score = 0.0f;
        for (int dim = 0; dim < hdim; dim += 4) {
            float4 a = ld4(query + dim);
            float4 b = ld4(k_row + dim);
            float4 c = ld4(cos + key * hdim + dim);
            float4 s = ld4(sin + key * hdim + dim);
            rotate(b, c, s);
            score += dot(a, b);
        }
        return score;
    });
}
