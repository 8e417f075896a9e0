"""Tensor cores, second attempt: half precision tiles of 16 queries, and no tensor core.

Change from attention_two_pass_float4: a block takes 16 queries, so there are 16 times fewer blocks. Slices of 128 dims
of the queries and of 64 keys are copied to shared memory in half precision. For one query after the other, each thread
adds its key's part of the dot product, read as half2 and computed in float32, to a matrix of all scores in shared
memory. The softmax also takes one query after the other. The width of a slice is a run-time value, by which the copy
divides for every element.

Q and K are rounded to float16, so the error is far above that of float32.

Source: Final Summary, "Tensor Cores - 3-4x SLOWER".
"""

from numba import cuda, float32

from ...checking.models import Array, scaled_scores, softmax
from ...constants import BLOCK_K, THREADS
from ...device import advance, block_max_unshared, block_sum_unshared, cint, shared_by_thread_0
from ...device.asm import load_half2, store_half
from ...device.softmax import divide_weights, exponentials, largest, weigh_values
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, require_log_problem

QUERIES = 16
SLICE = 128
KEY_HALVES = QUERIES * SLICE  # offset of the key tile, in halves
SCORES = (KEY_HALVES + BLOCK_K * SLICE) // 2


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    scores = cint(SCORES)
    reduction = scores + QUERIES * seq_k
    tid = cint(cuda.threadIdx.x)
    first_query = cint(cuda.blockIdx.x) * QUERIES
    head = cint(cuda.blockIdx.y)
    queries = min(QUERIES, seq_q - first_query)
    q_tile = advance(q, (head * seq_q + first_query) * hdim)
    out_tile = advance(out, (head * seq_q + first_query) * hdim)
    k_head = advance(k, head * seq_k * hdim)
    v_head = advance(v, head * seq_k * hdim)

    i = tid
    while i < queries * seq_k:
        shared[scores + i] = float32(0.0)
        i += THREADS
    cuda.syncthreads()

    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        k_tile = advance(k_head, tile_start * hdim)
        slice_start = cint(0)
        while slice_start < hdim:
            width = min(SLICE, hdim - slice_start)
            i = tid
            while i < queries * width:
                row = i // width
                dim = i % width
                store_half(shared, row * SLICE + dim, q_tile[row * hdim + slice_start + dim])
                i += THREADS
            i = tid
            while i < tile * width:
                key = i // width
                dim = i % width
                place = KEY_HALVES + key * SLICE + dim
                store_half(shared, place, k_tile[key * hdim + slice_start + dim])
                i += THREADS
            cuda.syncthreads()

            query = cint(0)
            while query < queries:
                if tid < tile:
                    q_row = query * SLICE
                    k_row = KEY_HALVES + tid * SLICE
                    score = float32(0.0)
                    dim = cint(0)
                    while dim < width:
                        q0, q1 = load_half2(shared, q_row + dim)
                        q2, q3 = load_half2(shared, q_row + dim + 2)
                        k0, k1 = load_half2(shared, k_row + dim)
                        k2, k3 = load_half2(shared, k_row + dim + 2)
                        score += q0 * k0 + q1 * k1 + q2 * k2 + q3 * k3
                        dim += 4
                    shared[scores + query * seq_k + tile_start + tid] += score
                query += 1
            cuda.syncthreads()
            slice_start += SLICE
        tile_start += BLOCK_K

    i = tid
    while i < queries * seq_k:
        shared[scores + i] *= softmax_scale
        i += THREADS
    cuda.syncthreads()

    query = cint(0)
    while query < queries:
        row = scores + query * seq_k
        row_max = largest(shared, row, seq_k)
        row_max = shared_by_thread_0(block_max_unshared(row_max, shared, reduction), shared, reduction)
        row_sum = exponentials(shared, row, seq_k, row_max)
        row_sum = shared_by_thread_0(block_sum_unshared(row_sum, shared, reduction), shared, reduction)
        divide_weights(shared, row, seq_k, row_sum)
        cuda.syncthreads()

        out_row = advance(out_tile, query * hdim)
        weigh_values(out_row, v_head, shared, row, seq_k, hdim)
        cuda.syncthreads()
        query += 1


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64, with Q and K rounded to half precision."""
    return softmax(scaled_scores(problem, q.astype("float16"), k.astype("float16"))) @ v


@register(
    title="Tensor cores V2: half precision, no tensor core",
    parent="attention_two_pass_float4",
    baseline="attention_baseline",
    change="16 queries a block, one after the other; tiles of Q and K in half precision in shared memory",
    wrong_output=wrong_output,
    scalar_loads=True,
    whole_rows=True,
)
def attention_tensor_core_v2(problem: Problem) -> Plan:
    """Plan float32 attention without a mask; wrong, by float16, for more than one key. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    layout = SharedLayout(
        queries=QUERIES * SLICE // 2, keys=BLOCK_K * SLICE // 2, scores=QUERIES * problem.seq_k, reduction=32
    )
    wrong = problem.seq_k > 1
    return log_plan(
        problem,
        block_per_query(attention, problem, "q k v out", layout, queries=QUERIES),
        SYNC,
        defect="Q and K rounded to float16" if wrong else "",
        hazards=(REDUCTION_RACE,),
    )
