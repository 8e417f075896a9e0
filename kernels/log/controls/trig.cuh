#include "mark.cuh"

constexpr float FREQUENCY_BASE = 10000.0f;

// The rate at which a pair turns: base^(-dim / dims), for the pair's first dim.
__device__ float inverse_frequency(int dim, int dims)
{
    MARK(pow);
    return 1.0f / powf(FREQUENCY_BASE, static_cast<float>(dim) / static_cast<float>(dims));
}

__device__ void sincos_of(float angle, float *sin, float *cos)
{
    MARK(sincos);
    __sincosf(angle, sin, cos);
}
