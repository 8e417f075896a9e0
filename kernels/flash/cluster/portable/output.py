"""The portable core: the output, a stream of values weighted by the scores of a tile."""

from typing import Any

from numba import cuda, float32

from ....device import cuint, ld4, make_float4, repeat, st4
from ..embedding import loader_of
from .score import rows_loader
from .shape import BLOCK, Shape


def row_functions(shape: Shape) -> tuple[Any, ...]:
    """Device functions for all queries of a thread's four dims: weigh a block of values, rescale, recall, store."""
    queries, stride, rescale_at = shape.queries, shape.stride, shape.layout["rescale"]

    @cuda.jit(device=True)
    def weigh_row(i, acc, values, shared, at):
        weights = ld4(shared, at + i * stride)
        for d in range(4):
            total = acc[4 * i + d]
            total = weights.x * values[d] + total
            total = weights.y * values[d + 4] + total
            total = weights.z * values[d + 8] + total
            acc[4 * i + d] = weights.w * values[d + 12] + total

    @cuda.jit(device=True)
    def rescale_row(i, acc, shared):
        rescale = shared[rescale_at + 2 * i]
        for d in range(4):
            acc[4 * i + d] *= rescale

    @cuda.jit(device=True)
    def recall_row(i, acc, results, dim):
        if i < results.count:
            x = ld4(results.data, i * results.pitch + dim)
            acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3] = x.x, x.y, x.z, x.w

    @cuda.jit(device=True)
    def store_row(i, acc, shared, results, dim, done):
        if i < results.count:
            by = shared[rescale_at + 2 * i + 1] if done else float32(1.0)
            x = make_float4(acc[4 * i] * by, acc[4 * i + 1] * by, acc[4 * i + 2] * by, acc[4 * i + 3] * by)
            st4(results.data, i * results.pitch + dim, x)

    return tuple(repeat(row, queries) for row in (weigh_row, rescale_row, recall_row, store_row))


def joiner(shape: Shape, store: Any) -> Any:
    """join(...): the sum of what groups of threads hold in registers, stored."""
    queries, hdim, threads, columns = shape.queries, shape.hdim, shape.threads, shape.columns
    query_at, resident, groups = shape.layout["query"], hdim <= 4 * threads, threads // columns

    @cuda.jit(device=True)
    def give_row(i, acc, shared, at):
        at = at + i * 2 * threads
        st4(shared, at, make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]))

    @cuda.jit(device=True)
    def take_row(i, acc, shared, at):
        x = ld4(shared, at + i * 2 * threads)
        acc[4 * i], acc[4 * i + 1] = acc[4 * i] + x.x, acc[4 * i + 1] + x.y
        acc[4 * i + 2], acc[4 * i + 3] = acc[4 * i + 2] + x.z, acc[4 * i + 3] + x.w

    give, take = repeat(give_row, queries), repeat(take_row, queries)

    @cuda.jit(device=True)
    def join(shared, acc, results, tid, group, column):
        if resident:
            count = groups // 2
            at = query_at + 4 * tid
            while count > 0:
                if group >= count and group < 2 * count:
                    give(acc, shared, at - 4 * count * columns)
                cuda.syncthreads()
                if group < count:
                    take(acc, shared, at)
                cuda.syncthreads()
                count //= 2
            if group == 0 and column < hdim:
                store(acc, shared, results, column, True)

    return join


def output_of(shape: Shape) -> tuple[Any, Any, Any]:
    """The output functions of a kernel. A thread has four dims of the output, for all queries of the tile.

    load_values: the first values of a stream of V
    weigh(...): the output of a tile, in registers where a thread has dims for all, else in global memory
    join(...)
    """
    hdim, keys, columns, prefetch = shape.hdim, shape.keys, shape.columns, shape.ahead
    scores_at = shape.layout["scores"]
    resident, groups = hdim <= 4 * shape.threads, shape.threads // columns  # groups of threads that take different keys
    value_floats, outputs, load_values = 4 * BLOCK, 4 * shape.queries, rows_loader(BLOCK, loader_of(False), hdim)
    weigh_block, rescale, recall, store = row_functions(shape)

    @cuda.jit(device=True)
    def weigh(shared, acc, v_values, v_rows, results, start, group, column):
        v_next = cuda.local.array(value_floats, float32)
        live, dim = min(keys, v_rows.count - start), column
        if resident and start > 0:
            rescale(acc, shared)
        while dim < hdim:
            if not resident:
                for i in range(outputs):
                    acc[i] = float32(0.0)
                if start > 0:
                    recall(acc, results, dim)
                    rescale(acc, shared)
            block = group
            while block * BLOCK < live:
                next_block, next_dim, at = block + groups, dim, scores_at + block * BLOCK
                if next_block * BLOCK >= live:
                    next_block, next_dim = group, dim + 4 * columns
                next_key = start + next_block * BLOCK
                if prefetch:
                    load_values(v_next, v_rows, next_key, next_dim, cuint(0))
                    weigh_block(acc, v_values, shared, at)
                    for i in range(value_floats):
                        v_values[i] = v_next[i]
                else:
                    weigh_block(acc, v_values, shared, at)
                    load_values(v_values, v_rows, next_key, next_dim, cuint(0))
                block = block + groups
            if not resident:
                store(acc, shared, results, dim, start + keys >= v_rows.count)
            dim = dim + 4 * columns

    return load_values, weigh, joiner(shape, store)
