"""Kernels for prompts in half precision: which rows and keys a block takes, its shared memory, and its copies.

The rows of a KV head are its query heads' queries, head by head, as in `schedule`. A block takes a tile of `rows` of
them and all keys that these see, a tile of keys at a time. Tiles in shared memory are slabs of 64 dims: rows of 128
bytes, chunk c of row r at c ^ (r & 7). Keys with half-split RoPE, and queries like them, lie in the order of `loads`.
"""

from functools import partial
from typing import Any

from numba import cuda, types, uint64

from ...device.cint import cint
from ...device.vector import advance
from ..decode.kernel import prologue
from ..embed import pairs_of, rotate, turns
from ..epilogue import inverse, out_row
from ..loads import columns, copy_async, load_rows
from ..schedule import ROW_STEPS, query_of
from ..shapes import SLAB_CHUNKS, SLAB_DIMS, SLAB_ROW, PipelinedShape, PromptShape, WgmmaShape
from ..tiles import I64, VOID, f32, i32, op, zero_words


def tile_of(rows: int) -> Any:
    """tile(sizes) -> (batch, KV head, tile of rows, keys, end of those that it sees, first query).

    The grid is (tiles, KV heads, batch): blocks that share keys run together. Causal, it is (KV heads, tiles, batch),
    and tiles that see the most keys come first, where none straddles heads.
    """

    @cuda.jit(device=True, forceinline=True)
    def tile(sizes):
        number, head, batch = cint(cuda.blockIdx.x), cint(cuda.blockIdx.y), cint(cuda.blockIdx.z)
        if sizes.causal != 0:
            y, head = head, number
            number = sizes.tiles - 1 - y
            if sizes.group > 1 and sizes.seq_q % rows == 0:
                of_head = sizes.seq_q // rows
                number = y % sizes.group * of_head + of_head - 1 - y // sizes.group
        keys, first_query = sizes.seq_k, sizes.q_offset
        if sizes.by_length != 0:
            keys = min(cint(sizes.lengths[batch]), sizes.seq_k)
            first_query = keys - sizes.seq_q
        end = keys
        if sizes.causal != 0:
            first_head, _ = query_of(number * rows, sizes)
            last_head, query = query_of(min(number * rows + rows, sizes.group * sizes.seq_q) - 1, sizes)
            if first_head != last_head:
                query = sizes.seq_q - 1
            end = min(keys, first_query + query + 1)
        return batch, head, number, keys, max(end, 0), first_query

    return tile


def place(b: Any, base: Any, row: Any, chunk: Any, rows: int) -> Any:
    """The address of a chunk of a row in a tile of `rows` rows that begins at `base`."""
    slab = (chunk >> 3) * (SLAB_ROW * rows)
    inside = ((chunk & 7) ^ (row & 7)) << 4
    return base + slab + (row * SLAB_ROW + inside)


def asked_words(shape: PromptShape | WgmmaShape) -> int:
    """Registers of queries that a thread asks for at a time."""
    return 4 * min(shape.rows * shape.row_chunks // shape.threads, shape.rows_at_once)


def stage_queries(shape: PromptShape | WgmmaShape, index: int, where: Any) -> tuple[Any, Any]:
    """A tile of queries, rotated, by two functions, between which a thread may ask for other things.

    ask(tid, tensors, sizes, rotation, batch, head, tile) -> raw registers
    stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query, words, state)

    `state` is that of `embed.begin` for rows threads / row_chunks apart. `index` is that of the tile;
    where(b, base, row, chunk) gives the address of a chunk. A tile of one head's queries takes `rows_at_once` rows of a
    thread at a time; rows behind the last are the last again. One that straddles heads takes row by row in `stage`.
    """
    chunks, step, hdim, vector = shape.row_chunks, shape.threads // shape.row_chunks, shape.hdim, shape.element.vector
    count, rows = min(shape.rows // step, shape.rows_at_once), shape.rows
    part_rows, offsets, pairs = count * step, tuple(step * number for number in range(count)), pairs_of(shape, 1)
    load = load_rows(offsets, 1, 1 + shape.half_split, shape.element.size, "ld.global.nc")
    columns_of, more, none = columns(shape, 1, 0, shape.half_split), rows > part_rows, zero_words(asked_words(shape))

    def put_words(b: Any, base: Any, row: Any, chunk: Any, words_of: Any) -> None:
        with b.if_then(chunk < -(-hdim // SLAB_DIMS) * SLAB_CHUNKS):
            b.store_words("st.shared", where(b, base, row, chunk), words_of())

    @op(types.void)
    def keep(b, shared, words, state, rotation, batch, query, last, row, chunk):
        base = b.at_float(shared, index)
        turned = turns(shape, b, state, rotation, (batch, query, last, chunk, 1), step)
        for number, offset in enumerate(offsets):
            x = words[4 * number : 4 * number + 4]
            if shape.rotates:
                x = shape.element.words(b, rotate(b, shape.element.floats(b, x), next(turned), pairs))
            put_words(b, base, row + offset, chunk, partial(list, x))

    @op(types.void)
    def put(b, shared, row, chunk, values):
        put_words(b, b.at_float(shared, index), row, chunk, partial(shape.element.words, b, values))

    by_row = prologue(shape, put, scaled=False)  # the scale would round queries once more

    @cuda.jit(device=True, forceinline=True)
    def head_of(sizes, tile):
        last_row = min(tile * rows + rows, sizes.group * sizes.seq_q) - 1
        of_group, query = query_of(tile * rows, sizes)
        last_group, last = query_of(last_row, sizes)
        return of_group, query, last, of_group == last_group

    @cuda.jit(device=True, forceinline=True)
    def load_part(tensors, sizes, rotation, batch, head, of_group, query, item, last, chunk):
        q = advance(tensors.q, uint64(batch) * tensors.q_batch)
        q = advance(q, uint64(head * sizes.group + of_group) * tensors.q_head)
        places = columns_of(chunk, rotation.rotary_dim)
        return load(q, query + item // chunks, last, tensors.q_row, places)

    @cuda.jit(device=True, forceinline=True)
    def ask(tid, tensors, sizes, rotation, batch, head, tile):
        words, chunk = none(), tid % chunks
        of_group, query, last, whole = head_of(sizes, tile)
        if whole and chunk * vector < hdim:
            words = load_part(tensors, sizes, rotation, batch, head, of_group, query, tid, last, chunk)
        return words

    @cuda.jit(device=True, forceinline=True)
    def stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query, words, state):
        of_group, query, last, whole = head_of(sizes, tile)
        chunk, row = tid % chunks, tid // chunks
        if whole:
            if chunk * vector < hdim:
                place, end = first_query + query, first_query + last
                keep(shared, words, state, rotation, batch, place + row, end, row, chunk)
                row += part_rows
                while more and row < rows:
                    words = load_part(tensors, sizes, rotation, batch, head, of_group, query, row * chunks, last, chunk)
                    keep(shared, words, state, rotation, batch, place + row, end, row, chunk)
                    row += part_rows
        else:
            by_row(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query)

    return ask, stage


def places(b: Any, shape: PromptShape, base: Any, row: Any, chunk: Any) -> list[tuple[Any, int]]:
    """(address, offset) of a thread's chunk in each of its rows of a tile: rows that differ by 8 share an address."""
    step = shape.row_step
    period = max(8 // step, 1)
    starts = [place(b, base, row + step * i, chunk, shape.tile_keys) for i in range(period)]
    return [(starts[n % period], SLAB_ROW * step * (n - n % period)) for n in range(ROW_STEPS)]


@op(lambda shape: types.void)
def copy_rows(b, shape, shared, index, pointer, first, end, pitch, columns, row, chunk):
    """Copy a thread's chunks of a tile, with cp.async.

    Rows first + row, and every row_step-th; those from `end` on become zeros. `pitch` in elements; `columns` are those
    of one chunk.
    """
    step = shape.row_step
    targets = places(b, shape, b.at_float(shared, index), row, chunk)
    place_ = first + row
    pitch = b.zext(pitch, I64) * shape.element.size
    source = pointer + b.sext(place_, I64) * pitch
    further = pitch * step
    for number, (target, offset) in enumerate(targets):
        inside = place_ + step * number < end
        used = b.select(inside, i32(16), i32(0))
        copy_async(b, target, offset, source + b.zext(columns[0], I64), used)
        source = source + further


@op(lambda pending: types.void)
def wait_groups(b, pending):
    """Wait until all but the last `pending` groups of this thread's copies are there."""
    b.ptx(f"cp.async.wait_group {pending};", "~{memory}", VOID, [])


def rows_written(shape: PipelinedShape, put: Any) -> Any:
    """write(tensors, sizes, batch, head, row, lane, acc, row_sum): rows `row` and row + 8 of a KV head; 0 without keys.

    put(shape, 0) and put(shape, 1) make what takes either: (pointer, valid, member, acc, row_sum), where a lane is the
    `member`-th of those that share the row.
    """
    put_first, put_second = put(shape, 0), put(shape, 1)

    @cuda.jit(device=True, forceinline=True)
    def write(tensors, sizes, batch, head, row, lane, acc, row_sum):
        rows = sizes.group * sizes.seq_q
        put_first(out_row(tensors, sizes, batch, head, row), row < rows, lane & 3, acc, row_sum)
        put_second(out_row(tensors, sizes, batch, head, row + 8), row + 8 < rows, lane & 3, acc, row_sum)

    return write


def merge_keys(shape: PromptShape) -> Any:
    """done(shared, tid, tensors, sizes, batch, head, tile): the output, of all warps' accumulators and statistics.

    They are in shared memory, in front of a barrier that it has.
    """
    at, rows, hdim, threads, vector = shape.layout, shape.rows, shape.hdim, shape.threads, shape.element.vector
    items, pitch, size = rows * (hdim // vector), 4 * shape.row_pitch, shape.element.size

    @op(types.void)
    def put(b, shared, pointer, row, dim):
        statistics = [b.at_float(shared, at[name]) + (row << 2) for name in ("row_max", "row_sum")]
        maxima, totals = (
            [b.as_floats(b.load_words("ld.shared", base, 1, 4 * rows * warp))[0] for warp in range(shape.key_warps)]
            for base in statistics
        )
        top = maxima[0]
        for other in maxima[1:]:
            top = b.maximum(top, other)
        out, total = [f32(0.0)] * vector, f32(0.0)
        address = b.at_float(shared, at["sums"]) + (row * pitch + (dim << 2))
        for warp, (row_max, row_sum) in enumerate(zip(maxima, totals)):
            factor = b.exp2(row_max - top)
            total = b.fma(factor, row_sum, total)
            values = [x for i in (0, 16) for x in b.load_words("ld.shared", address, 4, rows * pitch * warp + i)]
            out = [b.fma(factor, x, y) for x, y in zip(b.as_floats(values), out)]
        by = inverse(b, total)
        where = pointer + b.zext(dim * size, I64)
        b.store_words("st.global", where, shape.element.words(b, [x * by for x in out]))

    @cuda.jit(device=True, forceinline=True)
    def done(shared, tid, tensors, sizes, batch, head, tile):
        cuda.syncthreads()
        item = tid
        while item < items:
            row = item // (hdim // vector)
            dim = vector * (item - row * (hdim // vector))
            of_head = tile * rows + row
            if of_head < sizes.group * sizes.seq_q:
                put(shared, out_row(tensors, sizes, batch, head, of_head), row, dim)
            item += threads

    return done
