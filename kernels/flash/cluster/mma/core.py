"""The phases of the main loop on mma.sync: a block copies its slices of Q and K to shared memory, and embeds them.

A warp multiplies 16 queries by some of the keys, over some of the dims.
"""

import functools
from collections import namedtuple
from typing import Any

from numba import cuda

from ....device import advance, cp_async_wait, cuint, make_float4, st4
from ....device.rows import ROWS
from ....limits import EMULATED_TARGET, Share
from ....version import Kernel, Launch, Problem
from ..core import Phases, make_kernel
from ..embedding import Embedding
from ..exchange import Exchange, exchange
from ..launch import Operands, launch
from ..schedule import PARTS, SIZES, Slice
from ..shape import COPIERS, GROUP, WHOLE
from ..softmax import STATE, softmax_of
from .choose import choose
from .embed import copier, scaler, tile_embedder
from .multiply import output_by_products, scores_by_products
from .shape import STEP, Shape

# A thread copies and embeds rows from `first_row` on, and dims of a slice from `column` on, which is dim `copied_dim`
# of a head. Its warp multiplies queries from `top` on by keys from `left` on, over dims from `first_step` on, and sends
# the parts with number `slot`; its output is the panels from `panel` on.
Thread = namedtuple(
    "Thread", "tid warp_id lane_id lane_row member first_row column copied_dim top left slot first_step panel"
)


def thread_of(shape: Shape) -> Any:
    """A device function thread(rank) -> Thread."""
    warps_m, warps_n, warps_k, columns = shape.warps_m, shape.warps_n, shape.warps_k, shape.columns
    rows_per_pass, span = shape.rows_per_pass, GROUP * shape.cluster

    @cuda.jit(device=True)
    def thread(rank):
        tid = cuint(cuda.threadIdx.x)
        warp_id, lane_id = tid // 32, tid % 32
        sharer, lane_dim = tid // (COPIERS * rows_per_pass), tid % COPIERS * 4
        part = warp_id // (warps_m * warps_n)
        return Thread(
            tid=tid, warp_id=warp_id, lane_id=lane_id, lane_row=lane_id // 4, member=lane_id % 4,
            first_row=tid // COPIERS % rows_per_pass, column=lane_dim + sharer * GROUP,
            copied_dim=rank * GROUP + lane_dim + sharer * span,
            top=warp_id % warps_m * 16, left=warp_id // warps_m % warps_n * (8 * columns),
            slot=rank * warps_k + part, first_step=part * STEP, panel=warp_id // warps_m,
        )  # fmt: skip

    return thread


def score_sender(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a warp's parts of scores to the blocks that own their rows."""
    columns, low, send_scores = shape.columns, 4 * shape.columns, sends.send_scores

    @cuda.jit(device=True)
    def send(shared, scores, thread):
        for j in range(columns):
            for half in range(2):
                at, key = 4 * j + 2 * half, thread.left + 8 * j + 2 * thread.member
                x, y = scores[low + at] + scores[at], scores[low + at + 1] + scores[at + 1]
                send_scores(shared, thread.slot, thread.top + 8 * half + thread.lane_row, key, x, y)

    return send


def weight_sender(shape: Shape, sends: Exchange) -> Any:
    """A device function that sends a lane's weights of a row to all blocks."""
    weights_at, stride, keys, send_weights = shape.layout["weights"], shape.keys + 8, shape.keys, sends.send_weights

    @cuda.jit(device=True)
    def send_row(shared, s, at, row, lane_id):
        if 2 * lane_id < keys:
            send_weights(shared, weights_at + row * stride + 2 * lane_id, s[at], s[at + 1])

    return send_row


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


def phases_of(shape: Shape, embedding: Embedding, sends: Exchange) -> Phases:
    """The phases for that shape and embedding."""
    embeds, per_dim, stride = embedding.query or embedding.keys, embedding.per_dim, shape.width + 16
    copy_query = copier(shape, "query", stride, shape.queries, embedding.half_split)
    embed_tile, scale_query, weight_row = tile_embedder(shape, embedding), scaler(shape), weight_sender(shape, sends)
    begin, softmax = softmax_of(shape, embedding, shape.blocks == 1, sends.load_scores, weight_row, sends.send_factors)

    @cuda.jit(device=True)
    def load(shared, query, query_dims, dim_values, queries, tile, scope, thread):
        """Copies of Q; meanwhile what all positions share, of the first dims that a thread embeds."""
        if embeds and thread.copied_dim < scope.sizes.embedded_dim:
            x = per_dim(scope.table, thread.copied_dim)
            dim_values[0], dim_values[1], dim_values[2], dim_values[3] = x.x, x.y, x.z, x.w
        copy_query(shared, queries, Slice(tile.first_dim, cuint(0)), thread, scope.sizes)

    @cuda.jit(device=True)
    def stage(shared, query, query_dims, tile, scope, thread, first_dim):
        pass

    @cuda.jit(device=True)
    def embed(shared, dim_values, tile, scope, thread, start):
        if embeds:
            embed_tile(shared, dim_values, tile, scope, thread, start)
        cp_async_wait()
        if start == 0:
            scale_query(shared, scope.sizes.softmax_scale, tile.query_count, thread)

    return Phases(
        registers=(1, 1, 4, 8 * shape.columns, 16 * shape.panels, (STATE, shape.rows_of_warp)),
        thread_of=thread_of(shape), load=load, stage=stage, begin=begin, embed=embed, softmax=softmax,
        copy_keys=copier(shape, "keys", stride, shape.keys, embedding.half_split),
        copy_values=copier(shape, "values", shape.width + 4, shape.keys),
        score=scores_by_products(shape), send_scores=score_sender(shape, sends),
        weigh=output_by_products(shape), store=output_of(shape),
    )  # fmt: skip


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any) -> Kernel:
    sends, name = exchange(shape, shape.keys), f"{shape.name}_{embedding.name}"
    function = make_kernel(shape, embedding, sends, phases_of(shape, embedding, sends), name)
    return Kernel(function, (ROWS,) * 4 + (table_type, PARTS, SIZES), shape.threads, min_blocks=shape.blocks)


def attend(
    problem: Problem,
    *what: Any,
    shape: Shape | None = None,
    target: str = EMULATED_TARGET,
    share: Share = WHOLE,
    **named: Any,
) -> Launch:
    """The launch of `Operands`, of which `what` and `named` are fields.

    Raises: Unsupported where the slices of a cluster do not cover all dims, or the tiles do not fit shared memory.
    """
    call = Operands(problem, *what, **named)
    shape = shape or choose(problem, call.embedded_dim, target, share)
    return launch(kernel_of(shape, call.embedding, call.table_type), shape, call)
