"""Masks and biases: which keys a row of queries sees, and what ALiBi subtracts from their scores."""

import math
from typing import Any

from numba import cuda, float32

from ..device.cint import cint
from .schedule import Shape, query_of
from .softmax import FULL_MASK
from .tiles import FLOAT, f32, floats, op

LOG2_E = math.log2(math.e)


def bounds_of(shape: Shape) -> Any:
    """bounds(row, end, first_query, batch, head, sizes, rotation) -> (end of its keys, its place, its slope) of each of
    two rows, row and row + 8.

    A query in front of the first key sees none. The slope is that of scores in base 2.
    """
    alibi, log2_e = shape.embedding == "alibi", float32(LOG2_E)

    @cuda.jit(device=True, forceinline=True)
    def bounds_of_row(row, end, first_query, batch, head, sizes, rotation):
        of_group, query = query_of(row, sizes)
        place, slope, limit = first_query + query, float32(0.0), end
        if alibi:
            heads = sizes.kv_heads * sizes.group
            slope = log2_e * rotation.slopes[batch * heads + head * sizes.group + min(of_group, sizes.group - 1)]
        if sizes.causal != 0:
            limit = min(end, place + 1)
        if place < 0:
            limit = cint(0)
        return limit, place, slope

    @cuda.jit(device=True, forceinline=True)
    def bounds(row, end, first_query, batch, head, sizes, rotation):
        first = bounds_of_row(row, end, first_query, batch, head, sizes, rotation)
        return first, bounds_of_row(row + 8, end, first_query, batch, head, sizes, rotation)

    return bounds


@op(lambda shape, rows, keys: floats(rows * len(keys)))
def mask(b, shape, rows, keys, scores, key, bounds):
    """Scores of each of `rows` rows with key + `keys`, biased; -inf where not seen."""
    made = []
    for i, score in enumerate(scores):
        limit, place, slope = bounds[i // len(keys)]
        at = key + keys[i % len(keys)]
        if shape.embedding == "alibi":
            ahead = at - place
            behind = place - at
            distance = b.select(ahead > behind, ahead, behind)
            score = b.fma(-slope, b.sitofp(distance, FLOAT), score)
        made.append(b.select(at < limit, score, f32(float("-inf"))))
    return made


def key_offsets(keys: int) -> list[int]:
    """Of a lane's scores of a row in fragments of tensor cores, from key 2m on, m = lane % 4."""
    return [8 * j + i for j in range(keys // 8) for i in range(2)]


def mask_tile(shape: Shape, keys: int) -> Any:
    """seen(scores, key, lane, bounds, scale): `mask` of two rows and `keys` keys from `key` on, where one has to be.

    Biases are those of scaled scores: with ALiBi, scores are scaled first.
    """
    masked, alibi = mask(shape, 2, key_offsets(keys)), shape.embedding == "alibi"

    @op(floats(keys // 2))
    def scaled(b, scores, scale):
        return [score * scale for score in scores]

    @cuda.jit(device=True, forceinline=True)
    def seen(scores, key, lane, bounds, scale):
        if alibi:
            scores = scaled(scores, scale)
        beyond = (key + keys > bounds[0][0]) or (key + keys > bounds[1][0])
        if alibi:
            beyond = True
        if cuda.any_sync(FULL_MASK, beyond):
            scores = masked(scores, key + 2 * (lane & 3), bounds)
        return scores

    return seen
