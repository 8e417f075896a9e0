"""The inverse frequencies in shared memory, and the query that is rotated by them, as RoPE V4 to V7 have them."""

from numba import cuda, float32

from ...constants import FREQUENCY_BASE, THREADS
from ...device import cint, fast_sincos, powf, rotate


@cuda.jit(device=True, inline="always")
def cache_frequencies(shared, inv_freq, rotary_dim):
    """Compute the inverse frequency of each pair, one to a thread, into `shared` from `inv_freq` on."""
    pair = cint(cuda.threadIdx.x)
    while pair < rotary_dim // 2:
        exponent = float32(2 * pair) / float32(rotary_dim)
        shared[inv_freq + pair] = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
        pair += THREADS


@cuda.jit(device=True, inline="always")
def rotate_query(to, start, q_row, query, shared, inv_freq, rotary_dim):
    """Rotate the row of a query, one pair to a thread, into `to` from `start` on."""
    pair = cint(cuda.threadIdx.x)
    while pair < rotary_dim // 2:
        dim = 2 * pair
        s, c = fast_sincos(float32(query) * shared[inv_freq + pair])
        x, y = rotate(q_row[dim], q_row[dim + 1], c, s)
        to[start + dim] = x
        to[start + dim + 1] = y
        pair += THREADS
