// One warp of four computes all scores, a row a thread; then each warp takes every fourth row. Nothing separates the
// scores from the softmax. Halves are their bits, converted by the instructions that cuda_fp16.h has.

constexpr int HDIM = 64;
constexpr int BLOCK_M = 32;
constexpr int BLOCK_K = 64;
constexpr int WARP = 32;
constexpr int WARPS = 4;
constexpr int ROWS_PER_WARP = BLOCK_M / WARPS;
constexpr int VECTOR = 8;  // halves in 16 bytes
#define NEGATIVE_INFINITY __int_as_float(0xff800000)

extern "C" {
__shared__ __align__(16) unsigned short query[BLOCK_M * HDIM];
__shared__ __align__(16) unsigned short key[BLOCK_K * HDIM];
__shared__ __align__(16) unsigned short value[BLOCK_K * HDIM];
__shared__ float scores[BLOCK_M * BLOCK_K];
__shared__ float accumulator[BLOCK_M * HDIM];
__shared__ float warp_max[WARPS];
__shared__ float warp_sum[WARPS];
}

__device__ float half2float(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ unsigned short float2half(float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ void copy16(unsigned short *to, const unsigned short *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

extern "C" __global__ void attention(const unsigned short *q, const unsigned short *k, const unsigned short *v,
                                     unsigned short *out, int seq, float softmax_scale)
{
    int tid = threadIdx.x;
    int warp_id = tid / WARP;
    int lane_id = tid % WARP;
    int head = blockIdx.z * gridDim.y + blockIdx.y;
    int first_row = head * seq + blockIdx.x * BLOCK_M;
    const unsigned short *k_head = k + head * seq * HDIM;
    const unsigned short *v_head = v + head * seq * HDIM;

    float row_max[ROWS_PER_WARP], row_sum[ROWS_PER_WARP];
    for (int i = 0; i < ROWS_PER_WARP; ++i) {
        int row = warp_id + i * WARPS;
        for (int dim = lane_id; dim < HDIM; dim += WARP) {
            query[row * HDIM + dim] = q[(first_row + row) * HDIM + dim];
            accumulator[row * HDIM + dim] = 0.0f;
        }
        row_max[i] = NEGATIVE_INFINITY;
        row_sum[i] = 0.0f;
    }
    __syncthreads();

    for (int tile_start = 0; tile_start < seq; tile_start += BLOCK_K) {
        for (int row = warp_id; row < BLOCK_K; row += WARPS)
            for (int dim = lane_id * VECTOR; dim < HDIM; dim += WARP * VECTOR) {
                copy16(key + row * HDIM + dim, k_head + (tile_start + row) * HDIM + dim);
                copy16(value + row * HDIM + dim, v_head + (tile_start + row) * HDIM + dim);
            }
        __syncthreads();

        if (tid < BLOCK_M)
            for (int n = 0; n < BLOCK_K; ++n) {
                float score = 0.0f;
                for (int dim = 0; dim < HDIM; ++dim)
                    score += half2float(query[tid * HDIM + dim]) * half2float(key[n * HDIM + dim]);
                scores[tid * BLOCK_K + n] = score * softmax_scale;
            }

        for (int i = 0; i < ROWS_PER_WARP; ++i) {
            int row = warp_id + i * WARPS;
            float tile_max = NEGATIVE_INFINITY;
            for (int n = lane_id; n < BLOCK_K; n += WARP)
                tile_max = fmaxf(tile_max, scores[row * BLOCK_K + n]);
            for (int offset = WARP / 2; offset > 0; offset /= 2)
                tile_max = fmaxf(tile_max, __shfl_down_sync(0xffffffff, tile_max, offset));
            if (lane_id == 0)
                warp_max[warp_id] = tile_max;
            __syncthreads();

            float new_max = fmaxf(row_max[i], warp_max[warp_id]);
            float correction = expf(row_max[i] - new_max);
            for (int dim = lane_id; dim < HDIM; dim += WARP)
                accumulator[row * HDIM + dim] *= correction;
            float tile_sum = 0.0f;
            for (int n = lane_id; n < BLOCK_K; n += WARP)
                tile_sum += expf(scores[row * BLOCK_K + n] - new_max);
            for (int offset = WARP / 2; offset > 0; offset /= 2)
                tile_sum += __shfl_down_sync(0xffffffff, tile_sum, offset);
            if (lane_id == 0)
                warp_sum[warp_id] = tile_sum;
            __syncthreads();

            row_sum[i] = correction * row_sum[i] + warp_sum[warp_id];
            row_max[i] = new_max;
            for (int dim = lane_id; dim < HDIM; dim += WARP) {
                float acc = 0.0f;
                for (int n = 0; n < BLOCK_K; ++n)
                    acc += expf(scores[row * BLOCK_K + n] - new_max) * half2float(value[n * HDIM + dim]);
                accumulator[row * HDIM + dim] += acc;
            }
        }
        __syncthreads();
    }

    for (int i = 0; i < ROWS_PER_WARP; ++i) {
        int row = warp_id + i * WARPS;
        for (int dim = lane_id; dim < HDIM; dim += WARP)
            out[(first_row + row) * HDIM + dim] = float2half(accumulator[row * HDIM + dim] / row_sum[i]);
    }
}
