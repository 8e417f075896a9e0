"""Asynchronous copies with double buffering, in slices of dims: two buffers fit.

Change from attention_async_double_buffer: a buffer holds one slice of a tile, either 32 dims of its keys or 256 dims of
8 of its values. The next slice is copied while the block computes on one. The scores of a tile accumulate slice by
slice in registers; then come the slices of its values. So the two buffers take 20 KB at every head dim, and only the
query row in shared memory still grows with it. As before, some floats are copied twice and the reductions do not share
their result.

Source: Final Summary, "cp.async + Double Buffering", which says that it cannot fit.
"""

from numba import cuda, float32

from ...constants import BLOCK_K, THREADS, require
from ...device import NEGATIVE_INFINITY, advance, cint, dot4, rows_of_query, softmax_tile_unshared, store_output
from ...device.asm import cp_async4, cp_async_commit, cp_async_wait_all
from ...version import SYNC, Hazard, Plan, Problem, SharedLayout, register
from ..attention.async_double_buffer import BUFFERS, OUTPUTS, PADDING, copy_query, wrong_output
from ..plan import UNSHARED_DEFECT, block_per_query, log_plan, require_log_problem

KEY_DIMS = 32  # of a slice of K, which has all keys of a tile
VALUE_DIMS = THREADS  # dims and keys of a slice of V
VALUE_KEYS = 8
KEY_STRIDE = KEY_DIMS + PADDING
VALUE_STRIDE = VALUE_DIMS + PADDING
SLICE = max(BLOCK_K * KEY_STRIDE, VALUE_KEYS * VALUE_STRIDE)  # floats of a buffer


@cuda.jit(device=True)
def begin_copy(shared, at, source, rows, width, hdim, stride):
    """Start to copy `width` dims of some rows of `source` to shared rows of `stride` floats, from `at` on."""
    i = cint(cuda.threadIdx.x)
    while i < rows * width:
        row = i // width
        dim = i % width
        if dim % 4 == 0:
            cp_async4(shared, at + row * stride + dim, source, row * hdim + dim)
        else:
            shared[at + row * stride + dim] = source[row * hdim + dim]
        i += THREADS
    cp_async_commit()


@cuda.jit(device=True)
def begin_slice(shared, at, k_head, v_head, seq_k, hdim, tile_start, index):
    """Start to copy slice `index` of a tile: keys, then values, then the keys of the next tile if there is one."""
    tile = min(BLOCK_K, seq_k - tile_start)
    key_slices = (hdim + KEY_DIMS - 1) // KEY_DIMS
    panels = (hdim + VALUE_DIMS - 1) // VALUE_DIMS
    steps = (tile + VALUE_KEYS - 1) // VALUE_KEYS
    if index == key_slices + panels * steps:
        tile_start += BLOCK_K
        if tile_start >= seq_k:
            return
        tile = min(BLOCK_K, seq_k - tile_start)
        index = cint(0)
    if index < key_slices:
        dim = index * KEY_DIMS
        width = min(KEY_DIMS, hdim - dim)
        begin_copy(shared, at, advance(k_head, tile_start * hdim + dim), tile, width, hdim, cint(KEY_STRIDE))
    else:
        key = cint((index - key_slices) % steps * VALUE_KEYS)
        dim = cint((index - key_slices) // steps * VALUE_DIMS)
        rows = min(VALUE_KEYS, tile - key)
        width = min(VALUE_DIMS, hdim - dim)
        source = advance(v_head, (tile_start + key) * hdim + dim)
        begin_copy(shared, at, source, rows, width, hdim, cint(VALUE_STRIDE))


def attention(q, k, v, out, seq_q, seq_k, hdim, softmax_scale):
    shared = cuda.shared.array(0, float32, 16)
    at = hdim + PADDING
    other = at + SLICE
    scores = other + SLICE
    reduction = scores + BLOCK_K
    tid = cint(cuda.threadIdx.x)
    query = cint(cuda.blockIdx.x)
    q_row, out_row, k_head, v_head = rows_of_query(q, k, v, out, query, seq_q, seq_k, hdim)
    key_slices = cint((hdim + KEY_DIMS - 1) // KEY_DIMS)
    panels = cint((hdim + VALUE_DIMS - 1) // VALUE_DIMS)

    copy_query(shared, q_row, hdim)
    acc = cuda.local.array(OUTPUTS, float32)
    for r in range(OUTPUTS):
        acc[r] = float32(0.0)
    row_max = NEGATIVE_INFINITY
    row_sum = float32(0.0)
    begin_slice(shared, at, k_head, v_head, seq_k, hdim, cint(0), cint(0))
    tile_start = cint(0)
    while tile_start < seq_k:
        tile = min(BLOCK_K, seq_k - tile_start)
        steps = cint((tile + VALUE_KEYS - 1) // VALUE_KEYS)
        score = float32(0.0)
        index = cint(0)
        while index < key_slices:
            cp_async_wait_all()
            cuda.syncthreads()
            begin_slice(shared, other, k_head, v_head, seq_k, hdim, tile_start, cint(index + 1))
            if tid < tile:
                q_slice = index * KEY_DIMS
                k_row = at + tid * KEY_STRIDE
                width = min(KEY_DIMS, hdim - q_slice)
                score = dot4(score, shared, q_slice, shared, k_row, cint(0), width)
            at, other = other, at
            index += 1
        if tid < tile:
            shared[scores + tid] = score * softmax_scale
        cuda.syncthreads()
        row_max, correction, row_sum = softmax_tile_unshared(shared, scores, reduction, tile, row_max, row_sum)

        for r in range(OUTPUTS):
            acc[r] *= correction
        while index < key_slices + panels * steps:
            cp_async_wait_all()
            cuda.syncthreads()
            begin_slice(shared, other, k_head, v_head, seq_k, hdim, tile_start, cint(index + 1))
            panel = (index - key_slices) // steps
            first_key = (index - key_slices) % steps * VALUE_KEYS
            if panel * VALUE_DIMS + tid < hdim:
                total = float32(0.0)
                rows = min(VALUE_KEYS, tile - first_key)
                key = cint(0)
                while key < rows:
                    total += shared[scores + first_key + key] * shared[at + key * VALUE_STRIDE + tid]
                    key += 1
                for r in range(OUTPUTS):
                    if r == panel:
                        acc[r] += total
            at, other = other, at
            index += 1
        tile_start += BLOCK_K

    store_output(out_row, acc, hdim, row_sum)


@register(
    title="cp.async, double buffering, sliced",
    parent="attention_async_double_buffer",
    baseline="attention_baseline",
    source='Final Summary, "cp.async + Double Buffering"',
    change="buffers of 32 dims of 64 keys, or 256 dims of 8 values, in place of whole tiles",
    iterations=50,
    ablation=True,
    wrong_output=wrong_output,
)
def attention_async_sliced(problem: Problem) -> Plan:
    """Plan float32 attention without a mask, up to 4096 dims; wrong unless one warp holds all. Raises: Unsupported."""
    require_log_problem(problem, "attention")
    covered = OUTPUTS * THREADS
    template = "hdim is {needed}; a block's registers hold {allowed} dims of the output"
    require(problem.hdim <= covered, "hdim", problem.hdim, covered, template)
    layout = SharedLayout(query=problem.hdim + PADDING, slices=BUFFERS * SLICE, scores=BLOCK_K, reduction=32)
    wrong = problem.seq_k > 32 or problem.hdim > 32
    why = "three threads copy again, with plain stores, what the fourth's cp.async copies"
    return log_plan(
        problem,
        block_per_query(attention, problem, "q k v out", layout, max_threads=THREADS),
        SYNC,
        defect=UNSHARED_DEFECT if wrong else "",
        hazards=(Hazard("race", "attention", "slices", why),),
    )
