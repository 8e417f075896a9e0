"""The products of the mma core: scores of 16 dims, and weights times values of 16 keys."""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, uint32

from ..device.asm import mma_m16n8k8_tf32
from ..device.tensor import FACTOR_BOUND, VALUE_BOUND, split, split_bounded, split_short
from ..device.vector import ld2, ld4
from .mma_shape import GROUP, STEP, Shape
from .repeat import repeat


def multiplier(count: int) -> Any:
    """A device function that multiplies one A fragment by `count` B fragments and adds the products to as many
    accumulators.
    """

    @cuda.jit(device=True)
    def multiply(c, a, b, at):
        for j in range(count):
            old = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32(a, (b[4 * j + at], b[4 * j + at + 1]), old)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d

    return multiply


def scores_by_products(shape: Shape) -> Any:
    """score(shared, low, high, top, left, first_step, lane_row, member): the products of a warp's dims of Q and K."""
    query_at, keys_at, stride = uint32(shape.layout["query"]), uint32(shape.layout["keys"]), uint32(shape.width + 16)
    columns, width, depth, fragment, times_keys = (
        shape.columns,
        shape.width,
        shape.depth,
        4 * shape.columns,
        multiplier(shape.columns),
    )
    unroll = next(n for n in (4, 2, 1) if n == 1 or width % (STEP * depth * n) == 0)

    @cuda.jit(device=True)
    def score_step(shared, low, high, top, left, dim, lane_row, member):
        """Add the products of 16 dims to a warp's scores: the large ones to `high`, the others to `low`."""
        at = uint32(query_at + (top + lane_row) * stride + dim + uint32(4) * member)
        upper = ld4(shared, at)
        lower = ld4(shared, at + uint32(8) * stride)
        bh = cuda.local.array(fragment, float32)
        bl = cuda.local.array(fragment, float32)
        large = cuda.local.array(fragment, float32)
        for j in range(columns):
            at = uint32(keys_at + (left + uint32(8 * j) + lane_row) * stride + dim + uint32(4) * member)
            x = ld4(shared, at)
            bh[4 * j], bl[4 * j] = split_short(x.x, FACTOR_BOUND)
            bh[4 * j + 1], bl[4 * j + 1] = split_short(x.y, FACTOR_BOUND)
            bh[4 * j + 2], bl[4 * j + 2] = split_short(x.z, FACTOR_BOUND)
            bh[4 * j + 3], bl[4 * j + 3] = split_short(x.w, FACTOR_BOUND)
        ux, uxl = split_bounded(upper.x, FACTOR_BOUND)
        uy, uyl = split_bounded(upper.y, FACTOR_BOUND)
        uz, uzl = split_bounded(upper.z, FACTOR_BOUND)
        uw, uwl = split_bounded(upper.w, FACTOR_BOUND)
        lx, lxl = split_bounded(lower.x, FACTOR_BOUND)
        ly, lyl = split_bounded(lower.y, FACTOR_BOUND)
        lz, lzl = split_bounded(lower.z, FACTOR_BOUND)
        lw, lwl = split_bounded(lower.w, FACTOR_BOUND)
        for i in range(fragment):
            large[i] = float32(0.0)
        times_keys(large, (ux, lx, uy, ly), bh, 0)
        times_keys(low, (uxl, lxl, uyl, lyl), bh, 0)
        times_keys(large, (uz, lz, uw, lw), bh, 2)
        times_keys(low, (uzl, lzl, uwl, lwl), bh, 2)
        times_keys(low, (ux, lx, uy, ly), bl, 0)
        times_keys(low, (uz, lz, uw, lw), bl, 2)
        for i in range(fragment):
            high[i] += large[i]

    @cuda.jit(device=True)
    def score(shared, low, high, top, left, first_step, lane_row, member):
        """A warp's part of the scores of a tile, of every `depth`-th step of dims."""
        for i in range(fragment):
            low[i] = float32(0.0)
            high[i] = float32(0.0)
        dim = first_step
        while dim < uint32(width):
            score_step(shared, low, high, top, left, dim, lane_row, member)
            if unroll > 1:
                score_step(shared, low, high, top, left, uint32(dim + uint32(STEP * depth)), lane_row, member)
            if unroll > 2:
                score_step(shared, low, high, top, left, uint32(dim + uint32(2 * STEP * depth)), lane_row, member)
                score_step(shared, low, high, top, left, uint32(dim + uint32(3 * STEP * depth)), lane_row, member)
            dim = uint32(dim + uint32(STEP * depth * unroll))

    return score


def output_by_products(shape: Shape) -> Any:
    """weigh(shared, acc, panel, top, lane_row, member): rescale a warp's output and add weights times values."""
    values_at, weights_at, rescale_at = (uint32(shape.layout[name]) for name in ("values", "weights", "rescale"))
    keys, v_stride, w_stride = shape.keys, uint32(shape.width + 4), uint32(shape.keys + 8)
    groups, abreast, times_values = shape.groups, shape.abreast, multiplier(4)

    @cuda.jit(device=True)
    def weigh_step(shared, acc, p, group, top, key, lane_row, member):
        """Add weights times values of 16 keys to panel `p` of this warp's output."""
        at = uint32(values_at + (key + uint32(2) * member) * v_stride)
        at = uint32(at + group * uint32(GROUP) + uint32(4) * lane_row)
        v0 = ld4(shared, at)
        v1 = ld4(shared, at + v_stride)
        v2 = ld4(shared, at + uint32(8) * v_stride)
        v3 = ld4(shared, at + uint32(9) * v_stride)
        at = uint32(weights_at + (top + lane_row) * w_stride + key + uint32(2) * member)
        ux, uy = ld2(shared, at)
        lx, ly = ld2(shared, at + uint32(8) * w_stride)
        uz, uw = ld2(shared, at + uint32(8))
        lz, lw = ld2(shared, at + uint32(8) * w_stride + uint32(8))
        b = cuda.local.array(16, float32)
        bl = cuda.local.array(16, float32)
        c = cuda.local.array(16, float32)
        b[0], b[4], b[8], b[12] = v0.x, v0.y, v0.z, v0.w
        b[1], b[5], b[9], b[13] = v1.x, v1.y, v1.z, v1.w
        b[2], b[6], b[10], b[14] = v2.x, v2.y, v2.z, v2.w
        b[3], b[7], b[11], b[15] = v3.x, v3.y, v3.z, v3.w
        for i in range(16):
            b[i], bl[i] = split_bounded(b[i], VALUE_BOUND)
            c[i] = float32(0.0)
        ux, uxl = split(ux)
        uy, uyl = split(uy)
        uz, uzl = split(uz)
        uw, uwl = split(uw)
        lx, lxl = split(lx)
        ly, lyl = split(ly)
        lz, lzl = split(lz)
        lw, lwl = split(lw)
        times_values(c, (uxl, lxl, uyl, lyl), b, 0)
        times_values(c, (uzl, lzl, uwl, lwl), b, 2)
        times_values(c, (ux, lx, uy, ly), bl, 0)
        times_values(c, (uz, lz, uw, lw), bl, 2)
        times_values(c, (ux, lx, uy, ly), b, 0)
        times_values(c, (uz, lz, uw, lw), b, 2)
        for i in range(16):
            acc[16 * p + i] += c[i]

    @cuda.jit(device=True)
    def weigh_panel(p, shared, acc, panel, top, lane_row, member):
        """Rescale panel `p` of this warp's output and add weights times values."""
        group = uint32(panel + uint32(p * abreast))
        if groups % abreast == 0 or group < uint32(groups):
            correction0 = shared[rescale_at + uint32(2) * (top + lane_row)]
            correction1 = shared[rescale_at + uint32(2) * (top + lane_row + uint32(8))]
            for j in range(4):
                acc[16 * p + 4 * j] *= correction0
                acc[16 * p + 4 * j + 1] *= correction0
                acc[16 * p + 4 * j + 2] *= correction1
                acc[16 * p + 4 * j + 3] *= correction1
            key = uint32(0)
            while key < uint32(keys):
                weigh_step(shared, acc, p, group, top, key, lane_row, member)
                if keys % (2 * STEP) == 0:
                    weigh_step(shared, acc, p, group, top, uint32(key + uint32(STEP)), lane_row, member)
                key = uint32(key + uint32(STEP if keys % (2 * STEP) else 2 * STEP))

    return repeat(weigh_panel, shape.panels)
