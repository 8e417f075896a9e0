"""Phases of the wgmma core that its two kernels share: scores of a tile, their exchange, and the output."""

from collections import namedtuple
from typing import Any

from numba import cuda, float32, int32

from ....device import FULL_MASK, advance, cuint, ld4, make_float4, repeat, split, st2, st4
from ....device.wgmma import ROWS, TERMS, WARPGROUP, tile_index
from ..embedding import Embedding
from ..exchange import Exchange
from ..shape import COPIERS, GROUP
from .embed import key_embedder
from .multiply import scores_by_products
from .shape import KEYS, Shape

# A thread has `key` and the next of a tile, the dims from `dim` of a panel of the output, and the `slot` of its parts
# of scores. It copies and embeds rows from `first_row` on and four dims of a group, from `column` on.
Thread = namedtuple("Thread", "tid warp_id lane_id member warpgroup key dim slot first_row column")


def thread_of(shape: Shape) -> Any:
    """A device function thread(rank) -> Thread."""
    warpgroups, lane_dims = shape.warpgroups, 2 * shape.mmas_per_panel

    @cuda.jit(device=True)
    def thread(rank):
        tid, warpgroup = cuint(cuda.threadIdx.x), cuint(0)
        warp_id, lane_id = tid // 32, tid % 32
        if warpgroups > 1:
            # broadcast from one lane, so that the compiler knows it is uniform
            warpgroup = cuint(cuda.shfl_sync(FULL_MASK, int32(tid // WARPGROUP), 0))
        key, dim = warp_id % 4 * 16 + lane_id // 4 * 2, (warp_id % 4 * 8 + lane_id // 4) * lane_dims
        slot, first_row, column = rank * warpgroups + warpgroup, tid // COPIERS, tid % COPIERS * 4
        return Thread(tid, warp_id, lane_id, lane_id % 4, warpgroup, key, dim, slot, first_row, column)

    return thread


def scores_of(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """A device function that adds a warpgroup's part of a tile's scores, of its groups of dims; it embeds the keys."""
    warpgroups, groups, span = shape.warpgroups, shape.groups, GROUP * shape.cluster
    embeds_keys, products, steps = embedding.keys, shape.queries, -(-groups // warpgroups)
    whole = groups % warpgroups == 0
    prefetch = whole and shape.blocks == 1  # it takes registers
    load_keys, split_keys, start, finish = scores_by_products(shape)
    load_dims, embed_keys = key_embedder(shape, embedding)

    @cuda.jit(device=True)
    def add_group(step, shared, scores, new, dim_values, scope, thread, dims, start_key):
        """Load, embed and split a group; with `prefetch`, while the products of the group before run."""
        group, first_dim = thread.warpgroup + step * warpgroups, dims.first_dim
        fragment = cuda.local.array(16, float32)
        a = cuda.local.array(16, float32)
        al = cuda.local.array(16, float32)
        if whole or group < groups:
            load_keys(shared, dims.buffer, fragment, group, thread.key, thread.member)
            if embeds_keys and first_dim + group * span < scope.sizes.embedded_dim:
                embed_keys(fragment, dim_values, scope, thread, group, start_key, first_dim)
                if paired > 1:
                    following = group + warpgroups
                    if following >= groups or first_dim + following * span >= scope.sizes.embedded_dim:
                        following = thread.warpgroup
                    load_dims(dim_values, scope, thread, following, first_dim)
            split_keys(a, al, fragment)
            if prefetch and step > 0:
                finish(scores, new)
            start(shared, new, a, al, group)
            if not prefetch or step == steps - 1:
                finish(scores, new)

    add_groups = repeat(add_group, steps)

    @cuda.jit(device=True)
    def add_scores(shared, scores, dim_values, scope, thread, dims, start_key):
        new = cuda.local.array(products, float32)
        add_groups(shared, scores, new, dim_values, scope, thread, dims, start_key)

    return add_scores


def score_sender(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a thread's parts of scores to the blocks that own their rows."""
    send_scores, eights = sends.send_scores, shape.queries // 8

    @cuda.jit(device=True)
    def send(shared, scores, thread):
        for j in range(eights):
            for side in range(2):
                row, x, y = 8 * j + side + 2 * thread.member, scores[4 * j + side], scores[4 * j + side + 2]
                send_scores(shared, thread.slot, row, thread.key, x, y)

    return send


def weight_sender(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a lane's weights of a row, high and low, to all blocks."""
    weights_at, send_weights = shape.weights_at, sends.send_weights
    high_tile, low = shape.queries * TERMS, shape.queries * KEYS

    @cuda.jit(device=True)
    def send_row(shared, s, at, row, lane_id):
        (high_x, low_x), (high_y, low_y) = split(s[at]), split(s[at + 1])
        weight_at = weights_at + lane_id // 16 * high_tile + lane_id % 2 * 2 + tile_index(row, lane_id % 16 // 2)
        send_weights(shared, weight_at, high_x, high_y)
        send_weights(shared, weight_at + low, low_x, low_y)

    return send_row


def output_of(shape: Shape) -> Any:
    """A device function that stores the output of a block, divided by the row sums."""
    queries, width, warpgroups, mmas_per_panel = shape.queries, shape.width, shape.warpgroups, shape.mmas_per_panel
    size, panel_dims, inverses, panels = queries // 2, mmas_per_panel * ROWS, queries // 4, shape.panels
    rescale_at, span = shape.layout["rescale"], GROUP * shape.cluster

    @cuda.jit(device=True)
    def store_dims(acc, out_start, at, i, by):
        if mmas_per_panel == 2:
            x = make_float4(acc[i] * by, acc[i + 2] * by, acc[i + size] * by, acc[i + size + 2] * by)
            st4(out_start, at, x)
        else:
            st2(out_start, at, acc[i] * by, acc[i + 2] * by)

    @cuda.jit(device=True)
    def store(shared, acc, out, thread, dims, sizes):
        inverse = cuda.local.array(inverses, float32)
        for j in range(queries // 8):
            rescales = ld4(shared, rescale_at + 16 * j + 4 * thread.member)
            inverse[2 * j], inverse[2 * j + 1] = rescales.y, rescales.w
        for p in range(panels):
            panel = thread.warpgroup + p * warpgroups
            local = panel * panel_dims + thread.dim
            out_dim = local // GROUP * span + dims.first_dim + local % GROUP
            if panel < width // panel_dims and out_dim < sizes.hdim:
                out_start = advance(out.data, 2 * thread.member * out.pitch + out_dim)
                for j in range(queries // 8):
                    for side in range(2):
                        if 8 * j + side + 2 * thread.member < out.count:
                            at, i = (8 * j + side) * out.pitch, p * mmas_per_panel * size + 4 * j + side
                            store_dims(acc, out_start, at, i, inverse[2 * j + side])

    return store
