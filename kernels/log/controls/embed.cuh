// Four dims of a token with sines and cosines added, in turn.
__device__ float4 embedded(float4 x, float4 sin, float4 cos)
{
    return make_float4(x.x + sin.x, x.y + cos.y, x.z + sin.z, x.w + cos.w);
}
