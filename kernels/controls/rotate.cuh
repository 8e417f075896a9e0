#include "mark.cuh"

// The pair (x, y) turned by an angle, in place.
__device__ void rotate(float &x, float &y, float cos, float sin)
{
    MARK(rotation);
    float turned = x * cos - y * sin;
    y = x * sin + y * cos;
    x = turned;
}
