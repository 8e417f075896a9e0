constexpr int THREADS = 256;
constexpr int WARP = 32;

__device__ float4 ld4(const float *x) { return *reinterpret_cast<const float4 *>(x); }
__device__ void st4(float *x, float4 value) { *reinterpret_cast<float4 *>(x) = value; }
