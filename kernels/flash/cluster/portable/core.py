"""The V8 core for every GPU: attention in float32 arithmetic, without clusters, tensor cores or asynchronous copies.

K never passes through shared memory, and each of its elements is read and embedded once per tile of queries. Shared
memory holds the embedded queries: all of them or, if they do not fit, two slices in turn. A warp computes the softmax
of its rows. Then every thread accumulates four dims of the output for all queries of the tile.

The next loads are issued before the current values are used up, also across the ends of key tiles and output panels.
As long as every four dims of the output have a thread, sums stay in registers. Beyond that, a thread takes several
panels of four dims and accumulates them in global memory, where it reads only what it wrote.
"""

import functools
from typing import Any

from numba import cuda, float32

from ....constants import require, require_shared
from ....device import cuint, st2
from ....device.rows import ROWS
from ....version import MOST_BLOCKS, Kernel, Launch, Problem
from ..embedding import Embedding
from ..launch import Operands, launch
from ..schedule import PARTS, SIZES, block_of
from ..softmax import STATE, softmax_of
from .output import output_of
from .score import Thread, query_of, scores_of
from .shape import BLOCK, Shape, choose


def softmax_by_warps(shape: Shape, embedding: Embedding) -> tuple[Any, Any]:
    """(begin, online_softmax) of `softmax_of`: a lane's keys are 32 apart, its weights take the space of its scores."""
    queries, keys, warps_k, per_lane = shape.queries, shape.keys, shape.warps_k, shape.keys_per_lane
    scores_at, stride = shape.layout["scores"], shape.stride

    @cuda.jit(device=True)
    def load_scores(shared, s, at, own, row, lane_id):
        for n in range(per_lane):
            s[at + n] = float32(0.0)
            if lane_id + 32 * n < keys:
                for part in range(warps_k):
                    s[at + n] += shared[scores_at + (part * queries + row) * stride + lane_id + 32 * n]

    @cuda.jit(device=True)
    def store_weights(shared, s, at, row, lane_id):
        for n in range(per_lane):
            if lane_id + 32 * n < keys:
                shared[scores_at + row * stride + lane_id + 32 * n] = s[at + n]

    @cuda.jit(device=True)
    def store_factors(shared, at, to, factor, inverse):
        st2(shared, at, factor, inverse)

    return softmax_of(shape, embedding, False, load_scores, store_weights, store_factors)


def make_kernel(shape: Shape, embedding: Embedding, heads_last: bool) -> Any:
    """The attention kernel for that shape and embedding."""
    # tile
    keys = shape.keys
    each = shape.each
    lanes = shape.lanes
    warps_n = shape.warps_n
    columns = shape.columns
    block = block_of(shape, embedding, heads_last)
    query_at = shape.layout["query"]
    # registers of a thread, in floats
    query_floats = shape.query_floats
    key_floats = 4 * each
    value_floats = 4 * BLOCK
    outputs = 4 * shape.queries
    rows_of_warp = shape.rows_of_warp
    # loads and products
    load_query, place_query = query_of(shape, embedding)
    load_keys, score = scores_of(shape, embedding, load_query, place_query)
    load_values, weigh, join = output_of(shape)
    # softmax
    begin, softmax = softmax_by_warps(shape, embedding)

    def attention(q, k, v, out, table, parts, sizes):
        # prologue
        shared = cuda.shared.array(0, float32, 16)
        tid = cuint(cuda.threadIdx.x)
        warp_id, lane_id = tid // 32, tid % 32
        tile, scope, q_rows, k_rows, v_rows, results = block(q, k, v, out, table, parts, sizes)

        # keys of a tile and dims of a step that this thread scores; then its keys and dims of the output
        first_key = (warp_id % warps_n * (32 // lanes) + lane_id // lanes) * each
        member, part = lane_id % lanes, warp_id // warps_n
        thread = Thread(first_key, (part * lanes + member) * 4, member, part, warp_id, lane_id)
        group, column = tid // columns, tid % columns * 4
        k_values = cuda.local.array(key_floats, float32)
        load_keys(k_values, k_rows, first_key, thread.first_dim, sizes.embedded_dim)
        v_values = cuda.local.array(value_floats, float32)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)

        q_values = cuda.local.array(query_floats, float32)
        load_query(q_values, q_rows, cuint(0), sizes.embedded_dim)
        place_query(shared, q_values, query_at, tile, cuint(0), scope)
        cuda.syncthreads()
        rows = cuda.local.array((STATE, rows_of_warp), float32)
        begin(rows, sizes.seq_k)

        # main loop
        start, buffer = cuint(0), cuint(query_at)
        while start < scope.last_key:
            buffer = score(shared, k_values, buffer, q_rows, k_rows, start, thread, tile, scope)
            for i in range(value_floats):
                v_values[i] = float32(0.0)
            load_values(v_values, v_rows, start + group * BLOCK, column, cuint(0))
            cuda.syncthreads()
            softmax(shared, rows, tile, scope, thread, start, start + keys < scope.last_key)
            cuda.syncthreads()
            weigh(shared, acc, v_values, v_rows, results, start, group, column)
            start = start + keys
        # epilogue
        join(shared, acc, results, tid, group, column)

    attention.__name__ = attention.__qualname__ = f"{shape.name}_{embedding.name}"
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, heads_last: bool) -> Kernel:
    signature = (ROWS,) * 4 + (table_type, PARTS, SIZES)
    return Kernel(make_kernel(shape, embedding, heads_last), signature, max_threads=shape.threads)


def attend(problem: Problem, *what: Any, shape: Shape | None = None, **named: Any) -> Launch:
    """The launch of `Operands`, of which `what` and `named` are fields.

    Raises: Unsupported for a shape of another head dim, or where a tile does not fit shared memory.
    """
    call, shape = Operands(problem, *what, **named), shape or choose(problem)
    template = "hdim is {needed}; this shape takes {allowed}"
    require(shape.hdim == problem.hdim, "hdim", problem.hdim, shape.hdim, template)
    require_shared(shape.layout, problem)
    heads_last = problem.batch * problem.kv_heads <= MOST_BLOCKS["z"]  # then tiles of a head run together
    return launch(kernel_of(shape, call.embedding, call.table_type, heads_last), shape, call, heads_last=heads_last)
