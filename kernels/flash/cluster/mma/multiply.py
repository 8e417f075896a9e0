"""The products of the mma core: scores of 16 dims, and weights times values of 16 keys."""

from typing import Any

from numba import cuda, float32

from ....device import FACTOR_BOUND, VALUE_BOUND, cuint, ld2, ld4, mma_m16n8k8_tf32, repeat, split, split_bounded
from ....device.tensor import split_short
from ..shape import GROUP
from .shape import STEP, Shape


def splitter(split_one: Any) -> Any:
    """A device function split(x, y, z, w) -> (high, low), two A fragments."""

    @cuda.jit(device=True)
    def split_fragment(x, y, z, w):
        (a, e), (b, f), (c, g), (d, h) = split_one(x), split_one(y), split_one(z), split_one(w)
        return (a, b, c, d), (e, f, g, h)

    return split_fragment


@cuda.jit(device=True)
def split_factor(x):
    return split_bounded(x, FACTOR_BOUND)


split_factors, split_weights = splitter(split_factor), splitter(split)


def multiplier(count: int) -> Any:
    """A device function that adds the products of one A fragment and `count` B fragments to as many accumulators."""

    @cuda.jit(device=True)
    def multiply(c, a, b, at):
        for j in range(count):
            old = (c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3])
            d = mma_m16n8k8_tf32(a, (b[4 * j + at], b[4 * j + at + 1]), old)
            c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3] = d

    return multiply


def scores_by_products(shape: Shape) -> Any:
    """score(shared, scores, key_dims, scope, thread, dims, start): the products of a warp's dims of Q and K."""
    query_at, keys_at, stride = shape.layout["query"], shape.layout["keys"], shape.width + 16
    columns, width, warps_k, times_keys = shape.columns, shape.width, shape.warps_k, multiplier(shape.columns)
    fragment = 4 * columns
    unroll = next(n for n in (4, 2, 1) if n == 1 or width % (STEP * warps_k * n) == 0)

    @cuda.jit(device=True)
    def score_step(i, shared, scores, thread, first_dim):
        """Add the products of 16 dims to a warp's scores: small ones to the first half, large ones to the second."""
        lane_row, member, dim = thread.lane_row, thread.member, first_dim + i * STEP * warps_k
        at = query_at + (thread.top + lane_row) * stride + dim + 4 * member
        upper = ld4(shared, at)
        lower = ld4(shared, at + 8 * stride)
        bh = cuda.local.array(fragment, float32)
        bl = cuda.local.array(fragment, float32)
        large = cuda.local.array(fragment, float32)
        for j in range(columns):
            at = keys_at + (thread.left + 8 * j + lane_row) * stride + dim + 4 * member
            x = ld4(shared, at)
            bh[4 * j], bh[4 * j + 1], bh[4 * j + 2], bh[4 * j + 3] = x.x, x.y, x.z, x.w
        for i in range(fragment):
            bh[i], bl[i] = split_short(bh[i], FACTOR_BOUND)
            large[i] = float32(0.0)
        first, first_low = split_factors(upper.x, lower.x, upper.y, lower.y)
        second, second_low = split_factors(upper.z, lower.z, upper.w, lower.w)
        times_keys(large, first, bh, 0)
        times_keys(scores, first_low, bh, 0)
        times_keys(large, second, bh, 2)
        times_keys(scores, second_low, bh, 2)
        times_keys(scores, first, bl, 0)
        times_keys(scores, second, bl, 2)
        for i in range(fragment):
            scores[fragment + i] += large[i]

    score_steps = repeat(score_step, unroll)

    @cuda.jit(device=True)
    def score(shared, scores, key_dims, scope, thread, dims, start):
        """A warp's part of the scores of a tile, of every `warps_k`-th step of dims."""
        dim = thread.first_step
        while dim < width:
            score_steps(shared, scores, thread, dim)
            dim = dim + STEP * warps_k * unroll

    return score


def output_by_products(shape: Shape) -> Any:
    """weigh(shared, output, thread, dims): rescale a warp's output and add weights times values."""
    values_at, weights_at, rescale_at = (shape.layout[name] for name in ("values", "weights", "rescale"))
    keys, v_stride, w_stride = shape.keys, shape.width + 4, shape.keys + 8
    groups, warps_d, times_values = shape.groups, shape.warps_d, multiplier(4)
    unroll = 1 if keys % (2 * STEP) else 2

    @cuda.jit(device=True)
    def weigh_step(i, shared, acc, p, group, thread, first_key):
        """Add weights times values of 16 keys to panel `p` of this warp's output."""
        top, lane_row, member, key = thread.top, thread.lane_row, thread.member, first_key + i * STEP
        at = values_at + (key + 2 * member) * v_stride
        at = at + group * GROUP + 4 * lane_row
        v0 = ld4(shared, at)
        v1 = ld4(shared, at + v_stride)
        v2 = ld4(shared, at + 8 * v_stride)
        v3 = ld4(shared, at + 9 * v_stride)
        at = weights_at + (top + lane_row) * w_stride + key + 2 * member
        ux, uy = ld2(shared, at)
        lx, ly = ld2(shared, at + 8 * w_stride)
        uz, uw = ld2(shared, at + 8)
        lz, lw = ld2(shared, at + 8 * w_stride + 8)
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
        first, first_low = split_weights(ux, lx, uy, ly)
        second, second_low = split_weights(uz, lz, uw, lw)
        times_values(c, first_low, b, 0)
        times_values(c, second_low, b, 2)
        times_values(c, first, bl, 0)
        times_values(c, second, bl, 2)
        times_values(c, first, b, 0)
        times_values(c, second, b, 2)
        for i in range(16):
            acc[16 * p + i] += c[i]

    weigh_steps = repeat(weigh_step, unroll)

    @cuda.jit(device=True)
    def weigh_panel(p, shared, acc, thread):
        """Rescale panel `p` of this warp's output and add weights times values."""
        top, lane_row, group = thread.top, thread.lane_row, thread.panel + p * warps_d
        if groups % warps_d == 0 or group < groups:
            rescale0 = shared[rescale_at + 2 * (top + lane_row)]
            rescale1 = shared[rescale_at + 2 * (top + lane_row + 8)]
            for j in range(4):
                acc[16 * p + 4 * j] *= rescale0
                acc[16 * p + 4 * j + 1] *= rescale0
                acc[16 * p + 4 * j + 2] *= rescale1
                acc[16 * p + 4 * j + 3] *= rescale1
            key = cuint(0)
            while key < keys:
                weigh_steps(shared, acc, p, group, thread, key)
                key = key + STEP * unroll

    weigh_panels = repeat(weigh_panel, shape.panels)

    @cuda.jit(device=True)
    def weigh(shared, output, thread, dims):
        weigh_panels(shared, output, thread)

    return weigh
