"""Products of halves in shared memory with float32 sums, unrolled as much as in the source."""

from numba import cuda, float32

from ...constants import BLOCK_K
from ...device import advance, cint, half2float, no_unroll, opaque
from .shapes import HDIM

DIMS = 32  # in a row: the compiler does not fully unroll a longer loop
UNROLL = 4  # keys


@cuda.jit(device=True, inline="always")
def rows_of_block(q, k, v, out, rows, seq):
    """The first of the `rows` queries of a block, their rows in q and out, and the keys and values of their head."""
    head = cint(cuda.blockIdx.z) * cint(cuda.gridDim.y) + cint(cuda.blockIdx.y)
    first = cint(cuda.blockIdx.x) * rows
    q_rows = advance(q, (head * seq + first) * HDIM)
    out_rows = advance(out, (head * seq + first) * HDIM)
    return first, q_rows, out_rows, advance(k, head * seq * HDIM), advance(v, head * seq * HDIM)


@cuda.jit(device=True)
def dot(query, q_row, keys, k_row):
    """The product of the 64 halves of `query` at `q_row` and those of `keys` at `k_row`; fully unrolled."""
    total = float32(0.0)
    for part in range(HDIM // DIMS):
        for step in range(DIMS):
            dim = cint(part * DIMS + step)
            total += half2float(query[q_row + dim]) * half2float(keys[k_row + dim])
    return total


@cuda.jit(device=True)
def weighted_value(weights, row, values, dim, stride):
    """One dim of the sum of 64 values, rows `stride` halves apart, times the weights that start at `row`."""
    total = float32(0.0)
    key = cint(0)
    while key < opaque(BLOCK_K):
        no_unroll()
        for step in range(UNROLL):
            total += weights[row + key + step] * half2float(values[(key + step) * stride + dim])
        key += UNROLL
    return total
