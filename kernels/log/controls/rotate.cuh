#include "mark.cuh"

// The pair (x, y), or two pairs, turned by an angle, in place.
__device__ void rotate(float &x, float &y, float cos, float sin)
{
    MARK(rotation);
    float turned = x * cos - y * sin;
    y = x * sin + y * cos;
    x = turned;
}

__device__ void rotate(float4 &pairs, float4 cos, float4 sin)
{
    rotate(pairs.x, pairs.y, cos.x, sin.x);
    rotate(pairs.z, pairs.w, cos.z, sin.z);
}
