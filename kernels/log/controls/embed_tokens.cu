#include "block.cuh"
#include "embed.cuh"

extern "C" __global__ void embed_tokens(const float *x, const float *sin, const float *cos, float *out, int seq,
                                        int hdim)
{
    int tid = threadIdx.x;
    int token = blockIdx.x;
    int position = token % seq;
    for (int dim = 4 * tid; dim < hdim; dim += 4 * THREADS) {
        float4 four = ld4(x + token * hdim + dim);
        float4 s = ld4(sin + position * hdim + dim);
        float4 c = ld4(cos + position * hdim + dim);
        st4(out + token * hdim + dim, embedded(four, s, c));
    }
}
