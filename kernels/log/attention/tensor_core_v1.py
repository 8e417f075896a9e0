"""Tensor cores, first attempt: TF32 mma on one query copied into 16 rows; too large to launch, and wrong.

Change from attention_online: shared memory holds the query row 16 times and the key tile once, in rows padded by 8
floats. Each warp computes whole keys with m16n8k8: all rows of A are the query and all columns of B the key, so 127 of
128 results are copies. Output dims stay in registers. In 48 KB it fits up to 144 dims, fewer than any head dim of the
log.

Where it fits, all scores are lost. Four lanes hold the whole dot product, and their sum is four times it. Then lanes 8,
16 and 24 store the 0 of their own group to the same address: all keys get the same weight. (On hardware any of the four
stores may win; lane 0 would leave four times the score.) The reductions do not share their result either. Floats go to
the mma without conversion to TF32.

Source: Final Summary, "Repository Files", Experimental: attention_kernel_tensorcore.cu, "Memory overflow".
`attention_tensor_core_v1_227k` is the same kernel with the shared memory that a block can opt in to.
"""

from numba import cuda, float32

from ...checking.models import Array, online_unshared, scaled_scores
from ...constants import BLOCK_K, OPT_IN_SHARED_LIMIT, SHARED_LIMIT, THREADS
from ...device import advance, cint, mma_m16n8k8_tf32, rows_of_query, softmax_tile_unshared, store_output
from ...device.reduce import FULL_MASK, NEGATIVE_INFINITY, WARPS
from ...version import SYNC, Hazard, Plan, Problem, SharedLayout, register
from ..plan import UNSHARED_DEFECT, block_per_query, log_plan, require_log_problem

COPIES = 16  # copies of the query: the rows of A
STEP = 8  # dims of one mma
PADDING = 8
OUTPUTS = 16  # output dims that a thread can hold


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    stride = hdim + PADDING
    keys = cint(COPIES) * stride
    scores = keys + BLOCK_K * stride
    reduction = scores + BLOCK_K
    tid = cint(cuda.threadIdx.x)
    warp_id = tid // 32
    lane_id = tid % 32
    group = lane_id // 4
    member = lane_id % 4
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    i = tid
    while i < COPIES * hdim:
        shared[i // hdim * stride + i % hdim] = q_row[i % hdim]
        i += THREADS
    cuda.syncthreads()
    acc = cuda.local.array(OUTPUTS, float32)
    for r in range(OUTPUTS):
        acc[r] = float32(0.0)
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        v_tile = advance(v_head, tile_start * hdim)
        k_tile = advance(k_head, tile_start * hdim)
        i = tid
        while i < tile * hdim:
            shared[keys + i // hdim * stride + i % hdim] = k_tile[i]
            i += THREADS
        cuda.syncthreads()

        keys_per_warp = (tile + WARPS - 1) // WARPS
        key = warp_id * keys_per_warp
        last_key = min(key + keys_per_warp, tile)
        while key < last_key:
            k_row = keys + key * stride
            score = float32(0.0)
            dim = cint(0)
            while dim < hdim:
                upper = group * stride + dim + member
                lower = upper + 8 * stride
                products = mma_m16n8k8_tf32(
                    (shared[upper], shared[lower], shared[upper + 4], shared[lower + 4]),
                    (shared[k_row + dim + member], shared[k_row + dim + member + 4]),
                    (float32(0.0), float32(0.0), float32(0.0), float32(0.0)),
                )
                if group == 0:
                    score += products[0]
                dim += STEP
            for offset in (4, 2, 1):
                score += cuda.shfl_xor_sync(FULL_MASK, score, offset)
            if lane_id % 8 == 0:
                shared[scores + key] = score * softmax_scale
            key += 1
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile_unshared(shared, scores, reduction, tile, row_max, row_sum)

        for r in range(OUTPUTS):
            dim = tid + r * THREADS
            if dim < hdim:
                total = acc[r] * correction
                key = cint(0)
                while key < tile:
                    total += shared[scores + key] * v_tile[key * hdim + dim]
                    key += 1
                acc[r] = total
        cuda.syncthreads()
        tile_start += BLOCK_K

    store_output(out_row, acc, hdim, row_sum)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: all scores are 0, as the last of the lanes that store a score has summed nothing."""
    return online_unshared(0.0 * scaled_scores(problem, q, k), v)


def plan_within(limit: int, problem: Problem) -> Plan:
    require_log_problem(problem, "attention", multiple=STEP)
    stride = problem.hdim + PADDING
    layout = SharedLayout(query=COPIES * stride, keys=BLOCK_K * stride, scores=BLOCK_K, reduction=32)
    defects = ["each score is overwritten with 0, or is four times too large"] if problem.seq_k > 1 else []
    defects += [UNSHARED_DEFECT] if problem.seq_k > 32 or problem.hdim > 32 else []
    return log_plan(
        problem,
        block_per_query(attention, problem, "q k v out", layout, max_threads=THREADS, limit=limit),
        SYNC,
        defect="; ".join(defects),
        hazards=(Hazard("race", "attention", "scores", "lanes 0, 8, 16 and 24 store different values for one key"),),
    )


@register(
    title="Tensor cores V1, TF32",
    parent="attention_online",
    baseline="attention_baseline",
    source='Final Summary, "Repository Files", Experimental, "Memory overflow"',
    change="query and key tile in shared memory, scores by TF32 mma of 16 copies of the query; output in registers",
    iterations=100,
    wrong_output=wrong_output,
    scalar_loads=True,
)
def attention_tensor_core_v1(problem: Problem) -> Plan:
    """Plan float32 attention without a mask, up to 144 dims; wrong for more than one key. Raises: Unsupported."""
    return plan_within(SHARED_LIMIT, problem)


@register(
    title="Tensor cores V1, TF32, with 227 KB",
    parent="attention_tensor_core_v1",
    baseline="attention_baseline",
    source='Final Summary, "Repository Files", Experimental, "Memory overflow"; not in the log with this much memory',
    change="the shared memory that a block can ask for, instead of 48 KB",
    iterations=100,
    wrong_output=wrong_output,
    scalar_loads=True,
    variant_of="attention_tensor_core_v1",
)
def attention_tensor_core_v1_227k(problem: Problem) -> Plan:
    """Plan float32 attention without a mask, up to 712 dims; wrong for more than one key. Raises: Unsupported."""
    return plan_within(OPT_IN_SHARED_LIMIT, problem)
