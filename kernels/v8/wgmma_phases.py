"""Phases of the wgmma core that its two kernels share: scores of a tile, their exchange, and the output."""

from __future__ import annotations

from typing import Any

from numba import cuda, float32, int32, uint32

from ..device.reduce import FULL_MASK
from ..device.vector import advance, ld4, make_float4, st2, st4
from ..device.wgmma import ROWS, WARPGROUP
from .embedding import Embedding
from .exchange import Exchange, exchange
from .mma_shape import GROUP
from .wgmma_copy import swizzle
from .wgmma_multiply import scores_by_products
from .wgmma_shape import KEYS, Shape

TILE_ALIGNMENT = 1024


def name_of(shape: Shape, embedding: Embedding, paired: int) -> str:
    return f"{shape.name}_{embedding.name}" + f"_{paired}_paired" * (paired < shape.groups)


def places_of(shape: Shape) -> tuple[Any, Any, Any]:
    """Device functions: what a thread and a block have of the work.

    warpgroup_of(tid)
    place(warp_id, lane_row, rank, warpgroup) -> (key, dim, slot): the first of two keys, the first dim of the output,
        and the slot of its parts of scores
    owned_rows(rank): how many rows the block owns
    """
    warpgroups, lane_dims, rows, queries = shape.warpgroups, 2 * shape.abreast, shape.rows, shape.queries

    @cuda.jit(device=True)
    def warpgroup_of(tid):
        warpgroup = uint32(0)
        if warpgroups > 1:
            # broadcast from one lane, so that the compiler knows it is uniform
            warpgroup = uint32(cuda.shfl_sync(FULL_MASK, int32(tid // uint32(WARPGROUP)), 0))
        return warpgroup

    @cuda.jit(device=True)
    def place(warp_id, lane_row, rank, warpgroup):
        key = uint32(warp_id % uint32(4) * uint32(16) + uint32(2) * lane_row)
        dim = uint32((warp_id % uint32(4) * uint32(8) + lane_row) * uint32(lane_dims))
        return key, dim, uint32(rank * uint32(warpgroups) + warpgroup)

    @cuda.jit(device=True)
    def owned_rows(rank):
        first_row = uint32(rank * uint32(rows))
        return min(uint32(rows), max(uint32(queries), first_row) - first_row)

    return warpgroup_of, place, owned_rows


def exchange_of(shape: Shape) -> Exchange:
    """The exchange of a kernel, with the bytes of a row of parts, and of all weights and factors."""
    cluster, queries = shape.cluster, shape.queries
    row_bytes, weights_bytes = 4 * cluster * shape.warpgroups * KEYS, 4 * queries * (2 * KEYS + 2)
    return exchange(cluster, shape.layout["arrived"], row_bytes, weights_bytes)


def output_of(shape: Shape) -> Any:
    """A device function store(shared, acc, out_tile, pitch, query_count, first_dim, warpgroup, dim, member, hdim): the
    output of a block, divided by the row sums.
    """
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
    def store(shared, acc, out_tile, pitch, query_count, first_dim, warpgroup, dim, member, hdim):
        inverse = cuda.local.array(inverses, float32)
        for j in range(queries // 8):
            rescales = ld4(shared, uint32(rescale_at + uint32(16 * j) + uint32(4) * member))
            inverse[2 * j], inverse[2 * j + 1] = rescales.y, rescales.w
        for p in range(panels):
            panel = uint32(warpgroup + uint32(p * warpgroups))
            local = uint32(panel * uint32(panel_dims) + dim)
            out_dim = uint32(local // uint32(GROUP) * uint32(span) + first_dim + local % uint32(GROUP))
            if panel < uint32(width // panel_dims) and out_dim < hdim:
                out_start = advance(out_tile, uint32(uint32(2) * member * pitch + out_dim))
                for j in range(queries // 8):
                    for side in range(2):
                        if uint32(uint32(8 * j + side) + uint32(2) * member) < query_count:
                            at, i = uint32(uint32(8 * j + side) * pitch), p * abreast * size + 4 * j + side
                            store_pair(acc, out_start, at, i, inverse[2 * j + side])

    return store


def scores_of(shape: Shape, embedding: Embedding, paired: int, begin_keys: Any, embed_keys: Any) -> Any:
    """A device function that adds a warpgroup's part of a tile's scores, of its groups of dims; it embeds the keys."""
    warpgroups, groups, span = shape.warpgroups, shape.groups, GROUP * shape.cluster
    embeds_keys = embedding.keys and not shape.once
    load_keys, score = scores_by_products(shape)

    @cuda.jit(device=True)
    def scores_of_tile(
        shared, buffer, scores, begun, table, warpgroup, key, member, tile_start, last_key,
        first_dim, sizes,
    ):  # fmt: skip
        group = warpgroup
        while group < uint32(groups):
            next_group = uint32(group + uint32(warpgroups))
            fragment = cuda.local.array(16, float32)
            load_keys(shared, buffer, fragment, group, key, member)
            if embeds_keys and uint32(first_dim + group * uint32(span)) < sizes.embedded_dim:
                embed_keys(fragment, begun, table, group, key, member, tile_start, last_key, first_dim, sizes)
                if paired > 1:
                    next_dim = uint32(first_dim + next_group * uint32(span))
                    more = next_group < uint32(groups) and next_dim < sizes.embedded_dim
                    begin_keys(begun, table, next_group if more else warpgroup, member, first_dim, sizes)
            score(shared, scores, fragment, group)
            group = next_group

    return scores_of_tile


def parts_of(shape: Shape, sends: Exchange) -> Any:
    """A device function send(shared, scores, key, member, slot): parts of scores to the blocks that own their rows."""
    rows, parts_at, send_part, eights = shape.rows, uint32(shape.layout["parts"]), sends.send_part, shape.queries // 8

    @cuda.jit(device=True)
    def send(shared, scores, key, member, slot):
        for j in range(eights):
            for side in range(2):
                row = uint32(uint32(8 * j + side) + uint32(2) * member)
                at = uint32(parts_at + (slot * uint32(rows) + row % uint32(rows)) * uint32(KEYS))
                at = uint32(at + swizzle(key, row // uint32(2)))
                send_part(shared, at, row // uint32(rows), scores[4 * j + side], scores[4 * j + side + 2])

    return send
