"""RoPE V5: full fusion, key tiles in shared memory.

Change from rope_v4: a tile of keys is copied to shared memory unrotated, and one thread per key rotates and multiplies
it again; no cos and sin in shared memory. The query is rotated with one thread per pair. A tile has the most keys that
fit of 16, 8 or 4, and only one thread per key computes a dot product. Its rows are a multiple of the banks apart where
hdim is one, which causes bank conflicts.

Source: RoPE Fusion Implementation Log, V5, items 18-20.
"""

from numba import cuda, float32

from ...constants import THREADS
from ...device import NEGATIVE_INFINITY, cint, divide_output, fast_sincos, rotate, rows_of_query, softmax_tile
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, require_log_problem
from .query import cache_frequencies, rotate_query

SHARED_FLOATS = 10_000  # the log's limit for a block
BLOCKS_K = (16, 8, 4)
REDUCTION = 0
EXTRA = 32


def tile_keys(hdim: int) -> int:
    """Keys of a tile: the largest size that the log compiled and that fits with the other arrays."""
    rest = 32 + hdim + hdim // 2
    fitting = min(max((SHARED_FLOATS - rest) // (hdim + 1), 4), 64)
    return next(size for size in BLOCKS_K if fitting >= size)


def attention(q, k, v, out, seq_q, seq_k, hdim, block_k, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    inv_freq = EXTRA + hdim
    scores = inv_freq + hdim // 2
    keys = scores + block_k
    cache_frequencies(shared, inv_freq, hdim)
    cuda.syncthreads()
    rotate_query(shared, EXTRA, q_row, query, shared, inv_freq, hdim)
    cuda.syncthreads()

    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(block_k, seq_k - tile_start)
        i = tid
        while i < tile * hdim:
            key = i // hdim
            dim = i % hdim
            shared[keys + key * hdim + dim] = k_head[(tile_start + key) * hdim + dim]
            i += THREADS
        cuda.syncthreads()
        key = tid
        while key < tile:
            k_row = keys + key * hdim
            score = float32(0.0)
            position = float32(tile_start + key)
            pair = cint(0)
            while pair < hdim // 2:
                dim = 2 * pair
                s, c = fast_sincos(position * shared[inv_freq + pair])
                x, y = rotate(shared[k_row + dim], shared[k_row + dim + 1], c, s)
                score += shared[EXTRA + dim] * x + shared[EXTRA + dim + 1] * y
                pair += 1
            shared[scores + key] = score * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile(shared, scores, REDUCTION, tile, row_max, row_sum)

        dim = tid
        while dim < hdim:
            acc = float32(0.0)
            if tile_start > 0:
                acc = out_row[dim] * correction
            key = cint(0)
            while key < tile:
                acc += shared[scores + key] * v_head[(tile_start + key) * hdim + dim]
                key += 1
            out_row[dim] = acc
            dim += THREADS
        cuda.syncthreads()
        tile_start += block_k

    divide_output(out_row, hdim, row_sum)


@register(
    title="Full fusion, key tiles in shared memory",
    parent="rope_v4",
    baseline="rope_separate",
    change="keys staged in shared memory, 4 to 16 at a time; one thread per key",
    scalar_loads=True,
)
def rope_v5(problem: Problem) -> Plan:
    """Plan float32 RoPE attention of all dims. Raises: Unsupported."""
    require_log_problem(problem, "rope", multiple=2, all_dims=True)
    block_k = tile_keys(problem.hdim)
    layout = SharedLayout(
        reduction=32, query=problem.hdim, inv_freq=problem.hdim // 2, scores=block_k, keys=block_k * problem.hdim
    )
    launch = block_per_query(attention, problem, "q k v out", layout, block_k)
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
