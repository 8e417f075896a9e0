"""Online softmax, with reductions that share their result.

Change from attention_online: the block reductions store the result of the block and every thread reads it. The separate
embedding paths use this attention, too.

Source: the log's best version with its bug fixed. The check in the log's own file does not detect NaN.
"""

from numba import cuda, float32

from ...device import cint, ld4, online_attention, rows_of_query
from ...version import SYNC, Launch, Plan, Problem, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, online_layout, require_log_problem


@cuda.jit(device=True, inline="always")
def score(q_row, k_row, key, hdim):
    total = float32(0.0)
    dim = cint(0)
    while dim < hdim:
        a = ld4(q_row, dim)
        b = ld4(k_row, dim)
        total += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
        dim += 4
    return total


attend_to_keys = online_attention(score)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    attend_to_keys(q_row, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


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
    return log_plan(problem, launch_attention(problem, "q", "k"), SYNC, hazards=(REDUCTION_RACE,))
