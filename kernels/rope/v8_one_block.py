"""RoPE V8 without clusters: a block takes 8 or 16 queries and walks the whole head dim; one launch.

Change from rope_v8: for compute capability below 9.0, where blocks cannot add up scores through shared memory. A block
stages 128 dims at a time of its queries and of 64 keys, rotated on the way, and keeps the scores in registers across
all of them: each of its 8 warps holds the whole score tile for 16 of the 128 dims, and the 8 tiles are added at the
end. K is rotated once a query tile, and read as often. No tensor cores and no asynchronous copies, which 7.5 lacks;
the next 128 dims are loaded to registers behind the arithmetic.

Source: beyond the documents.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import cuda, float32, int32, types, uint32

from ..device.angle import sincos
from ..device.reduce import NEGATIVE_INFINITY, warp_max, warp_sum
from ..device.tensor import ld2
from ..device.trig import powf, rotate
from ..device.vector import advance, ld4, make_float4, st4
from ..log import BLOCK_K, FLOAT, FLOATS, FREQUENCY_BASE, THREADS, UINT, attention_buffers, require, require_shared
from ..version import Kernel, Launch, Plan, Problem, SharedLayout, register

INT = types.int32
KEYS = int(BLOCK_K)
WARPS = int(THREADS) // 32
CHUNK = 128  # dims staged at a time
STRIDE = CHUNK + 4  # so that neighbouring rows start 4 banks apart
SHARE = CHUNK // WARPS  # dims of a warp
COLUMNS = CHUNK // 4  # threads that stage one row
ENOUGH = 256  # blocks from which on larger query tiles pay


def layout_of(queries: int) -> SharedLayout:
    return SharedLayout(
        query=queries * STRIDE,
        keys=KEYS * STRIDE,  # then the warps' score tiles
        weights=KEYS * queries,
        rescale=2 * queries,
        running=2 * queries,
        inv_freq=CHUNK // 2,
    )


@functools.cache
def make_kernel(queries: int) -> Any:
    layout = layout_of(queries)
    query_at, keys_at, weights_at = (uint32(layout[name]) for name in ("query", "keys", "weights"))
    rescale_at, running_at, freq_at = (uint32(layout[name]) for name in ("rescale", "running", "inv_freq"))
    rows = queries // 2  # of a thread's score tile; it has 4 keys
    held = (KEYS + queries) // WARPS  # float4 that a thread stages
    key_rows = KEYS // WARPS
    held_floats, sums = 4 * held, 4 * rows
    tile_floats = queries * KEYS
    own_rows = queries // WARPS

    @cuda.jit(device=True)
    def load(held_values, q_tile, k_tile, query_count, key_count, hdim, dim):
        """This thread's 4 dims of the rows warp, warp + 8, ... of the keys and then the queries; 0 where none is."""
        first_row = uint32(cuda.threadIdx.x) // uint32(COLUMNS)
        for i in range(held):
            x = make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))
            if dim < hdim:
                if i < key_rows:
                    row = uint32(first_row + uint32(i * WARPS))
                    if row < key_count:
                        x = ld4(k_tile, row * hdim + dim)
                else:
                    row = uint32(first_row + uint32((i - key_rows) * WARPS))
                    if row < query_count:
                        x = ld4(q_tile, row * hdim + dim)
            held_values[4 * i] = x.x
            held_values[4 * i + 1] = x.y
            held_values[4 * i + 2] = x.z
            held_values[4 * i + 3] = x.w

    def attention(q, k, v, out, seq_q, seq_k, hdim, rotary_dim, q_offset, causal, softmax_scale):
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        warp_id = tid // uint32(32)
        lane_id = tid % uint32(32)
        first_query = uint32(uint32(cuda.blockIdx.x) * uint32(queries))
        kv_head = uint32(cuda.blockIdx.z)
        head = uint32(kv_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        query_count = uint32(min(uint32(queries), uint32(seq_q - first_query)))
        q_tile = advance(q, (head * seq_q + first_query) * hdim)
        out_tile = advance(out, (head * seq_q + first_query) * hdim)
        k_head = advance(k, kv_head * seq_k * hdim)
        v_head = advance(v, kv_head * seq_k * hdim)
        last_key = seq_k
        if causal:
            last_key = uint32(min(seq_k, uint32(q_offset + int32(first_query + query_count))))
        column = uint32(tid % uint32(COLUMNS) * uint32(4))
        first_row = tid // uint32(COLUMNS)
        top = lane_id // uint32(16)
        left = lane_id % uint32(16)
        values = cuda.local.array(held_floats, float32)
        acc = cuda.local.array(sums, float32)
        if tid < uint32(queries):
            shared[running_at + uint32(2) * tid] = NEGATIVE_INFINITY
            shared[running_at + uint32(2) * tid + uint32(1)] = float32(0.0)

        tile_start = uint32(0)
        while tile_start < last_key:
            tile = uint32(min(BLOCK_K, uint32(last_key - tile_start)))
            k_tile = advance(k_head, tile_start * hdim)
            for i in range(sums):
                acc[i] = float32(0.0)
            load(values, q_tile, k_tile, query_count, tile, hdim, column)
            chunk = uint32(0)
            while chunk < hdim:
                pair_dim = uint32(chunk + uint32(2) * tid)
                if tid < uint32(CHUNK // 2) and pair_dim < rotary_dim:
                    shared[freq_at + tid] = powf(float32(FREQUENCY_BASE), -(float32(pair_dim) / float32(rotary_dim)))
                cuda.syncthreads()
                rotated = chunk + column < rotary_dim
                freq0, freq1 = float32(0.0), float32(0.0)
                if rotated:
                    freq0, freq1 = ld2(shared, freq_at + column // uint32(2))
                for i in range(held):
                    if i < key_rows:
                        row = uint32(first_row + uint32(i * WARPS))
                        position = float32(tile_start + row)
                        at = uint32(keys_at + row * uint32(STRIDE) + column)
                    else:
                        row = uint32(first_row + uint32((i - key_rows) * WARPS))
                        position = float32(int32(q_offset + int32(first_query + row)))
                        at = uint32(query_at + row * uint32(STRIDE) + column)
                    x0, x1, x2, x3 = values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]
                    if rotated:
                        sin0, cos0 = sincos(position * freq0)
                        sin1, cos1 = sincos(position * freq1)
                        x0, x1 = rotate(x0, x1, cos0, sin0)
                        x2, x3 = rotate(x2, x3, cos1, sin1)
                    st4(shared, at, make_float4(x0, x1, x2, x3))
                cuda.syncthreads()
                chunk = uint32(chunk + uint32(CHUNK))
                if chunk < hdim:
                    load(values, q_tile, k_tile, query_count, tile, hdim, uint32(chunk + column))

                for step in range(SHARE // 4):
                    dim = uint32(warp_id * uint32(SHARE) + uint32(4 * step))
                    b0 = ld4(shared, keys_at + left * uint32(STRIDE) + dim)
                    b1 = ld4(shared, keys_at + (left + uint32(16)) * uint32(STRIDE) + dim)
                    b2 = ld4(shared, keys_at + (left + uint32(32)) * uint32(STRIDE) + dim)
                    b3 = ld4(shared, keys_at + (left + uint32(48)) * uint32(STRIDE) + dim)
                    for i in range(rows):
                        a = ld4(shared, query_at + (top * uint32(rows) + uint32(i)) * uint32(STRIDE) + dim)
                        acc[4 * i] = a.w * b0.w + (a.z * b0.z + (a.y * b0.y + (a.x * b0.x + acc[4 * i])))
                        acc[4 * i + 1] = a.w * b1.w + (a.z * b1.z + (a.y * b1.y + (a.x * b1.x + acc[4 * i + 1])))
                        acc[4 * i + 2] = a.w * b2.w + (a.z * b2.z + (a.y * b2.y + (a.x * b2.x + acc[4 * i + 2])))
                        acc[4 * i + 3] = a.w * b3.w + (a.z * b3.z + (a.y * b3.y + (a.x * b3.x + acc[4 * i + 3])))
            cuda.syncthreads()

            for i in range(rows):
                at = uint32(keys_at + warp_id * uint32(tile_floats) + (top * uint32(rows) + uint32(i)) * BLOCK_K + left)
                for j in range(4):
                    shared[at + uint32(16 * j)] = acc[4 * i + j]
            cuda.syncthreads()

            for i in range(own_rows):
                row = uint32(warp_id + uint32(i * WARPS))
                visible = last_key
                if causal:
                    visible = uint32(min(last_key, uint32(q_offset + int32(first_query + row) + int32(1))))
                s0 = float32(0.0)
                s1 = float32(0.0)
                for other in range(WARPS):
                    at = uint32(keys_at + uint32(other * tile_floats) + row * BLOCK_K + lane_id)
                    s0 += shared[at]
                    s1 += shared[at + uint32(32)]
                s0 = s0 * softmax_scale if tile_start + lane_id < visible else NEGATIVE_INFINITY
                s1 = s1 * softmax_scale if tile_start + lane_id + uint32(32) < visible else NEGATIVE_INFINITY
                row_max, row_sum = ld2(shared, running_at + uint32(2) * row)
                new_max = max(row_max, warp_max(max(s0, s1)))
                s0 = math.exp(s0 - new_max)
                s1 = math.exp(s1 - new_max)
                correction = math.exp(row_max - new_max)
                row_sum = correction * row_sum + warp_sum(s0 + s1)
                shared[weights_at + lane_id * uint32(queries) + row] = s0
                shared[weights_at + (lane_id + uint32(32)) * uint32(queries) + row] = s1
                cuda.syncwarp()
                if lane_id == 0:
                    shared[running_at + uint32(2) * row] = new_max
                    shared[running_at + uint32(2) * row + uint32(1)] = row_sum
                    shared[rescale_at + row] = correction
                    shared[rescale_at + uint32(queries) + row] = float32(1.0) / row_sum
            cuda.syncthreads()

            last = tile_start + BLOCK_K >= last_key
            total = cuda.local.array(32, float32)
            quads = hdim // uint32(4)
            task = tid
            while task < quads * uint32(queries // 8):
                dim = uint32(task % quads * uint32(4))
                upper = uint32(task // quads * uint32(8))
                for i in range(8):
                    row = uint32(upper + uint32(i))
                    x = make_float4(float32(0.0), float32(0.0), float32(0.0), float32(0.0))
                    if tile_start > 0 and row < query_count:
                        x = ld4(out_tile, row * hdim + dim)
                    correction = shared[rescale_at + row]
                    total[4 * i] = x.x * correction
                    total[4 * i + 1] = x.y * correction
                    total[4 * i + 2] = x.z * correction
                    total[4 * i + 3] = x.w * correction
                v_tile = advance(v_head, tile_start * hdim + dim)
                key = uint32(0)
                while key < tile:
                    x = ld4(v_tile, key * hdim)
                    for half in range(2):
                        p = ld4(shared, weights_at + key * uint32(queries) + upper + uint32(4 * half))
                        i = 16 * half
                        total[i] = p.x * x.x + total[i]
                        total[i + 1] = p.x * x.y + total[i + 1]
                        total[i + 2] = p.x * x.z + total[i + 2]
                        total[i + 3] = p.x * x.w + total[i + 3]
                        total[i + 4] = p.y * x.x + total[i + 4]
                        total[i + 5] = p.y * x.y + total[i + 5]
                        total[i + 6] = p.y * x.z + total[i + 6]
                        total[i + 7] = p.y * x.w + total[i + 7]
                        total[i + 8] = p.z * x.x + total[i + 8]
                        total[i + 9] = p.z * x.y + total[i + 9]
                        total[i + 10] = p.z * x.z + total[i + 10]
                        total[i + 11] = p.z * x.w + total[i + 11]
                        total[i + 12] = p.w * x.x + total[i + 12]
                        total[i + 13] = p.w * x.y + total[i + 13]
                        total[i + 14] = p.w * x.z + total[i + 14]
                        total[i + 15] = p.w * x.w + total[i + 15]
                    key = uint32(key + uint32(1))
                for i in range(8):
                    row = uint32(upper + uint32(i))
                    if row < query_count:
                        inverse = float32(1.0)
                        if last:
                            inverse = shared[rescale_at + uint32(queries) + row]
                        x = make_float4(
                            total[4 * i] * inverse,
                            total[4 * i + 1] * inverse,
                            total[4 * i + 2] * inverse,
                            total[4 * i + 3] * inverse,
                        )
                        st4(out_tile, row * hdim + dim, x)
                task = uint32(task + THREADS)
            tile_start = uint32(tile_start + BLOCK_K)

    attention.__name__ = attention.__qualname__ = f"attention_q{queries}"
    return attention


def require_fused(problem: Problem) -> None:
    """Raises: Unsupported for what the fused kernels do not take."""
    require(problem.family == "rope", f"family is {problem.family}; this version takes rope")
    require(problem.dtype == "float32", f"dtype is {problem.dtype}; this version takes float32")
    for name in ("hdim", "rotary_dim"):
        require(
            getattr(problem, name) > 0 and getattr(problem, name) % 4 == 0,
            f"{name} is {getattr(problem, name)}; it must be a multiple of 4 above 0",
        )
    require(
        not problem.causal or problem.q_offset >= 0,
        f"q_offset is {problem.q_offset}; with a mask the first query sees no key below 0",
    )


def plan_with(problem: Problem, queries: int) -> Plan:
    """Plan `problem` with query tiles of that size, 8 or 16. Raises: Unsupported."""
    require_fused(problem)
    layout = layout_of(queries)
    require_shared(layout, problem)
    signature = (FLOATS,) * 4 + (UINT,) * 4 + (INT, UINT, FLOAT)
    attend = Launch(
        Kernel(make_kernel(queries), signature, max_threads=int(THREADS)),
        grid=(
            -(-problem.seq_q // queries),
            problem.heads // problem.kv_heads,
            problem.batch * problem.kv_heads,
        ),
        block=(THREADS,),
        args=(
            "q",
            "k",
            "v",
            "out",
            problem.seq_q,
            problem.seq_k,
            problem.hdim,
            problem.rotary_dim,
            problem.q_offset,
            int(problem.causal),
            problem.softmax_scale,
        ),
        shared=layout,
    )
    return Plan(problem, attention_buffers(problem), (attend,))


@register(
    family="rope",
    title="One block: the whole head dim",
    parent="rope_v7",
    baseline="rope_separate",
    source="beyond the documents",
    change="no clusters: a block walks the whole head dim and keeps the scores in registers; no tensor cores",
)
def rope_v8_one_block(problem: Problem) -> Plan:
    """Plan float32 RoPE attention for every compute capability. Raises: Unsupported."""
    blocks = -(-problem.seq_q // 16) * problem.batch * problem.heads
    return plan_with(problem, 16 if blocks >= ENOUGH else 8)
