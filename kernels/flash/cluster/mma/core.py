"""The phases of the main loop on mma.sync: a block copies its slices of Q and K to shared memory and embeds them there.

A warp multiplies 16 queries by some of the keys, over some of the dims.
"""

import functools
from collections import namedtuple
from typing import Any

from numba import cuda

from ....device.asm import cp_async_wait
from ....device.cuint import cuint
from ....device.rows import ROWS
from ....device.vector import advance, make_float4, st4
from ....limits import EMULATED_TARGET
from ....version import Kernel, Launch, Problem
from ..card import SMS
from ..core import Phases, make_kernel
from ..embedding import Embedding
from ..exchange import Exchange, exchange
from ..launch import Call, launch
from ..schedule import NO_PARTS, SIZES, Slice
from ..shape import GROUP
from ..softmax import STATE, softmax_of
from .choose import choose
from .embed import copiers, place_of, scaler, tile_embedder
from .multiply import output_by_products, scores_by_products
from .shape import STEP, Shape
from .softmax import score_loader, weight_sender

# A thread copies, and embeds, rows from `first_row` on and dims from `column` of a slice on, which is dim `copied_dim`
# of a head. Its warp multiplies queries from `top` on by keys from `left` on, dims from `first_step` on, and sends the
# parts with number `slot`; then it has panels from `panel` on of the output. Its block has `owned` rows.
Thread = namedtuple(
    "Thread",
    "tid warp_id lane_id lane_row member first_row column copied_dim top left slot first_step panel owned",
)


def thread_of(shape: Shape) -> Any:
    """A device function thread(rank) -> Thread."""
    warps_m, warps_n, warps_k = shape.warps_m, shape.warps_n, shape.warps_k
    rows, columns, place = shape.rows, shape.columns, place_of(shape)

    @cuda.jit(device=True)
    def thread(rank):
        tid = cuint(cuda.threadIdx.x)
        warp_id, lane_id = tid // 32, tid % 32
        lane_row, member = lane_id // 4, lane_id % 4
        first_row, column, copied_dim = place(rank * GROUP)
        top = warp_id % warps_m * 16
        left = warp_id // warps_m % warps_n * (8 * columns)
        slot = rank * warps_k + warp_id // (warps_m * warps_n)
        first_step = warp_id // (warps_m * warps_n) * STEP
        panel = warp_id // warps_m
        return Thread(
            tid, warp_id, lane_id, lane_row, member, first_row, column, copied_dim, top, left, slot,
            first_step, panel, rows,
        )  # fmt: skip

    return thread


def parts_of(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a warp's parts of scores to the blocks that own their rows."""
    columns, rows, keys, parts_at = shape.columns, shape.rows, shape.keys, shape.layout["parts"]
    send_part, low = sends.send_part, 4 * columns

    @cuda.jit(device=True)
    def send(shared, scores, thread):
        for j in range(columns):
            for half in range(2):
                row = thread.top + 8 * half + thread.lane_row
                at = (thread.slot * rows + row % rows) * keys
                at = parts_at + at + thread.left + 8 * j + 2 * thread.member
                x = scores[low + 4 * j + 2 * half] + scores[4 * j + 2 * half]
                y = scores[low + 4 * j + 2 * half + 1] + scores[4 * j + 2 * half + 1]
                send_part(shared, at, row // rows, x, y)

    return send


def output_of(shape: Shape) -> Any:
    """A device function that stores the output of a warp, divided by the row sums."""
    panels, groups, warps_d, span = shape.panels, shape.groups, shape.warps_d, GROUP * shape.cluster
    rescale_at = shape.layout["rescale"]

    @cuda.jit(device=True)
    def store(shared, acc, out, thread, dims, sizes):
        hdim = sizes.hdim
        for half in range(2):
            row = thread.top + 8 * half + thread.lane_row
            if row < out.count:
                by = shared[rescale_at + 2 * row + 1]
                out_row = advance(out.data, row * out.pitch)
                for p in range(panels):
                    group = thread.panel + p * warps_d
                    dim = group * span + dims.first_dim + 8 * thread.member
                    for side in range(2):
                        if group < groups and dim + 4 * side < hdim:
                            i = 16 * p + 2 * half + side
                            x = make_float4(acc[i] * by, acc[i + 4] * by, acc[i + 8] * by, acc[i + 12] * by)
                            st4(out_row, dim + 4 * side, x)

    return store


def phases_of(shape: Shape, embedding: Embedding) -> Phases:
    """The phases for that shape and embedding."""
    embeds, per_dim = embedding.query or embedding.keys, embedding.per_dim
    copy_query, copy_keys, copy_values = copiers(shape, embedding.half_split)
    embed_tile, scale_query = tile_embedder(shape, embedding), scaler(shape)
    # The bytes of a row of parts, and of all weights and factors.
    parts_bytes, weights_bytes = 4 * shape.cluster * shape.warps_k * shape.keys, 4 * shape.queries * (shape.keys + 2)
    sends = exchange(shape.cluster, shape.layout["arrived"], parts_bytes, weights_bytes)
    loads = score_loader(shape, embedding)
    begin_rows, softmax = softmax_of(shape, shape.blocks == 1, loads, weight_sender(shape, sends), sends.send_weights)

    @cuda.jit(device=True)
    def load(shared, query, query_dims, dim_values, queries, tile, scope, thread):
        """Copies of Q and K; meanwhile what all positions share, of the first dims that a thread embeds."""
        sizes, dims = scope.sizes, Slice(tile.first_dim, cuint(0))
        if embeds and thread.copied_dim < sizes.embedded_dim:
            x = per_dim(scope.table, thread.copied_dim)
            dim_values[0], dim_values[1], dim_values[2], dim_values[3] = x.x, x.y, x.z, x.w
        copy_query(shared, queries, dims, sizes)

    @cuda.jit(device=True)
    def stage(shared, query, query_dims, tile, scope, thread):
        pass

    @cuda.jit(device=True)
    def embed(shared, dim_values, tile, scope, thread, start):
        if embeds:
            embed_tile(shared, dim_values, tile, scope, thread, start)
        cp_async_wait()
        if start == 0:
            scale_query(shared, scope.sizes.softmax_scale, tile.query_count, thread)

    @cuda.jit(device=True)
    def fence():
        pass

    return Phases(
        registers=(1, 1, 4, 8 * shape.columns, 16 * shape.panels, (STATE, shape.rows_of_warp)), starter=0,
        alignment=16, thread_of=thread_of(shape), exchange=sends, load=load, stage=stage,
        begin=begin_rows, copy_keys=copy_keys, copy_values=copy_values, embed=embed, score=scores_by_products(shape),
        send_parts=parts_of(shape, sends), softmax=softmax, fence=fence, weigh=output_by_products(shape),
        store=output_of(shape),
    )  # fmt: skip


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any) -> Kernel:
    function = make_kernel(shape, embedding, phases_of(shape, embedding), f"{shape.name}_{embedding.name}")
    return Kernel(function, (ROWS,) * 4 + (table_type, NO_PARTS, SIZES), shape.threads, min_blocks=shape.blocks)


def attend(
    problem: Problem,
    *what: Any,
    shape: Shape | None = None,
    target: str = EMULATED_TARGET,
    sms: int = SMS,
    **named: Any,
) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Call(problem, *what, **named)
    shape = shape or choose(problem, call.embedded_dim, target, sms)
    return launch(kernel_of(shape, call.embedding, call.table_type), shape, call)
