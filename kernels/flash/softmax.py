"""Online softmax in base 2, of scores that are spread over the lanes of a warp.

A masked score is -inf and a row max at least -1e30, so a row that sees no key has weights of 0. Accumulators are
rescaled only where a row max has grown by more than 2^8: their weights stay below that.
"""

import functools
from collections.abc import Sequence
from typing import Any

from .tiles import floats, register_op, tuples

NO_KEY = -1e30
SLACK = 8.0
FULL_MASK = 0xFFFFFFFF
QUAD = (1, 2)  # masks of the lanes that share a row in fragments of tensor cores


def masks_of(low: int, high: int) -> list[int]:
    """Butterfly masks of the lane bits low .. high - 1."""
    return [1 << bit for bit in range(low, high)]


def sum_lanes(b: Any, tile: Sequence[Any], masks: Sequence[int]) -> list[Any]:
    """Sums over lanes that differ in the bits of `masks`."""
    for mask in masks:
        tile = [value + b.shuffle("bfly", value, mask) for value in tile]
    return list(tile)


@register_op(lambda count: floats(count))
def lane_sum(b, tile, *, count, masks):
    """`sum_lanes` of `count` values."""
    return sum_lanes(b, tile, masks)


@register_op(lambda sets, each, size: tuples(sets * each, sets, sets, size))
def online_softmax(b, scores, row_max, row_sum, acc, lane, *, sets, each, masks, size, rescale):
    """-> (p, row_max, row_sum, acc): the weights of a batch of scores, and the state with it.

    A lane has `each` scores of each of `sets` rows, and lanes that differ in `masks` have others of the same rows; the
    row sums are the lane's own. acc has `size` values; rescale(builder, acc, factors, lane) multiplies each of its rows
    by the factor of a lane that has it.
    """
    tops = [scores[each * row] for row in range(sets)]
    for i, score in enumerate(scores):
        tops[i // each] = b.maximum(tops[i // each], score)
    for mask in masks:
        tops = [b.maximum(top, b.shuffle("bfly", top, mask)) for top in tops]
    grown = [top > old + SLACK for top, old in zip(tops, row_max)]

    def rescaled():
        new_max = [b.maximum(top, old) for top, old in zip(tops, row_max)]
        factors = [b.exp2(old - new) for old, new in zip(row_max, new_max)]
        return [*new_max, *(x * by for x, by in zip(row_sum, factors)), *rescale(b, acc, factors, lane)]

    state = b.where(b.any_lane(functools.reduce(b.or_, grown)), rescaled, [*row_max, *row_sum, *acc])
    row_max, row_sum, acc = state[:sets], state[sets : 2 * sets], state[2 * sets :]
    p = [b.exp2(score - row_max[i // each]) for i, score in enumerate(scores)]
    for i, weight in enumerate(p):
        row_sum[i // each] = row_sum[i // each] + weight
    return p, row_max, row_sum, acc


def row_top(b: Any, scores: Sequence[Any], masks: Sequence[int]) -> Any:
    """The largest score of a row, in four chains of instructions, over the lanes that share the row."""
    parts = list(scores[:4])
    for i, score in enumerate(scores[4:]):
        parts[i % 4] = b.maximum(parts[i % 4], score)
    while len(parts) > 1:
        parts = [b.maximum(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
    top = parts[0]
    for mask in masks:
        top = b.maximum(top, b.shuffle("bfly", top, mask))
    return top


def row_total(b: Any, weights: Sequence[Any]) -> Any:
    """The sum of a lane's weights of a row, in two chains of instructions."""
    parts = list(weights[:2])
    for i, weight in enumerate(weights[2:]):
        parts[i % 2] = parts[i % 2] + weight
    return b.fadd(*parts)


@register_op(floats(2))
def update_row_max(b, scores, row_max, scale, *, each):
    """The row max of two rows with a tile's scores added, `each` raw scores a row and lane; scale > 0."""
    tops = (row_top(b, scores[each * row : each * (row + 1)], QUAD) for row in range(2))
    return [b.maximum(old, top * scale) for old, top in zip(row_max, tops)]


@register_op(lambda each: tuples(2 * each, 2, 2))
def softmax(b, scores, old_max, row_max, row_sum, scale, *, each):
    """-> (p, row_sum, rescale): the weights of a tile of two rows, their row sums, and the factors of what came before.

    `row_max` is that of `update_row_max`, and `old_max` the one before.
    """
    shift = [-top for top in row_max]
    p = [b.exp2(b.fma(score, scale, shift[i // each])) for i, score in enumerate(scores)]
    rescale = [b.exp2(x - y) for x, y in zip(old_max, row_max)]
    tile_sums = (row_total(b, p[each * row : each * (row + 1)]) for row in range(2))
    return p, [b.fma(old, by, new) for old, by, new in zip(row_sum, rescale, tile_sums)], rescale
