"""The portable core: a lane's scores of a row, 32 keys apart, and its weights in their place."""

from typing import Any

from numba import cuda, float32

from ....device.cint import cint
from ....device.reduce import NEGATIVE_INFINITY
from ....device.vector import st2
from ..embedding import Embedding
from ..schedule import visible_to
from .shape import Shape


def score_loader(shape: Shape, embedding: Embedding) -> Any:
    """A device function that loads a lane's scores of a row: the sum of the warps' parts, biased and masked."""
    queries, keys, warps_k, per_lane = shape.queries, shape.keys, shape.warps_k, shape.keys_per_lane
    bias = embedding.bias
    scores_at, stride = shape.layout["scores"], shape.stride

    @cuda.jit(device=True)
    def load_scores(shared, s, at, tile, scope, own, row, lane_id, start):
        visible = visible_to(tile, row, scope.last_key, scope.sizes)
        for n in range(per_lane):
            own_key = lane_id + 32 * n
            key = start + own_key
            s[at + n] = NEGATIVE_INFINITY
            if own_key < keys and key < visible:
                total = float32(0.0)
                for part in range(warps_k):
                    total += shared[scores_at + (part * queries + row) * stride + own_key]
                if bias is not None:
                    if row < tile.query_count:
                        distance = cint(scope.sizes.q_offset + tile.first_query + row - key)
                        total += bias(scope.table, tile.bias_head, distance)
                s[at + n] = total

    return load_scores


def weight_storer(shape: Shape) -> Any:
    """A device function that stores a lane's weights of a row in the place of its scores."""
    keys, per_lane, scores_at = shape.keys, shape.keys_per_lane, shape.layout["scores"]
    stride = shape.stride

    @cuda.jit(device=True)
    def store_row(shared, s, at, row, lane_id):
        for n in range(per_lane):
            own_key = lane_id + 32 * n
            if keys % 32 == 0 or own_key < keys:
                shared[scores_at + row * stride + own_key] = s[at + n]

    return store_row


@cuda.jit(device=True)
def store_factors(shared, at, to, factor, inverse):
    st2(shared, at, factor, inverse)
