"""The mma core: a lane's one or two adjacent scores of a row, and its weights."""

from typing import Any

from numba import cuda, float32

from ....device.cint import cint
from ....device.reduce import NEGATIVE_INFINITY
from ....device.vector import ld2
from ..embedding import Embedding
from ..exchange import Exchange
from ..schedule import visible_to
from .shape import Shape


def score_loader(shape: Shape, embedding: Embedding) -> Any:
    """A device function that loads a lane's scores of a row: the sum of all parts, biased and masked."""
    keys, rows, per_lane, bias = shape.keys, shape.rows, shape.keys_per_lane, embedding.bias
    parts_at, parts = shape.layout["parts"], shape.cluster * shape.warps_k

    @cuda.jit(device=True)
    def load_scores(shared, s, at, tile, scope, own, row, lane_id, start):
        sizes, visible = scope.sizes, visible_to(tile, row, scope.last_key, scope.sizes)
        first_key = lane_id * per_lane
        place = parts_at + own * keys + first_key
        for n in range(per_lane):
            s[at + n] = float32(0.0)
        if first_key < keys:
            for part in range(parts):
                if per_lane == 1:
                    s[at] += shared[place + part * rows * keys]
                else:
                    x, y = ld2(shared, place + part * rows * keys)
                    s[at] += x
                    s[at + 1] += y
        for n in range(per_lane):
            key = first_key + n
            if bias is not None:
                distance = cint(sizes.q_offset + tile.first_query + row - (start + key))
                s[at + n] += bias(scope.table, tile.bias_head, distance)
            if key >= keys or start + key >= visible:
                s[at + n] = NEGATIVE_INFINITY

    return load_scores


def weight_sender(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a lane's weights of a row to all blocks."""
    cluster, keys, per_lane = shape.cluster, shape.keys, shape.keys_per_lane
    weights_at, w_stride = shape.layout["weights"], shape.keys + 8
    send_weights, send_weight = sends.send_weights, sends.send_weight

    @cuda.jit(device=True)
    def send_row(shared, s, at, row, lane_id):
        place = weights_at + row * w_stride + lane_id * per_lane
        if lane_id * per_lane < keys:
            for to in range(cluster):
                if per_lane == 1:
                    send_weight(shared, place, to, s[at])
                else:
                    send_weights(shared, place, to, s[at], s[at + 1])

    return send_row
