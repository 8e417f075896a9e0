"""Two passes, 128-bit loads, reductions that share their result: the simple kernel.

Change from attention_baseline: Q and K are read as float4. After each reduction thread 0 stores the result of the block
for all threads, so the output is right for any number of keys. Each reduction has three barriers, one more than it
needs: the second orders nothing.

Source: Final Summary, "Alternative Implementations": the kernel behind "0.76-0.86 TFLOPS".
"""

from numba import cuda, float32

from ...constants import THREADS
from ...device import advance, cint, divide_weights, dot4, exponentials, rows_of_block, weigh_values
from ...device.reduce import NEGATIVE_INFINITY, block_max_unshared, block_sum_unshared, shared_by_thread_0
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, require_log_problem


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    reduction = seq_k
    tid = cint(cuda.threadIdx.x)
    q_row, out_row, k_head, v_head = rows_of_block(q, k, v, out, seq_q, seq_k, hdim)

    row_max = NEGATIVE_INFINITY
    key = tid
    while key < seq_k:
        k_row = advance(k_head, key * hdim)
        score = dot4(float32(0.0), q_row, 0, k_row, 0, cint(0), hdim)
        score *= softmax_scale
        shared[key] = score
        row_max = max(row_max, score)
        key += THREADS
    row_max = shared_by_thread_0(block_max_unshared(row_max, shared, reduction), shared, reduction)
    row_sum = exponentials(shared, 0, seq_k, row_max)
    row_sum = shared_by_thread_0(block_sum_unshared(row_sum, shared, reduction), shared, reduction)
    divide_weights(shared, 0, seq_k, row_sum)
    cuda.syncthreads()
    weigh_values(out_row, v_head, shared, 0, seq_k, hdim)


@register(
    title="Two passes, float4",
    parent="attention_baseline",
    baseline="attention_baseline",
    source='Final Summary, "Alternative Implementations"',
    change="float4 loads of Q and K; reductions share their result",
    whole_rows=True,
)
def attention_two_pass_float4(problem: Problem) -> Plan:
    """Plan float32 attention without a mask. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    layout = SharedLayout(scores=problem.seq_k, reduction=32)
    launch = block_per_query(attention, problem, "q k v out", layout, flat=True)
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
