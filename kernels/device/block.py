"""Addresses of a block's query, output, keys and values in the log's kernels."""

from numba import cuda

from .cint import cint
from .vector import advance


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
