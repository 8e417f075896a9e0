#include "embed.cuh"
#include "online.cuh"

extern "C" __global__ void attention(const float *q, const float *k, const float *v, const float *sin, const float *cos,
                                     float *out, int seq_q, int seq_k, int hdim, float softmax_scale)
{
    float *query = shared + BLOCK_K + WARP;
    Row row{q, k, v, out, seq_q, seq_k, hdim};

    for (int dim = 4 * threadIdx.x; dim < hdim; dim += 4 * THREADS) {
        float4 x = ld4(q + row.index * hdim + dim);
        float4 s = ld4(sin + row.position * hdim + dim);
        float4 c = ld4(cos + row.position * hdim + dim);
        st4(query + dim, embedded(x, s, c));
    }
    __syncthreads();

    attend<true>(row, softmax_scale, [=](int key) {
        return dot<4>(query, row.keys + key * hdim, hdim);
    });
}
