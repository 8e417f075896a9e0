"""RoPE V8 for short keys: fragments straight from global memory to registers, scores summed in a cluster.

Change from rope_v8: a warp owns 16 dims a step of all keys and of the block's queries, so that no other warp of the
block needs them: K, Q and V go from global memory to the registers that the tensor cores read, and never through shared
memory. What is shared is the table of cosines and sines, computed while the loads are on their way, and the scores. The
warps' scores are summed in the block first, then in the cluster as before. All keys in one tile: no running statistics.

Source: beyond the documents.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from numba import cuda, float32, int32, types, uint32

from ..device.angle import sincos
from ..device.asm import mma_m16n8k8_tf32
from ..device.cluster import cluster_arrive, cluster_rank, cluster_store, cluster_store2, cluster_wait
from ..device.reduce import NEGATIVE_INFINITY, warp_max, warp_sum
from ..device.tensor import ld2, split
from ..device.trig import powf, rotate
from ..device.vector import advance, ld4, make_float4, st4
from ..log import FLOAT, FLOATS, FREQUENCY_BASE, OPT_IN_SHARED_LIMIT, UINT, attention_buffers, require, require_shared
from ..version import Kernel, Launch, Plan, Problem, SharedLayout
from .v8_one_block import require_fused

STEP = 16  # dims or keys that two mma take
PANEL = 32  # dims of the output that a warp multiplies at a time
ROWS = 16  # queries of an mma
INT = types.int32
SM_SHARED, RESERVED = 233_472, 1_024  # bytes of shared memory an SM has, and keeps a block


def layout_of(cluster: int, tiles: int, keys: int, warps: int, units: int) -> SharedLayout:
    """Shared memory of a block that rotates up to `units` steps."""
    queries = ROWS * tiles
    return SharedLayout(
        table=units * (queries + keys) * STEP,
        own=warps * queries * (keys + 8),
        parts=cluster * -(-queries // cluster) * keys,
        weights=queries * (keys + 8),
        inverse=queries,
    )


def make_kernel(cluster: int, tiles: int, keys: int, warps: int, steps: int, panels: int) -> Any:
    """The kernel for clusters of that size, `16 tiles` queries, and `steps` of 16 dims a warp."""
    queries, threads = ROWS * tiles, 32 * warps
    columns = keys // 8
    together = min(columns, 4)  # products interleaved, so that one need not wait for another
    stride = uint32(keys + 8)
    owned = -(-queries // cluster)
    per_lane = max(keys // 32, 1)
    spread = uint32(cluster * warps)  # units from one step of a warp to its next
    sums, k_floats, q_floats = 4 * columns * tiles, 4 * columns * steps, 8 * tiles * steps
    v_floats, outputs = keys, 16 * tiles  # of a panel
    key_steps = keys // STEP
    rows = queries + keys  # of the table

    @cuda.jit(device=True)
    def load(array, place, step, dim, hdim, lane_row, count):
        """Rows lane_row, lane_row + 8, ... of a tile, 4 dims each; rows beyond the last repeat it."""
        at = uint32(min(dim, uint32(hdim - uint32(4))))
        for j in range(columns):
            row = uint32(min(uint32(uint32(8 * j) + lane_row), uint32(count - uint32(1))))
            x = ld4(array, row * hdim + at)
            i = 4 * columns * step + 4 * j
            place[i], place[i + 1], place[i + 2], place[i + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def load_query(array, place, step, dim, hdim, lane_row, count):
        """As `load`; dims beyond hdim are 0."""
        at = uint32(min(dim, uint32(hdim - uint32(4))))
        for j in range(2 * tiles):
            row = uint32(min(uint32(uint32(8 * j) + lane_row), uint32(count - uint32(1))))
            x = ld4(array, row * hdim + at)
            there = dim < hdim
            i = 8 * tiles * step + 4 * j
            place[i] = x.x if there else float32(0.0)
            place[i + 1] = x.y if there else float32(0.0)
            place[i + 2] = x.z if there else float32(0.0)
            place[i + 3] = x.w if there else float32(0.0)

    @cuda.jit(device=True)
    def turn(shared, kf, qf, step, unit, lane_row, member):
        """Rotate a step's fragments with the table."""
        at = uint32(((unit * uint32(rows)) + lane_row) * uint32(STEP) + uint32(4) * member)
        for j in range(columns):
            t = ld4(shared, at + uint32((queries + 8 * j) * STEP))
            i = 4 * columns * step + 4 * j
            kf[i], kf[i + 1] = rotate(kf[i], kf[i + 1], t.x, t.y)
            kf[i + 2], kf[i + 3] = rotate(kf[i + 2], kf[i + 3], t.z, t.w)
        for j in range(2 * tiles):
            t = ld4(shared, at + uint32(8 * j * STEP))
            i = 8 * tiles * step + 4 * j
            qf[i], qf[i + 1] = rotate(qf[i], qf[i + 1], t.x, t.y)
            qf[i + 2], qf[i + 3] = rotate(qf[i + 2], qf[i + 3], t.z, t.w)

    @cuda.jit(device=True)
    def multiply(acc, qf, kf, step, first, tile):
        """Add a step's products to the scores of a query tile and `together` columns of keys."""
        bh = cuda.local.array(16, float32)
        bl = cuda.local.array(16, float32)
        c = cuda.local.array(16, float32)
        for i in range(4 * together):
            bh[i], bl[i] = split(kf[4 * columns * step + 4 * first + i])
        at = 8 * tiles * step + 8 * tile
        ux, uxl = split(qf[at])
        uy, uyl = split(qf[at + 1])
        uz, uzl = split(qf[at + 2])
        uw, uwl = split(qf[at + 3])
        lx, lxl = split(qf[at + 4])
        ly, lyl = split(qf[at + 5])
        lz, lzl = split(qf[at + 6])
        lw, lwl = split(qf[at + 7])
        for j in range(together):
            zero = (float32(0.0), float32(0.0), float32(0.0), float32(0.0))
            d = mma_m16n8k8_tf32((uxl, lxl, uyl, lyl), (bh[4 * j], bh[4 * j + 1]), zero)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(together):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((uzl, lzl, uwl, lwl), (bh[4 * j + 2], bh[4 * j + 3]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(together):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((ux, lx, uy, ly), (bl[4 * j], bl[4 * j + 1]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(together):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((uz, lz, uw, lw), (bl[4 * j + 2], bl[4 * j + 3]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(together):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((ux, lx, uy, ly), (bh[4 * j], bh[4 * j + 1]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(together):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((uz, lz, uw, lw), (bh[4 * j + 2], bh[4 * j + 3]), d)
            at = 4 * columns * tile + 4 * (first + j)
            for i in range(4):
                acc[at + i] = d[i] if step == 0 else acc[at + i] + d[i]

    @cuda.jit(device=True)
    def score(shared, acc, qf, kf, step, first_unit, rotary_dim, warp_id, lane_row, member):
        """A step's products, rotated first where it is."""
        if (first_unit + uint32(step) * spread) * uint32(STEP) < rotary_dim:
            turn(shared, kf, qf, step, uint32(warp_id + uint32(step * warps)), lane_row, member)
        multiply(acc, qf, kf, step, 0, 0)
        if tiles > 1:
            multiply(acc, qf, kf, step, 0, 1)
        if columns > 4:
            multiply(acc, qf, kf, step, 4, 0)
            if tiles > 1:
                multiply(acc, qf, kf, step, 4, 1)

    @cuda.jit(device=True)
    def keep(shared, at, acc, tile):
        """Store a warp's scores of a query tile."""
        for j in range(columns):
            for half in range(2):
                to = uint32(at + uint32(ROWS * tile + 8 * half) * stride + uint32(8 * j))
                i = 4 * columns * tile + 4 * j + 2 * half
                shared[to] = acc[i]
                shared[to + uint32(1)] = acc[i + 1]

    @cuda.jit(device=True)
    def load_values(v_head, place, dim, hdim, member, count):
        """A panel's values: 4 dims of the keys 2 member, + 1, + 8, + 9 of each step."""
        at = uint32(min(dim, uint32(hdim - uint32(4))))
        for s in range(key_steps):
            for j in range(4):
                key = uint32(uint32(STEP * s + j // 2 * 8 + j % 2) + uint32(2) * member)
                x = ld4(v_head, uint32(min(key, uint32(count - uint32(1)))) * hdim + at)
                i = 16 * s + j
                place[i], place[i + 4], place[i + 8], place[i + 12] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def weigh(shared, weights, out, vf, s, lane_row, member, tile):
        """Add weights times values of 16 keys for a query tile."""
        bh = cuda.local.array(16, float32)
        bl = cuda.local.array(16, float32)
        c = cuda.local.array(16, float32)
        for i in range(16):
            bh[i], bl[i] = split(vf[16 * s + i])
        at = uint32(weights + (uint32(ROWS * tile) + lane_row) * stride + uint32(STEP * s) + uint32(2) * member)
        ux, uy = ld2(shared, at)
        lx, ly = ld2(shared, at + uint32(8) * stride)
        uz, uw = ld2(shared, at + uint32(8))
        lz, lw = ld2(shared, at + uint32(8) * stride + uint32(8))
        ux, uxl = split(ux)
        uy, uyl = split(uy)
        uz, uzl = split(uz)
        uw, uwl = split(uw)
        lx, lxl = split(lx)
        ly, lyl = split(ly)
        lz, lzl = split(lz)
        lw, lwl = split(lw)
        for j in range(4):
            zero = (float32(0.0), float32(0.0), float32(0.0), float32(0.0))
            d = mma_m16n8k8_tf32((uxl, lxl, uyl, lyl), (bh[4 * j], bh[4 * j + 1]), zero)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(4):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((uzl, lzl, uwl, lwl), (bh[4 * j + 2], bh[4 * j + 3]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(4):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((ux, lx, uy, ly), (bl[4 * j], bl[4 * j + 1]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(4):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((uz, lz, uw, lw), (bl[4 * j + 2], bl[4 * j + 3]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(4):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((ux, lx, uy, ly), (bh[4 * j], bh[4 * j + 1]), d)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d
        for j in range(4):
            d = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32((uz, lz, uw, lw), (bh[4 * j + 2], bh[4 * j + 3]), d)
            for i in range(4):
                out[16 * tile + 4 * j + i] += d[i]

    @cuda.jit(device=True)
    def weigh_all(shared, weights, out, vf, s, lane_row, member):
        """Add weights times values of 16 keys for all query tiles."""
        weigh(shared, weights, out, vf, s, lane_row, member, 0)
        if tiles > 1:
            weigh(shared, weights, out, vf, s, lane_row, member, 1)

    def attention(
        q, k, v, out, seq_q, seq_k, hdim, rotary_dim, q_offset, causal, softmax_scale, own_at, parts_at, weights_at
    ):
        shared = cuda.shared.array(0, float32, 16)
        inverse_at = uint32(weights_at + uint32(queries) * stride)
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
        query_count = uint32(min(uint32(queries), uint32(seq_q - first_query)))
        q_tile = advance(q, (head * seq_q + first_query) * hdim)
        out_tile = advance(out, (head * seq_q + first_query) * hdim)
        k_head = advance(k, kv_head * seq_k * hdim)
        v_head = advance(v, kv_head * seq_k * hdim)

        # Phase: load.
        kf = cuda.local.array(k_floats, float32)
        qf = cuda.local.array(q_floats, float32)
        first_unit = uint32(rank + uint32(cluster) * warp_id)
        dim = uint32(first_unit * uint32(STEP) + uint32(4) * member)
        for step in range(steps):
            step_dim = uint32(dim + uint32(step) * spread * uint32(STEP))
            load_query(q_tile, qf, step, step_dim, hdim, lane_row, query_count)
            load(k_head, kf, step, step_dim, hdim, lane_row, seq_k)

        # Phase: table.
        unit = uint32(0)
        unit_dim = uint32(rank * uint32(STEP) + uint32(2) * (tid % uint32(8)))
        while uint32(rank + unit * uint32(cluster)) * uint32(STEP) < rotary_dim:
            inv_freq = powf(float32(FREQUENCY_BASE), -(float32(unit_dim) / float32(rotary_dim)))
            if unit_dim >= rotary_dim:
                inv_freq = float32(0.0)
            row = uint32(tid // uint32(8))
            while row < uint32(rows):
                position = int32(row) - int32(queries)
                if row < uint32(queries):
                    position = int32(q_offset + int32(first_query + row))
                sin, cos = sincos(float32(position) * inv_freq)
                at = uint32((unit * uint32(rows) + row) * uint32(STEP) + uint32(2) * (tid % uint32(8)))
                shared[at] = cos
                shared[at + uint32(1)] = sin
                row += uint32(threads // 8)
            unit += uint32(1)
            unit_dim += uint32(cluster * STEP)
        cuda.syncthreads()

        # Phase: scores.
        acc = cuda.local.array(sums, float32)
        score(shared, acc, qf, kf, 0, first_unit, rotary_dim, warp_id, lane_row, member)
        if steps > 1:
            score(shared, acc, qf, kf, 1, first_unit, rotary_dim, warp_id, lane_row, member)
        if steps > 2:
            score(shared, acc, qf, kf, 2, first_unit, rotary_dim, warp_id, lane_row, member)
        if steps > 3:
            score(shared, acc, qf, kf, 3, first_unit, rotary_dim, warp_id, lane_row, member)

        # Phase: values.
        vf = cuda.local.array(v_floats, float32)
        panel_dim = uint32((rank + uint32(cluster) * warp_id) * uint32(PANEL) + uint32(4) * lane_row)
        load_values(v_head, vf, panel_dim, hdim, member, seq_k)

        # Phase: sum in the block.
        at = uint32(own_at + (warp_id * uint32(queries) + lane_row) * stride + uint32(2) * member)
        keep(shared, at, acc, 0)
        if tiles > 1:
            keep(shared, at, acc, 1)
        cuda.syncthreads()
        if cluster > 1:
            cluster_wait()
        quad = tid
        while quad < uint32(queries * keys // 4):
            row = quad // uint32(keys // 4)
            column = uint32(quad % uint32(keys // 4) * uint32(4))
            at = uint32(own_at + row * stride + column)
            s = ld4(shared, at)
            sx, sy, sz, sw = s.x, s.y, s.z, s.w
            for other in range(1, warps):
                s = ld4(shared, at + uint32(other * queries) * stride)
                sx += s.x
                sy += s.y
                sz += s.z
                sw += s.w
            to = uint32(parts_at + (rank * uint32(owned) + row % uint32(owned)) * uint32(keys) + column)
            if cluster > 1:
                cluster_store2(shared, to, row // uint32(owned), sx, sy)
                cluster_store2(shared, to + uint32(2), row // uint32(owned), sz, sw)
            else:
                st4(shared, to, make_float4(sx, sy, sz, sw))
            quad += uint32(threads)
        if cluster > 1:
            cluster_arrive()
            cluster_wait()
        else:
            cuda.syncthreads()

        # Phase: softmax.
        s = cuda.local.array(per_lane, float32)
        own = warp_id
        while own < uint32(owned):
            row = uint32(rank * uint32(owned) + own)
            if row < uint32(queries):
                visible = seq_k
                if causal:
                    visible = uint32(min(seq_k, uint32(q_offset + int32(first_query + row) + int32(1))))
                at = uint32(parts_at + own * uint32(keys) + lane_id * uint32(per_lane))
                for i in range(per_lane):
                    s[i] = float32(0.0)
                if lane_id * uint32(per_lane) < uint32(keys):
                    for part in range(cluster):
                        if per_lane == 1:
                            s[0] += shared[at + uint32(part * owned * keys)]
                        else:
                            x, y = ld2(shared, at + uint32(part * owned * keys))
                            s[0] += x
                            s[per_lane - 1] += y
                row_max = NEGATIVE_INFINITY
                for i in range(per_lane):
                    key = uint32(lane_id * uint32(per_lane) + uint32(i))
                    s[i] *= softmax_scale
                    if key >= visible:
                        s[i] = NEGATIVE_INFINITY
                    row_max = max(row_max, s[i])
                row_max = warp_max(row_max)
                row_sum = float32(0.0)
                for i in range(per_lane):
                    s[i] = math.exp(s[i] - row_max)
                    row_sum += s[i]
                at = uint32(weights_at + row * stride + lane_id * uint32(per_lane))
                if lane_id * uint32(per_lane) < uint32(keys):
                    for other in range(cluster):
                        if cluster == 1:
                            for i in range(per_lane):
                                shared[at + uint32(i)] = s[i]
                        elif per_lane == 1:
                            cluster_store(shared, at, uint32(other), s[0])
                        else:
                            cluster_store2(shared, at, uint32(other), s[0], s[per_lane - 1])
                inverse = float32(1.0) / warp_sum(row_sum)
                if lane_id < uint32(cluster):
                    if cluster == 1:
                        shared[inverse_at + row] = inverse
                    else:
                        cluster_store(shared, inverse_at + row, lane_id, inverse)
            own += uint32(warps)
        if cluster > 1:
            cluster_arrive()
            cluster_wait()
        else:
            cuda.syncthreads()

        # Phase: output.
        total = cuda.local.array(outputs, float32)
        for p in range(panels):
            if p > 0:
                panel_dim += uint32(spread * uint32(PANEL))
                load_values(v_head, vf, panel_dim, hdim, member, seq_k)
            for i in range(outputs):
                total[i] = float32(0.0)
            weigh_all(shared, weights_at, total, vf, 0, lane_row, member)
            if key_steps > 1:
                weigh_all(shared, weights_at, total, vf, 1, lane_row, member)
            if key_steps > 2:
                weigh_all(shared, weights_at, total, vf, 2, lane_row, member)
                weigh_all(shared, weights_at, total, vf, 3, lane_row, member)
            for tile in range(tiles):
                for half in range(2):
                    row = uint32(uint32(ROWS * tile + 8 * half) + lane_row)
                    if row < query_count:
                        inverse = shared[inverse_at + row]
                        out_row = advance(out_tile, row * hdim)
                        to = uint32(panel_dim - uint32(4) * lane_row + uint32(8) * member)
                        for side in range(2):
                            if to + uint32(4 * side) < hdim:
                                i = 16 * tile + 2 * half + side
                                weighted = make_float4(
                                    total[i] * inverse,
                                    total[i + 4] * inverse,
                                    total[i + 8] * inverse,
                                    total[i + 12] * inverse,
                                )
                                st4(out_row, to + uint32(4 * side), weighted)
        # Phase: end.

    attention.__name__ = attention.__qualname__ = f"attention_c{cluster}_q{queries}_k{keys}_w{warps}_s{steps}_p{panels}"
    return attention


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for."""

    cluster: int
    tiles: int
    keys: int
    warps: int
    steps: int
    panels: int
    blocks: int = 1  # that share an SM


def shape_of(problem: Problem, cluster: int, tiles: int, warps: int, blocks: int = 1) -> Shape:
    keys = 16 if problem.seq_k <= 16 else 32 if problem.seq_k <= 32 else 64
    steps = -(-problem.hdim // (STEP * cluster * warps))
    panels = -(-problem.hdim // (PANEL * cluster * warps))
    return Shape(cluster, tiles, keys, warps, steps, panels, blocks)


@functools.cache
def kernel_of(shape: Shape) -> Kernel:
    function = make_kernel(shape.cluster, shape.tiles, shape.keys, shape.warps, shape.steps, shape.panels)
    signature = (FLOATS,) * 4 + (UINT,) * 4 + (INT, UINT, FLOAT) + (UINT,) * 3
    return Kernel(function, signature, max_threads=32 * shape.warps, min_blocks=shape.blocks)


def plan_with(problem: Problem, shape: Shape) -> Plan:
    """Plan `problem` with a kernel of that shape. Raises: Unsupported."""
    require_fused(problem)
    require(problem.seq_k <= shape.keys, f"seq_k is {problem.seq_k}; one tile takes {shape.keys}")
    units = -(-problem.rotary_dim // (STEP * shape.cluster))
    layout = layout_of(shape.cluster, shape.tiles, shape.keys, shape.warps, units)
    require_shared(layout, problem, OPT_IN_SHARED_LIMIT)
    tiles = -(-problem.seq_q // (ROWS * shape.tiles))
    attend = Launch(
        kernel_of(shape),
        grid=(tiles * shape.cluster, problem.heads // problem.kv_heads, problem.batch * problem.kv_heads),
        block=(32 * shape.warps,),
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
            layout["own"],
            layout["parts"],
            layout["weights"],
        ),
        shared=layout,
        cluster=shape.cluster,
    )
    return Plan(problem, attention_buffers(problem), (attend,))
