#include "block.cuh"

extern "C" __global__ void embed_tokens(const float *x, const float *sin, const float *cos, float *embedded, int seq,
                                        int hdim)
{
    int token = blockIdx.x;
    int position = token % seq;
    for (int dim = 4 * threadIdx.x; dim < hdim; dim += 4 * THREADS) {
        float4 a = ld4(x + token * hdim + dim);
        float4 s = ld4(sin + position * hdim + dim);
        float4 c = ld4(cos + position * hdim + dim);
        st4(embedded + token * hdim + dim, make_float4(a.x + s.x, a.y + c.y, a.z + s.z, a.w + c.w));
    }
}
