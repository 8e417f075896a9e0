#include "online.cuh"

extern "C" __global__ void attention(const float *q, const float *k, const float *v, float *out, int seq_q, int seq_k,
                                     int hdim, float softmax_scale)
{
    int head = blockIdx.y;
    int row = head * seq_q + blockIdx.x;
    const float *q_row = q + row * hdim;
    const float *k_head = k + head * seq_k * hdim;
    attend<true>(v + head * seq_k * hdim, out + row * hdim, seq_k, hdim, [=](int key) {
        const float *k_row = k_head + key * hdim;
        float score = 0.0f;
        for (int dim = 0; dim < hdim; dim += 4) {
            float4 a = ld4(q_row + dim);
            float4 b = ld4(k_row + dim);
            score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        return score * softmax_scale;
    });
}
