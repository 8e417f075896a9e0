#include "online.cuh"
#define SHARED true  // whether all warps get the maximum and the sum of the block
#include "trig.cuh"

// The half of a sine and cosine that an even dim adds, or an odd one.
__device__ float sine(float angle)
{
    float sin, cos;
    sincos_of(angle, &sin, &cos);
    return sin;
}

__device__ float cosine(float angle)
{
    float sin, cos;
    sincos_of(angle, &sin, &cos);
    return cos;
}

extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int seq_q, int seq_k,
                                     int hdim, float softmax_scale)
{
    int tid = threadIdx.x;
    int query = blockIdx.x;
    int head = blockIdx.y;
    const float *q_row = q + (head * seq_q + query) * hdim;
    float *out_row = out + (head * seq_q + query) * hdim;
    const float *k_head = k + head * seq_k * hdim;
    const float *v_head = v + head * seq_k * hdim;
    float *scores = shared;
    float *reduction = scores + BLOCK_K;

    float *inv_freq = reduction + WARP;
    for (int dim = tid; dim < hdim; dim += THREADS)
        inv_freq[dim] = inverse_frequency(dim / 2 * 2, hdim);
    __syncthreads();

    float row_max = NEGATIVE_INFINITY;
    float row_sum = 0.0f;
    for (int tile_start = 0; tile_start < seq_k; tile_start += BLOCK_K) {
        int tile = min(BLOCK_K, seq_k - tile_start);
        const float *v_tile = v_head + tile_start * hdim;
        for (int key = tid; key < tile; key += THREADS) {
            const float *k_row = k_head + (tile_start + key) * hdim;
            float score = 0.0f;
            int position = tile_start + key;
            for (int dim = 0; dim < hdim; dim += 4) {
                float4 a = ld4(q_row + dim);
                float4 b = ld4(k_row + dim);
                float4 f = ld4(inv_freq + dim);
                score += (a.x + sine(query * f.x)) * (b.x + sine(position * f.x)) +
                         (a.y + cosine(query * f.y)) * (b.y + cosine(position * f.y)) +
                         (a.z + sine(query * f.z)) * (b.z + sine(position * f.z)) +
                         (a.w + cosine(query * f.w)) * (b.w + cosine(position * f.w));
            }
            scores[key] = score * softmax_scale;
        }
        __syncthreads();

#include "attend_to_tile.cuh"
    }

    for (int dim = tid; dim < hdim; dim += THREADS)
        out_row[dim] = out_row[dim] / row_sum;
}
