"""Online softmax, with reductions that share their result.

Change from attention_online: the block reductions store the result of the block and every thread reads it. The separate
embedding paths use this attention, too.

Source: the log's best version with its bug fixed. The check in the log's own file does not detect NaN.
"""

from numba import cuda, float32

from ..constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ..device.block import rows_of_query
from ..device.cint import cint
from ..device.reduce import NEGATIVE_INFINITY
from ..device.softmax import add_values, divide_output, softmax_tile
from ..device.vector import advance, ld4
from ..planning import attention_buffers, block_per_query, online_layout, reduction_race, require_log_problem
from ..version import SYNC, Launch, Plan, Problem, register


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            score = float32(0.0)
            dim = cint(0)
            while dim < hdim:
                a = ld4(q_row, dim)
                b = ld4(k_row, dim)
                score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
                dim += 4
            shared[SCORES + key] = score * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile(shared, SCORES, REDUCTION, tile, row_max, row_sum)
        add_values(out_row, v_tile, shared, SCORES, tile, hdim, tile_start, correction)
        cuda.syncthreads()
        tile_start += BLOCK_K

    divide_output(out_row, hdim, row_sum)


def launch_attention(problem: Problem, q: str, k: str) -> Launch:
    """Attention of buffers `q` and `k` (and v) into out: one block a query row."""
    return block_per_query(attention, problem, f"{q} {k} v out", online_layout())


@register(
    title="Online softmax, fixed",
    parent="attention_online",
    baseline="attention_baseline",
    source='Final Summary, "Best Performance", with the reduction corrected',
    change="reductions share their result",
    iterations=10,
)
def attention_online_fixed(problem: Problem) -> Plan:
    """Plan float32 attention without a mask. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    return Plan(
        problem,
        attention_buffers(problem),
        (launch_attention(problem, "q", "k"), SYNC),
        hazards=(reduction_race("attention"),),
    )
