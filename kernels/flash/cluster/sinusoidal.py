"""Sinusoidal embeddings in the V8 cores, from frequencies without powf."""

from numba import cuda, float32

from ...device.angle import sincospi
from ...device.vector import make_float4
from .embedding import Embedding
from .rope import rates_of


@cuda.jit(device=True)
def waves(rates, position, dim, rate, hdim):
    sin0, cos0 = sincospi(float32(position), rate.x, rate.y)
    sin1, cos1 = sincospi(float32(position), rate.z, rate.w)
    return sin0, cos0, sin1, cos1


@cuda.jit(device=True)
def added(x, sin0, cos0, sin1, cos1):
    return make_float4(x.x + sin0, x.y + cos0, x.z + sin1, x.w + cos1)


SINUSOIDAL = Embedding("sinusoidal", rates_of, waves, added)
