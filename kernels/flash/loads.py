"""Rows of keys, values and queries from global memory into registers, 16 bytes a lane and chunk.

A chunk of keys or queries with half-split RoPE is two pieces of 8 bytes: first elements of pairs, then second ones.
"""

from typing import Any

from .schedule import Shape
from .tiles import BYTES, I64, VOID, i32, ints, register_op, words

STREAM = "ld.global.nc.L1::no_allocate"


@register_op(lambda chunks, half_split: ints(chunks * (1 + half_split)))
def columns(b, chunk, rotary_dim, *, shape, chunks, lanes, half_split):
    """Byte offsets in a row of the pieces of `chunks` chunks, which are `lanes` chunks apart."""
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


@register_op(lambda rows, chunks: words(len(rows) * chunks * 4))
def load_rows(b, pointer, first, last, pitch, columns, *, rows, chunks, pieces, size, how=STREAM):
    """Raw 32-bit registers of rows min(first + row, last), chunk by chunk.

    pitch: elements of `size` bytes from row to row. pieces: of a chunk, 1 or 2.
    """
    each = BYTES // 4 // pieces
    pitch = b.zext(pitch * size, I64)
    wide = [b.zext(column, I64) for column in columns]
    loaded = []
    for row in rows:
        index = b.smaller(b.add(first, i32(row), flags=("nsw",)), last)
        address = pointer + b.zext(index, I64) * pitch
        for column in wide:
            loaded += b.load_words(how, address + column, each)
    return loaded


def copy_async(b: Any, target: Any, offset: int, source: Any, used: Any, size: int = BYTES) -> None:
    """Start cp.async of `size` bytes to shared memory; `used` of them are read, the others are zeros."""
    how = "cg" if size == BYTES else "ca"
    text = f"cp.async.{how}.shared.global [$0+{offset}], [$1], {size}, $2;"
    b.ptx(text, "r,l,r,~{memory}", VOID, [target, source, used])


@register_op(lambda rows, chunks: words(len(rows) * chunks * 4))
def zero_after(b, loaded, first, last, *, rows, chunks):
    """The words of `load_rows`, 0 in rows after `last`: a weight of 0 times infinity would be NaN."""
    inside = [first + row <= last for row in rows]
    return [b.select(inside[i // (4 * chunks)], word, i32(0)) for i, word in enumerate(loaded)]


def beyond(shape: Shape, b: Any, chunk: Any, number: int) -> Any:
    """Whether a lane's chunk is past hdim; None where no chunk is."""
    if shape.dims == shape.hdim:
        return None
    dim = (chunk + shape.lanes * number) * shape.element.vector
    return dim >= shape.hdim
