"""The dot product of the log's float4 kernels."""

from numba import cuda

from .loop import no_unroll
from .vector import ld4

UNROLL = 4  # as the compiler of the source unrolls it


@cuda.jit(device=True, inline="always")
def dot4(score, q, q_row, k, k_row, first, last):
    """`score` plus the products of dims `first` to `last` of the rows that begin at `q[q_row]` and `k[k_row]`."""
    dim = first
    while dim + 4 * UNROLL <= last:
        no_unroll()
        for step in range(UNROLL):
            a = ld4(q, q_row + dim + 4 * step)
            b = ld4(k, k_row + dim + 4 * step)
            score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
        dim += 4 * UNROLL
    while dim < last:
        no_unroll()
        a = ld4(q, q_row + dim)
        b = ld4(k, k_row + dim)
        score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
        dim += 4
    return score
