#include "reduce.cuh"

extern __shared__ float shared[];  // scores of all keys, reduction

extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int seq_q, int seq_k,
                                     int hdim, float softmax_scale)
{
    int tid = threadIdx.x;
    float *reduction = shared + seq_k;
    int row = blockIdx.x;
    int head = row / seq_q;
    const float *q_row = q + row * hdim;
    const float *k_head = k + head * seq_k * hdim;
    const float *v_head = v + head * seq_k * hdim;

    float row_max = NEGATIVE_INFINITY;
    for (int key = tid; key < seq_k; key += THREADS) {
        const float *k_row = k_head + key * hdim;
        float score = 0.0f;
#pragma unroll 16
        for (int dim = 0; dim < hdim; ++dim)
            score += q_row[dim] * k_row[dim];
        score *= softmax_scale;
        shared[key] = score;
        row_max = fmaxf(row_max, score);
    }
    row_max = block_max<false>(row_max, reduction);

    float row_sum = 0.0f;
    for (int key = tid; key < seq_k; key += THREADS) {
        float p = expf(shared[key] - row_max);
        shared[key] = p;
        row_sum += p;
    }
    row_sum = block_sum<false>(row_sum, reduction);

    for (int key = tid; key < seq_k; key += THREADS)
        shared[key] = row_sum > 0.0f ? shared[key] / row_sum : 0.0f;
    __syncthreads();

    for (int dim = tid; dim < hdim; dim += THREADS) {
        float acc = 0.0f;
#pragma unroll 4
        for (int key = 0; key < seq_k; ++key)
            acc += shared[key] * v_head[key * hdim + dim];
        out[row * hdim + dim] = acc;
    }
}
