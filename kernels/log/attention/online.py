"""Online softmax over tiles of 64 keys, 128-bit loads; reductions that do not share their result.

Change from attention_baseline: float4 loads; a running maximum and sum over key tiles; the output is rescaled in global
memory and divided at the end. The reductions still leave out the last store. So warp 1 divides by the sum of its own
keys, and a warp without keys keeps a maximum of -inf, whose correction exp(-inf + inf) is NaN in every dim it owns.

Source: Final Summary, "Best Performance"; as timed.
"""

from numba import cuda, float32

from ...checking.models import Array, online_unshared, scaled_scores
from ...device import cint, ld4, online_attention, rows_of_query, softmax_tile_unshared
from ...version import SYNC, Plan, Problem, register
from ..plan import UNSHARED_DEFECT, block_per_query, log_plan, online_layout, require_log_problem


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


attend_to_keys = online_attention(score, softmax_tile_unshared)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    attend_to_keys(q_row, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: the online softmax with a maximum and a sum per warp."""
    return online_unshared(scaled_scores(problem, q, k), v)


@register(
    title="Online softmax, as published",
    parent="attention_baseline",
    baseline="attention_baseline",
    source='Final Summary, "Best Performance"',
    change="float4 loads, online softmax over key tiles",
    iterations=10,
    wrong_output=wrong_output,
)
def attention_online(problem: Problem) -> Plan:
    """Plan float32 attention without a mask; wrong unless one warp holds all keys and dims. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    wrong = problem.seq_k > 32 or problem.hdim > 32
    return log_plan(
        problem,
        block_per_query(attention, problem, "q k v out", online_layout()),
        SYNC,
        defect=UNSHARED_DEFECT if wrong else "",
    )
