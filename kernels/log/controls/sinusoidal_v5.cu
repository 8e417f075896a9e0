#include "online.cuh"
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
