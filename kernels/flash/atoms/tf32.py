"""Scores and weighted sums on tensor cores (mma.m16n8k8) in float32, for 16 rows of queries and some keys a warp.

A float32 is a TF32 and a remainder; of their products only remainder times remainder is left out. Tensor cores truncate
when they add, so sums of 16 terms at most are taken from them and added in float32.

Lane l is (g, m) = (l // 4, l % 4) and holds rows g and g + 8. Terms of a product are in any order that both factors
have: a lane takes dims 4m .. 4m + 3 of 16 by one load, and keys 2m, 2m + 1 of 8, of which it has the scores.
"""

from collections.abc import Sequence
from typing import Any

from numba import types

from ...device.tensor import FACTOR_BOUND, VALUE_BOUND
from ..tiles import FLOAT, I32, f32, floats, register_op

ROUND, KEEP = 0x1000, 0xFFFFE000  # half a unit in the last place of TF32, and the mask of its bits


def split(b: Any, x: Any, bound: float = 0.0, rounded: bool = True) -> tuple[Any, Any]:
    """(high, low) of a float32, as `device.tensor.split`, `split_bounded` or, not rounded, `split_short`."""
    near = x
    if bound:
        near = b.pure("min.xorsign.abs.f32 $0, $1, $2;", "=f,f,f", FLOAT, x, f32(bound))
    bits = b.bitcast(near, I32)
    if rounded:
        bits = bits + ROUND
    high = b.bitcast(bits & KEEP, FLOAT)
    return high, x - high


def mma(b: Any, a_: Sequence[Any], b_: Sequence[Any], c: Sequence[Any]) -> list[Any]:
    """a b + c of a warp; fragments as `device.asm.mma_m16n8k8_tf32` has them."""
    return b.mma("m16n8k8.row.col.f32.tf32.tf32.f32", b.as_words(a_), b.as_words(b_), c)


@register_op(lambda shape: floats(4 * (shape.warp_keys // 8)))
def scores(b, shared, query, key, lane, *, shape, rounded=False):
    """Scores, row by row; the warp's rows begin at floats `query` and `key`.

    rounded: keys, too, are rounded to TF32 and not truncated: an instruction more for each, and half of the error.
    """
    tiles, pitch = shape.warp_keys // 8, shape.key_pitch
    lane_at = (lane >> 2) * pitch + ((lane & 3) << 2)
    query, key = (b.at_float(shared, each + lane_at) for each in (query, key))
    high, low, other = ([[f32(0.0)] * 4 for _ in range(tiles)] for _ in range(3))
    chains = (low,) if rounded else (low, other)  # two where registers are free
    for step in range(shape.hdim // 16):
        given = [x for half in range(2) for x in b.load_floats(query, 4, 4 * (16 * step + 8 * half * pitch))]
        q = [split(b, x, FACTOR_BOUND) for x in given]  # after both loads: 3 % faster on an H100
        for tile in range(tiles):
            x = b.load_floats(key, 4, 4 * (16 * step + 8 * tile * pitch))
            k = [split(b, value, FACTOR_BOUND, rounded) for value in x]
            large = [f32(0.0)] * 4
            for i in (0, 2):
                a = [[q[at][part] for at in (i, 4 + i, i + 1, 5 + i)] for part in range(2)]
                terms = [[k[i + j][part] for j in range(2)] for part in range(2)]
                large = mma(b, a[0], terms[0], large)
                chains[0][tile] = mma(b, a[1], terms[0], chains[0][tile])
                chains[-1][tile] = mma(b, a[0], terms[1], chains[-1][tile])
            high[tile] = [x + y for x, y in zip(high[tile], large)]
    total = [[x + (y + z) for x, y, z in zip(*each)] for each in zip(high, low, other)]
    return [each[2 * row + i] for row in range(2) for each in total for i in range(2)]


@register_op(lambda shape: floats(shape.hdim // 2))
def accumulate(b, shared, value, lane, acc, weights, *, shape):
    """acc plus weights times values, which begin at float `value`.

    acc: group by group of 32 dims, of these 4g + j for each j: (g, 2m), (g, 2m + 1), and those of g + 8.
    """
    pitch, each = shape.value_pitch, shape.warp_keys // 4
    lane_at = (lane & 3) * (2 * pitch) + (lane & 28)
    value = b.at_float(shared, value + lane_at)
    p = [split(b, weight) for weight in weights]
    for group in range(shape.hdim // 32):
        for pair in range(0, shape.warp_keys // 8, 2):
            eighths = range(pair, min(pair + 2, shape.warp_keys // 8))
            made = [[f32(0.0)] * 4 for _ in range(4)]
            at = {(e, i): 4 * ((8 * e + i) * pitch + 32 * group) for e in eighths for i in range(2)}
            v = {which: [split(b, x, VALUE_BOUND) for x in b.load_floats(value, 4, at[which])] for which in at}
            for left, right in ((1, 0), (0, 1), (0, 0)):
                for e in eighths:
                    a = [p[each * row + 2 * e + i][left] for i in range(2) for row in range(2)]
                    for j in range(4):
                        made[j] = mma(b, a, [v[e, i][j][right] for i in range(2)], made[j])
            for j in range(4):
                first = 16 * group + 4 * j
                acc[first : first + 4] = [x + y for x, y in zip(acc[first : first + 4], made[j])]
    return acc


@register_op(types.void)
def store_sums(b, shared, index, lane, acc, *, shape):
    """Store acc to [row][dim] from float `index` on."""
    pitch = shape.row_pitch
    lane_at = (lane >> 2) * pitch + ((lane & 3) << 3)
    base, values = b.at_float(shared, index + lane_at), b.as_words(acc)
    for group in range(shape.hdim // 32):
        for i in range(4):
            at = 8 * (i >> 1) * pitch + 32 * group + 4 * (i & 1)
            b.store_words("st.shared", base, [values[16 * group + 4 * j + i] for j in range(4)], 4 * at)
