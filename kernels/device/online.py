"""The log's attention of a query by a block: addresses, the float4 dot product, the loop of the online softmax."""

from typing import Any

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from .cint import cint
from .loop import no_unroll
from .reduce import NEGATIVE_INFINITY
from .softmax import add_values, divide_output, softmax_tile
from .vector import advance, ld4

UNROLL = 4  # of `dot4`, as the compiler of the source unrolls it

@cuda.jit(device=True, inline="always")
def rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim):
    """In a grid of queries by heads: the rows of a query in q and out, and the keys and values of its head."""
    head = cint(cuda.blockIdx.y)
    q_row = advance(q, (head * seq_q + query) * hdim)
    out_row = advance(out, (head * seq_q + query) * hdim)
    return q_row, out_row, advance(k, head * seq_k * hdim), advance(v, head * seq_k * hdim)


@cuda.jit(device=True, inline="always")
def rows_of_block(q, k, v, out, seq_q, seq_k, hdim):
    """As `rows_of_query`, in a flat grid of the queries of all heads."""
    row = cint(cuda.blockIdx.x)
    q_row = advance(q, row * hdim)
    out_row = advance(out, row * hdim)
    return q_row, out_row, advance(k, row // seq_q * seq_k * hdim), advance(v, row // seq_q * seq_k * hdim)


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


def online_attention(score_of: Any, softmax: Any = softmax_tile) -> Any:
    """A device function that attends to all keys, 64 at a time, one thread a key, and writes the output of a query.

    `score_of(query, k_row, key, hdim)` is the product of the query and a key, before it is scaled. `query` is what the
    caller passes: rows, tables and arrays in shared memory.
    """

    @cuda.jit(device=True, inline="always")
    def attend(query, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale):
        row_max = NEGATIVE_INFINITY
        row_sum = float32(0.0)
        tile_start = cint(0)
        while tile_start < seq_k:
            tile = min(BLOCK_K, seq_k - tile_start)
            v_tile = advance(v_head, tile_start * hdim)
            key = tid
            while key < tile:
                k_row = advance(k_head, (tile_start + key) * hdim)
                shared[SCORES + key] = score_of(query, k_row, tile_start + key, hdim) * softmax_scale
                key += THREADS
            cuda.syncthreads()
            row_max, correction, row_sum = softmax(shared, SCORES, REDUCTION, tile, row_max, row_sum)
            add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
            cuda.syncthreads()
            tile_start += BLOCK_K
        divide_output(out_row, hdim, row_sum)

    return attend
