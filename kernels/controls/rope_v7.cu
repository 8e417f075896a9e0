#include "online.cuh"
#include "rotate.cuh"
#include "trig.cuh"

extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int seq_q, int seq_k,
                                     int hdim, int rotary_dim, float softmax_scale)
{
    float *query = shared + BLOCK_K + WARP;
    float *inv_freq = query + hdim;
    Row row{q, k, v, out, seq_q, seq_k, hdim};

    for (int pair = threadIdx.x; pair < rotary_dim / 2; pair += THREADS)
        inv_freq[pair] = inverse_frequency(2 * pair, rotary_dim);
    __syncthreads();
    for (int dim = 2 * threadIdx.x; dim < rotary_dim; dim += 2 * THREADS) {
        float x = row.query[dim];
        float y = row.query[dim + 1];
        float sin, cos;
        sincos_of(row.position * inv_freq[dim / 2], &sin, &cos);
        rotate(x, y, cos, sin);
        query[dim] = x;
        query[dim + 1] = y;
    }
    for (int dim = rotary_dim + threadIdx.x; dim < hdim; dim += THREADS)
        query[dim] = row.query[dim];
    __syncthreads();

    attend<true>(row, softmax_scale, [=](int key) {
        const float *k_row = row.keys + key * hdim;
        float score = 0.0f;
        for (int dim = 0; dim < hdim; dim += 4) {
            if (dim + 3 >= hdim)
                break;
            score += dot(ld4(query + dim), ld4(k_row + dim));
        }
        return score;
    });
}
