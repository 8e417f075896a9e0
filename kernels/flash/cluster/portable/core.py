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

from numba import cuda, float32, uint32

from ....constants import FLOAT, INT, UINT, require
from ....device.rows import ROWS
from ....planning import require_shared
from ....version import Kernel, Launch, Problem
from ..embedding import Embedding
from ..launch import Call
from ..schedule import Sizes, Tile, tensors_of, visible_keys
from ..softmax import greatest_weight
from .choose import choose
from .output import output_of
from .score import Place, query_of, scores_of
from .shape import BLOCK, Shape
from .softmax import Rows, softmax_of


def make_kernel(shape: Shape, embedding: Embedding) -> Any:
    """The attention kernel for that shape and embedding."""
    queries, each, lanes, across, keys = shape.queries, shape.each, shape.lanes, shape.across, shape.keys
    columns, query_at, of_batch = shape.columns, uint32(shape.layout["query"]), embedding.of_batch
    key_floats, value_floats, outputs = 4 * each, 4 * BLOCK, 4 * queries
    query_floats = shape.query_floats
    rows_each = -(-queries // (shape.threads // 32))  # rows for which a warp computes the softmax
    fetch, place = query_of(shape, embedding)
    load_keys, score = scores_of(shape, embedding, fetch, place)
    begin_rows, softmax = softmax_of(shape, embedding)
    load_values, weigh, join = output_of(shape)

    def attention(q, k, v, out, table, seq_q, seq_k, dims, embedded_dim, q_offset, causal, softmax_scale):
        shared = cuda.shared.array(0, float32, 16)
        tid = uint32(cuda.threadIdx.x)
        warp_id, lane_id = tid // uint32(32), tid % uint32(32)
        tiles = uint32((seq_q + uint32(queries - 1)) // uint32(queries))
        batch, kv_head, kv_heads = uint32(cuda.blockIdx.z), uint32(cuda.blockIdx.y), uint32(cuda.gridDim.y)
        sharers = uint32(cuda.gridDim.x) // tiles  # heads that share keys
        head = uint32(kv_head * sharers + uint32(cuda.blockIdx.x) // tiles)
        if of_batch is not None:
            table = of_batch(table, batch)
        first_query = uint32(uint32(cuda.blockIdx.x) % tiles * uint32(queries))
        tile = Tile(
            uint32(0), batch, kv_head, head, uint32(batch * kv_heads + kv_head),
            uint32(batch * kv_heads * sharers + head), first_query,
            uint32(min(uint32(queries), uint32(seq_q - first_query))), uint32(0), uint32(0),
        )  # fmt: skip
        sizes = Sizes(kv_heads, uint32(0), seq_q, seq_k, dims, embedded_dim, q_offset, causal, softmax_scale)
        q_tile, k_head, v_head, out_tile = tensors_of(tile, q, k, v, out)
        query_count, last_key = tile.query_count, visible_keys(tile, sizes)

        # This thread's keys of a tile and dims of a step.
        first_key = uint32(warp_id % uint32(across) * uint32(32 // lanes) + lane_id // uint32(lanes))
        first_key = uint32(first_key * uint32(each))
        member, part = lane_id % uint32(lanes), warp_id // uint32(across)
        thread = Place(first_key, uint32((part * uint32(lanes) + member) * uint32(4)), member, part, lane_id)
        k_values = cuda.local.array(key_floats, float32)
        load_keys(k_values, k_head, k.row, first_key, last_key, thread.first_dim, embedded_dim)

        # This thread's keys and dims of the output.
        group = tid // uint32(columns)
        column = uint32(tid % uint32(columns) * uint32(4))
        v_values = cuda.local.array(value_floats, float32)
        acc = cuda.local.array(outputs, float32)
        for i in range(outputs):
            acc[i] = float32(0.0)

        q_values = cuda.local.array(query_floats, float32)
        buffer = query_at
        fetch(q_values, q_tile, q.row, query_count, uint32(0), embedded_dim)
        place(shared, q_values, buffer, tile, uint32(0), table, sizes)
        cuda.syncthreads()
        state = Rows(cuda.local.array(rows_each, float32), cuda.local.array(rows_each, float32))
        begin_rows(state)

        ceiling = greatest_weight(seq_k)
        tile_start = uint32(0)
        while tile_start < last_key:
            buffer = score(
                shared, k_values, buffer, q_tile, q.row, k_head, k.row, tile, tile_start, last_key, thread, table, sizes
            )
            for i in range(value_floats):
                v_values[i] = float32(0.0)
            first_value = uint32(tile_start + group * uint32(BLOCK))
            load_values(v_values, v_head, v.row, first_value, last_key, column, uint32(0))
            cuda.syncthreads()
            softmax(shared, state, tile, table, warp_id, lane_id, tile_start, last_key, ceiling, sizes)
            cuda.syncthreads()
            weigh(shared, acc, v_values, v_head, v.row, out_tile, out.row, tile, tile_start, last_key, group, column)
            tile_start = uint32(tile_start + uint32(keys))
        join(shared, acc, out_tile, out.row, query_count, tid, group, column)

    attention.__name__ = attention.__qualname__ = f"{shape.name}_{embedding.name}"
    return attention


@functools.cache
def kernel_of(shape: Shape, embedding: Embedding, table_type: Any) -> Kernel:
    signature = (ROWS,) * 4 + (table_type,) + (UINT,) * 4 + (INT, UINT, FLOAT)
    return Kernel(make_kernel(shape, embedding), signature, max_threads=shape.threads)


def attend(problem: Problem, *what: Any, shape: Shape | None = None, **named: Any) -> Launch:
    """The launch of a `Call`, of which `what` and `named` are fields.

    Raises: Unsupported for a shape of another head dim, or where a tile does not fit shared memory.
    """
    call, shape = Call(problem, *what, **named), shape or choose(problem)
    template = "hdim is {needed}; this shape takes {allowed}"
    require(shape.hdim == problem.hdim, "hdim", problem.hdim, shape.hdim, template)
    require_shared(shape.layout, problem)
    tiles, sharers = -(-problem.seq_q // shape.queries), problem.heads // problem.kv_heads
    return Launch(
        kernel_of(shape, call.embedding, call.table_type),
        grid=(tiles * sharers, problem.kv_heads, problem.batch),
        block=(shape.threads,),
        args=(*call.tensors, *call.numbers),
        shared=shape.layout,
        shape=shape,
        embedding=call.embedding,
    )
