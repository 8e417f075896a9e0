#include "online.cuh"
#define SHARED true  // whether all warps get the maximum and the sum of the block
#include "rotate.cuh"

extern "C" __global__ void attention(const float *q, const float *k, const float *v, const float *cos, const float *sin,
                                     float *out, int seq_q, int seq_k, int hdim, float softmax_scale)
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

    float *rotated_query = reduction + WARP;
    for (int dim = 4 * tid; dim < hdim; dim += 4 * THREADS) {
        float4 x = ld4(q_row + dim);
        float4 c = ld4(cos + query * hdim + dim);
        float4 s = ld4(sin + query * hdim + dim);
        rotate(x, c, s);
        st4(rotated_query + dim, x);
    }
    __syncthreads();

    float row_max = NEGATIVE_INFINITY;
    float row_sum = 0.0f;
    for (int tile_start = 0; tile_start < seq_k; tile_start += BLOCK_K) {
        int tile = min(BLOCK_K, seq_k - tile_start);
        const float *v_tile = v_head + tile_start * hdim;
        for (int key = tid; key < tile; key += THREADS) {
            const float *k_row = k_head + (tile_start + key) * hdim;
            float score = 0.0f;
            int table_row = (tile_start + key) * hdim;
            for (int dim = 0; dim < hdim; dim += 4) {
                float4 a = ld4(rotated_query + dim);
                float4 b = ld4(k_row + dim);
                float4 c = ld4(cos + table_row + dim);
                float4 s = ld4(sin + table_row + dim);
                rotate(b, c, s);
                score += dot(a, b);
            }
            scores[key] = score * softmax_scale;
        }
        __syncthreads();

#include "attend_to_tile.cuh"
    }

    for (int dim = tid; dim < hdim; dim += THREADS)
        out_row[dim] = out_row[dim] / row_sum;
}
