#include "block.cuh"
#include "rotate.cuh"

constexpr int POSITIONS = 64;  // a token's position is its index modulo 64, whatever the sequence length

extern "C" __global__ void rotate_tokens(const float *x, const float *cos, const float *sin, float *out, int hdim,
                                         int rotary_dim)
{
    int tid = threadIdx.x;
    int token = blockIdx.x;
    int row = token * hdim;
    int table_row = token % POSITIONS * rotary_dim;
    for (int dim = 4 * tid; dim < rotary_dim; dim += 4 * THREADS) {
        float4 pairs = ld4(x + row + dim);
        float4 c = ld4(cos + table_row + dim);
        float4 s = ld4(sin + table_row + dim);
        rotate(pairs, c, s);
        st4(out + row + dim, pairs);
    }
    for (int dim = rotary_dim + tid; dim < hdim; dim += THREADS)
        out[row + dim] = x[row + dim];
}
