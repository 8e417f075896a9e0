"""Asynchronous copies with double buffering: too large to launch.

Change from attention_online: shared memory holds the query row and two buffers, each for a key tile and a value tile,
in rows padded by 8 floats. cp.async first copies the query, with a wait and a barrier of its own. Then it fills one
buffer while the block computes on the other. Of four neighbouring threads the first copies all four floats
asynchronously, and the other three also copy their own float synchronously: both write the same values, and nothing
orders them. Output dims stay in registers. In 48 KB it fits up to 36 dims. The reductions still do not share their
result.

Source: Final Summary, "cp.async + Double Buffering". `attention_async_double_buffer_227k` is the same kernel with the
shared memory that a block can opt in to.
"""

from numba import cuda, float32

from ...checking.models import Array, online_unshared, scaled_scores
from ...constants import BLOCK_K, OPT_IN_SHARED_LIMIT, SHARED_LIMIT, THREADS
from ...device import NEGATIVE_INFINITY, advance, cint, dot4, rows_of_query, softmax_tile_unshared, store_output
from ...device.asm import cp_async4, cp_async_commit, cp_async_wait_all
from ...version import SYNC, Hazard, Plan, Problem, SharedLayout, register
from ..plan import UNSHARED_DEFECT, block_per_query, log_plan, require_log_problem

BUFFERS = 2
PADDING = 8
OUTPUTS = 16  # output dims that a thread can hold


@cuda.jit(device=True)
def begin_copy(shared, keys, values, k_tile, v_tile, size, hdim, stride):
    """Start to copy `size` floats of a key tile and of a value tile to the shared rows at `keys` and `values`."""
    i = cint(cuda.threadIdx.x)
    while i < size:
        dim = i % hdim
        place = i // hdim * stride + dim
        if dim % 4 == 0:
            cp_async4(shared, keys + place, k_tile, i)
            cp_async4(shared, values + place, v_tile, i)
        else:
            shared[keys + place] = k_tile[i]
            shared[values + place] = v_tile[i]
        i += THREADS
    cp_async_commit()


@cuda.jit(device=True, inline="always")
def copy_query(shared, q_row, hdim):
    """Copy the query row to the start of shared memory, and wait for it."""
    dim = 4 * cint(cuda.threadIdx.x)
    while dim < hdim:
        cp_async4(shared, dim, q_row, dim)
        dim += 4 * THREADS
    cp_async_commit()
    cp_async_wait_all()
    cuda.syncthreads()


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    stride = hdim + PADDING
    tile_floats = BLOCK_K * stride
    keys = stride
    values = keys + BUFFERS * tile_floats
    scores = values + BUFFERS * tile_floats
    reduction = scores + BLOCK_K
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)

    copy_query(shared, q_row, hdim)
    acc = cuda.local.array(OUTPUTS, float32)
    for r in range(OUTPUTS):
        acc[r] = float32(0.0)
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    buffer = cint(0)
    begin_copy(shared, keys, values, k_head, v_head, min(BLOCK_K, seq_k) * hdim, hdim, stride)
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        cp_async_wait_all()
        cuda.syncthreads()
        next_start = tile_start + BLOCK_K
        if next_start < seq_k:
            other = (1 - buffer) * tile_floats
            k_tile = advance(k_head, next_start * hdim)
            v_tile = advance(v_head, next_start * hdim)
            size = min(BLOCK_K, seq_k - next_start) * hdim
            begin_copy(shared, keys + other, values + other, k_tile, v_tile, size, hdim, stride)

        key = tid
        while key < tile:
            k_row = keys + buffer * tile_floats + key * stride
            score = dot4(float32(0.0), shared, 0, shared, k_row, cint(0), hdim)
            shared[scores + key] = score * softmax_scale
            key += THREADS
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile_unshared(shared, scores, reduction, tile, row_max, row_sum)

        for r in range(OUTPUTS):
            dim = tid + r * THREADS
            if dim < hdim:
                total = acc[r] * correction
                key = cint(0)
                while key < tile:
                    total += shared[scores + key] * shared[values + buffer * tile_floats + key * stride + dim]
                    key += 1
                acc[r] = total
        cuda.syncthreads()
        buffer = 1 - buffer
        tile_start += BLOCK_K

    store_output(out_row, acc, hdim, row_sum)


def wrong_output(problem: Problem, q: Array, k: Array, v: Array) -> Array:
    """In float64: the softmax of a tile with a maximum and a sum per warp."""
    return online_unshared(scaled_scores(problem, q, k), v)


def plan_within(limit: int, problem: Problem) -> Plan:
    require_log_problem(problem, "attention")
    stride = problem.hdim + PADDING
    tiles = BUFFERS * BLOCK_K * stride
    layout = SharedLayout(query=stride, keys=tiles, values=tiles, scores=BLOCK_K, reduction=32)
    wrong = problem.seq_k > 32 or problem.hdim > 32
    why = "three threads copy again, with plain stores, what the fourth's cp.async copies"
    return log_plan(
        problem,
        block_per_query(attention, problem, "q k v out", layout, max_threads=THREADS, limit=limit),
        SYNC,
        defect=UNSHARED_DEFECT if wrong else "",
        hazards=(Hazard("race", "attention", "keys", why), Hazard("race", "attention", "values", why)),
    )


@register(
    title="cp.async, double buffering",
    parent="attention_online",
    baseline="attention_baseline",
    source='Final Summary, "cp.async + Double Buffering"',
    change="query, key and value tiles in shared memory, copied asynchronously a tile ahead; output in registers",
    iterations=50,
    wrong_output=wrong_output,
)
def attention_async_double_buffer(problem: Problem) -> Plan:
    """Plan float32 attention without a mask, up to 36 dims; wrong unless one warp holds all. Raises: Unsupported."""
    return plan_within(SHARED_LIMIT, problem)


@register(
    title="cp.async, double buffering, with 227 KB",
    parent="attention_async_double_buffer",
    baseline="attention_baseline",
    source='Final Summary, "cp.async + Double Buffering"; not in the log with this much memory',
    change="the shared memory that a block can ask for, instead of 48 KB",
    iterations=50,
    wrong_output=wrong_output,
    variant_of="attention_async_double_buffer",
)
def attention_async_double_buffer_227k(problem: Problem) -> Plan:
    """Plan float32 attention without a mask, up to 216 dims; wrong unless one warp holds all. Raises: Unsupported."""
    return plan_within(OPT_IN_SHARED_LIMIT, problem)
