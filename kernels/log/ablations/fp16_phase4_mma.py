"""FP16 Phase 4 with both products on tensor cores.

Change from fp16_phase4: warp 0, which computes all scores, uses `mma` with 16 rows, 8 keys and 16 dims. A tensor core
takes weights as halves and 16 rows at once. So the softmax stores its exponentials in shared memory, rounded to halves,
and the product with V follows after the loop over the rows of a warp: each warp takes half of the rows and half of the
dims. Tiles, grid, block and barriers are the same, including the missing one; so are the unpadded rows in shared
memory.

The missing barrier is a race between warp 0 and the others. Warp 0 is hardly slower than they are now, so its scores
are usually there. A half holds numbers up to 65,504. So a stale maximum that is harmless in Phase 4 makes a weight
infinite if it is 11 below the maximum of the row.

Source: Phase 6 Status Report, "What Would Actually Help", tensor cores.
"""

import math

from numba import cuda, float32, uint16, uint32

from ...constants import BLOCK_K
from ...device import FULL_MASK, NEGATIVE_INFINITY, advance, cint, float2half, ld4, mma_m16n8k16_f16, st4
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..fp16.phase4 import HAZARDS, wrong_output
from ..fp16.shapes import BLOCK_M, HDIM, VECTOR, WARP, fp16_buffers, fp16_launch, require_fp16_problem

WARPS = 4
ROWS_PER_WARP = 8
M, N = 16, 8  # rows and columns of the result of an mma
PAIRS = 32  # pairs in a row of 64 halves

LAYOUT = SharedLayout(
    query=BLOCK_M * HDIM // 2,
    key=BLOCK_K * HDIM // 2,
    value=BLOCK_K * HDIM // 2,
    scores=BLOCK_M * BLOCK_K,
    accumulator=BLOCK_M * HDIM,
    warp_max=WARPS,
    warp_sum=WARPS,
    weights=BLOCK_M * BLOCK_K // 2,
)
# Offsets in halves, then in pairs of halves, then in floats.
QUERY = 2 * LAYOUT["query"]
KEY = 2 * LAYOUT["key"]
VALUE = 2 * LAYOUT["value"]
WEIGHTS = 2 * LAYOUT["weights"]
QUERY_PAIRS = LAYOUT["query"]
KEY_PAIRS = LAYOUT["key"]
WEIGHT_PAIRS = LAYOUT["weights"]
SCORES = LAYOUT["scores"]
ACCUMULATOR = LAYOUT["accumulator"]
WARP_MAX = LAYOUT["warp_max"]
WARP_SUM = LAYOUT["warp_sum"]


@cuda.jit(device=True)
def rows_fragment(pairs, start, step):
    """A of `mma_m16n8k16_f16`: 16 columns from 16 * step on of the 16 rows of 64 halves that start at pair `start`."""
    lane_id = cint(cuda.threadIdx.x) % WARP
    upper = start + lane_id // 4 * PAIRS + lane_id % 4 + 8 * step
    lower = upper + 8 * PAIRS
    return pairs[upper], pairs[lower], pairs[upper + 4], pairs[lower + 4]


@cuda.jit(device=True)
def keys_fragment(pairs, start, step):
    """B: 16 dims from 16 * step on of the 8 keys that start at pair `start`, one key per column."""
    lane_id = cint(cuda.threadIdx.x) % WARP
    first = start + lane_id // 4 * PAIRS + lane_id % 4 + 8 * step
    return pairs[first], pairs[first + 4]


@cuda.jit(device=True)
def values_fragment(halves, start, step):
    """B: 8 dims from `start` on of the values of 16 keys from 16 * step on, one key per row."""
    lane_id = cint(cuda.threadIdx.x) % WARP
    first = start + (lane_id % 4 * 2 + 16 * step) * HDIM + lane_id // 4
    ninth = first + 8 * HDIM
    return (
        cint(halves[first]) | cint(halves[first + HDIM]) << 16,
        cint(halves[ninth]) | cint(halves[ninth + HDIM]) << 16,
    )


def attention(q, k, v, out, seq, softmax_scale):
    shared = cuda.shared.array(0, float32)  # aligned to 4 bytes, as in the source: with 16, loads would be merged
    halves = cuda.shared.array(0, uint16, 16)
    pairs = cuda.shared.array(0, uint32)
    row_max = cuda.local.array(ROWS_PER_WARP, float32)
    row_sum = cuda.local.array(ROWS_PER_WARP, float32)
    nothing = (float32(0.0), float32(0.0), float32(0.0), float32(0.0))
    tid = cint(cuda.threadIdx.x)
    warp_id = tid // WARP
    lane_id = tid % WARP
    group = lane_id // 4
    member = lane_id % 4
    head = cint(cuda.blockIdx.z) * cint(cuda.gridDim.y) + cint(cuda.blockIdx.y)
    first_row = head * seq + cint(cuda.blockIdx.x) * BLOCK_M
    q_block, out_block = advance(q, first_row * HDIM), advance(out, first_row * HDIM)
    k_head, v_head = advance(k, head * seq * HDIM), advance(v, head * seq * HDIM)

    for i in range(ROWS_PER_WARP):
        row = warp_id + i * WARPS
        dim = lane_id
        while dim < HDIM:
            halves[QUERY + row * HDIM + dim] = q_block[row * HDIM + dim]
            shared[ACCUMULATOR + row * HDIM + dim] = float32(0.0)
            dim += WARP
        row_max[i] = NEGATIVE_INFINITY
        row_sum[i] = float32(0.0)
    cuda.syncthreads()

    tile_start = cint(0)
    while tile_start < seq:
        k_tile = advance(k_head, tile_start * HDIM)
        v_tile = advance(v_head, tile_start * HDIM)
        key = warp_id
        while key < BLOCK_K:
            dim = lane_id * VECTOR
            if dim < HDIM:
                st4(halves, KEY + key * HDIM + dim, ld4(k_tile, key * HDIM + dim))
                st4(halves, VALUE + key * HDIM + dim, ld4(v_tile, key * HDIM + dim))
            key += WARPS
        cuda.syncthreads()

        if warp_id == 0:
            row = cint(0)
            while row < BLOCK_M:
                q0 = rows_fragment(pairs, QUERY_PAIRS + row * PAIRS, 0)
                q1 = rows_fragment(pairs, QUERY_PAIRS + row * PAIRS, 1)
                q2 = rows_fragment(pairs, QUERY_PAIRS + row * PAIRS, 2)
                q3 = rows_fragment(pairs, QUERY_PAIRS + row * PAIRS, 3)
                key = cint(0)
                while key < BLOCK_K:
                    score = mma_m16n8k16_f16(q0, keys_fragment(pairs, KEY_PAIRS + key * PAIRS, 0), nothing)
                    score = mma_m16n8k16_f16(q1, keys_fragment(pairs, KEY_PAIRS + key * PAIRS, 1), score)
                    score = mma_m16n8k16_f16(q2, keys_fragment(pairs, KEY_PAIRS + key * PAIRS, 2), score)
                    score = mma_m16n8k16_f16(q3, keys_fragment(pairs, KEY_PAIRS + key * PAIRS, 3), score)
                    upper = SCORES + (row + group) * BLOCK_K + key + 2 * member
                    lower = upper + 8 * BLOCK_K
                    shared[upper] = score[0] * softmax_scale
                    shared[upper + 1] = score[1] * softmax_scale
                    shared[lower] = score[2] * softmax_scale
                    shared[lower + 1] = score[3] * softmax_scale
                    key += N
                row += M

        for i in range(ROWS_PER_WARP):
            row = warp_id + i * WARPS
            scores = SCORES + row * BLOCK_K
            tile_max = NEGATIVE_INFINITY
            key = lane_id
            while key < BLOCK_K:
                tile_max = max(tile_max, shared[scores + key])
                key += WARP
            for offset in (16, 8, 4, 2, 1):
                tile_max = max(tile_max, cuda.shfl_down_sync(FULL_MASK, tile_max, offset))
            if lane_id == 0:
                shared[WARP_MAX + warp_id] = tile_max
            cuda.syncthreads()

            new_max = max(row_max[i], shared[WARP_MAX + warp_id])
            correction = math.exp(row_max[i] - new_max)
            dim = lane_id
            while dim < HDIM:
                shared[ACCUMULATOR + row * HDIM + dim] *= correction
                dim += WARP
            tile_sum = float32(0.0)
            key = lane_id
            while key < BLOCK_K:
                p = math.exp(shared[scores + key] - new_max)
                halves[WEIGHTS + row * BLOCK_K + key] = float2half(p)
                tile_sum += p
                key += WARP
            for offset in (16, 8, 4, 2, 1):
                tile_sum += cuda.shfl_down_sync(FULL_MASK, tile_sum, offset)
            if lane_id == 0:
                shared[WARP_SUM + warp_id] = tile_sum
            cuda.syncthreads()

            row_sum[i] = correction * row_sum[i] + shared[WARP_SUM + warp_id]
            row_max[i] = new_max

        row = warp_id % 2 * M
        p0 = rows_fragment(pairs, WEIGHT_PAIRS + row * PAIRS, 0)
        p1 = rows_fragment(pairs, WEIGHT_PAIRS + row * PAIRS, 1)
        p2 = rows_fragment(pairs, WEIGHT_PAIRS + row * PAIRS, 2)
        p3 = rows_fragment(pairs, WEIGHT_PAIRS + row * PAIRS, 3)
        dim = warp_id // 2 * WARP
        last_dim = dim + WARP
        while dim < last_dim:
            acc = mma_m16n8k16_f16(p0, values_fragment(halves, VALUE + dim, 0), nothing)
            acc = mma_m16n8k16_f16(p1, values_fragment(halves, VALUE + dim, 1), acc)
            acc = mma_m16n8k16_f16(p2, values_fragment(halves, VALUE + dim, 2), acc)
            acc = mma_m16n8k16_f16(p3, values_fragment(halves, VALUE + dim, 3), acc)
            upper = ACCUMULATOR + (row + group) * HDIM + dim + 2 * member
            lower = upper + 8 * HDIM
            shared[upper] += acc[0]
            shared[upper + 1] += acc[1]
            shared[lower] += acc[2]
            shared[lower + 1] += acc[3]
            dim += N
        cuda.syncthreads()
        tile_start += BLOCK_K

    for i in range(ROWS_PER_WARP):
        row = warp_id + i * WARPS
        dim = lane_id
        while dim < HDIM:
            out_block[row * HDIM + dim] = float2half(shared[ACCUMULATOR + row * HDIM + dim] / row_sum[i])
            dim += WARP


@register(
    title="Phase 4 with both products on tensor cores",
    parent="fp16_phase4",
    baseline="fp16_minimal",
    source='Phase 6 Status Report, "What Would Actually Help"',
    change="scores by mma of warp 0; weights rounded to halves, their product with V by mma of all warps",
    iterations=100,
    ablation=True,
    wrong_output=wrong_output,
)
def fp16_phase4_mma(problem: Problem) -> Plan:
    """Plan float16 attention without a mask, head dim 64; wrong where shared memory starts as NaN.

    Raises: Unsupported.
    """
    require_fp16_problem(problem, causal=False)
    launch = fp16_launch(problem, attention, BLOCK_M, WARPS * WARP, shared=LAYOUT)
    return Plan(
        problem,
        fp16_buffers(problem),
        (launch, SYNC),
        defect="rows 1 to 3 of every 32 as in fp16_phase4",
        hazards=HAZARDS,
    )
