"""RoPE V6, first form: full fusion, tiles of 32 keys by 256 dims in shared memory.

Change from rope_v5: the dims are tiled too, so that 32 keys fit at any hdim; each dot product is summed over the slices
in shared memory. The rows of a tile are 256 floats apart, so the 32 keys of a warp share a bank.

Source: RoPE Fusion Implementation Log, V6, items 21-23.
"""

from numba import cuda, float32

from ...constants import SCORES, THREADS
from ...device import NEGATIVE_INFINITY, advance, cint, fast_sincos, rotate, rows_of_query
from ...device.softmax import add_values, divide_output, softmax_tile
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, require_log_problem
from .query import cache_frequencies, rotate_query

BLOCK_K = 32
TILE_DIM = 256
REDUCTION = SCORES + BLOCK_K
KEYS = REDUCTION + 32
EXTRA = KEYS + BLOCK_K * TILE_DIM


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    inv_freq = EXTRA + hdim
    cache_frequencies(shared, inv_freq, hdim)
    cuda.syncthreads()
    rotate_query(shared, EXTRA, q_row, query, shared, inv_freq, hdim)
    cuda.syncthreads()

    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            shared[SCORES + key] = float32(0.0)
            key += THREADS
        cuda.syncthreads()
        slice_start = cint(0)
        while slice_start < hdim:
            width = min(TILE_DIM, hdim - slice_start)
            i = tid
            while i < tile * width:
                key = i // width
                dim = i % width
                shared[KEYS + key * TILE_DIM + dim] = k_head[(tile_start + key) * hdim + slice_start + dim]
                i += THREADS
            cuda.syncthreads()
            key = tid
            while key < tile:
                k_row = KEYS + key * TILE_DIM
                score = float32(0.0)
                position = float32(tile_start + key)
                inv_freq_slice = inv_freq + slice_start // 2
                pair = cint(0)
                while pair < width // 2:
                    dim = 2 * pair
                    s, c = fast_sincos(position * shared[inv_freq_slice + pair])
                    x, y = rotate(shared[k_row + dim], shared[k_row + dim + 1], c, s)
                    score += shared[EXTRA + slice_start + dim] * x + shared[EXTRA + slice_start + dim + 1] * y
                    pair += 1
                shared[SCORES + key] += score
                key += THREADS
            cuda.syncthreads()
            slice_start += TILE_DIM
        key = tid
        while key < tile:
            shared[SCORES + key] *= softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


@register(
    title="Full fusion, dims tiled too",
    parent="rope_v5",
    baseline="rope_separate",
    change="tiles of 32 keys by 256 dims",
    scalar_loads=True,
)
def rope_v6a(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=2, all_dims=True)
    layout = SharedLayout(
        scores=BLOCK_K, reduction=32, keys=BLOCK_K * TILE_DIM, query=problem.hdim, inv_freq=problem.hdim // 2
    )
    launch = block_per_query(attention, problem, "q k v out", layout)
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
