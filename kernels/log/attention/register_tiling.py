"""Register tiling: eight output dims of a thread in registers; both bugs.

Change from attention_online: a thread keeps its output dims tid + 256 r, r = 0..7, in registers while it loops over the
keys of a tile, and the dot product takes 16 dims a step in four accumulators. 256 x 8 is 2048, so dims from there on
are never written. Each tile starts from the output in memory, also the first tile, whose output was never written. It
is multiplied by exp(-inf - maximum) = 0, which is harmless only where the memory holds no NaN. Here it holds zeros, as
the source's evidently did. The reductions still do not share their result, which made the results wrong below 2048
dims.

Source: Final Summary, "Register Tiling - Coverage Bugs". The code was not kept: the order of the loops and the
remainder of 16 dims are assumed.
"""

from functools import partial

import numpy as np
from numba import cuda, float32

from ...checking.models import Array, online_unshared, scaled_scores
from ...constants import BLOCK_K, REDUCTION, SCORES, THREADS
from ...device import CINT, NEGATIVE_INFINITY, advance, cint, ld4, local_array, rows_of_query, softmax_tile_unshared
from ...version import SYNC, Buffer, Hazard, Plan, Problem, register
from ..plan import UNSHARED_DEFECT, block_per_query, log_plan, online_layout, require_log_problem

OUTPUTS = 8
COVERED = THREADS * OUTPUTS

dims_of_thread = local_array(CINT, OUTPUTS)


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    dims = dims_of_thread()
    acc = cuda.local.array(OUTPUTS, float32)
    for r in range(OUTPUTS):
        dims[r] = tid + r * THREADS
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        key = tid
        while key < tile:
            k_row = advance(k_head, (tile_start + key) * hdim)
            score0 = float32(0.0)
            score1 = float32(0.0)
            score2 = float32(0.0)
            score3 = float32(0.0)
            dim = cint(0)
            while dim + 16 <= hdim:
                a = ld4(q_row, dim)
                b = ld4(k_row, dim)
                score0 += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
                a = ld4(q_row, dim + 4)
                b = ld4(k_row, dim + 4)
                score1 += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
                a = ld4(q_row, dim + 8)
                b = ld4(k_row, dim + 8)
                score2 += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
                a = ld4(q_row, dim + 12)
                b = ld4(k_row, dim + 12)
                score3 += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
                dim += 16
            while dim < hdim:
                a = ld4(q_row, dim)
                b = ld4(k_row, dim)
                score0 += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w
                dim += 4
            shared[SCORES + key] = ((score0 + score1) + (score2 + score3)) * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile_unshared(shared, SCORES, REDUCTION, tile, row_max, row_sum)

        for r in range(OUTPUTS):
            acc[r] = float32(0.0)
            if dims[r] < hdim:
                acc[r] = out_row[dims[r]] * correction
        key = cint(0)
        while key < tile:
            p = shared[SCORES + key]
            v_row = advance(v_head, (tile_start + key) * hdim)
            for r in range(OUTPUTS):
                if dims[r] < hdim:
                    acc[r] += p * v_row[dims[r]]
            key += 1
        for r in range(OUTPUTS):
            if dims[r] < hdim:
                out_row[dims[r]] = acc[r]
        cuda.syncthreads()
        tile_start += BLOCK_K

    for r in range(OUTPUTS):
        if dims[r] < hdim:
            out_row[dims[r]] = out_row[dims[r]] / row_sum


def blank_output(problem: Problem) -> np.ndarray:
    return np.zeros(problem.q_shape, np.float32)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: reductions that do not share their result, and zeros in the dims that are never written."""
    out = online_unshared(scaled_scores(problem, q, k), v)
    out[..., COVERED:] = 0.0
    return out


@register(
    title="Register tiling",
    parent="attention_online",
    baseline="attention_baseline",
    source='Final Summary, "Register Tiling - Coverage Bugs"',
    change="8 output dims a thread in registers, 16 dims a step in 4 accumulators; dims from 2048 on left out",
    wrong_output=wrong_output,
)
def attention_register_tiling(problem: Problem) -> Plan:
    """Plan float32 attention without a mask; wrong unless one warp holds all keys and dims. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    wrong = problem.seq_k > 32 or problem.hdim > 32
    uncovered = f"; dims from {COVERED} on are never written" if problem.hdim > COVERED else ""
    return log_plan(
        problem,
        block_per_query(attention, problem, "q k v out", online_layout()),
        SYNC,
        defect=UNSHARED_DEFECT + uncovered if wrong else "",
        hazards=(Hazard("uninitialised", "attention", "out", "the first tile, too, starts from the output in memory"),),
        buffers={"out": Buffer(problem.q_shape, init=partial(blank_output, problem))},
    )
