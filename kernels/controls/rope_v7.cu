#include "online.cuh"
#include "rotate.cuh"
#include "trig.cuh"

extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int seq_q, int seq_k,
                                     int hdim, int rotary_dim, float softmax_scale)
{
    float *query = shared + BLOCK_K + WARP;
    float *inv_freq = query + hdim;
    int position = blockIdx.x;
    int head = blockIdx.y;
    int row = head * seq_q + position;
    const float *q_row = q + row * hdim;
    const float *k_head = k + head * seq_k * hdim;

    for (int pair = threadIdx.x; pair < rotary_dim / 2; pair += THREADS)
        inv_freq[pair] = inverse_frequency(2 * pair, rotary_dim);
    __syncthreads();
    for (int dim = 2 * threadIdx.x; dim < rotary_dim; dim += 2 * THREADS) {
        float x = q_row[dim];
        float y = q_row[dim + 1];
        float sin, cos;
        sincos_of(position * inv_freq[dim / 2], &sin, &cos);
        rotate(x, y, cos, sin);
        query[dim] = x;
        query[dim + 1] = y;
    }
    for (int dim = rotary_dim + threadIdx.x; dim < hdim; dim += THREADS)
        query[dim] = q_row[dim];
    __syncthreads();

    attend<true>(v + head * seq_k * hdim, out + row * hdim, seq_k, hdim, [=](int key) {
        const float *k_row = k_head + key * hdim;
        float score = 0.0f;
        for (int dim = 0; dim < hdim; dim += 4) {
            if (dim + 3 >= hdim)
                break;
            float4 a = ld4(query + dim);
            float4 b = ld4(k_row + dim);
            score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        return score * softmax_scale;
    });
}
