"""Phases of the wgmma core that its two kernels share: scores of a tile, their exchange, and the output."""

from collections import namedtuple
from typing import Any

from numba import cuda, float32, int32

from ....device.cint import cint
from ....device.cuint import cuint
from ....device.reduce import FULL_MASK, NEGATIVE_INFINITY
from ....device.tensor import split
from ....device.vector import advance, ld2, ld4, make_float4, st2, st4
from ....device.wgmma import ROWS, TERMS, WARPGROUP, tile_index
from ..embedding import Embedding
from ..exchange import Exchange, exchange
from ..repeat import repeat
from ..schedule import visible_to
from ..shape import COPIERS, GROUP
from ..softmax import STATE, softmax_of
from .copy import query_placer, swizzle
from .embed import dim_loader, key_embedder, pairer, query_embedder, rotated_dims
from .multiply import scores_by_products
from .shape import KEYS, Shape


def registers_of(shape: Shape) -> tuple[Any, ...]:
    """The shapes of a thread's arrays."""
    group_floats, size = 4 * shape.groups, shape.queries // 2
    outputs = shape.panels * shape.mmas_per_panel * size
    return group_floats * shape.query_passes, group_floats, 8, size, outputs, (STATE, shape.rows_of_warp)


# A thread has `key` and the next of a tile, the dims from `dim` of a panel of the output, and the `slot` of its parts
# of scores. It copies dims from `column` of a group on and embeds those from `lane_dim` on. Its block has `owned` rows.
Thread = namedtuple("Thread", "tid warp_id lane_id member warpgroup key dim slot column lane_dim owned")


def thread_of(shape: Shape, embedding: Embedding) -> Any:
    """A device function thread(rank) -> Thread."""
    warpgroups, lane_dims, rows, queries = shape.warpgroups, 2 * shape.mmas_per_panel, shape.rows, shape.queries
    half_split, stored = embedding.half_split, embedding.stored

    @cuda.jit(device=True)
    def thread(rank):
        tid = cuint(cuda.threadIdx.x)
        warp_id, lane_id, warpgroup = tid // 32, tid % 32, cuint(0)
        lane_row, member = lane_id // 4, lane_id % 4
        if warpgroups > 1:
            # broadcast from one lane, so that the compiler knows it is uniform
            warpgroup = cuint(cuda.shfl_sync(FULL_MASK, int32(tid // WARPGROUP), 0))
        key = warp_id % 4 * 16 + 2 * lane_row
        dim = (warp_id % 4 * 8 + lane_row) * lane_dims
        slot = rank * warpgroups + warpgroup
        column = tid % COPIERS * 4
        lane_dim = rotated_dims(column) if half_split else column
        if stored:
            column = lane_dim  # the order in which K is stored
        first_row = rank * rows
        owned = min(rows, queries - min(queries, first_row))
        return Thread(tid, warp_id, lane_id, member, warpgroup, key, dim, slot, column, lane_dim, owned)

    return thread


def query_stager(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """A device function that embeds what a thread has loaded of Q, and splits it into shared memory.

    `dim_values` is what the embedding computes per dim; where a block streams its dims, that happens here.
    """
    embeds_query, half_split, halves = embedding.query, embedding.half_split, embedding.halves
    pair_query, embed_query = pairer(shape.groups, paired, shape.query_passes), query_embedder(shape, embedding)
    place_query, load_dims = query_placer(shape, halves, paired), dim_loader(shape, embedding, paired)
    streams, dim_floats = shape.streams, 4 * shape.groups

    @cuda.jit(device=True)
    def stage_query(shared, raw, dim_values, tile, scope, thread, first_dim):
        table, sizes = scope.table, scope.sizes
        copied_dim = first_dim + thread.lane_dim
        if streams:
            dim_values = cuda.local.array(dim_floats, float32)
            if embeds_query and copied_dim < sizes.embedded_dim:
                load_dims(dim_values, table, copied_dim, sizes)
        if half_split:
            pair_query(raw)
        if embeds_query and copied_dim < sizes.embedded_dim:
            position = cint(sizes.q_offset + tile.first_query)
            for i in range(paired):
                embed_query(raw, dim_values, i, table, position, tile.query_count, copied_dim, sizes)
        place_query(shared, raw, thread.column, sizes.softmax_scale)

    return stage_query


def exchange_of(shape: Shape) -> Exchange:
    """The exchange of a kernel, with the bytes of a row of parts, and of all weights and factors."""
    row_bytes = 4 * shape.cluster * shape.warpgroups * KEYS
    return exchange(shape.cluster, shape.layout["arrived"], row_bytes, 4 * shape.queries * (2 * KEYS + 2))


def output_of(shape: Shape) -> Any:
    """A device function that stores the output of a block, divided by the row sums."""
    queries, width, warpgroups, mmas_per_panel = shape.queries, shape.width, shape.warpgroups, shape.mmas_per_panel
    size, panel_dims, inverses, panels = queries // 2, mmas_per_panel * ROWS, queries // 4, shape.panels
    rescale_at, span = shape.layout["rescale"], GROUP * shape.cluster

    @cuda.jit(device=True)
    def store_pair(acc, out_start, at, i, by):
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
                            store_pair(acc, out_start, at, i, inverse[2 * j + side])

    return store


def scores_of(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """A device function that adds a warpgroup's part of a tile's scores, of its groups of dims; it embeds the keys."""
    warpgroups, groups, span = shape.warpgroups, shape.groups, GROUP * shape.cluster
    embeds_keys, both, steps = embedding.keys, shape.queries, -(-groups // warpgroups)
    whole = groups % warpgroups == 0
    load_keys, split_keys, start, finish = scores_by_products(shape)
    (load_key_dims, embed_keys), ahead = (
        key_embedder(shape, embedding),
        whole and shape.blocks == 1,
    )  # it takes registers

    @cuda.jit(device=True)
    def add_group(step, shared, scores, new, dim_values, scope, thread, dims, start_key):
        """Load, embed and split a group; `ahead`, while the products of the last one run."""
        key, member, first_dim = thread.key, thread.member, dims.first_dim
        group = thread.warpgroup + step * warpgroups
        fragment = cuda.local.array(16, float32)
        a = cuda.local.array(16, float32)
        al = cuda.local.array(16, float32)
        if whole or group < groups:
            load_keys(shared, dims.buffer, fragment, group, key, member)
            if embeds_keys and first_dim + group * span < scope.sizes.embedded_dim:
                embed_keys(fragment, dim_values, scope, group, key, member, start_key, first_dim)
                if paired > 1:
                    next_group = group + warpgroups
                    next_dim = first_dim + next_group * span
                    more = next_group < groups and next_dim < scope.sizes.embedded_dim
                    following = next_group if more else thread.warpgroup
                    load_key_dims(dim_values, scope.table, following, member, first_dim, scope.sizes)
            split_keys(a, al, fragment)
            if ahead and step > 0:
                finish(scores, new)
            start(shared, new, a, al, group)
            if not ahead:
                finish(scores, new)

    add_groups = repeat(add_group, steps)

    @cuda.jit(device=True)
    def add_scores(shared, scores, dim_values, scope, thread, dims, start_key):
        new = cuda.local.array(both, float32)
        add_groups(shared, scores, new, dim_values, scope, thread, dims, start_key)
        if ahead:
            finish(scores, new)

    return add_scores


def parts_of(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends parts of scores to the blocks that own their rows."""
    rows, parts_at, send_part, eights = shape.rows, shape.layout["parts"], sends.send_part, shape.queries // 8

    @cuda.jit(device=True)
    def send(shared, scores, thread):
        for j in range(eights):
            for side in range(2):
                row = 8 * j + side + 2 * thread.member
                at = parts_at + (thread.slot * rows + row % rows) * KEYS
                at = at + swizzle(thread.key, row // 2)
                send_part(shared, at, row // rows, scores[4 * j + side], scores[4 * j + side + 2])

    return send


def score_loader(shape: Shape, embedding: Embedding) -> Any:
    """A device function that loads a lane's two adjacent scores of a row: the sum of all parts, biased and masked."""
    rows_of_block, parts, bias = shape.rows, shape.cluster * shape.warpgroups, embedding.bias
    parts_at = shape.layout["parts"]

    @cuda.jit(device=True)
    def load_scores(shared, s, at, tile, scope, own, row, lane_id, start):
        sizes, key = scope.sizes, start + 2 * lane_id
        place = parts_at + own * KEYS + swizzle(lane_id * 2, row // 2)
        x, y = ld2(shared, place)
        for part in range(1, parts):
            z, w = ld2(shared, place + part * rows_of_block * KEYS)
            x += z
            y += w
        if bias is not None:
            distance = cint(sizes.q_offset + tile.first_query + row - key)
            x += bias(scope.table, tile.bias_head, distance)
            y += bias(scope.table, tile.bias_head, distance - 1)
        visible = visible_to(tile, row, scope.last_key, sizes)
        s[at] = x if key < visible else NEGATIVE_INFINITY
        s[at + 1] = y if key + 1 < visible else NEGATIVE_INFINITY

    return load_scores


def weight_sender(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a lane's weights of a row, high and low, to all blocks."""
    cluster, weights_at, send_weights = shape.cluster, shape.weights_at, sends.send_weights
    high_tile, weights_low = shape.queries * TERMS, shape.queries * KEYS

    @cuda.jit(device=True)
    def send_row(shared, s, at, row, lane_id):
        high_x, low_x = split(s[at])
        high_y, low_y = split(s[at + 1])
        place = tile_index(row, lane_id % 16 // 2)
        place = place + lane_id // 16 * high_tile + lane_id % 2 * 2
        place = weights_at + place
        for to in range(cluster):
            send_weights(shared, place, to, high_x, high_y)
            send_weights(shared, place + weights_low, to, low_x, low_y)

    return send_row


def rows_softmax(shape: Shape, embedding: Embedding, sends: Exchange) -> tuple[Any, Any]:
    """begin and softmax of a kernel."""
    loads = score_loader(shape, embedding)
    return softmax_of(shape, shape.per_tile_accumulator, loads, weight_sender(shape, sends), sends.send_weights)
