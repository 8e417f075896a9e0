"""Half-precision versions with one thing changed."""

from functools import partial

import numpy as np

from ...checking.models import Array, scaled_scores
from ...version import Problem
from ..fp16 import phase4
from .ablate import ablate

FULL_BLOCK = """
    - from .shapes import BLOCK_M, HDIM, VECTOR, WARP, fp16_buffers, fp16_launch, require_fp16_problem
    + from .shapes import HDIM, VECTOR, WARP, fp16_buffers, fp16_launch, require_fp16_problem

    + BLOCK_M = 64
      WARPS = 4
    - ROWS_PER_WARP = 8
    + ROWS_PER_WARP = 16

    - defect="rows 1 to 3 of every 32 take their first maximum from memory that nobody wrote; NaN where that is NaN",
    + defect="rows 2 and 3 of every 64 take their first maximum from memory that nobody wrote; NaN where that is NaN",
"""


def mean_of_values(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """Phase 4's output if all scores are equal."""
    return phase4.wrong_output(problem, 0.0 * q, k, v)


def scores_as_weights(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """The mean of all values, each times its score, which may be negative."""
    return scaled_scores(problem, q, k) @ v / problem.seq_k


def sums_of_weights(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """Phase 4's output if all values are 1."""
    return phase4.wrong_output(problem, q, k, np.ones_like(v))


ablate(
    "fp16_phase4",
    "fp16_phase4_causal",
    title="Phase 4 with a causal mask",
    change="the mask of Phase 6, a test of every score; no tile is skipped",
    diff="""
    - from .shapes import BLOCK_M, HDIM, VECTOR, WARP, fp16_buffers, fp16_launch, require_fp16_problem
    + from .shapes import BLOCK_M, HDIM, MASKED, VECTOR, WARP, fp16_buffers, fp16_launch, require_fp16_problem

    - first_row = head * seq + cint(cuda.blockIdx.x) * BLOCK_M
    + block_start = cint(cuda.blockIdx.x) * BLOCK_M
    + first_row = head * seq + block_start

    - scores[tid * BLOCK_K + key] = score * softmax_scale
    + score *= softmax_scale
    + if tile_start + key > block_start + tid:
    +     score = MASKED
    + scores[tid * BLOCK_K + key] = score

    - require_fp16_problem(problem, causal=False)
    + require_fp16_problem(problem, causal=True)
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_no_scores",
    title="Phase 4 without Q times K",
    change="every score is 0; Q and K still come to shared memory",
    wrong_output=mean_of_values,
    diff="""
    - score = dot(query, tid * HDIM, keys, key * HDIM)
    - scores[tid * BLOCK_K + key] = score * softmax_scale
    + scores[tid * BLOCK_K + key] = float32(0.0)

    - defect="rows 1 to 3 of every 32 take their first maximum from memory that nobody wrote; NaN where that is NaN",
    + defect="the mean of all values; rows 1 to 3 of every 32 as in fp16_phase4",
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_no_softmax",
    title="Phase 4 without the softmax",
    change="scores are the weights of values: no maximum, exponential, sum or rescaling; the barriers stay",
    wrong_output=scores_as_weights,
    diff="""
    - row_max = cuda.local.array(ROWS_PER_WARP, float32)
    - row_sum = cuda.local.array(ROWS_PER_WARP, float32)

    - row_max[i] = NEGATIVE_INFINITY
    - row_sum[i] = float32(0.0)

    - tile_max = NEGATIVE_INFINITY
    - key = lane_id
    - while key < BLOCK_K:
    -     tile_max = max(tile_max, scores[first_score + key])
    -     key += WARP
    - for offset in (16, 8, 4, 2, 1):
    -     tile_max = max(tile_max, cuda.shfl_down_sync(FULL_MASK, tile_max, offset))
    - if lane_id == 0:
    -     warp_max[warp_id] = tile_max
      cuda.syncthreads()
    -
    - new_max = max(row_max[i], warp_max[warp_id])
    - correction = math.exp(row_max[i] - new_max)
    - dim = lane_id
    - while dim < HDIM:
    -     accumulator[row * HDIM + dim] *= correction
    -     dim += WARP
    - tile_sum = float32(0.0)
    - key = lane_id
    - while key < BLOCK_K:
    -     tile_sum += math.exp(scores[first_score + key] - new_max)
    -     key += WARP
    - for offset in (16, 8, 4, 2, 1):
    -     tile_sum += cuda.shfl_down_sync(FULL_MASK, tile_sum, offset)
    - if lane_id == 0:
    -     warp_sum[warp_id] = tile_sum
      cuda.syncthreads()
    -
    - row_sum[i] = correction * row_sum[i] + warp_sum[warp_id]
    - row_max[i] = new_max

    - p = math.exp(scores[first_score + key + step] - new_max)
    + p = scores[first_score + key + step]

    - out_block[row * HDIM + dim] = float2half(accumulator[row * HDIM + dim] / row_sum[i])
    + out_block[row * HDIM + dim] = float2half(accumulator[row * HDIM + dim] / float32(seq))

    - defect="rows 1 to 3 of every 32 take their first maximum from memory that nobody wrote; NaN where that is NaN",
    + defect="the mean of all values, each times its score",

    - hazards=HAZARDS,
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_no_values",
    title="Phase 4 without the product with V",
    change="adds up the exponentials alone, again for every dim; V still comes to shared memory",
    wrong_output=sums_of_weights,
    diff="""
    - acc += p * half2float(values[(key + step) * HDIM + dim])
    + acc += p

    - defect="rows 1 to 3 of every 32 take their first maximum from memory that nobody wrote; NaN where that is NaN",
    + defect="the result for values of 1; rows 1 to 3 of every 32 as in fp16_phase4",
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_scalar_loads",
    title="Phase 4 with loads of one half at a time",
    change="a warp loads a row of K or V as it does one of Q, two halves a lane",
    scalar_loads=True,
    diff="""
    - dim = lane_id * VECTOR
    - if dim < HDIM:
    -     st4(keys, key * HDIM + dim, ld4(k_tile, key * HDIM + dim))
    -     st4(values, key * HDIM + dim, ld4(v_tile, key * HDIM + dim))
    + dim = lane_id
    + while dim < HDIM:
    +     keys[key * HDIM + dim] = k_tile[key * HDIM + dim]
    +     values[key * HDIM + dim] = v_tile[key * HDIM + dim]
    +     dim += WARP
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_padded",
    title="Phase 4 with padded rows",
    change="longer rows of queries and scores in shared memory, by the least that leaves every load as wide as it was",
    diff="""
      PV_UNROLL = 16
    + QUERY_ROW = HDIM + 4  # 64-bit loads of a column: no conflict
    + SCORE_PADDING = 4  # 32-bit stores of a column: 4 to a bank; 128-bit loads of a row

    - query=BLOCK_M * HDIM // 2,
    + query=BLOCK_M * QUERY_ROW // 2,

    - scores=BLOCK_M * BLOCK_K,
    + scores=BLOCK_M * (BLOCK_K + SCORE_PADDING),

    - query[row * HDIM + dim] = q_block[row * HDIM + dim]
    + query[row * QUERY_ROW + dim] = q_block[row * HDIM + dim]

    - score = dot(query, tid * HDIM, keys, key * HDIM)
    + score = dot(query, tid * QUERY_ROW, keys, key * HDIM)

    - scores[tid * BLOCK_K + key] = score * softmax_scale
    + scores[tid * (BLOCK_K + SCORE_PADDING) + key] = score * softmax_scale

    - first_score = row * BLOCK_K
    + first_score = row * BLOCK_K + row * SCORE_PADDING  # one product would keep P times V a loop
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_all_threads",
    title="Phase 4 with all threads at the scores",
    change="every warp computes a score of each of the 32 rows, then the fourth after it",
    wrong_output=None,
    diff="""
    - if tid < BLOCK_M:
    -     key = cint(0)
    -     while key < BLOCK_K:
    -         score = dot(query, tid * HDIM, keys, key * HDIM)
    -         scores[tid * BLOCK_K + key] = score * softmax_scale
    -         key += 1
    + key = warp_id
    + while key < BLOCK_K:
    +     score = dot(query, lane_id * HDIM, keys, key * HDIM)
    +     scores[lane_id * BLOCK_K + key] = score * softmax_scale
    +     key += WARPS

    - defect="rows 1 to 3 of every 32 take their first maximum from memory that nobody wrote; NaN where that is NaN",
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_64x64",
    title="Phase 4 with 64 query rows a block",
    change="two warps at the scores, 16 rows a warp; more shared memory than a launch of the log could get",
    wrong_output=partial(phase4.wrong_output, block_rows=64, first_row=2),
    diff=FULL_BLOCK
    + """
    - accumulator=BLOCK_M * HDIM,

    - shared = shared_arrays(LAYOUT, "query", "key", "value")
    + shared = shared_arrays(SharedLayout(**dict(list(LAYOUT.sizes.items())[:4])), "query", "key", "value")
    + shared_by_warps = shared_arrays(SharedLayout(warp_max=WARPS, warp_sum=WARPS))
    + OUTPUT = SharedLayout(accumulator=BLOCK_M * HDIM)  # dynamic: static arrays may take 48 KB

    - query, keys, values, scores, accumulator, warp_max, warp_sum = shared()
    + query, keys, values, scores = shared()
    + accumulator = cuda.shared.array(0, float32)
    + warp_max, warp_sum = shared_by_warps()

    - launch = fp16_launch(problem, attention, BLOCK_M, WARPS * WARP, static=LAYOUT)
    + launch = fp16_launch(problem, attention, BLOCK_M, WARPS * WARP, static=LAYOUT, shared=OUTPUT)
    """,
)

ablate(
    "fp16_phase4",
    "fp16_phase4_64x32",
    title="Phase 4 with 64 query rows a block and tiles of 32 keys",
    change="two warps at the scores, 16 rows a warp, one key a lane in the softmax",
    wrong_output=partial(phase4.wrong_output, block_rows=64, first_row=2),
    diff=FULL_BLOCK
    + """
    - from ...constants import BLOCK_K

      BLOCK_M = 64
    + BLOCK_K = 32
    """,
)

ablate(
    "fp16_phase6_iter1",
    "fp16_phase6_iter1_own_row",
    title="Phase 6, iteration 1, with nothing but a thread's own row",
    change="a thread keeps one maximum, one sum and 64 outputs; outputs stay in local memory, as loops index them",
    diff="""
    - # One element per row of the block, and one per row and dim; a thread uses only its own row.
    - per_row = local_array(types.float32, BLOCK_M)
    - per_output = local_array(types.float32, int(BLOCK_M * HDIM))
    + per_output = local_array(types.float32, HDIM)

    - row_max = per_row()
    - row_sum = per_row()
    + row_max = NEGATIVE_INFINITY
    + row_sum = float32(0.0)

    - row_max[row] = NEGATIVE_INFINITY
    - row_sum[row] = float32(0.0)

    - clear_row(accumulator, row * HDIM)
    + clear_row(accumulator, 0)

    - new_max = largest(scores, first_score, row_max[row])
    + new_max = largest(scores, first_score, row_max)

    - correction = math.exp(row_max[row] - new_max)
    + correction = math.exp(row_max - new_max)

    - scale_row(accumulator, row * HDIM, correction)
    + scale_row(accumulator, 0, correction)

    - row_sum[row] = correction * row_sum[row] + tile_sum
    - row_max[row] = new_max
    + row_sum = correction * row_sum + tile_sum
    + row_max = new_max

    - add_values(accumulator, row * HDIM, scores, first_score, key_value, HDIM)
    + add_values(accumulator, 0, scores, first_score, key_value, HDIM)

    - store_row(out_block, row * HDIM, accumulator, row * HDIM, row_sum[row])
    + store_row(out_block, row * HDIM, accumulator, 0, row_sum)
    """,
)

ablate(
    "fp16_phase6_iter2",
    "fp16_phase6_iter2_32_threads",
    title="Phase 6, iteration 2, with 32 threads a block",
    change="the 32 threads that compute are alone, and load two rows of a tile each; built with the same bounds",
    diff="""
    - if row < BLOCK_K:
    -     copy_row(key_value, row * HDIM, k_head, tile_start + row)
    + key = row
    + while key < BLOCK_K:
    +     copy_row(key_value, key * HDIM, k_head, tile_start + key)
    +     key += BLOCK_M

    - if row < BLOCK_K:
    -     copy_row(key_value, row * HDIM, v_head, tile_start + row)
    + key = row
    + while key < BLOCK_K:
    +     copy_row(key_value, key * HDIM, v_head, tile_start + key)
    +     key += BLOCK_M

    - launch = fp16_launch(problem, attention, BLOCK_M, THREADS, min_blocks=2, static=LAYOUT)
    + launch = fp16_launch(problem, attention, BLOCK_M, BLOCK_M, min_blocks=2, static=LAYOUT)
    """,
)

ablate(
    "fp16_phase6_iter2",
    "fp16_phase6_iter2_padded",
    title="Phase 6, iteration 2, with padded rows",
    change="longer rows in shared memory, by the least that leaves every load as wide as it was",
    diff="""
    + QUERY_ROW = HDIM + 4  # 64-bit loads of a column: no conflict
    + KEY_VALUE_ROW = HDIM + VECTOR  # 128-bit stores of a column: no conflict
    + SCORE_ROW = BLOCK_K + 4  # 128-bit loads and stores of a column: no conflict; 32-bit: 4 to a bank
    + ACCUMULATOR_ROW = HDIM + 4
    +
      LAYOUT = SharedLayout(

    - query=BLOCK_M * HDIM // 2,
    - key_value=BLOCK_K * HDIM // 2,
    - scores=BLOCK_M * BLOCK_K,
    - accumulator=BLOCK_M * HDIM,
    + query=BLOCK_M * QUERY_ROW // 2,
    + key_value=BLOCK_K * KEY_VALUE_ROW // 2,
    + scores=BLOCK_M * SCORE_ROW,
    + accumulator=BLOCK_M * ACCUMULATOR_ROW,

    - first_score = row * BLOCK_K
    + first_score = row * SCORE_ROW

    - clear_row(accumulator, row * HDIM)
    + clear_row(accumulator, row * ACCUMULATOR_ROW)

    - scale_row(accumulator, row * HDIM, correction)
    + scale_row(accumulator, row * ACCUMULATOR_ROW, correction)

    - st4(query, row * HDIM + dim, ld4(q_block, row * HDIM + dim))
    + loaded = ld4(q_block, row * HDIM + dim)
    + first = row * QUERY_ROW + dim  # on 8 bytes, not on 16
    + st2(query, first, loaded.x, loaded.y)
    + st2(query, first + 4, loaded.z, loaded.w)

    - from ...device import NEGATIVE_INFINITY, cint, ld4, st4
    + from ...device import NEGATIVE_INFINITY, cint, ld4, st2

    - copy_row(key_value, row * HDIM, k_head, tile_start + row)
    + copy_row(key_value, row * KEY_VALUE_ROW, k_head, tile_start + row)

    - score_row(scores, first_score, query, row * HDIM, key_value, HDIM, tile_start, last, softmax_scale)
    + score_row(
    +     scores, first_score, query, row * QUERY_ROW, key_value, KEY_VALUE_ROW, tile_start, last, softmax_scale
    + )

    - copy_row(key_value, row * HDIM, v_head, tile_start + row)
    + copy_row(key_value, row * KEY_VALUE_ROW, v_head, tile_start + row)

    - add_values(accumulator, row * HDIM, scores, first_score, key_value, HDIM)
    + add_values(accumulator, row * ACCUMULATOR_ROW, scores, first_score, key_value, KEY_VALUE_ROW)

    - store_row(out_block, row * HDIM, accumulator, row * HDIM, row_sum[row])
    + store_row(out_block, row * HDIM, accumulator, row * ACCUMULATOR_ROW, row_sum[row])
    """,
)
