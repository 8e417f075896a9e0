"""Multi-query: K and V tiles in shared memory, shared by four queries; never launched, and wrong.

Change from attention_two_pass_float4: a block takes four queries and copies a tile of whole keys and values to shared
memory, which the queries use one after the other. The softmax of each tile is normalised within the tile, and later
tiles are added to the output without rescaling. So the result is right for a single tile only.

A tile holds 45,000 B / (8 B hdim) keys, between 4 and 32. Kernels were compiled only for 4, 8 and 16 keys, and a check
allowed 48,000 B. So up to 328 dims (17 keys or more) and at 512 dims (10 keys) there is no kernel, and from 2048 dims
on 4 keys are too large. It never ran at a head dim of the log.

Of the 9 barriers per query and tile three kinds are unnecessary: the one after the scores, the one after the product
with V, and the second one of each reduction.

Source: Final Summary, "Multi-Query with Shared Memory Caching". `attention_multi_query_227k` is the same kernel with
the shared memory that a block can opt in to, and any number of keys.
"""

from functools import partial

import numpy as np
from numba import cuda, float32

from ...checking.models import Array, scaled_scores, softmax
from ...constants import OPT_IN_SHARED_LIMIT, SHARED_LIMIT, THREADS, require
from ...device import advance, cint, divide_weights, dot4, exponentials
from ...device.reduce import NEGATIVE_INFINITY, block_max_unshared, block_sum_unshared, shared_by_thread_0
from ...version import SYNC, Plan, Problem, SharedLayout, register
from ..plan import REDUCTION_RACE, block_per_query, log_plan, require_log_problem

QUERIES = 4
LEAST_KEYS, MOST_KEYS = 4, 32
COMPILED_KEYS = (4, 8, 16)
TILE_BYTES = 45_000
CHECKED_BYTES = 48_000
OPT_IN_TILE_BYTES = OPT_IN_SHARED_LIMIT - SharedLayout(scores=QUERIES * MOST_KEYS, reduction=32).nbytes


def attention(q, k, v, out, seq_q, seq_k, hdim, block_k, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    values = block_k * hdim
    scores = 2 * values
    reduction = scores + QUERIES * block_k
    tid = cint(cuda.threadIdx.x)
    first_query = cint(cuda.blockIdx.x) * QUERIES
    head = cint(cuda.blockIdx.y)
    queries = min(QUERIES, seq_q - first_query)
    q_tile = advance(q, (head * seq_q + first_query) * hdim)
    out_tile = advance(out, (head * seq_q + first_query) * hdim)
    k_head = advance(k, head * seq_k * hdim)
    v_head = advance(v, head * seq_k * hdim)

    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(block_k, seq_k - tile_start)
        k_tile = advance(k_head, tile_start * hdim)
        v_tile = advance(v_head, tile_start * hdim)
        i = tid
        while i < tile * hdim:
            shared[i] = k_tile[i]
            shared[values + i] = v_tile[i]
            i += THREADS
        cuda.syncthreads()

        query = cint(0)
        while query < queries:
            q_row = advance(q_tile, query * hdim)
            out_row = advance(out_tile, query * hdim)
            row = scores + query * block_k
            row_max = NEGATIVE_INFINITY
            key = tid
            while key < tile:
                k_row = key * hdim
                score = dot4(float32(0.0), q_row, 0, shared, k_row, cint(0), hdim)
                score *= softmax_scale
                shared[row + key] = score
                row_max = max(row_max, score)
                key += THREADS
            cuda.syncthreads()
            row_max = shared_by_thread_0(block_max_unshared(row_max, shared, reduction), shared, reduction)
            row_sum = exponentials(shared, row, tile, row_max)
            row_sum = shared_by_thread_0(block_sum_unshared(row_sum, shared, reduction), shared, reduction)
            divide_weights(shared, row, tile, row_sum)
            cuda.syncthreads()

            dim = tid
            while dim < hdim:
                acc = float32(0.0)
                key = cint(0)
                while key < tile:
                    acc += shared[row + key] * shared[values + key * hdim + dim]
                    key += 1
                if tile_start == 0:
                    out_row[dim] = acc
                else:
                    out_row[dim] += acc
                dim += THREADS
            cuda.syncthreads()
            query += 1
        cuda.syncthreads()
        tile_start += block_k


def keys_that_fit(tile_bytes: int, problem: Problem) -> int:
    """Keys of a tile: 4 to 32, whose rows of K and V fit in `tile_bytes`."""
    return min(max(tile_bytes // (8 * problem.hdim), LEAST_KEYS), MOST_KEYS)


def tile_layout(block_k: int, problem: Problem) -> SharedLayout:
    tile = block_k * problem.hdim
    return SharedLayout(keys=tile, values=tile, scores=QUERIES * block_k, reduction=32)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array, tile_bytes: int = TILE_BYTES) -> Array:
    """In float64: the sum of the outputs of the tiles, each normalised on its own."""
    scores, tile = scaled_scores(problem, q, k), keys_that_fit(tile_bytes, problem)
    tiles = [slice(start, start + tile) for start in range(0, problem.seq_k, tile)]
    return np.sum([softmax(scores[..., keys]) @ v[..., keys, :] for keys in tiles], axis=0)


def plan_tiles(block_k: int, problem: Problem, limit: int = SHARED_LIMIT) -> Plan:
    layout = tile_layout(block_k, problem)
    wrong = problem.seq_k > block_k
    return log_plan(
        problem,
        block_per_query(attention, problem, "q k v out", layout, block_k, queries=QUERIES, limit=limit),
        SYNC,
        defect=f"the softmaxes of tiles of {block_k} keys are added up, each normalised by itself" if wrong else "",
        hazards=(REDUCTION_RACE,),
    )


@register(
    title="Multi-query",
    parent="attention_two_pass_float4",
    baseline="attention_baseline",
    source='Final Summary, "Multi-Query with Shared Memory Caching"',
    change="4 queries a block share K and V tiles in shared memory; each tile's softmax stands for itself",
    wrong_output=wrong_output,
)
def attention_multi_query(problem: Problem) -> Plan:
    """Plan float32 attention without a mask; wrong for more than one tile of keys. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    block_k = keys_that_fit(TILE_BYTES, problem)
    compiled = ", ".join(map(str, COMPILED_KEYS))
    template = f"hdim {problem.hdim} asks for tiles of {{needed}} keys; compiled are {{allowed}}"
    require(block_k in COMPILED_KEYS, "hdim", block_k, compiled, template)
    size = tile_layout(block_k, problem).nbytes
    template = f"hdim {problem.hdim} needs {{needed:,}} B of shared memory, this version's own limit is {{allowed:,}} B"
    require(size <= CHECKED_BYTES, "shared_memory", size, CHECKED_BYTES, template)
    return plan_tiles(block_k, problem)


@register(
    title="Multi-query, with 227 KB",
    parent="attention_multi_query",
    baseline="attention_baseline",
    source='Final Summary, "Multi-Query with Shared Memory Caching"; not in the log with this much memory',
    change="the shared memory that a block can ask for, instead of 48 KB, and any number of keys",
    wrong_output=partial(wrong_output, tile_bytes=OPT_IN_TILE_BYTES),
    variant_of="attention_multi_query",
)
def attention_multi_query_227k(problem: Problem) -> Plan:
    """Plan float32 attention without a mask; wrong for more than one tile of keys. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    beside_tiles = SharedLayout(scores=QUERIES * MOST_KEYS, reduction=32).nbytes
    block_k = keys_that_fit(OPT_IN_SHARED_LIMIT - beside_tiles, problem)
    return plan_tiles(block_k, problem, OPT_IN_SHARED_LIMIT)
