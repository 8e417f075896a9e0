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

// The query row that a block takes, with the keys and values of its head.
struct Row {
    const float *q, *k, *v;
    float *out;
    int seq_q, seq_k, hdim;
    int position = blockIdx.x;
    int head = blockIdx.y;
    int index = head * seq_q + position;  // among the rows of all heads
    const float *query = q + index * hdim;
    const float *keys = k + head * seq_k * hdim;
};

__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

// The product of a query with a key, unrolled as the compiler sees fit, or `unroll` times.
__device__ float dot(const float *query, const float *key, int hdim)
{
    float score = 0.0f;
    for (int dim = 0; dim < hdim; dim += 4)
        score += dot(ld4(query + dim), ld4(key + dim));
    return score;
}

template <int unroll>
__device__ float dot(const float *query, const float *key, int hdim)
{
    float score = 0.0f;
#pragma unroll unroll
    for (int dim = 0; dim < hdim; dim += 4)
        score += dot(ld4(query + dim), ld4(key + dim));
    return score;
}

// All of a row; score(key) is its dot product with one key.
template <bool shared_result, class Score>
__device__ void attend(const Row &row, float softmax_scale, Score score)
{
    int hdim = row.hdim;
    float *out = row.out + row.index * hdim;
    const float *v = row.v + row.head * row.seq_k * hdim;
    float *scores = shared;
    float *reduction = shared + BLOCK_K;
    float row_max = NEGATIVE_INFINITY;
    float row_sum = 0.0f;
    for (int tile_start = 0; tile_start < row.seq_k; tile_start += BLOCK_K) {
        int tile = min(BLOCK_K, row.seq_k - tile_start);
        for (int key = threadIdx.x; key < tile; key += THREADS)
            scores[key] = score(tile_start + key) * softmax_scale;
        __syncthreads();
        add_tile<shared_result>(scores, reduction, tile, tile_start == 0, v + tile_start * hdim, out, hdim, row_max,
                                row_sum);
    }
    divide(out, hdim, row_sum);
}
