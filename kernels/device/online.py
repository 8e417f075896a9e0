"""The loop of the log's online softmax, a block a query: scores of a tile of keys, their softmax, the sum of values."""

from typing import Any

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from .cint import cint
from .reduce import NEGATIVE_INFINITY
from .softmax import add_values, divide_output, softmax_tile
from .vector import advance


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
