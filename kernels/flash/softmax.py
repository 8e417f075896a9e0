"""Online softmax in base 2, of scores that are spread over the lanes of a warp.

A masked score is -inf and a row max at least -1e30, so a row that sees no key has weights of 0. Accumulators are
rescaled only where a row max has grown by more than 2^8: their weights stay below that.
"""

import functools
from collections.abc import Sequence
from typing import Any

from .tiles import floats, op, part, tuples

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


@op(lambda count, masks: floats(count))
def lane_sum(b, count, masks, tile):
    """`sum_lanes` of `count` values."""
    return sum_lanes(b, tile, masks)


@op(lambda sets, each, masks, size, rescale: tuples(sets * each, sets, sets, size))
def update(b, sets, each, masks, size, rescale, scores, row_max, row_sum, acc, lane):
    """-> (weights, row_max, row_sum, acc).

    A lane has `each` scores of each of `sets` rows, and lanes that differ in `masks` have others of the same rows; the
    row sums are the lane's own. acc has `size` values; rescale(builder, acc, factors, lane) multiplies its rows by what
    a row's lane holds.
    """
    tops = [scores[each * row] for row in range(sets)]
    for i, score in enumerate(scores):
        tops[i // each] = b.maximum(tops[i // each], score)
    for mask in masks:
        tops = [b.maximum(top, b.shuffle("bfly", top, mask)) for top in tops]
    grown = [top > old + SLACK for top, old in zip(tops, row_max)]

    def rescaled():
        new = [b.maximum(top, old) for top, old in zip(tops, row_max)]
        factors = [b.exp2(x - y) for x, y in zip(row_max, new)]
        return [*new, *(x * y for x, y in zip(row_sum, factors)), *rescale(b, acc, factors, lane)]

    kept = b.where(b.any_lane(functools.reduce(b.or_, grown)), rescaled, [*row_max, *row_sum, *acc])
    row_max, row_sum, acc = kept[:sets], kept[sets : 2 * sets], kept[2 * sets :]
    weights = [b.exp2(score - row_max[i // each]) for i, score in enumerate(scores)]
    for i, weight in enumerate(weights):
        row_sum[i // each] = row_sum[i // each] + weight
    return weights, row_max, row_sum, acc


def row_top(b: Any, scores: Sequence[Any], masks: Sequence[int]) -> Any:
    """The largest score of a row, in four chains, over the lanes that share it."""
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
    """The sum of a lane's weights of a row, in two chains."""
    parts = list(weights[:2])
    for i, weight in enumerate(weights[2:]):
        parts[i % 2] = parts[i % 2] + weight
    return b.fadd(*parts)


def step(each: int, masks: Sequence[int]) -> tuple[Any, ...]:
    """For two rows a lane, of raw scores that a positive scale multiplies: (tops, weigh, and the parts of its tuple).

    tops(scores, row_max, scale) -> the new row max, of scaled scores.
    weigh(scores, old, new, row_sum, scale) -> weights, row sums, and the factors of what came before: one tuple.
    """

    @op(floats(2))
    def tops(b, scores, row_max, scale):
        rows = (row_top(b, scores[each * row : each * (row + 1)], masks) for row in range(2))
        return [b.maximum(old, top * scale) for old, top in zip(row_max, rows)]

    @op(floats(2 * each + 4))
    def weigh(b, scores, old, new, row_sum, scale):
        less = [-top for top in new]
        weights = [b.exp2(b.fma(score, scale, less[i // each])) for i, score in enumerate(scores)]
        factors = [b.exp2(x - y) for x, y in zip(old, new)]
        totals = (row_total(b, weights[each * row : each * (row + 1)]) for row in range(2))
        sums = [b.fma(old, factor, total) for old, factor, total in zip(row_sum, factors, totals)]
        return [*weights, *sums, *factors]

    return tops, weigh, part(0, 2 * each), part(2 * each, 2), part(2 * each + 2, 2)
