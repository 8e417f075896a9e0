"""Phases of the prompt kernels: rows and keys of a block, its tiles in shared memory, copies, and the epilogue.

The rows of a KV head are its query heads' queries, head by head, as in `schedule`. A block takes a tile of `rows` of
them and all keys that these see, a tile of keys at a time. Tiles in shared memory are slabs of 64 dims: rows of 128
bytes, chunk c of row r at c ^ (r & 7). Half-split queries and keys have the order of dims of `loads`.
"""

from functools import partial
from typing import Any

from numba import cuda, types, uint64

from ...device.cint import cint
from ...device.vector import advance
from ..decode.kernel import prologue
from ..embed import cos_sins, pairs_of, rotate
from ..epilogue import inverse, out_row
from ..loads import columns, copy_async, load_rows
from ..schedule import ROW_STEPS, query_of
from ..shapes import SLAB_CHUNKS, SLAB_DIMS, SLAB_ROW, PipelinedShape, PromptShape, WgmmaShape
from ..tiles import I64, VOID, f32, i32, register_op, zero_words


def tile_of(rows: int) -> Any:
    """tile(sizes) -> (batch, KV head, tile of rows, keys, end of those that it sees, first query).

    The grid is (tiles, KV heads, batch): blocks that share keys run together. Causal, it is (KV heads, tiles, batch),
    and tiles that see the most keys come first, where no tile has rows of two heads.
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


def chunk_address(b: Any, base: Any, row: Any, chunk: Any, rows: int) -> Any:
    """The address of a chunk of a row in a tile of `rows` rows that begins at `base`."""
    slab = (chunk >> 3) * (SLAB_ROW * rows)
    inside = ((chunk & 7) ^ (row & 7)) << 4
    return base + slab + (row * SLAB_ROW + inside)


def asked_words(shape: PromptShape | WgmmaShape) -> int:
    """32-bit registers of queries that a thread loads at a time."""
    return 4 * min(shape.rows * shape.row_chunks // shape.threads, shape.rows_at_once)


def stage_queries(shape: PromptShape | WgmmaShape, index: int, where: Any) -> tuple[Any, Any]:
    """(load_first, stage): a tile of queries, rotated, to shared memory; other loads may start between the two.

    load_first(tid, tensors, sizes, rotation, batch, head, tile) -> raw registers
    stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query, words, state)

    `state` is that of `embed.begin` for rows threads / row_chunks apart. The tile begins at float `index`;
    where(b, base, row, chunk) gives the address of a chunk. A thread takes `rows_at_once` rows of a tile at a time;
    after the last row come copies of it. A tile with rows of two heads is loaded row by row in `stage`.
    """
    # tile
    rows, hdim = shape.rows, shape.hdim
    vector = shape.element.vector
    chunks = shape.row_chunks
    step = shape.threads // shape.row_chunks  # rows from one of a thread to its next
    count = min(shape.rows // step, shape.rows_at_once)
    part_rows = count * step
    offsets = tuple(step * number for number in range(count))
    more = rows > part_rows
    # loads
    load = load_rows(offsets, 1, 1 + shape.half_split, shape.element.size, "ld.global.nc")
    columns_of = columns(shape, 1, 0, shape.half_split)
    none = zero_words(asked_words(shape))
    pairs = pairs_of(shape, 1)

    def store_words(b: Any, base: Any, row: Any, chunk: Any, words_of: Any) -> None:
        with b.if_then(chunk < -(-hdim // SLAB_DIMS) * SLAB_CHUNKS):
            b.store_words("st.shared", where(b, base, row, chunk), words_of())

    @register_op(types.void)
    def store_rotated(b, shared, words, state, rotation, batch, query, last, row, chunk):
        base = b.at_float(shared, index)
        angles = cos_sins(shape, b, state, rotation, (batch, query, last, chunk, 1), step)
        for number, offset in enumerate(offsets):
            x = words[4 * number : 4 * number + 4]
            if shape.rotates:
                x = shape.element.words(b, rotate(b, shape.element.floats(b, x), next(angles), pairs))
            store_words(b, base, row + offset, chunk, partial(list, x))

    @register_op(types.void)
    def store_row(b, shared, row, chunk, values):
        store_words(b, b.at_float(shared, index), row, chunk, partial(shape.element.words, b, values))

    by_row = prologue(shape, store_row, scaled=False)  # the scale would round queries once more

    @cuda.jit(device=True, forceinline=True)
    def head_of(sizes, tile):
        last_row = min(tile * rows + rows, sizes.group * sizes.seq_q) - 1
        of_group, query = query_of(tile * rows, sizes)
        last_group, last = query_of(last_row, sizes)
        return of_group, query, last, of_group == last_group

    @cuda.jit(device=True, forceinline=True)
    def load_part(tensors, sizes, rotation, batch, head, of_group, query, item, last, chunk):
        q_gmem = advance(tensors.q, uint64(batch) * tensors.q_batch)
        q_gmem = advance(q_gmem, uint64(head * sizes.group + of_group) * tensors.q_head)
        q_columns = columns_of(chunk, rotation.rotary_dim)
        return load(q_gmem, query + item // chunks, last, tensors.q_row, q_columns)

    @cuda.jit(device=True, forceinline=True)
    def load_first(tid, tensors, sizes, rotation, batch, head, tile):
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
                start, end = first_query + query, first_query + last
                store_rotated(shared, words, state, rotation, batch, start + row, end, row, chunk)
                row += part_rows
                while more and row < rows:
                    words = load_part(tensors, sizes, rotation, batch, head, of_group, query, row * chunks, last, chunk)
                    store_rotated(shared, words, state, rotation, batch, start + row, end, row, chunk)
                    row += part_rows
        else:
            by_row(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query)

    return load_first, stage


def chunk_addresses(b: Any, shape: PromptShape, base: Any, row: Any, chunk: Any) -> list[tuple[Any, int]]:
    """(address, offset) of a thread's chunk in each of its rows of a tile; rows that differ by 8 share an address."""
    step = shape.row_step
    period = max(8 // step, 1)
    starts = [chunk_address(b, base, row + step * i, chunk, shape.tile_keys) for i in range(period)]
    return [(starts[n % period], SLAB_ROW * step * (n - n % period)) for n in range(ROW_STEPS)]


@register_op(types.void)
def copy_rows(b, shared, index, pointer, first, end, pitch, columns, row, chunk, *, shape):
    """Start cp.async of a thread's chunks of a tile: rows first + row, and every row_step-th; zeros from `end` on.

    pitch: elements from row to row. columns: byte offsets of one chunk.
    """
    step = shape.row_step
    targets = chunk_addresses(b, shape, b.at_float(shared, index), row, chunk)
    first_index = first + row
    pitch = b.zext(pitch, I64) * shape.element.size
    source = pointer + b.sext(first_index, I64) * pitch
    further = pitch * step
    for number, (target, offset) in enumerate(targets):
        inside = first_index + step * number < end
        used = b.select(inside, i32(16), i32(0))
        copy_async(b, target, offset, source + b.zext(columns[0], I64), used)
        source = source + further


@register_op(types.void)
def wait_groups(b, *, pending):
    """cp.async.wait_group: all but the last `pending` groups of this thread's copies are complete."""
    b.ptx(f"cp.async.wait_group {pending};", "~{memory}", VOID, [])


def rows_written(shape: PipelinedShape, store: Any) -> Any:
    """write(tensors, sizes, batch, head, row, lane, acc, row_sum): rows `row` and row + 8 of a KV head; 0 without keys.

    store(shape, half) returns (pointer, valid, member, acc, row_sum), which stores row + 8 half; the lane is the
    `member`-th of the four that share the row.
    """
    store_first, store_second = store(shape, 0), store(shape, 1)

    @cuda.jit(device=True, forceinline=True)
    def write(tensors, sizes, batch, head, row, lane, acc, row_sum):
        rows = sizes.group * sizes.seq_q
        store_first(out_row(tensors, sizes, batch, head, row), row < rows, lane & 3, acc, row_sum)
        store_second(out_row(tensors, sizes, batch, head, row + 8), row + 8 < rows, lane & 3, acc, row_sum)

    return write


def merge_keys(shape: PromptShape) -> Any:
    """done(shared, tid, tensors, sizes, batch, head, tile): the output, from the partial results of all warps.

    All warps have stored accumulators, row maxima and row sums to shared memory; `done` begins with a block barrier.
    """
    at, rows, hdim, threads, vector = shape.layout, shape.rows, shape.hdim, shape.threads, shape.element.vector
    items, pitch, size = rows * (hdim // vector), 4 * shape.row_pitch, shape.element.size

    @register_op(types.void)
    def store_chunk(b, shared, pointer, row, dim):
        statistics = [b.at_float(shared, at[name]) + (row << 2) for name in ("row_max", "row_sum")]
        maxima, sums = (
            [b.as_floats(b.load_words("ld.shared", base, 1, 4 * rows * warp))[0] for warp in range(shape.key_warps)]
            for base in statistics
        )
        m = maxima[0]
        for other in maxima[1:]:
            m = b.maximum(m, other)
        o, d = [f32(0.0)] * vector, f32(0.0)
        address = b.at_float(shared, at["sums"]) + (row * pitch + (dim << 2))
        for warp, (row_max, row_sum) in enumerate(zip(maxima, sums)):
            rescale = b.exp2(row_max - m)
            d = b.fma(rescale, row_sum, d)
            values = [x for i in (0, 16) for x in b.load_words("ld.shared", address, 4, rows * pitch * warp + i)]
            o = [b.fma(rescale, x, y) for x, y in zip(b.as_floats(values), o)]
        by = inverse(b, d)
        target = pointer + b.zext(dim * size, I64)
        b.store_words("st.global", target, shape.element.words(b, [x * by for x in o]))

    @cuda.jit(device=True, forceinline=True)
    def done(shared, tid, tensors, sizes, batch, head, tile):
        cuda.syncthreads()
        item = tid
        while item < items:
            row = item // (hdim // vector)
            dim = vector * (item - row * (hdim // vector))
            head_row = tile * rows + row
            if head_row < sizes.group * sizes.seq_q:
                store_chunk(shared, out_row(tensors, sizes, batch, head, head_row), row, dim)
            item += threads

    return done
