"""Phases of the wgmma core that its two kernels share: scores of a tile, their exchange, and the output."""

from collections import namedtuple
from typing import Any

from numba import cuda, float32, int32, uint32

from ....device.reduce import FULL_MASK
from ....device.vector import advance, ld4, make_float4, st2, st4
from ....device.wgmma import ROWS, WARPGROUP
from ..embedding import Embedding
from ..exchange import Exchange, exchange
from ..repeat import repeat
from ..shape import COPIERS, GROUP
from .copy import query_placer, swizzle
from .embed import beginner, key_embedder, pairer, query_embedder, rotated_dims
from .multiply import scores_by_products
from .shape import KEYS, Shape


def name_of(shape: Shape, embedding: Embedding, paired: int) -> str:
    return f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < shape.groups)


# A thread has `key` and the next of a tile, the dims from `dim` of a panel of the output, and the `slot` of its parts
# of scores. It copies dims from `column` of a group on and embeds those from `lane_dim` on. Its block has `owned` rows.
Thread = namedtuple("Thread", "tid warp_id lane_id member warpgroup key dim slot column lane_dim owned")


def thread_of(shape: Shape, embedding: Embedding) -> Any:
    """A device function thread(rank) -> Thread."""
    warpgroups, lane_dims, rows, queries = shape.warpgroups, 2 * shape.abreast, shape.rows, shape.queries
    half_split, stored = embedding.half_split, embedding.stored

    @cuda.jit(device=True)
    def thread(rank):
        tid = uint32(cuda.threadIdx.x)
        warp_id, lane_id, warpgroup = tid // uint32(32), tid % uint32(32), uint32(0)
        lane_row, member = lane_id // uint32(4), lane_id % uint32(4)
        if warpgroups > 1:
            # broadcast from one lane, so that the compiler knows it is uniform
            warpgroup = uint32(cuda.shfl_sync(FULL_MASK, int32(tid // uint32(WARPGROUP)), 0))
        key = uint32(warp_id % uint32(4) * uint32(16) + uint32(2) * lane_row)
        dim = uint32((warp_id % uint32(4) * uint32(8) + lane_row) * uint32(lane_dims))
        slot = uint32(rank * uint32(warpgroups) + warpgroup)
        column = uint32(tid % uint32(COPIERS) * uint32(4))
        lane_dim = rotated_dims(column) if half_split else column
        if stored:
            column = lane_dim  # the order in which K is stored
        first_row = uint32(rank * uint32(rows))
        owned = min(uint32(rows), max(uint32(queries), first_row) - first_row)
        return Thread(tid, warp_id, lane_id, member, warpgroup, key, dim, slot, column, lane_dim, owned)

    return thread


def query_stager(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """A device function that embeds what a thread has loaded of Q, and splits it into shared memory.

    `begun` has the values of the embedding that all rows share; where a block streams its dims, they are made here.
    """
    embeds_query, half_split, halves = embedding.query, embedding.half_split, embedding.halves
    pair_query, embed_query = pairer(shape.groups, paired, shape.query_turns), query_embedder(shape, embedding)
    place_query, begin_dims = query_placer(shape, halves, paired), beginner(shape, embedding, paired)
    streams, begun_floats = shape.streams, 4 * shape.groups

    @cuda.jit(device=True)
    def stage_query(shared, raw, begun, table, tile, thread, first_dim, sizes):
        copied_dim = uint32(first_dim + thread.lane_dim)
        if streams:
            begun = cuda.local.array(begun_floats, float32)
            if embeds_query and copied_dim < sizes.embedded_dim:
                begin_dims(begun, table, copied_dim, sizes)
        if half_split:
            pair_query(raw)
        if embeds_query and copied_dim < sizes.embedded_dim:
            position = int32(sizes.q_offset + int32(tile.first_query))
            for i in range(paired):
                embed_query(raw, begun, i, table, position, tile.query_count, copied_dim, sizes)
        place_query(shared, raw, thread.column, sizes.softmax_scale)

    return stage_query


def exchange_of(shape: Shape) -> Exchange:
    """The exchange of a kernel, with the bytes of a row of parts, and of all weights and factors."""
    row_bytes = 4 * shape.cluster * shape.warpgroups * KEYS
    return exchange(shape.cluster, shape.layout["arrived"], row_bytes, 4 * shape.queries * (2 * KEYS + 2))


def output_of(shape: Shape) -> Any:
    """A device function that stores the output of a block, divided by the row sums."""
    queries, width, warpgroups, abreast = shape.queries, shape.width, shape.warpgroups, shape.abreast
    size, panel_dims, inverses, panels = queries // 2, abreast * ROWS, queries // 4, shape.panels
    rescale_at, span = uint32(shape.layout["rescale"]), GROUP * shape.cluster

    @cuda.jit(device=True)
    def store_pair(acc, out_start, at, i, by):
        if abreast == 2:
            x = make_float4(acc[i] * by, acc[i + 2] * by, acc[i + size] * by, acc[i + size + 2] * by)
            st4(out_start, at, x)
        else:
            st2(out_start, at, acc[i] * by, acc[i + 2] * by)

    @cuda.jit(device=True)
    def store(shared, acc, out_tile, pitch, tile, first_dim, thread, sizes):
        inverse = cuda.local.array(inverses, float32)
        for j in range(queries // 8):
            rescales = ld4(shared, uint32(rescale_at + uint32(16 * j) + uint32(4) * thread.member))
            inverse[2 * j], inverse[2 * j + 1] = rescales.y, rescales.w
        for p in range(panels):
            panel = uint32(thread.warpgroup + uint32(p * warpgroups))
            local = uint32(panel * uint32(panel_dims) + thread.dim)
            out_dim = uint32(local // uint32(GROUP) * uint32(span) + first_dim + local % uint32(GROUP))
            if panel < uint32(width // panel_dims) and out_dim < sizes.hdim:
                out_start = advance(out_tile, uint32(uint32(2) * thread.member * pitch + out_dim))
                for j in range(queries // 8):
                    for side in range(2):
                        if uint32(uint32(8 * j + side) + uint32(2) * thread.member) < tile.query_count:
                            at, i = uint32(uint32(8 * j + side) * pitch), p * abreast * size + 4 * j + side
                            store_pair(acc, out_start, at, i, inverse[2 * j + side])

    return store


def scores_of(shape: Shape, embedding: Embedding, paired: int) -> Any:
    """A device function that adds a warpgroup's part of a tile's scores, of its groups of dims; it embeds the keys."""
    warpgroups, groups, span = shape.warpgroups, shape.groups, GROUP * shape.cluster
    embeds_keys, both, steps = embedding.keys, shape.queries, -(-groups // warpgroups)
    whole = groups % warpgroups == 0
    load_keys, split_keys, start, finish = scores_by_products(shape)
    (begin_keys, embed_keys), ahead = key_embedder(shape, embedding), whole and shape.blocks == 1  # it takes registers

    @cuda.jit(device=True)
    def add_group(step, shared, buffer, scores, new, begun, table, thread, tile_start, last_key, first_dim, sizes):
        """Load, embed and split a group; `ahead`, while the products of the last one run."""
        key, member = thread.key, thread.member
        group = uint32(thread.warpgroup + uint32(step * warpgroups))
        fragment = cuda.local.array(16, float32)
        a = cuda.local.array(16, float32)
        al = cuda.local.array(16, float32)
        if whole or group < uint32(groups):
            load_keys(shared, buffer, fragment, group, key, member)
            if embeds_keys and uint32(first_dim + group * uint32(span)) < sizes.embedded_dim:
                embed_keys(fragment, begun, table, group, key, member, tile_start, last_key, first_dim, sizes)
                if paired > 1:
                    next_group = uint32(group + uint32(warpgroups))
                    next_dim = uint32(first_dim + next_group * uint32(span))
                    more = next_group < uint32(groups) and next_dim < sizes.embedded_dim
                    begin_keys(begun, table, next_group if more else thread.warpgroup, member, first_dim, sizes)
            split_keys(a, al, fragment)
            if ahead and step > 0:
                finish(scores, new)
            start(shared, new, a, al, group)
            if not ahead:
                finish(scores, new)

    add_groups = repeat(add_group, steps)

    @cuda.jit(device=True)
    def scores_of_tile(shared, buffer, scores, begun, table, thread, tile_start, last_key, first_dim, sizes):
        new = cuda.local.array(both, float32)
        add_groups(shared, buffer, scores, new, begun, table, thread, tile_start, last_key, first_dim, sizes)
        if ahead:
            finish(scores, new)

    return scores_of_tile


def parts_of(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends parts of scores to the blocks that own their rows."""
    rows, parts_at, send_part, eights = shape.rows, uint32(shape.layout["parts"]), sends.send_part, shape.queries // 8

    @cuda.jit(device=True)
    def send(shared, scores, thread):
        for j in range(eights):
            for side in range(2):
                row = uint32(uint32(8 * j + side) + uint32(2) * thread.member)
                at = uint32(parts_at + (thread.slot * uint32(rows) + row % uint32(rows)) * uint32(KEYS))
                at = uint32(at + swizzle(thread.key, row // uint32(2)))
                send_part(shared, at, row // uint32(rows), scores[4 * j + side], scores[4 * j + side + 2])

    return send
