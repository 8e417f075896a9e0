"""The mma core: online softmax of the rows of scores that a block owns, one warp to a row at a time."""

from typing import Any

from numba import cuda, float32, int32, uint32

from ....device.reduce import NEGATIVE_INFINITY, warp_max, warp_sum
from ....device.vector import ld2, ld4, make_float4, st4
from ..embedding import Embedding
from ..exchange import Exchange
from ..schedule import visible_to
from ..softmax import LOWEST, add_weights, inverse_of, rescaling, weight_of
from .shape import Shape


def softmax_of(shape: Shape, embedding: Embedding, sends: Exchange) -> tuple[Any, Any]:
    """Device functions of a kernel. The row max, the row sum and what it lost are in shared memory.

    begin(shared, tid)
    weigh(...): the weights of a tile from the parts of its scores, sent to all blocks with the factors that rescale the
        output
    """
    cluster, keys, rows, layout = shape.cluster, shape.keys, shape.rows, shape.layout
    parts_at, weights_at, rescale_at = (uint32(layout[name]) for name in ("parts", "weights", "rescale"))
    running_at, w_stride = uint32(layout["running"]), uint32(keys + 8)
    warps, parts, per_lane = shape.warps, cluster * shape.depth, max(keys // 32, 1)
    bias, send_weights, send_weight = embedding.bias, sends.send_weights, sends.send_weight

    @cuda.jit(device=True)
    def begin(shared, tid):
        if tid < uint32(rows):
            nothing = float32(0.0)
            st4(shared, running_at + uint32(4) * tid, make_float4(LOWEST, nothing, nothing, nothing))

    @cuda.jit(device=True)
    def load_scores(shared, s, tile, table, own, row, lane_id, tile_start, last_key, sizes):
        """A lane's scores of a row: the sums of all parts, biased; minus infinity where the row does not see."""
        visible = visible_to(tile, row, last_key, sizes)
        at = uint32(parts_at + own * uint32(keys) + lane_id * uint32(per_lane))
        for i in range(per_lane):
            s[i] = float32(0.0)
        if lane_id * uint32(per_lane) < uint32(keys):
            for part in range(parts):
                if per_lane == 1:
                    s[0] += shared[at + uint32(part * rows * keys)]
                else:
                    x, y = ld2(shared, at + uint32(part * rows * keys))
                    s[0] += x
                    s[per_lane - 1] += y
        for i in range(per_lane):
            key = uint32(lane_id * uint32(per_lane) + uint32(i))
            if bias is not None:
                distance = sizes.q_offset + int32(tile.first_query + row) - int32(tile_start + key)
                s[i] += bias(table, tile.bias_head, distance)
            if key >= uint32(keys) or tile_start + key >= visible:
                s[i] = NEGATIVE_INFINITY

    @cuda.jit(device=True)
    def send_row(shared, s, row, lane_id):
        """A lane's weights of a row to all blocks."""
        at = uint32(weights_at + row * w_stride + lane_id * uint32(per_lane))
        if lane_id * uint32(per_lane) < uint32(keys):
            for to in range(cluster):
                if per_lane == 1:
                    send_weight(shared, at, uint32(to), s[0])
                else:
                    send_weights(shared, at, uint32(to), s[0], s[per_lane - 1])

    @cuda.jit(device=True)
    def weigh(shared, tile, table, warp_id, lane_id, tile_start, ceiling, last_key, sizes):
        s = cuda.local.array(per_lane, float32)
        own = warp_id
        while own < uint32(rows):
            row = uint32(tile.rank * uint32(rows) + own)
            load_scores(shared, s, tile, table, own, row, lane_id, tile_start, last_key, sizes)
            tile_max = NEGATIVE_INFINITY
            for i in range(per_lane):
                tile_max = max(tile_max, s[i])
            running = ld4(shared, running_at + uint32(4) * own)
            new_max = max(running.x, warp_max(tile_max))
            tile_sum = float32(0.0)
            for i in range(per_lane):
                s[i] = weight_of(s[i], new_max, ceiling)
                tile_sum += s[i]
            send_row(shared, s, row, lane_id)
            correction = rescaling(running.x, new_max)
            row_sum, row_lost = add_weights(running.y, running.z, correction, warp_sum(tile_sum))
            cuda.syncwarp()
            if lane_id == 0:
                st4(shared, running_at + uint32(4) * own, make_float4(new_max, row_sum, row_lost, float32(0.0)))
            if lane_id < uint32(cluster):
                send_weights(shared, uint32(rescale_at + uint32(2) * row), lane_id, correction, inverse_of(row_sum))
            own += uint32(warps)

    return begin, weigh
