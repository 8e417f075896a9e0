#include "online.cuh"
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

        float tile_max = NEGATIVE_INFINITY;
        for (int key = tid; key < tile; key += THREADS)
            tile_max = fmaxf(tile_max, scores[key]);
        float new_max = fmaxf(row_max, block_max<true>(tile_max, reduction));
        float correction = expf(row_max - new_max);
        float tile_sum = 0.0f;
        for (int key = tid; key < tile; key += THREADS) {
            float p = expf(scores[key] - new_max);
            scores[key] = p;
            tile_sum += p;
        }
        row_sum = correction * row_sum + block_sum<true>(tile_sum, reduction);

        for (int dim = tid; dim < hdim; dim += THREADS) {
            float acc = 0.0f;
            if (tile_start > 0)
                acc = out_row[dim] * correction;
            for (int key = 0; key < tile; ++key)
                acc += scores[key] * v_tile[key * hdim + dim];
            out_row[dim] = acc;
        }
        row_max = new_max;
        __syncthreads();
    }

    for (int dim = tid; dim < hdim; dim += THREADS)
        out_row[dim] = out_row[dim] / row_sum;
}
