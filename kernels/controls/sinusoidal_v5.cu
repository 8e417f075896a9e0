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
    float *inv_freq = shared + BLOCK_K + WARP;
    Row row{q, k, v, out, seq_q, seq_k, hdim};

    for (int dim = threadIdx.x; dim < hdim; dim += THREADS)
        inv_freq[dim] = inverse_frequency(dim / 2 * 2, hdim);
    __syncthreads();

    attend<true>(row, softmax_scale, [=](int key) {
        int query = row.position;
        const float *k_row = row.keys + key * hdim;
        float score = 0.0f;
        for (int dim = 0; dim < hdim; dim += 4) {
            float4 a = ld4(row.query + dim);
            float4 b = ld4(k_row + dim);
            float4 f = ld4(inv_freq + dim);
            score += (a.x + sine(query * f.x)) * (b.x + sine(key * f.x)) +
                     (a.y + cosine(query * f.y)) * (b.y + cosine(key * f.y)) +
                     (a.z + sine(query * f.z)) * (b.z + sine(key * f.z)) +
                     (a.w + cosine(query * f.w)) * (b.w + cosine(key * f.w));
        }
        return score;
    });
}
