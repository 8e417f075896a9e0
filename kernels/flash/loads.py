"""Rows of keys, values and queries from global memory into registers, 16 bytes a lane and chunk.

Keys and queries with half-split RoPE come as two pieces of 8 bytes, a half from either side of the pairs.
"""

from typing import Any

from .schedule import Shape
from .tiles import BYTES, I64, VOID, i32, ints, op, words

STREAM = "ld.global.nc.L1::no_allocate"


@op(lambda shape, chunks, lanes, half_split: ints(chunks * (1 + half_split)))
def columns(b, shape, chunks, lanes, half_split, chunk, rotary_dim):
    """Byte offsets in a row of the pieces of `chunks` chunks, `lanes` from each other."""
    vector, size = shape.element.vector, shape.element.size
    offsets = []
    for number in range(chunks):
        dim = (chunk + lanes * number) * vector
        if shape.dims != shape.hdim:
            dim = b.select(dim < shape.hdim, dim, i32(0))
        if half_split:
            rotated = dim < rotary_dim
            low = b.select(rotated, b.ashr(dim, i32(1)), dim)
            high = low + b.select(rotated, b.ashr(rotary_dim, i32(1)), i32(vector // 2))
            offsets += [low * size, high * size]
        else:
            offsets.append(dim * size)
    return offsets


@op(lambda rows, chunks, pieces, size, how=STREAM: words(len(rows) * chunks * 4))
def load_rows(b, rows, chunks, pieces, size, how, pointer, first, last, pitch, columns):
    """Raw registers of rows min(first + row, last), chunk by chunk.

    `pitch` in elements of `size` bytes; a chunk has 1 or 2 pieces.
    """
    each = BYTES // 4 // pieces
    pitch = b.zext(pitch * size, I64)
    wide = [b.zext(column, I64) for column in columns]
    loaded = []
    for row in rows:
        place = b.smaller(b.add(first, i32(row), flags=("nsw",)), last)
        address = pointer + b.zext(place, I64) * pitch
        for column in wide:
            loaded += b.load_words(how, address + column, each)
    return loaded


def copy_async(b: Any, target: Any, offset: int, source: Any, used: Any, size: int = BYTES) -> None:
    """Start to copy `size` bytes to shared memory (cp.async), of which `used` are read and the others zeros."""
    how = "cg" if size == BYTES else "ca"
    text = f"cp.async.{how}.shared.global [$0+{offset}], [$1], {size}, $2;"
    b.ptx(text, "r,l,r,~{memory}", VOID, [target, source, used])


@op(lambda rows, chunks: words(len(rows) * chunks * 4))
def zero_behind(b, rows, chunks, loaded, first, last):
    """Words of `load_rows`, 0 in rows behind `last`, as 0 times infinity is NaN."""
    inside = [first + row <= last for row in rows]
    return [b.select(inside[i // (4 * chunks)], word, i32(0)) for i, word in enumerate(loaded)]


def beyond(shape: Shape, b: Any, chunk: Any, number: int) -> Any:
    """Whether a lane's chunk lies behind hdim; None where none does."""
    if shape.dims == shape.hdim:
        return None
    dim = (chunk + shape.lanes * number) * shape.element.vector
    return dim >= shape.hdim
