"""Kernels that measure a GPU's ceilings: read bandwidth, FP32 throughput, the time of an empty launch."""

from numba import cuda, float32, uint32

from ..constants import FLOAT, FLOATS, UINT
from ..device.vector import ld4
from ..version import Kernel

READ_UNROLL = 8
SHIFT = 101  # blocks; a prime, so that a part returns to an SM only after many rounds
FMA_CHAINS = 16
FMA_STEPS = 8


def read_all(x, out, count, repeats):
    """Sum `count` float32 of x, `repeats` times, with READ_UNROLL float4 loads of every thread in flight.

    In each round a block reads the part that a distant block read before: its own part would still be in its L1 cache.
    """
    blocks = uint32(cuda.gridDim.x)
    step = blocks * uint32(cuda.blockDim.x) * uint32(4)
    total = float32(0.0)
    for repeat in range(repeats):
        block = (uint32(cuda.blockIdx.x) + uint32(repeat) * uint32(SHIFT)) % blocks
        i = (block * uint32(cuda.blockDim.x) + uint32(cuda.threadIdx.x)) * uint32(4)
        while i + uint32(READ_UNROLL - 1) * step < count:
            for u in range(READ_UNROLL):
                a = ld4(x, i + uint32(u) * step)
                total += a.x + a.y + a.z + a.w
            i += uint32(READ_UNROLL) * step
    if total == float32(12345.0):
        out[0] = total


def multiply_add(out, rounds, scale):
    """FMA_CHAINS independent chains of fused multiply-adds in every thread."""
    acc = cuda.local.array(FMA_CHAINS, float32)
    for chain in range(FMA_CHAINS):
        acc[chain] = float32(chain)
    for _ in range(rounds):
        for _step in range(FMA_STEPS):
            for chain in range(FMA_CHAINS):
                acc[chain] = acc[chain] * scale + scale
    total = float32(0.0)
    for chain in range(FMA_CHAINS):
        total += acc[chain]
    if total == float32(12345.0):
        out[0] = total


def nothing():
    pass


READ = Kernel(read_all, (FLOATS, FLOATS, UINT, UINT))
MULTIPLY_ADD = Kernel(multiply_add, (FLOATS, UINT, FLOAT))
EMPTY = Kernel(nothing, ())
