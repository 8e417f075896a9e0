"""Two passes, both products on tensor cores.

Change from attention_two_pass_float4: `mma.sync` multiplies. The 16 rows of A, twice, are the 32 keys of a warp, and
then its 32 dims of the output. Every column of B is the query, and then the weights of the keys, so that 7 of 8 results
are copies. A float32 is split into two TF32 numbers. Of their four products all but the smallest are summed, so the
result is right. Sums over dims and keys are made outside of the mma, which truncates.

A lane holds a quarter of the dims of each of its rows and reads as many float4 of K from as many sectors as in the
parent: only the arithmetic differs. With one query per block, each element of K and V is used once, with tensor cores
as without.

Source: Final Summary, "Alternative Implementations", with what its section on tensor cores says does not help.
"""

import functools
from typing import Any

from numba import cuda, float32

from ...constants import THREADS, require
from ...device import cint, divide_weights, exponentials, mma_m16n8k8_tf32, rows_of_block, split
from ...device.reduce import NEGATIVE_INFINITY, block_max_unshared, block_sum_unshared, shared_by_thread_0
from ...device.vector import advance, ld4, make_float4
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, require_log_problem

ROWS = 16  # rows of A
OUT_UNROLL = 16  # keys, as in the parent
OWN_KEYS = OUT_UNROLL // 4  # of these keys that a lane holds
ZERO = float32(0.0)


@cuda.jit(device=True)
def multiply_add(upper, lower, a, b):
    """A lane's sums for the rows g and g + 8 of A, plus the products of these rows with the repeated column of B."""
    a0, a0_low = split(a[0])
    a1, a1_low = split(a[1])
    a2, a2_low = split(a[2])
    a3, a3_low = split(a[3])
    b0, b0_low = split(b[0])
    b1, b1_low = split(b[1])
    products = mma_m16n8k8_tf32((a0_low, a1_low, a2_low, a3_low), (b0, b1), (ZERO, ZERO, ZERO, ZERO))
    products = mma_m16n8k8_tf32((a0, a1, a2, a3), (b0_low, b1_low), products)
    products = mma_m16n8k8_tf32((a0, a1, a2, a3), (b0, b1), products)
    return upper + products[0], lower + products[2]


@cuda.jit(device=True)
def own(values, member):
    """The one of the sums of four lanes that this lane stores."""
    value = values[0]
    for r in range(1, len(values)):
        if member == r:
            value = values[r]
    return value


@functools.cache
def make_kernel(tiles: int) -> Any:
    """The kernel whose warps take `tiles` times 16 keys at a time."""
    rows, keys = 2 * tiles, ROWS * tiles  # rows of a lane, keys of a warp
    row_floats = 4 * rows

    @cuda.jit(device=True)
    def add_products(scores, held, q_row, k_head, first_key, last_key, hdim, dim, there):
        """Add the products of four dims (16 over the lanes of a row) to a lane's scores; 0 where there is no key."""
        a = make_float4(ZERO, ZERO, ZERO, ZERO)
        if there:
            a = ld4(q_row, dim)
        for r in range(rows):
            b = make_float4(ZERO, ZERO, ZERO, ZERO)
            if there:
                b = ld4(advance(k_head, min(first_key + 8 * r, last_key) * hdim), dim)
            held[4 * r], held[4 * r + 1], held[4 * r + 2], held[4 * r + 3] = b.x, b.y, b.z, b.w
        for r in range(0, rows, 2):
            x0, y0, z0, w0 = held[4 * r], held[4 * r + 1], held[4 * r + 2], held[4 * r + 3]
            x1, y1, z1, w1 = held[4 * r + 4], held[4 * r + 5], held[4 * r + 6], held[4 * r + 7]
            upper, lower = multiply_add(scores[r], scores[r + 1], (x0, x1, y0, y1), (a.x, a.y))
            scores[r], scores[r + 1] = multiply_add(upper, lower, (z0, z1, w0, w1), (a.z, a.w))

    def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
        shared = cuda.shared.array(0, float32, 16)
        reduction = seq_k
        tid = cint(cuda.threadIdx.x)
        warp_id = tid // 32
        group = tid % 32 // 4
        member = tid % 4
        q_row, out_row, k_head, v_head = rows_of_block(q, k, v, out, seq_q, seq_k, hdim)
        last_key = seq_k - 1
        scores = cuda.local.array(rows, float32)
        held = cuda.local.array(row_floats, float32)

        quarter = hdim // 16 * 4
        row_max = NEGATIVE_INFINITY
        first_key = cint(warp_id * keys)
        while first_key < seq_k:
            for r in range(rows):
                scores[r] = ZERO
            step = cint(0)
            while step < quarter:
                dim = member * quarter + step
                add_products(scores, held, q_row, k_head, first_key + group, last_key, hdim, dim, True)
                step += 4
            if hdim % 16 != 0:
                dim = 4 * (quarter + member)
                add_products(scores, held, q_row, k_head, first_key + group, last_key, hdim, dim, dim < hdim)
            key = first_key + group + 8 * member
            if member < rows and key < seq_k:
                score = own(scores, member) * softmax_scale
                shared[key] = score
                row_max = max(row_max, score)
            first_key += THREADS // 32 * keys
        row_max = shared_by_thread_0(block_max_unshared(row_max, shared, reduction), shared, reduction)
        row_sum = exponentials(shared, 0, seq_k, row_max)
        row_sum = shared_by_thread_0(block_sum_unshared(row_sum, shared, reduction), shared, reduction)
        divide_weights(shared, 0, seq_k, row_sum)
        cuda.syncthreads()

        last_dim = hdim - 1
        acc = cuda.local.array(4, float32)
        values = cuda.local.array(OUT_UNROLL, float32)
        weights = cuda.local.array(OWN_KEYS, float32)
        first_dim = warp_id * 32
        while first_dim < hdim:
            for r in range(4):
                acc[r] = ZERO
            key = cint(0)
            while key < seq_k:
                for i in range(OWN_KEYS):
                    own_key = key + 4 * i + member
                    v_row = advance(v_head, min(own_key, last_key) * hdim)
                    weights[i] = shared[min(own_key, last_key)] if own_key < seq_k else ZERO
                    for r in range(4):
                        values[4 * i + r] = v_row[min(first_dim + group + 8 * r, last_dim)]
                for i in range(0, OWN_KEYS, 2):
                    for r in range(0, 4, 2):
                        at = 4 * i + r
                        a = (values[at], values[at + 1], values[at + 4], values[at + 5])
                        acc[r], acc[r + 1] = multiply_add(acc[r], acc[r + 1], a, (weights[i], weights[i + 1]))
                key += OUT_UNROLL
            dim = first_dim + group + 8 * member
            if dim < hdim:
                out_row[dim] = own(acc, member)
            first_dim += THREADS

    return attention


@register(
    title="Two passes, float4, on tensor cores",
    parent="attention_two_pass_float4",
    baseline="attention_baseline",
    source='Final Summary, "Alternative Implementations", and "Tensor Cores"',
    change="both products by mma of TF32, each float in two parts",
    ablation=True,
)
def attention_two_pass_mma(problem: Problem) -> Plan:
    """Plan float32 attention of two keys or more, without a mask. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    allowed = "2 or more: one key's output is exact, two TF32 numbers are not"
    require(problem.seq_k > 1, "seq_k", problem.seq_k, allowed)
    layout, kernel = SharedLayout(scores=problem.seq_k, reduction=32), make_kernel(1 if problem.seq_k <= ROWS else 2)
    launch = block_per_query(kernel, problem, "q k v out", layout, flat=True)
    return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
