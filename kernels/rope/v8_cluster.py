"""RoPE V8: head dim spread over a thread-block cluster; one launch, K rotated once a query tile, tensor cores.

Change from rope_v7: the blocks of a cluster share one query tile of one head and hold a slice of the head dim each.
A block copies its slice of Q and K to shared memory and rotates it there, multiplies the slices, and sends its part of
the scores to the block that owns the row; owners sum the parts, do the softmax and send the weights to all; each block
then multiplies them with its slice of V. Nothing is read twice by a cluster, nothing rotated twice, and no score or
rotated value goes through global memory. V and the next keys are copied asynchronously behind the arithmetic.

Both products run on the tensor cores in three TF32 products: each float is split into a TF32 and the rest, and only
rest times rest is left out. The sums of the large products are taken from the tensor cores every 16 terms, which
truncate where they add, and added in float32.

Slices are interleaved: rank r takes dims 32 (r + cluster i) .. + 31 for all i, so that a partial rotation is work for
as many blocks as possible.

Source: beyond the documents.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from numba import cuda, float32, int32, types, uint32

from ..device.angle import sincos
from ..device.asm import cp_async_commit, mma_m16n8k8_tf32
from ..device.cluster import cluster_arrive, cluster_rank, cluster_store, cluster_store2, cluster_wait
from ..device.reduce import NEGATIVE_INFINITY, warp_max, warp_sum
from ..device.tensor import cp_async4_or_zero, cp_async_wait_but_one, ld2, split
from ..device.trig import powf, rotate
from ..device.vector import advance, ld4, make_float4, st4
from ..log import (
    FLOAT,
    FLOATS,
    FREQUENCY_BASE,
    OPT_IN_SHARED_LIMIT,
    UINT,
    attention_buffers,
    require_shared,
)
from ..version import Kernel, Launch, Plan, Problem, SharedLayout, register
from . import v8_one_block
from .v8_one_block import require_fused

GROUP = 32  # dims that stay together: a line of 128 bytes
STEP = 16  # dims or keys that two mma take
COPIERS = GROUP // 4  # threads that copy one row of a group
MAX_CLUSTER = 16
INT = types.int32
SM_SHARED, RESERVED = 233_472, 1_024  # bytes of shared memory an SM has, and keeps a block


def layout_of(cluster: int, queries: int, keys: int, width: int, threads: int) -> SharedLayout:
    """Shared memory of a block; rows are padded so that the lanes of a fragment hit different banks."""
    _, _, depth = warps_of(queries, keys, threads)
    return SharedLayout(
        query=queries * (width + 16),
        keys=keys * (width + 16),
        values=keys * (width + 4),
        parts=depth * queries * keys,
        weights=queries * (keys + 8),
        rescale=2 * queries,
        running=2 * queries // cluster,
        inv_freq=width // 2,
    )


def warps_of(queries: int, keys: int, threads: int) -> tuple[int, int, int]:
    """Warps along the queries, the keys and the dims that the score tile is divided among."""
    down = queries // 16
    rest = threads // 32 // down
    tiles = keys // 8
    across = rest if tiles >= 2 * rest else max(tiles // 2, 1)
    return down, across, rest // across


def make_kernel(cluster: int, queries: int, keys: int, width: int, threads: int) -> Any:
    """The kernel for clusters of that size, tiles of `queries` and `keys`, and slices `width` dims wide."""
    layout = layout_of(cluster, queries, keys, width, threads)
    query_at, keys_at, values_at = (uint32(layout[name]) for name in ("query", "keys", "values"))
    parts_at, weights_at, rescale_at = (uint32(layout[name]) for name in ("parts", "weights", "rescale"))
    running_at, freq_at = uint32(layout["running"]), uint32(layout["inv_freq"])
    stride, v_stride, w_stride = uint32(width + 16), uint32(width + 4), uint32(keys + 8)
    down, across, depth = warps_of(queries, keys, threads)
    columns = keys // 8 // across  # mma tiles of a warp along the keys
    rows = queries // cluster  # that a block owns
    warps = threads // 32
    per_lane = max(keys // 32, 1)
    groups = width // GROUP
    passes = threads // COPIERS  # rows that one pass copies
    abreast = warps // down  # warps along the dims of the output
    panels = -(-groups // abreast)  # groups of dims that a warp multiplies
    parts = cluster * depth
    span = GROUP * cluster  # from one group of a slice to the next
    unroll = 2 if width >= 2 * STEP * depth else 1
    outputs, sums = 16 * panels, 4 * columns  # floats of a thread

    def copier(place, row_stride, tile):
        """A function that begins to copy a slice of a tile's rows to `place`."""
        turns = -(-tile // passes)

        @cuda.jit(device=True)
        def copy(shared, source, count, first_dim, hdim):
            """Of the rows, `count` exist; the rest, and dims behind hdim, become 0."""
            lane = uint32(uint32(cuda.threadIdx.x) % uint32(COPIERS) * uint32(4))
            first_row = uint32(cuda.threadIdx.x) // uint32(COPIERS)
            for i in range(turns):
                row = uint32(first_row + uint32(i * passes))
                if tile % passes == 0 or row < uint32(tile):
                    to = uint32(place + row * row_stride + lane)
                    row_start = advance(source, uint32(row * hdim + first_dim + lane))
                    for group in range(groups):
                        there = row < count and uint32(first_dim + lane + uint32(group * span)) < hdim
                        cp_async4_or_zero(shared, to + uint32(group * GROUP), row_start, uint32(group * span), there)

        return copy

    def turner(place, tile):
        """A function that rotates what the thread itself copied of a slice of a tile's rows."""
        turns = -(-tile // passes)

        @cuda.jit(device=True)
        def turn(shared, first_position, first_dim, rotary_dim):
            lane = uint32(uint32(cuda.threadIdx.x) % uint32(COPIERS) * uint32(4))
            first_row = uint32(cuda.threadIdx.x) // uint32(COPIERS)
            column = lane
            dim = uint32(first_dim + lane)
            while column < uint32(width) and dim < rotary_dim:
                freq0, freq1 = ld2(shared, freq_at + column // uint32(2))
                for i in range(turns):
                    row = uint32(first_row + uint32(i * passes))
                    if tile % passes == 0 or row < uint32(tile):
                        at = uint32(place + row * stride + column)
                        position = float32(int32(first_position + int32(row)))
                        x = ld4(shared, at)
                        sin0, cos0 = sincos(position * freq0)
                        sin1, cos1 = sincos(position * freq1)
                        x0, x1 = rotate(x.x, x.y, cos0, sin0)
                        x2, x3 = rotate(x.z, x.w, cos1, sin1)
                        st4(shared, at, make_float4(x0, x1, x2, x3))
                column = uint32(column + uint32(GROUP))
                dim = uint32(dim + uint32(span))

        return turn

    copy_query, copy_keys = copier(query_at, stride, queries), copier(keys_at, stride, keys)
    copy_values = copier(values_at, v_stride, keys)
    turn_query, turn_keys = turner(query_at, queries), turner(keys_at, keys)

    @cuda.jit(device=True)
    def multiply(shared, low, high, top, left, dim, lane_row, member):
        """Add the products of 16 dims to a warp's scores: the large ones to `high`, the others to `low`."""
        at = uint32(query_at + (top + lane_row) * stride + dim + uint32(4) * member)
        upper = ld4(shared, at)
        lower = ld4(shared, at + uint32(8) * stride)
        ux, uxl = split(upper.x)
        uy, uyl = split(upper.y)
        uz, uzl = split(upper.z)
        uw, uwl = split(upper.w)
        lx, lxl = split(lower.x)
        ly, lyl = split(lower.y)
        lz, lzl = split(lower.z)
        lw, lwl = split(lower.w)
        for j in range(columns):
            at = uint32(keys_at + (left + uint32(8 * j) + lane_row) * stride + dim + uint32(4) * member)
            values = ld4(shared, at)
            bx, bxl = split(values.x)
            by, byl = split(values.y)
            bz, bzl = split(values.z)
            bw, bwl = split(values.w)
            c = (low[4 * j], low[4 * j + 1], low[4 * j + 2], low[4 * j + 3])
            zero = (float32(0.0), float32(0.0), float32(0.0), float32(0.0))
            s = mma_m16n8k8_tf32((ux, lx, uy, ly), (bx, by), zero)
            c = mma_m16n8k8_tf32((uxl, lxl, uyl, lyl), (bx, by), c)
            s = mma_m16n8k8_tf32((uz, lz, uw, lw), (bz, bw), s)
            c = mma_m16n8k8_tf32((uzl, lzl, uwl, lwl), (bz, bw), c)
            c = mma_m16n8k8_tf32((ux, lx, uy, ly), (bxl, byl), c)
            c = mma_m16n8k8_tf32((uz, lz, uw, lw), (bzl, bwl), c)
            for i in range(4):
                low[4 * j + i] = c[i]
                high[4 * j + i] += s[i]

    @cuda.jit(device=True)
    def weigh(shared, acc, p, panel, top, lane_row, member):
        """Add weights times values to the `p`-th panel of this warp's output, rescaled first."""
        group = uint32(panel + uint32(p * abreast))
        if group < uint32(groups):
            correction0 = shared[rescale_at + uint32(2) * (top + lane_row)]
            correction1 = shared[rescale_at + uint32(2) * (top + lane_row + uint32(8))]
            b = cuda.local.array(16, float32)
            for j in range(4):
                acc[16 * p + 4 * j] *= correction0
                acc[16 * p + 4 * j + 1] *= correction0
                acc[16 * p + 4 * j + 2] *= correction1
                acc[16 * p + 4 * j + 3] *= correction1
            key = uint32(0)
            while key < uint32(keys):
                at = uint32(weights_at + (top + lane_row) * w_stride + key + uint32(2) * member)
                ux, uy = ld2(shared, at)
                lx, ly = ld2(shared, at + uint32(8) * w_stride)
                uz, uw = ld2(shared, at + uint32(8))
                lz, lw = ld2(shared, at + uint32(8) * w_stride + uint32(8))
                ux, uxl = split(ux)
                uy, uyl = split(uy)
                uz, uzl = split(uz)
                uw, uwl = split(uw)
                lx, lxl = split(lx)
                ly, lyl = split(ly)
                lz, lzl = split(lz)
                lw, lwl = split(lw)
                at = uint32(values_at + (key + uint32(2) * member) * v_stride)
                at = uint32(at + group * uint32(GROUP) + uint32(4) * lane_row)
                v0 = ld4(shared, at)
                v1 = ld4(shared, at + v_stride)
                v2 = ld4(shared, at + uint32(8) * v_stride)
                v3 = ld4(shared, at + uint32(9) * v_stride)
                b[0], b[4], b[8], b[12] = v0.x, v0.y, v0.z, v0.w
                b[1], b[5], b[9], b[13] = v1.x, v1.y, v1.z, v1.w
                b[2], b[6], b[10], b[14] = v2.x, v2.y, v2.z, v2.w
                b[3], b[7], b[11], b[15] = v3.x, v3.y, v3.z, v3.w
                for j in range(4):
                    bx, bxl = split(b[4 * j])
                    by, byl = split(b[4 * j + 1])
                    bz, bzl = split(b[4 * j + 2])
                    bw, bwl = split(b[4 * j + 3])
                    c = (float32(0.0), float32(0.0), float32(0.0), float32(0.0))
                    c = mma_m16n8k8_tf32((uxl, lxl, uyl, lyl), (bx, by), c)
                    c = mma_m16n8k8_tf32((uzl, lzl, uwl, lwl), (bz, bw), c)
                    c = mma_m16n8k8_tf32((ux, lx, uy, ly), (bxl, byl), c)
                    c = mma_m16n8k8_tf32((uz, lz, uw, lw), (bzl, bwl), c)
                    c = mma_m16n8k8_tf32((ux, lx, uy, ly), (bx, by), c)
                    c = mma_m16n8k8_tf32((uz, lz, uw, lw), (bz, bw), c)
                    for i in range(4):
                        acc[16 * p + 4 * j + i] += c[i]
                key = uint32(key + uint32(STEP))

    def attention(q, k, v, out, seq_q, seq_k, hdim, rotary_dim, q_offset, causal, softmax_scale):
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        warp_id = tid // uint32(32)
        lane_id = tid % uint32(32)
        lane_row = lane_id // uint32(4)
        member = lane_id % uint32(4)
        rank = uint32(0)
        if cluster > 1:
            rank = cluster_rank()
            cluster_arrive()
        kv_head = uint32(cuda.blockIdx.z)
        head = uint32(kv_head * uint32(cuda.gridDim.y) + uint32(cuda.blockIdx.y))
        first_query = uint32(uint32(cuda.blockIdx.x) // uint32(cluster) * uint32(queries))
        first_dim = uint32(rank * uint32(GROUP))
        query_count = uint32(min(uint32(queries), uint32(seq_q - first_query)))
        q_tile = advance(q, (head * seq_q + first_query) * hdim)
        out_tile = advance(out, (head * seq_q + first_query) * hdim)
        k_head = advance(k, kv_head * seq_k * hdim)
        v_head = advance(v, kv_head * seq_k * hdim)
        last_key = seq_k
        if causal:
            last_key = uint32(min(seq_k, uint32(q_offset + int32(first_query + query_count))))

        copy_query(shared, q_tile, query_count, first_dim, hdim)
        copy_keys(shared, k_head, last_key, first_dim, hdim)
        cp_async_commit()
        copy_values(shared, v_head, last_key, first_dim, hdim)
        cp_async_commit()

        for i in range(-(-width // (2 * threads))):
            column = uint32(uint32(2) * tid + uint32(2 * threads * i))
            dim = uint32(column // uint32(GROUP) * uint32(span) + first_dim + column % uint32(GROUP))
            if column < uint32(width) and dim < rotary_dim:
                exponent = float32(dim) / float32(rotary_dim)
                shared[freq_at + column // uint32(2)] = powf(float32(FREQUENCY_BASE), -exponent)
        if tid < uint32(rows):
            shared[running_at + uint32(2) * tid] = NEGATIVE_INFINITY
            shared[running_at + uint32(2) * tid + uint32(1)] = float32(0.0)
        cuda.syncthreads()

        # This warp's part of the scores, and of the output.
        top = uint32(warp_id % uint32(down) * uint32(16))
        left = uint32(warp_id // uint32(down) % uint32(across) * uint32(8 * columns))
        slot = uint32(rank * uint32(depth) + warp_id // uint32(down * across))
        first_step = uint32(warp_id // uint32(down * across) * uint32(STEP))
        panel = warp_id // uint32(down)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)
        low = cuda.local.array(sums, float32)
        high = cuda.local.array(sums, float32)

        tile_start = uint32(0)
        while tile_start < last_key:
            cp_async_wait_but_one()
            if tile_start == 0:
                turn_query(shared, int32(q_offset + int32(first_query)), first_dim, rotary_dim)
            turn_keys(shared, int32(tile_start), first_dim, rotary_dim)
            cuda.syncthreads()

            for i in range(sums):
                low[i] = float32(0.0)
                high[i] = float32(0.0)
            dim = first_step
            while dim + uint32(STEP * depth * (unroll - 1)) < uint32(width):
                for u in range(unroll):
                    multiply(shared, low, high, top, left, uint32(dim + uint32(u * STEP * depth)), lane_row, member)
                dim = uint32(dim + uint32(STEP * depth * unroll))
            while dim < uint32(width):
                multiply(shared, low, high, top, left, dim, lane_row, member)
                dim = uint32(dim + uint32(STEP * depth))

            if cluster > 1 and tile_start == 0:
                cluster_wait()
            for j in range(columns):
                for half in range(2):
                    row = uint32(top + uint32(8 * half) + lane_row)
                    owner = row // uint32(rows)
                    at = uint32((slot * uint32(rows) + row % uint32(rows)) * uint32(keys))
                    at = uint32(parts_at + at + left + uint32(8 * j) + uint32(2) * member)
                    x = high[4 * j + 2 * half] + low[4 * j + 2 * half]
                    y = high[4 * j + 2 * half + 1] + low[4 * j + 2 * half + 1]
                    if cluster > 1:
                        cluster_store2(shared, at, owner, x, y)
                    else:
                        shared[at] = x
                        shared[at + uint32(1)] = y
            if cluster > 1:
                cluster_arrive()
                cluster_wait()
            else:
                cuda.syncthreads()

            next_start = uint32(tile_start + uint32(keys))
            if next_start < last_key:
                next_tile = advance(k_head, next_start * hdim)
                copy_keys(shared, next_tile, uint32(last_key - next_start), first_dim, hdim)
            cp_async_commit()

            s = cuda.local.array(per_lane, float32)
            own = warp_id
            while own < uint32(rows):
                row = uint32(rank * uint32(rows) + own)
                visible = last_key
                if causal:
                    visible = uint32(min(last_key, uint32(q_offset + int32(first_query + row) + int32(1))))
                at = uint32(parts_at + own * uint32(keys) + lane_id * uint32(per_lane))
                for i in range(per_lane):
                    s[i] = float32(0.0)
                if lane_id * uint32(per_lane) < uint32(keys):
                    for part in range(parts):
                        if per_lane == 1:
                            s[0] += shared[at + uint32(part * rows * keys)]
                        else:
                            x, y = ld2(shared, at + uint32(part * rows * keys))
                            s[0] += x
                            s[per_lane - 1] += y
                tile_max = NEGATIVE_INFINITY
                for i in range(per_lane):
                    key = uint32(lane_id * uint32(per_lane) + uint32(i))
                    s[i] *= softmax_scale
                    if key >= uint32(keys) or tile_start + key >= visible:
                        s[i] = NEGATIVE_INFINITY
                    tile_max = max(tile_max, s[i])
                row_max, row_sum = ld2(shared, running_at + uint32(2) * own)
                new_max = max(row_max, warp_max(tile_max))
                tile_sum = float32(0.0)
                for i in range(per_lane):
                    s[i] = math.exp(s[i] - new_max)
                    tile_sum += s[i]
                correction = math.exp(row_max - new_max)
                row_sum = correction * row_sum + warp_sum(tile_sum)
                cuda.syncwarp()
                if lane_id == 0:
                    shared[running_at + uint32(2) * own] = new_max
                    shared[running_at + uint32(2) * own + uint32(1)] = row_sum
                at = uint32(weights_at + row * w_stride + lane_id * uint32(per_lane))
                if cluster > 1:
                    if lane_id * uint32(per_lane) < uint32(keys):
                        for other in range(cluster):
                            if per_lane == 1:
                                cluster_store(shared, at, uint32(other), s[0])
                            else:
                                cluster_store2(shared, at, uint32(other), s[0], s[per_lane - 1])
                    if lane_id < uint32(cluster):
                        at = uint32(rescale_at + uint32(2) * row)
                        cluster_store2(shared, at, lane_id, correction, float32(1.0) / row_sum)
                else:
                    if lane_id * uint32(per_lane) < uint32(keys):
                        for i in range(per_lane):
                            shared[at + uint32(i)] = s[i]
                    if lane_id == 0:
                        shared[rescale_at + uint32(2) * row] = correction
                        shared[rescale_at + uint32(2) * row + uint32(1)] = float32(1.0) / row_sum
                own += uint32(warps)
            cp_async_wait_but_one()
            if cluster > 1:
                cluster_arrive()
                cluster_wait()
            else:
                cuda.syncthreads()

            weigh(shared, acc, 0, panel, top, lane_row, member)
            if panels > 1:
                weigh(shared, acc, 1, panel, top, lane_row, member)
            if panels > 2:
                weigh(shared, acc, 2, panel, top, lane_row, member)
            if panels > 3:
                weigh(shared, acc, 3, panel, top, lane_row, member)

            if next_start < last_key:
                cuda.syncthreads()
                next_tile = advance(v_head, next_start * hdim)
                copy_values(shared, next_tile, uint32(last_key - next_start), first_dim, hdim)
            cp_async_commit()
            tile_start = next_start

        for half in range(2):
            row = uint32(top + uint32(8 * half) + lane_row)
            if row < query_count:
                inverse = shared[rescale_at + uint32(2) * row + uint32(1)]
                out_row = advance(out_tile, row * hdim)
                for p in range(panels):
                    group = uint32(panel + uint32(p * abreast))
                    dim = uint32(group * uint32(span) + first_dim + uint32(8) * member)
                    for side in range(2):
                        if group < uint32(groups) and dim + uint32(4 * side) < hdim:
                            i = 16 * p + 2 * half + side
                            weighted = make_float4(
                                acc[i] * inverse, acc[i + 4] * inverse, acc[i + 8] * inverse, acc[i + 12] * inverse
                            )
                            st4(out_row, dim + uint32(4 * side), weighted)

    attention.__name__ = attention.__qualname__ = f"attention_c{cluster}_q{queries}_k{keys}_w{width}_t{threads}"
    return attention


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for."""

    cluster: int
    queries: int
    keys: int
    width: int
    threads: int = 256

    @property
    def layout(self) -> SharedLayout:
        return layout_of(self.cluster, self.queries, self.keys, self.width, self.threads)

    @property
    def shares_an_sm(self) -> bool:
        """Whether two blocks fit an SM, by their shared memory and by 128 registers a thread."""
        return self.threads <= 256 and 2 * (self.layout.nbytes + RESERVED) <= SM_SHARED


def width_of(hdim: int, cluster: int) -> int:
    """Dims of a slice: whole groups."""
    return -(-hdim // (cluster * GROUP)) * GROUP


def shape_of(problem: Problem, cluster: int, queries: int, keys: int, threads: int = 256) -> Shape:
    return Shape(cluster, queries, keys, width_of(problem.hdim, cluster), threads)


def choose(problem: Problem) -> Shape:
    """As many blocks as a slice of a group each allows; tiles no larger than the problem; what fits."""
    cluster = 1
    while cluster < MAX_CLUSTER and problem.hdim > cluster * GROUP:
        cluster *= 2
    keys = 16 if problem.seq_k <= 16 else 32 if problem.seq_k <= 32 else 64
    queries = 16 if problem.seq_q <= 16 else 32
    while keys > 16 and shape_of(problem, cluster, queries, keys).layout.nbytes > OPT_IN_SHARED_LIMIT:
        keys //= 2
    while queries > 16 and shape_of(problem, cluster, queries, keys).layout.nbytes > OPT_IN_SHARED_LIMIT:
        queries //= 2
    return shape_of(problem, cluster, queries, keys)


@functools.cache
def kernel_of(shape: Shape) -> Kernel:
    function = make_kernel(shape.cluster, shape.queries, shape.keys, shape.width, shape.threads)
    signature = (FLOATS,) * 4 + (UINT,) * 4 + (INT, UINT, FLOAT)
    return Kernel(function, signature, max_threads=shape.threads, min_blocks=1 + shape.shares_an_sm)


def plan_with(problem: Problem, shape: Shape) -> Plan:
    """Plan `problem` with a kernel of that shape. Raises: Unsupported."""
    require_fused(problem)
    require_shared(shape.layout, problem, OPT_IN_SHARED_LIMIT)
    tiles = -(-problem.seq_q // shape.queries)
    attend = Launch(
        kernel_of(shape),
        grid=(tiles * shape.cluster, problem.heads // problem.kv_heads, problem.batch * problem.kv_heads),
        block=(shape.threads,),
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
        shared=shape.layout,
        cluster=shape.cluster,
    )
    return Plan(problem, attention_buffers(problem), (attend,))


@register(
    family="rope",
    title="Cluster: slices of the head dim, scores summed in shared memory",
    parent="rope_v8_one_block",
    baseline="rope_separate",
    source="beyond the documents",
    change="one launch; a cluster's blocks share the head dim and sum the scores; TF32 tensor cores, three products",
)
def rope_v8(problem: Problem) -> Plan:
    """Plan float32 RoPE attention on compute capability 9.0 and up. Raises: Unsupported."""
    if problem.seq_k == 1:  # the output is the one value, exactly; a split one is off by its last bit
        return v8_one_block.plan_with(problem, 8)
    return plan_with(problem, choose(problem))
