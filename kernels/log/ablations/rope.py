"""RoPE versions with one thing changed."""

import numpy as np

from ...checking.models import Array, rotate_pairs, scaled_scores, softmax
from ...version import Problem
from .ablate import ablate


def two_pairs_rotated(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """The output of a version that rotates every pair of K like one of the first two."""
    position = np.arange(problem.seq_k)
    q, k = rotate_pairs(q, position, problem.rotary_dim), rotate_pairs(k, position, problem.rotary_dim, pairs=2)
    return softmax(scaled_scores(problem, q, k)) @ v


def queries_rotated(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """The output of a version that does not rotate K."""
    return softmax(scaled_scores(problem, rotate_pairs(q, np.arange(problem.seq_q), problem.rotary_dim), k)) @ v


ablate(
    "rope_v1c",
    "rope_v1c_no_tables",
    title="V1 without table loads in the loop",
    change="cos and sin of a key's first two pairs stay in registers and turn all its pairs; every rotation stays",
    wrong_output=two_pairs_rotated,
    diff="""
    - table_row = key * hdim
    + c = ld4(cos, key * hdim)
    + s = ld4(sin, key * hdim)

    - c = ld4(cos, table_row + dim)
    - s = ld4(sin, table_row + dim)

    + wrong = problem.seq_k > 1 and problem.hdim > 4
    + defect = "every pair of K turns as the first or the second does" if wrong else ""
    - return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,), buffers=rope_tables(problem))
    + return log_plan(problem, launch, SYNC, defect=defect, hazards=(REDUCTION_RACE,), buffers=rope_tables(problem))
    """,
)

ablate(
    "rope_v2",
    "rope_v2_no_rotation",
    title="V2 without rotating K",
    change="takes K as it is: no power, sine or rotation in the loop over keys",
    wrong_output=queries_rotated,
    diff="""
    - exponent = float32(dim) / float32(hdim)
    - inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    - sin, cos = fast_sincos(position * inv_freq)
    - x, y = rotate(k_row[dim], k_row[dim + 1], cos, sin)
    - total += shared[EXTRA + dim] * x + shared[EXTRA + dim + 1] * y
    + total += shared[EXTRA + dim] * k_row[dim] + shared[EXTRA + dim + 1] * k_row[dim + 1]

    - position = float32(key)

    - return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
    + defect = "K is not rotated" if problem.seq_k > 1 else ""
    + return log_plan(problem, launch, SYNC, defect=defect, hazards=(REDUCTION_RACE,))
    """,
)

ablate(
    "rope_v2",
    "rope_v2_float4",
    title="V2 with float4 loads",
    change="float4 loads of Q and K, two pairs at a time",
    scalar_loads=False,
    diff="""
    - from ...device import cint, fast_sincos, online_attention, powf, rotate, rows_of_query
    + from ...device import cint, fast_sincos, ld4, make_float4, online_attention, powf, rotate, rows_of_query, st4

    - dim = 2 * tid
    + dim = 4 * tid
      while dim < hdim:
    +     x = ld4(q_row, dim)
          exponent = float32(dim) / float32(hdim)
          inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
          sin, cos = fast_sincos(float32(query) * inv_freq)
    -     x, y = rotate(q_row[dim], q_row[dim + 1], cos, sin)
    -     shared[EXTRA + dim] = x
    -     shared[EXTRA + dim + 1] = y
    -     dim += 2 * THREADS
    +     q0, q1 = rotate(x.x, x.y, cos, sin)
    +     exponent = float32(dim + 2) / float32(hdim)
    +     inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    +     sin, cos = fast_sincos(float32(query) * inv_freq)
    +     q2, q3 = rotate(x.z, x.w, cos, sin)
    +     st4(shared, EXTRA + dim, make_float4(q0, q1, q2, q3))
    +     dim += 4 * THREADS

    + a = ld4(shared, EXTRA + dim)
    + b = ld4(k_row, dim)
      exponent = float32(dim) / float32(hdim)
      inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
      sin, cos = fast_sincos(position * inv_freq)
    - x, y = rotate(k_row[dim], k_row[dim + 1], cos, sin)
    - total += shared[EXTRA + dim] * x + shared[EXTRA + dim + 1] * y
    - dim += 2
    + k0, k1 = rotate(b.x, b.y, cos, sin)
    + exponent = float32(dim + 2) / float32(hdim)
    + inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    + sin, cos = fast_sincos(position * inv_freq)
    + k2, k3 = rotate(b.z, b.w, cos, sin)
    + total += a.x * k0 + a.y * k1
    + total += a.z * k2 + a.w * k3
    + dim += 4

    - require_log_problem(problem, "rope", multiple=2, all_dims=True)
    + require_log_problem(problem, "rope", all_dims=True)
    """,
)

ablate(
    "rope_v3",
    "rope_v3_no_rotation",
    title="V3 without rotating K",
    change="takes K as it is: no power, sine or rotation in the loop over keys",
    wrong_output=queries_rotated,
    diff="""
    - exponent = float32(dim) / float32(hdim)
    - inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    - sin, cos = fast_sincos(position * inv_freq)
    - x, y = rotate(k_row[dim], k_row[dim + 1], cos, sin)
    + x = k_row[dim]
    + y = k_row[dim + 1]

    - position = float32(tile_start + key)

    - return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
    + defect = "K is not rotated" if problem.seq_k > 1 else ""
    + return log_plan(problem, launch, SYNC, defect=defect, hazards=(REDUCTION_RACE,))
    """,
)

ablate(
    "rope_v3",
    "rope_v3_cached_frequencies",
    title="V3 with cached frequencies",
    change="the inverse frequencies are computed once a block, into shared memory; threads and barriers as before",
    diff="""
    + inv_freq = EXTRA + QUERIES * hdim
    + pair = tid  # whose frequency the same thread needs for Q: no barrier before
    + while pair < hdim // 2:
    +     exponent = float32(2 * pair) / float32(hdim)
    +     shared[inv_freq + pair] = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    +     pair += THREADS
      row = cint(0)
      while row < queries:
          dim = 2 * tid

    - exponent = float32(dim) / float32(hdim)
    - inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    - sin, cos = fast_sincos(float32(first + row) * inv_freq)
    + sin, cos = fast_sincos(float32(first + row) * shared[inv_freq + dim // 2])

    - exponent = float32(dim) / float32(hdim)
    - inv_freq = float32(1.0) / powf(float32(FREQUENCY_BASE), exponent)
    - sin, cos = fast_sincos(position * inv_freq)
    + sin, cos = fast_sincos(position * shared[inv_freq + dim // 2])

    - layout = SharedLayout(scores=QUERIES * BLOCK_K, reduction=32, query=QUERIES * problem.hdim)
    + layout = SharedLayout(
    +     scores=QUERIES * BLOCK_K, reduction=32, query=QUERIES * problem.hdim, inv_freq=problem.hdim // 2
    + )
    """,
)

ablate(
    "rope_v5",
    "rope_v5_all_threads",
    title="V5 with all threads at the scores",
    change="all 256 threads share a tile's dot products, 16 to 64 to a key; tiles and barriers as before",
    diff="""
    + import math
    +
      from numba import cuda, float32

    - from ...device import NEGATIVE_INFINITY, cint, divide_output, fast_sincos, rotate, rows_of_query, softmax_tile
    + from ...device import cint, divide_output, exponentials, fast_sincos, rotate, rows_of_query
    + from ...device.reduce import FULL_MASK, NEGATIVE_INFINITY, WARPS, block_max, block_sum

    - keys = scores + block_k
    + keys = scores + WARPS * block_k

    - key = tid
    - while key < tile:
    + key = tid % block_k
    + score = float32(0.0)
    + if key < tile:
          k_row = keys + key * hdim
    -     score = float32(0.0)
          position = float32(tile_start + key)
    -     pair = cint(0)
    +     pair = tid // block_k
          while pair < hdim // 2:
              dim = 2 * pair
              s, c = fast_sincos(position * shared[inv_freq + pair])
              x, y = rotate(shared[k_row + dim], shared[k_row + dim + 1], c, s)
              score += shared[EXTRA + dim] * x + shared[EXTRA + dim + 1] * y
    -         pair += 1
    -     shared[scores + key] = score * softmax_scale
    -     key += THREADS
    +         pair += THREADS // block_k
    + lanes = cint(16)
    + while lanes >= block_k:
    +     score += cuda.shfl_xor_sync(FULL_MASK, score, lanes)
    +     lanes //= cint(2)
    + if tid % 32 < block_k:
    +     shared[scores + tid // 32 * block_k + key] = score

    - row_max, correction, row_sum = softmax_tile(shared, scores, REDUCTION, tile, row_max, row_sum)
    + tile_max = NEGATIVE_INFINITY
    + key = tid
    + while key < tile:
    +     score = float32(0.0)
    +     warp = cint(0)
    +     while warp < WARPS:
    +         score += shared[scores + warp * block_k + key]
    +         warp += 1
    +     shared[scores + key] = score * softmax_scale
    +     tile_max = max(tile_max, shared[scores + key])
    +     key += THREADS
    + new_max = max(row_max, block_max(tile_max, shared, REDUCTION))
    + correction = math.exp(row_max - new_max)
    + tile_sum = exponentials(shared, scores, tile, new_max)
    + row_sum = correction * row_sum + block_sum(tile_sum, shared, REDUCTION)
    + row_max = new_max

    - reduction=32, query=problem.hdim, inv_freq=problem.hdim // 2, scores=block_k, keys=block_k * problem.hdim
    + reduction=32,
    + query=problem.hdim,
    + inv_freq=problem.hdim // 2,
    + scores=WARPS * block_k,
    + keys=block_k * problem.hdim,
    """,
)

ablate(
    "rope_v6b",
    "rope_v6b_no_rotation",
    title="V6 without rotating K",
    change="takes K as it is at any rotary_dim: no test, sine or rotation in the loop over keys",
    wrong_output=queries_rotated,
    diff="""
    - if slice_start + dim < rotary_dim:
    -     s, c = fast_sincos(position * shared[inv_freq_slice + pair])
    -     x, y = rotate(x, y, c, s)

    - position = float32(tile_start + key)
    - inv_freq_slice = inv_freq + slice_start // 2

    - return log_plan(problem, launch, SYNC, hazards=(REDUCTION_RACE,))
    + defect = "K is not rotated" if problem.seq_k > 1 else ""
    + return log_plan(problem, launch, SYNC, defect=defect, hazards=(REDUCTION_RACE,))
    """,
)

ablate(
    "rope_v6b",
    "rope_v6b_all_threads",
    title="V6 with all threads at the scores",
    change="all 256 threads share a tile's dot products: lane by lane the same keys, and so the same bank conflicts; "
    "four pairs in turn to each warp",
    diff="""
    - REDUCTION = SCORES + BLOCK_K
    + REDUCTION = SCORES + THREADS

    - key = tid
    - while key < tile:
    -     shared[SCORES + key] = float32(0.0)
    -     key += THREADS
    + shared[SCORES + tid] = float32(0.0)

    - key = tid
    - while key < tile:
    + key = tid % BLOCK_K
    + if key < tile:
          k_row = KEYS + key * TILE_DIM

    - pair = cint(0)
    - while pair < width // 2:
    -     dim = 2 * pair
    -     x = shared[k_row + dim]
    -     y = shared[k_row + dim + 1]
    -     if slice_start + dim < rotary_dim:
    -         s, c = fast_sincos(position * shared[inv_freq_slice + pair])
    -         x, y = rotate(x, y, c, s)
    -     score += shared[EXTRA + slice_start + dim] * x + shared[EXTRA + slice_start + dim + 1] * y
    -     pair += 1
    + first = 4 * (tid // BLOCK_K)
    + while first < width // 2:
    +     for i in range(4):
    +         pair = first + i
    +         dim = 2 * pair
    +         x = shared[k_row + dim]
    +         y = shared[k_row + dim + 1]
    +         if slice_start + dim < rotary_dim:
    +             s, c = fast_sincos(position * shared[inv_freq_slice + pair])
    +             x, y = rotate(x, y, c, s)
    +         score += shared[EXTRA + slice_start + dim] * x + shared[EXTRA + slice_start + dim + 1] * y
    +     first += 4 * (THREADS // BLOCK_K)

    - shared[SCORES + key] += score
    - key += THREADS
    + shared[SCORES + tid] += score

    - shared[SCORES + key] *= softmax_scale
    + score = float32(0.0)
    + part = key
    + while part < THREADS:
    +     score += shared[SCORES + part]
    +     part += BLOCK_K
    + shared[SCORES + key] = score * softmax_scale
      key += THREADS

    - require_log_problem(problem, "rope", multiple=2)
    + require_log_problem(problem, "rope", multiple=8)

    - scores=BLOCK_K, reduction=32, keys=BLOCK_K * TILE_DIM, query=problem.hdim, inv_freq=problem.rotary_dim // 2
    + scores=THREADS, reduction=32, keys=BLOCK_K * TILE_DIM, query=problem.hdim, inv_freq=problem.rotary_dim // 2
    """,
)

ablate(
    "rope_v6b",
    "rope_v6b_padded",
    title="V6 without bank conflicts",
    change="a tile's rows lie 260 floats apart: the same 128-bit loads, free of bank conflicts",
    diff="""
    - EXTRA = KEYS + BLOCK_K * TILE_DIM
    + ROW = TILE_DIM + 4
    + EXTRA = KEYS + BLOCK_K * ROW

    - shared[KEYS + key * TILE_DIM + dim] = k_head[(tile_start + key) * hdim + slice_start + dim]
    + shared[KEYS + key * ROW + dim] = k_head[(tile_start + key) * hdim + slice_start + dim]

    - k_row = KEYS + key * TILE_DIM
    + k_row = KEYS + key * ROW

    - scores=BLOCK_K, reduction=32, keys=BLOCK_K * TILE_DIM, query=problem.hdim, inv_freq=problem.rotary_dim // 2
    + scores=BLOCK_K, reduction=32, keys=BLOCK_K * ROW, query=problem.hdim, inv_freq=problem.rotary_dim // 2
    """,
)

ablate(
    "rope_v7",
    "rope_v7_global_query",
    title="V7 with its query in global memory",
    change="writes its rotated query to global memory, as the separate path does, and reads it from there",
    diff="""
    - from ...device import cint, ld4, online_attention, rows_of_query
    + from ...device import advance, cint, ld4, online_attention, rows_of_query

    - def attention(q, k, v, out, seq_q, seq_k, hdim, rotary_dim, softmax_scale):
    + def attention(q, k, v, q_rotated, out, seq_q, seq_k, hdim, rotary_dim, softmax_scale):

    - q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    + head = cint(cuda.blockIdx.y)
    + q_row = advance(q, (head * seq_q + query) * hdim)
    + rotated_row = advance(q_rotated, (head * seq_q + query) * hdim)
    + out_row = advance(out, (head * seq_q + query) * hdim)
    + k_head, v_head = advance(k, head * seq_k * hdim), advance(v, head * seq_k * hdim)

    - inv_freq = EXTRA + hdim
    + inv_freq = EXTRA

    - rotate_query(shared, EXTRA, q_row, query, shared, inv_freq, rotary_dim)
    + rotate_query(rotated_row, 0, q_row, query, shared, inv_freq, rotary_dim)

    - shared[EXTRA + dim] = q_row[dim]
    + rotated_row[dim] = q_row[dim]

    - def score(shared, k_row, key, hdim):
    + def score(query, k_row, key, hdim):

    - a = ld4(shared, EXTRA + dim)
    + a = ld4(query, dim)

    - attend_to_keys(shared, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)
    + attend_to_keys(rotated_row, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)

    - layout = online_layout(query=problem.hdim, inv_freq=problem.rotary_dim // 2)
    + layout = online_layout(inv_freq=problem.rotary_dim // 2)

    - attend = block_per_query(attention, problem, "q k_rotated v out", layout, problem.rotary_dim)
    + attend = block_per_query(attention, problem, "q k_rotated v q_rotated out", layout, problem.rotary_dim)

    - buffers={"k_rotated": Buffer(problem.kv_shape), **padded_tables(problem)},
    + buffers={"q_rotated": Buffer(problem.q_shape), "k_rotated": Buffer(problem.kv_shape), **padded_tables(problem)},
    """,
)
