"""Masks and biases: the keys that a row of queries sees, and ALiBi's bias on their scores."""

import math
from typing import Any

from numba import cuda, float32

from ..device.cint import cint
from .schedule import Shape, query_of
from .softmax import FULL_MASK
from .tiles import FLOAT, f32, floats, register_op

LOG2_E = math.log2(math.e)


def bounds_of(shape: Shape) -> Any:
    """bounds(row, end, first_query, batch, head, sizes, rotation) -> (end of its keys, its index, its slope) of each of
    two rows, row and row + 8.

    A query before the first key sees no key. The slope is that of scores in base 2.
    """
    alibi, log2_e = shape.embedding == "alibi", float32(LOG2_E)

    @cuda.jit(device=True, forceinline=True)
    def bounds_of_row(row, end, first_query, batch, head, sizes, rotation):
        of_group, query = query_of(row, sizes)
        index, slope, limit = first_query + query, float32(0.0), end
        if alibi:
            heads = sizes.kv_heads * sizes.group
            slope = log2_e * rotation.slopes[batch * heads + head * sizes.group + min(of_group, sizes.group - 1)]
        if sizes.causal != 0:
            limit = min(end, index + 1)
        if index < 0:
            limit = cint(0)
        return limit, index, slope

    @cuda.jit(device=True, forceinline=True)
    def bounds(row, end, first_query, batch, head, sizes, rotation):
        first = bounds_of_row(row, end, first_query, batch, head, sizes, rotation)
        return first, bounds_of_row(row + 8, end, first_query, batch, head, sizes, rotation)

    return bounds


@register_op(lambda rows, keys: floats(rows * len(keys)))
def mask(b, scores, key, bounds, *, shape, rows, keys):
    """Scores of `rows` rows with the keys `key` + `keys`, biased; -inf where the row does not see the key."""
    made = []
    for i, score in enumerate(scores):
        limit, query_index, slope = bounds[i // len(keys)]
        key_index = key + keys[i % len(keys)]
        if shape.embedding == "alibi":
            after = key_index - query_index
            before = query_index - key_index
            distance = b.select(after > before, after, before)
            score = b.fma(-slope, b.sitofp(distance, FLOAT), score)
        made.append(b.select(key_index < limit, score, f32(float("-inf"))))
    return made


def key_offsets(keys: int) -> list[int]:
    """Keys of a lane's scores of a row in fragments of tensor cores, counted from key 2m, m = lane % 4."""
    return [8 * j + i for j in range(keys // 8) for i in range(2)]


def mask_tile(shape: Shape, keys: int) -> Any:
    """seen(scores, key, lane, bounds, scale): `mask` two rows and `keys` keys from `key` on, where a key is masked.

    Biases are those of scaled scores: with ALiBi, scores are scaled first.
    """
    masked, alibi = mask(shape, 2, key_offsets(keys)), shape.embedding == "alibi"

    @register_op(floats(keys // 2))
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
