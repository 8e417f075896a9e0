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
from ..args import Sizes
from ..decode.kernel import prologue
from ..embed import begin, cos_sins, pairs_of, rotate, rotate_row
from ..epilogue import inverse, out_row
from ..loads import columns, copy_async, load_rows
from ..schedule import ROW_STEPS, query_of
from ..shapes import SLAB_CHUNKS, SLAB_DIMS, SLAB_ROW, PipelinedShape, PromptShape, WgmmaShape
from ..tiles import BYTES, I64, VOID, f32, i32, register_op, words, zero_words


def tile_of(rows: int, split: bool = False) -> Any:
    """tile(sizes) -> (batch, KV head, tile of rows, keys, end of those that it sees, first query).

    The grid is (tiles, KV heads, batch): blocks that share keys run together. Causal, it is (KV heads, tiles, batch),
    and tiles that see the most keys come first, where no tile has rows of two heads. With `split` it is that of
    `schedule`: (splits, KV heads * tiles, batch).
    """

    @cuda.jit(device=True, forceinline=True)
    def tile(sizes):
        number, head, batch = cint(cuda.blockIdx.x), cint(cuda.blockIdx.y), cint(cuda.blockIdx.z)
        if split:
            number, head = head % sizes.tiles, head // sizes.tiles
        elif sizes.causal != 0:
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


def key_tiles(tile_keys: int) -> Any:
    """share(sizes, keys, tiles) -> (first, end) of a block's split of the tiles that its queries see.

    A split without keys has the tile of zeros behind all keys.
    """

    @cuda.jit(device=True, forceinline=True)
    def share(sizes, keys, tiles):
        each = (tiles + sizes.splits - 1) // sizes.splits
        first = cint(cuda.blockIdx.x) * each
        end = min(first + each, tiles)
        if first >= end:
            first = (keys + tile_keys - 1) // tile_keys
            end = first + 1
        return first, end

    return share


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


def gather_queries(shape: PromptShape | WgmmaShape, index: int, where: Any) -> tuple[Any, Any]:
    """As `stage_queries`, for tiles with rows of any heads: a thread's rows of a part are loaded at once.

    Where a block rotates its keys, the pieces of a half-split chunk stay where they lie.
    """
    # tile
    rows, hdim, element, vector = shape.rows, shape.hdim, shape.element, shape.element.vector
    chunks = shape.row_chunks
    step = shape.threads // chunks
    count = asked_words(shape) // 4
    part_rows = step * count
    more = rows > part_rows
    # loads
    words_of_piece = BYTES // 4 // (1 + shape.half_split)
    columns_of = columns(shape, 1, 0, shape.half_split)
    none = zero_words(4 * count)

    def place(b: Any, row: Any, sizes: Any) -> tuple[Any, Any]:
        """(head within the group, query) of a row; after the last come copies of it."""
        given = Sizes(*sizes)
        row = b.smaller(row, given.group * given.seq_q - 1)
        head = b.udiv(row, given.seq_q)
        return head, row - head * given.seq_q

    @register_op(words(4 * count))
    def load(b, pointer, row, sizes, head_pitch, row_pitch, columns):
        loaded = []
        for number in range(count):
            head, query = place(b, row + step * number, sizes)
            elements = b.zext(head, I64) * b.zext(head_pitch, I64) + b.zext(query, I64) * b.zext(row_pitch, I64)
            for column in columns:
                address = pointer + elements * element.size + b.zext(column, I64)
                loaded += b.load_words("ld.global.nc", address, words_of_piece)
        return loaded

    @register_op(types.void)
    def store(b, shared, words, state, rotation, sizes, batch, first_query, first_row, row, chunk, columns):
        base, each = b.at_float(shared, index), words_of_piece if shape.in_block else 4
        pieces = [(at >> 4, at & 15) for at in columns] if shape.in_block else [(chunk, i32(0))]
        for number in range(count):
            x, row_of = words[4 * number : 4 * number + 4], row + step * number
            if shape.rotates:
                _, query = place(b, first_row + row_of, sizes)
                x = element.floats(b, x)
                x = element.words(b, rotate_row(shape, b, x, state, rotation, batch, first_query + query, chunk))
            for i, (of, at) in enumerate(pieces):
                b.store_words("st.shared", where(b, base, row_of, of) + at, x[each * i : each * (i + 1)])

    @cuda.jit(device=True, forceinline=True)
    def load_part(tensors, sizes, rotation, batch, head, row, chunk):
        q_gmem = advance(tensors.q, uint64(batch) * tensors.q_batch)
        q_gmem = advance(q_gmem, uint64(head * sizes.group) * tensors.q_head)
        return load(q_gmem, row, sizes, tensors.q_head, tensors.q_row, columns_of(chunk, rotation.rotary_dim))

    @cuda.jit(device=True, forceinline=True)
    def load_first(tid, tensors, sizes, rotation, batch, head, tile):
        words, chunk = none(), tid % chunks
        if chunk * vector < hdim:
            words = load_part(tensors, sizes, rotation, batch, head, tile * rows + tid // chunks, chunk)
        return words

    @cuda.jit(device=True, forceinline=True)
    def stage(shared, tid, tensors, sizes, rotation, batch, head, tile, first_query, words, state):
        chunk, row, first_row = tid % chunks, tid // chunks, tile * rows
        if chunk * vector < hdim:
            here = columns_of(chunk, rotation.rotary_dim)
            store(shared, words, state, rotation, sizes, batch, first_query, first_row, row, chunk, here)
            row += part_rows
            while more and row < rows:
                words = load_part(tensors, sizes, rotation, batch, head, first_row + row, chunk)
                store(shared, words, state, rotation, sizes, batch, first_query, first_row, row, chunk, here)
                row += part_rows

    return load_first, stage


def chunk_addresses(
    b: Any, shape: PromptShape, base: Any, row: Any, chunk: Any, count: int = ROW_STEPS
) -> list[tuple[Any, int]]:
    """(address, offset) of a thread's chunk in `count` rows of a tile; rows that differ by 8 share an address."""
    step = shape.row_step
    period = max(8 // step, 1)
    starts = [chunk_address(b, base, row + step * i, chunk, shape.tile_keys) for i in range(period)]
    return [(starts[n % period], SLAB_ROW * step * (n - n % period)) for n in range(count)]


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


def rotate_tile(shape: PromptShape) -> Any:
    """rotate(shared, index, rotation, batch, first, last, row, chunk): a thread's chunks of a tile of keys, in place.

    They are those of rows first + row, and of every row_step-th; the pieces of a half-split chunk lie where they lay in
    global memory. The tile begins at float `index`, and at key `first`; no position is read for keys after `last`.
    """
    vector, hdim, element, pairs = shape.element.vector, shape.hdim, shape.element, pairs_of(shape, 1)
    columns_of, load_rates = columns(shape, 1, 0, shape.half_split), begin(shape, 1)
    few = "tables" in shape.embedding or (shape.embedding == "positions" and hdim > 128)
    count = 2 if few else ROW_STEPS  # rows at a time: more would spill
    part_rows, tile_keys = count * shape.row_step, shape.tile_keys

    @register_op(types.void)
    def rotate_rows(b, shared, index, state, rotation, batch, first, last, row, chunk, columns):
        base, each = b.at_float(shared, index), BYTES // 4 // len(columns)
        pieces = [chunk_addresses(b, shape, base, row, at >> 4, count) for at in columns]
        angles = cos_sins(shape, b, state, rotation, (batch, first + row, last, chunk, 1), shape.row_step)
        for of_row in zip(*pieces):
            places = [(start + (at & 15), offset) for (start, offset), at in zip(of_row, columns)]
            x = [word for start, offset in places for word in b.load_words("ld.shared", start, each, offset)]
            x = element.words(b, rotate(b, element.floats(b, x), next(angles), pairs))
            for i, (start, offset) in enumerate(places):
                b.store_words("st.shared", start, x[each * i : each * (i + 1)], offset)

    @cuda.jit(device=True, forceinline=True)
    def rotated(shared, index, rotation, batch, first, last, row, chunk):
        if chunk * vector < hdim:
            rates = load_rates(rotation, chunk)  # for each tile anew, as registers are full over the loop
            here = columns_of(chunk, rotation.rotary_dim)
            while row < tile_keys:
                rotate_rows(shared, index, rates, rotation, batch, first, last, row, chunk, here)
                row += part_rows

    return rotated


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
