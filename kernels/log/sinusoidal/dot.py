"""The dot product of a query and a key, four dims at a time, manually unrolled as the log's pragma asks."""

from typing import Any

from numba import cuda, float32

from ...device import cint, ld4, no_unroll

HINT = 4  # the factor of `#pragma unroll` in the log's float4 paths


def unrolled_dot(load_query: Any) -> Any:
    """A score function for `online_attention`, whose loop takes HINT times four dims per iteration.

    `load_query(query, dim)` returns four elements of the query as a float32x4; hdim is a multiple of 4.
    """

    @cuda.jit(device=True)
    def dot(query, k_row, key, hdim):
        total = float32(0.0)
        dim = cint(0)
        while dim + 4 * (HINT - 1) < hdim:
            no_unroll()
            for i in range(HINT):
                a = load_query(query, dim + 4 * i)
                b = ld4(k_row, dim + 4 * i)
                total += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
            dim += 4 * HINT
        while dim < hdim:
            no_unroll()
            a = load_query(query, dim)
            b = ld4(k_row, dim)
            total += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
            dim += 4
        return total

    return dot
