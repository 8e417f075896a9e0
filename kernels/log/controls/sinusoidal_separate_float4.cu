#include "online.cuh"
#define SHARED true  // whether all warps get the maximum and the sum of the block

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

    float row_max = NEGATIVE_INFINITY;
    float row_sum = 0.0f;
    for (int tile_start = 0; tile_start < seq_k; tile_start += BLOCK_K) {
        int tile = min(BLOCK_K, seq_k - tile_start);
        const float *v_tile = v_head + tile_start * hdim;
        for (int key = tid; key < tile; key += THREADS) {
            const float *k_row = k_head + (tile_start + key) * hdim;
            float score = 0.0f;
#pragma unroll 4
            for (int dim = 0; dim < hdim; dim += 4)
                score += dot(ld4(q_row + dim), ld4(k_row + dim));
            scores[key] = score * softmax_scale;
        }
        __syncthreads();

#include "attend_to_tile.cuh"
    }

    for (int dim = tid; dim < hdim; dim += THREADS)
        out_row[dim] = out_row[dim] / row_sum;
}
