#include "online.cuh"
#include "rotate.cuh"
#include "trig.cuh"

constexpr int QUERIES = 4;

__device__ void rotate_by_position(float &x, float &y, int position, int dim, int hdim)
{
    float sin, cos;
    sincos_of(position * inverse_frequency(dim, hdim), &sin, &cos);
    rotate(x, y, cos, sin);
}

extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int seq_q, int seq_k,
                                     int hdim, float softmax_scale)
{
    float *scores = shared;
    float *reduction = scores + QUERIES * BLOCK_K;
    float *query = reduction + WARP;
    int first = QUERIES * blockIdx.x;
    int queries = min(QUERIES, seq_q - first);
    int head = blockIdx.y;
    const float *q_rows = q + (head * seq_q + first) * hdim;
    const float *k_head = k + head * seq_k * hdim;
    const float *v_head = v + head * seq_k * hdim;
    float *out_rows = out + (head * seq_q + first) * hdim;

    for (int row = 0; row < queries; ++row)
        for (int dim = 2 * threadIdx.x; dim < hdim; dim += 2 * THREADS) {
            float x = q_rows[row * hdim + dim];
            float y = q_rows[row * hdim + dim + 1];
            rotate_by_position(x, y, first + row, dim, hdim);
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
        for (int key = threadIdx.x; key < tile; key += THREADS) {
            int position = tile_start + key;
            const float *k_row = k_head + position * hdim;
            float score[QUERIES] = {};
            for (int dim = 0; dim < hdim; dim += 2) {
                float x = k_row[dim];
                float y = k_row[dim + 1];
                rotate_by_position(x, y, position, dim, hdim);
                for (int row = 0; row < queries; ++row)
                    score[row] += query[row * hdim + dim] * x + query[row * hdim + dim + 1] * y;
            }
            for (int row = 0; row < queries; ++row)
                scores[row * BLOCK_K + key] = score[row] * softmax_scale;
        }
        __syncthreads();
        for (int row = 0; row < queries; ++row)
            add_tile<true>(scores + row * BLOCK_K, reduction, tile, tile_start == 0, v_head + tile_start * hdim,
                           out_rows + row * hdim, hdim, row_max[row], row_sum[row]);
    }
    for (int row = 0; row < queries; ++row)
        divide(out_rows + row * hdim, hdim, row_sum[row]);
}
