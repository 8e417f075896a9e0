#include "online.cuh"
#include "rotate.cuh"
#include "trig.cuh"

constexpr int QUERIES = 4;

extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int seq_q, int seq_k,
                                     int hdim, float softmax_scale)
{
    int tid = threadIdx.x;
    int first = QUERIES * blockIdx.x;
    int queries = min(QUERIES, seq_q - first);
    int head = blockIdx.y;
    const float *q_rows = q + (head * seq_q + first) * hdim;
    float *out_rows = out + (head * seq_q + first) * hdim;
    const float *k_head = k + head * seq_k * hdim;
    const float *v_head = v + head * seq_k * hdim;
    float *reduction = shared + QUERIES * BLOCK_K;
    float *query = reduction + WARP;

    for (int row = 0; row < queries; ++row)
        for (int dim = 2 * tid; dim < hdim; dim += 2 * THREADS) {
            float sin, cos;
            sincos_of((first + row) * inverse_frequency(dim, hdim), &sin, &cos);
            float x = q_rows[row * hdim + dim];
            float y = q_rows[row * hdim + dim + 1];
            rotate(x, y, cos, sin);
            query[row * hdim + dim] = x;
            query[row * hdim + dim + 1] = y;
        }
    __syncthreads();

    float row_max[QUERIES], row_sum[QUERIES];
    for (int row = 0; row < queries; ++row) {
        row_max[row] = NEGATIVE_INFINITY;
        row_sum[row] = 0.0f;
    }
    for (int tile_start = 0; tile_start < seq_k; tile_start += BLOCK_K) {
        int tile = min(BLOCK_K, seq_k - tile_start);
        const float *v_tile = v_head + tile_start * hdim;
        for (int key = tid; key < tile; key += THREADS) {
            int position = tile_start + key;
            const float *k_row = k_head + position * hdim;
            float score[QUERIES] = {};
            for (int dim = 0; dim < hdim; dim += 2) {
                float sin, cos;
                sincos_of(position * inverse_frequency(dim, hdim), &sin, &cos);
                float x = k_row[dim];
                float y = k_row[dim + 1];
                rotate(x, y, cos, sin);
                for (int row = 0; row < queries; ++row)
                    score[row] += query[row * hdim + dim] * x + query[row * hdim + dim + 1] * y;
            }
            for (int row = 0; row < queries; ++row)
                shared[row * BLOCK_K + key] = score[row] * softmax_scale;
        }
        __syncthreads();

        for (int row = 0; row < queries; ++row) {
            float *scores = shared + row * BLOCK_K;
            float tile_max = NEGATIVE_INFINITY;
            for (int key = tid; key < tile; key += THREADS)
                tile_max = fmaxf(tile_max, scores[key]);
            float new_max = fmaxf(row_max[row], block_max<true>(tile_max, reduction));
            float correction = expf(row_max[row] - new_max);
            float tile_sum = 0.0f;
            for (int key = tid; key < tile; key += THREADS) {
                float p = expf(scores[key] - new_max);
                scores[key] = p;
                tile_sum += p;
            }
            row_sum[row] = correction * row_sum[row] + block_sum<true>(tile_sum, reduction);

            for (int dim = tid; dim < hdim; dim += THREADS) {
                float acc = 0.0f;
                if (tile_start > 0)
                    acc = out_rows[row * hdim + dim] * correction;
                for (int key = 0; key < tile; ++key)
                    acc += scores[key] * v_tile[key * hdim + dim];
                out_rows[row * hdim + dim] = acc;
            }
            row_max[row] = new_max;
            __syncthreads();
        }
    }

    for (int row = 0; row < queries; ++row)
        for (int dim = tid; dim < hdim; dim += THREADS)
            out_rows[row * hdim + dim] = out_rows[row * hdim + dim] / row_sum[row];
}
