// Online softmax as the log's kernels have it: a block takes one query row, tiles of 64 keys, and keeps its running
// output in global memory. Indices are int, pointers are not __restrict__.

#include "reduce.cuh"

constexpr int BLOCK_K = 64;

extern __shared__ __align__(16) float shared[];  // scores, reduction, then what a kernel adds

// One tile of scores: its softmax, and its product with V added to the output row. v and out are those of the tile's
// first key and of the row.
template <bool shared_result>
__device__ void add_tile(float *scores, float *reduction, int tile, bool first, const float *v, float *out, int hdim,
                         float &row_max, float &row_sum)
{
    float tile_max = NEGATIVE_INFINITY;
    for (int key = threadIdx.x; key < tile; key += THREADS)
        tile_max = fmaxf(tile_max, scores[key]);
    float new_max = fmaxf(row_max, block_max<shared_result>(tile_max, reduction));
    float correction = expf(row_max - new_max);
    float tile_sum = 0.0f;
    for (int key = threadIdx.x; key < tile; key += THREADS) {
        float p = expf(scores[key] - new_max);
        scores[key] = p;
        tile_sum += p;
    }
    row_sum = correction * row_sum + block_sum<shared_result>(tile_sum, reduction);
    for (int dim = threadIdx.x; dim < hdim; dim += THREADS) {
        float acc = first ? 0.0f : out[dim] * correction;
        for (int key = 0; key < tile; ++key)
            acc += scores[key] * v[key * hdim + dim];
        out[dim] = acc;
    }
    row_max = new_max;
    __syncthreads();
}

__device__ void divide(float *out, int hdim, float row_sum)
{
    for (int dim = threadIdx.x; dim < hdim; dim += THREADS)
        out[dim] = out[dim] / row_sum;
}

// All of a query row; score(key) is the scaled dot product with one key.
template <bool shared_result, class Score>
__device__ void attend(const float *v, float *out, int seq_k, int hdim, Score score)
{
    float *scores = shared;
    float *reduction = shared + BLOCK_K;
    float row_max = NEGATIVE_INFINITY;
    float row_sum = 0.0f;
    for (int tile_start = 0; tile_start < seq_k; tile_start += BLOCK_K) {
        int tile = min(BLOCK_K, seq_k - tile_start);
        for (int key = threadIdx.x; key < tile; key += THREADS)
            scores[key] = score(tile_start + key);
        __syncthreads();
        add_tile<shared_result>(scores, reduction, tile, tile_start == 0, v + tile_start * hdim, out, hdim, row_max,
                                row_sum);
    }
    divide(out, hdim, row_sum);
}
