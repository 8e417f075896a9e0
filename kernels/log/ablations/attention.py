"""Attention versions with one thing changed."""

from .ablate import ablate

ablate(
    "attention_online_fixed",
    "attention_online_scalar",
    title="Online softmax with scalar loads",
    change="four scalar loads in place of each float4 load of Q and K",
    scalar_loads=True,
    diff="""
    - from ...device import cint, ld4, online_attention, rows_of_query
    + from ...device import cint, make_float4, online_attention, rows_of_query

    - a = ld4(q_row, dim)
    - b = ld4(k_row, dim)
    + a = make_float4(q_row[dim], q_row[dim + 1], q_row[dim + 2], q_row[dim + 3])
    + b = make_float4(k_row[dim], k_row[dim + 1], k_row[dim + 2], k_row[dim + 3])
    """,
)

ablate(
    "attention_online_fixed",
    "attention_online_shared_query",
    title="Online softmax with the query row in shared memory",
    change="the query row is copied to shared memory once a block and read from there",
    diff="""
    - from ...device import cint, ld4, online_attention, rows_of_query
    + from ...constants import EXTRA, THREADS
    + from ...device import cint, ld4, online_attention, rows_of_query, st4

    - def score(q_row, k_row, key, hdim):
    + def score(shared, k_row, key, hdim):

    - a = ld4(q_row, dim)
    + a = ld4(shared, EXTRA + dim)

    - attend_to_keys(q_row, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)
    + dim = 4 * tid
    + while dim < hdim:
    +     st4(shared, EXTRA + dim, ld4(q_row, dim))
    +     dim += 4 * THREADS
    + cuda.syncthreads()
    + attend_to_keys(shared, k_head, v_head, out_row, shared, tid, seq_k, hdim, softmax_scale)

    - return block_per_query(attention, problem, f"{q} {k} v out", online_layout())
    + return block_per_query(attention, problem, f"{q} {k} v out", online_layout(query=problem.hdim))
    """,
)

ablate(
    "attention_two_pass_float4",
    "attention_two_pass_all_warps",
    title="Two passes, all warps at the scores",
    change="as many threads a key as the block has for its keys, in different warps, each for a part of the dims",
    diff="""
    + from dataclasses import replace
    +
      from numba import cuda, float32

    - from ...constants import THREADS
    - from ...device import advance, cint, divide_weights, dot4, exponentials, rows_of_block, weigh_values
    + from ...constants import FLOAT, FLOATS, THREADS
    + from ...device import CINT, advance, cint, divide_weights, dot4, exponentials, rows_of_block, weigh_values

    - from ...version import SYNC, Plan, Problem, SharedLayout, register
    + from ...version import SYNC, Kernel, Plan, Problem, SharedLayout, register

    - def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    + def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale, threads_per_key):

    + partial = reduction + 32
    + keys = THREADS // threads_per_key
    + part = tid // keys
    + part_dims = (hdim // 4 + threads_per_key - 1) // threads_per_key * 4
    + last_dim = min((part + 1) * part_dims, hdim)
      row_max = NEGATIVE_INFINITY
    - key = tid
    - while key < seq_k:
    + first_key = cint(0)
    + while first_key < seq_k:
    +     key = first_key + tid % keys
          k_row = advance(k_head, key * hdim)
    -     score = dot4(float32(0.0), q_row, 0, k_row, 0, cint(0), hdim)
    +     score = dot4(float32(0.0), q_row, 0, k_row, 0, part * part_dims if key < seq_k else last_dim, last_dim)

    - score *= softmax_scale
    - shared[key] = score
    - row_max = max(row_max, score)
    - key += THREADS
    + shared[partial + tid] = score
    + cuda.syncthreads()
    + if part == 0 and key < seq_k:
    +     other = tid + keys
    +     while other < THREADS:
    +         score += shared[partial + other]
    +         other += keys
    +     score *= softmax_scale
    +     shared[key] = score
    +     row_max = max(row_max, score)
    + first_key += keys

    - layout = SharedLayout(scores=problem.seq_k, reduction=32)
    + layout = SharedLayout(scores=problem.seq_k, reduction=32, partial=THREADS)
      launch = block_per_query(attention, problem, "q k v out", layout, flat=True)
    + threads_per_key = 1
    + while 2 * threads_per_key * problem.seq_k <= THREADS:
    +     threads_per_key *= 2
    + kernel = Kernel(attention, (FLOATS,) * 4 + (CINT,) * 3 + (FLOAT, CINT))
    + launch = replace(launch, kernel=kernel, args=(*launch.args, threads_per_key))
    """,
)

ablate(
    "attention_tensor_core_v2",
    "attention_tensor_core_v2_float_tiles",
    title="Tensor cores V2 with float32 tiles",
    change="tiles of Q and K in float32; nothing is converted",
    wrong_output=None,
    diff="""
    - from ...device import advance, block_max_unshared, block_sum_unshared, cint, shared_by_thread_0
    - from ...device.asm import load_half2, store_half
    + from ...device import advance, block_max_unshared, block_sum_unshared, cint, ld4, shared_by_thread_0

    - KEY_HALVES = QUERIES * SLICE  # offset of the key tile, in halves
    - SCORES = (KEY_HALVES + BLOCK_K * SLICE) // 2
    + KEYS = QUERIES * SLICE
    + SCORES = KEYS + BLOCK_K * SLICE

    - store_half(shared, row * SLICE + dim, q_tile[row * hdim + slice_start + dim])
    + shared[row * SLICE + dim] = q_tile[row * hdim + slice_start + dim]

    - place = KEY_HALVES + key * SLICE + dim
    - store_half(shared, place, k_tile[key * hdim + slice_start + dim])
    + place = KEYS + key * SLICE + dim
    + shared[place] = k_tile[key * hdim + slice_start + dim]

    - k_row = KEY_HALVES + tid * SLICE
    + k_row = KEYS + tid * SLICE

    - q0, q1 = load_half2(shared, q_row + dim)
    - q2, q3 = load_half2(shared, q_row + dim + 2)
    - k0, k1 = load_half2(shared, k_row + dim)
    - k2, k3 = load_half2(shared, k_row + dim + 2)
    - score += q0 * k0 + q1 * k1 + q2 * k2 + q3 * k3
    + a = ld4(shared, q_row + dim)
    + b = ld4(shared, k_row + dim)
    + score += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w

    - queries=QUERIES * SLICE // 2, keys=BLOCK_K * SLICE // 2, scores=QUERIES * problem.seq_k, reduction=32
    + queries=QUERIES * SLICE, keys=BLOCK_K * SLICE, scores=QUERIES * problem.seq_k, reduction=32

    - wrong = problem.seq_k > 1

    - defect="Q and K rounded to float16" if wrong else "",
    """,
)

ablate(
    "attention_tensor_core_v2",
    "attention_tensor_core_v2_one_query",
    title="Tensor cores V2 with one query a block",
    change="one query a block, so 16 times as many blocks, each with tiles of its own",
    diff="""
    - QUERIES = 16
    + QUERIES = 1
    """,
)
