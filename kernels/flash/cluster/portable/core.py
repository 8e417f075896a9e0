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

from ....device.cuint import cuint
from ....device.rows import ROWS
from ....planning import require, require_shared
from ....version import MOST_BLOCKS, Kernel, Launch, Problem
from ..embedding import Embedding
from ..launch import Call, launch
from ..schedule import SIZES, Scope, tensors_of, tile_of_block, visible_keys
from ..softmax import STATE, softmax_of
from .choose import choose
from .output import output_of
from .score import Place, query_of, scores_of
from .shape import BLOCK, Shape
from .softmax import score_loader, store_factors, weight_storer


def make_kernel(shape: Shape, embedding: Embedding, heads_last: bool) -> Any:
    """The attention kernel for that shape and embedding."""
    queries, each, lanes, warps_n, keys = shape.queries, shape.each, shape.lanes, shape.warps_n, shape.keys
    columns, query_at, table_of_batch = shape.columns, shape.layout["query"], embedding.table_of_batch
    key_floats, value_floats, outputs = 4 * each, 4 * BLOCK, 4 * queries
    query_floats = shape.query_floats
    rows_of_warp = shape.rows_of_warp
    fetch, place = query_of(shape, embedding)
    load_keys, score = scores_of(shape, embedding, fetch, place)
    begin_rows, softmax = softmax_of(shape, False, score_loader(shape, embedding), weight_storer(shape), store_factors)
    load_values, weigh, join = output_of(shape)
    tile_of = tile_of_block(1, queries, heads_last)

    def attention(q, k, v, out, table, sizes):
        shared = cuda.shared.array(0, float32, 16)
        tid = cuint(cuda.threadIdx.x)
        warp_id, lane_id = tid // 32, tid % 32
        tile = tile_of(sizes)
        if table_of_batch is not None:
            table = table_of_batch(table, tile.batch)
        last_key, embedded_dim = visible_keys(tile, sizes), sizes.embedded_dim
        q_rows, k_head, v_head, results = tensors_of(tile, q, k, v, out, last_key)
        scope = Scope(table, last_key, cuint(0), sizes)

        # This thread's keys of a tile and dims of a step.
        first_key = warp_id % warps_n * (32 // lanes) + lane_id // lanes
        first_key = first_key * each
        member, part = lane_id % lanes, warp_id // warps_n
        thread = Place(first_key, (part * lanes + member) * 4, member, part, warp_id, lane_id)
        k_values = cuda.local.array(key_floats, float32)
        load_keys(k_values, k_head.data, k.row, first_key, last_key, thread.first_dim, embedded_dim)

        # This thread's keys and dims of the output.
        group = tid // columns
        column = tid % columns * 4
        v_values = cuda.local.array(value_floats, float32)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)

        q_values = cuda.local.array(query_floats, float32)
        buffer = query_at
        fetch(q_values, q_rows.data, q.row, tile.query_count, cuint(0), embedded_dim)
        place(shared, q_values, buffer, tile, cuint(0), table, sizes)
        cuda.syncthreads()
        rows = cuda.local.array((STATE, rows_of_warp), float32)
        begin_rows(rows, sizes.seq_k)

        tile_start = cuint(0)
        while tile_start < last_key:
            buffer = score(shared, k_values, buffer, q_rows, k_head, tile_start, thread, tile, scope)
            for i in range(value_floats):
                v_values[i] = float32(0.0)
            first_value = tile_start + group * BLOCK
            load_values(v_values, v_head.data, v.row, first_value, last_key, column, cuint(0))
            cuda.syncthreads()
            more = tile_start + keys < last_key
            softmax(shared, rows, tile, scope, thread, tile_start, more)
            cuda.syncthreads()
            weigh(shared, acc, v_values, v_head, results, tile_start, group, column)
            tile_start = tile_start + keys
        join(shared, acc, results, tid, group, column)

    attention.__name__ = attention.__qualname__ = f"{shape.name}_{embedding.name}"
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any, heads_last: bool) -> Kernel:
    signature = (ROWS,) * 4 + (table_type, SIZES)
    return Kernel(make_kernel(shape, embedding, heads_last), signature, max_threads=shape.threads)


def attend(problem: Problem, *what: Any, shape: Shape | None = None, **named: Any) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    Raises: Unsupported for a shape of another head dim, or where a tile does not fit shared memory.
    """
    call, shape = Call(problem, *what, **named), shape or choose(problem)
    require(
        shape.hdim == problem.hdim, "hdim", problem.hdim, shape.hdim, "hdim is {needed}; this shape takes {allowed}"
    )
    require_shared(shape.layout, problem)
    heads_last = problem.batch * problem.kv_heads <= MOST_BLOCKS["z"]  # then tiles of a head run together
    return launch(kernel_of(shape, call.embedding, call.table_type, heads_last), shape, call, heads_last=heads_last)
