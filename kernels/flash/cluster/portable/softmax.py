"""The portable core: online softmax of a tile of scores in shared memory, some rows to a warp."""

from collections import namedtuple
from typing import Any

from numba import cuda, float32, int32, uint32

from ....device.reduce import NEGATIVE_INFINITY, warp_max, warp_sum
from ..embedding import Embedding
from ..schedule import visible_to
from ..softmax import LOWEST, inverse_of, rescaling, weight_of
from .shape import Shape

Rows = namedtuple("Rows", "row_max row_sum")  # float32[rows of a warp] each


def softmax_of(shape: Shape, embedding: Embedding) -> tuple[Any, Any]:
    """begin(rows), and weigh(...): scores to weights; per row what rescales the output, and the inverse of its sum."""
    queries, keys, depth, layout, stride = shape.queries, shape.keys, shape.depth, shape.layout, uint32(shape.stride)
    scores_at, rescale_at, inverse_at = (uint32(layout[name]) for name in ("scores", "rescale", "inverse"))
    warps = shape.threads // 32
    rows_each, per_lane, bias = -(-queries // warps), -(-keys // 32), embedding.bias
    row_scores = rows_each * per_lane

    @cuda.jit(device=True)
    def begin(rows):
        for i in range(rows_each):
            rows.row_max[i] = LOWEST
            rows.row_sum[i] = float32(0.0)

    @cuda.jit(device=True)
    def load_score(s, at, shared, tile, table, row, own_key, key, last_key, sizes):
        """s[at]: the sum of the parts of a score, biased; minus infinity where the row does not see the key."""
        s[at] = NEGATIVE_INFINITY
        if row < uint32(queries) and own_key < uint32(keys) and key < visible_to(tile, row, last_key, sizes):
            total = float32(0.0)
            for p in range(depth):
                total += shared[scores_at + (uint32(p * queries) + row) * stride + own_key]
            if bias is not None:
                if row < tile.query_count:
                    distance = int32(sizes.q_offset + int32(tile.first_query + row) - int32(key))
                    total += bias(table, tile.bias_head, distance)
            s[at] = total

    @cuda.jit(device=True)
    def store_rows(shared, s, rows, corrections, warp_id, lane_id):
        for i in range(rows_each):
            row = uint32(warp_id + uint32(i * warps))
            if row < uint32(queries):
                for n in range(per_lane):
                    own_key = uint32(lane_id + uint32(32 * n))
                    if keys % 32 == 0 or own_key < uint32(keys):
                        shared[scores_at + row * stride + own_key] = s[i * per_lane + n]
                if lane_id == 0:
                    shared[rescale_at + row] = corrections[i]
                    shared[inverse_at + row] = inverse_of(rows.row_sum[i])

    @cuda.jit(device=True)
    def weigh(shared, rows, tile, table, warp_id, lane_id, tile_start, last_key, ceiling, sizes):
        s = cuda.local.array(row_scores, float32)
        tile_max = cuda.local.array(rows_each, float32)
        corrections = cuda.local.array(rows_each, float32)
        # No shuffle is inside a branch: a warp without a row discards its result.
        for i in range(rows_each):
            row = uint32(warp_id + uint32(i * warps))
            for n in range(per_lane):
                own_key = uint32(lane_id + uint32(32 * n))
                key = uint32(tile_start + own_key)
                load_score(s, i * per_lane + n, shared, tile, table, row, own_key, key, last_key, sizes)
            tile_max[i] = s[i * per_lane]
            for n in range(1, per_lane):
                tile_max[i] = max(tile_max[i], s[i * per_lane + n])
        for i in range(rows_each):
            new_max = max(rows.row_max[i], warp_max(tile_max[i]))
            corrections[i] = rescaling(rows.row_max[i], new_max)
            rows.row_max[i] = new_max
            tile_sum = float32(0.0)
            for n in range(per_lane):
                s[i * per_lane + n] = weight_of(s[i * per_lane + n], new_max, ceiling)
                tile_sum += s[i * per_lane + n]
            rows.row_sum[i] = corrections[i] * rows.row_sum[i] + warp_sum(tile_sum)
        store_rows(shared, s, rows, corrections, warp_id, lane_id)

    return begin, weigh
