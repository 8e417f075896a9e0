"""RoPE of prompts: the launch that rotates keys."""

import functools
from typing import Any

from numba import cuda, types, uint64

from ...device.cint import cint
from ...device.vector import advance
from ...version import Kernel
from ..args import types_of
from ..embed import begin, cos_sins, pairs_of, rotate
from ..loads import columns, load_rows
from ..shapes import PromptShape, WgmmaShape
from ..tiles import launch_dependents, register_op, wait_for_launch

ROTATED_ROWS = 4  # of keys that a thread rotates


def rotate_kernel(shape: PromptShape | WgmmaShape) -> tuple[Kernel, int]:
    """(kernel, rows of a block): rotated keys `[batch, kv_heads, seq_k, hdim]`; grid (blocks, KV heads, batch).

    A block has `shape.threads`. With `overlap` the attention kernel may start early (programmatic dependent launch).
    """
    how: dict[str, Any] = {"embedding": shape.embedding, "half_split": shape.half_split, "overlap": shape.overlap}
    return _rotate_kernel(PromptShape(shape.dtype, shape.hdim, key_warps=shape.threads // 64, **how))


@functools.cache
def _rotate_kernel(shape: PromptShape) -> tuple[Kernel, int]:
    # tile
    hdim, vector = shape.hdim, shape.element.vector
    chunks = shape.row_chunks
    row_step = shape.row_step
    block_rows = row_step * ROTATED_ROWS
    offsets = tuple(row_step * i for i in range(ROTATED_ROWS))
    overlap = shape.overlap
    # loads
    load = load_rows(offsets, 1, 1 + shape.half_split, shape.element.size, "ld.global.nc")
    k_columns_of = columns(shape, 1, 0, shape.half_split)
    load_rates = begin(shape, 1)
    pairs = pairs_of(shape, 1)

    @register_op(types.void)
    def store(b, pointer, words, state, rotation, batch, row, last, chunk):
        angles = cos_sins(shape, b, state, rotation, (batch, row, last, chunk, 1), row_step)
        for number, offset in enumerate(offsets):
            x = rotate(b, shape.element.floats(b, words[4 * number : 4 * number + 4]), next(angles), pairs)
            with b.if_then(row + offset <= last):
                b.store_words("st.global", pointer, shape.element.words(b, x), offset * hdim * shape.element.size)

    def kernel(tensors, sizes, rotation, workspace, rotated):
        if overlap:
            wait_for_launch()  # the attention kernel reads Q and V as soon as it starts
            launch_dependents()
        tid, head, batch = cint(cuda.threadIdx.x), cint(cuda.blockIdx.y), cint(cuda.blockIdx.z)
        chunk, row = tid % chunks, cint(cuda.blockIdx.x) * block_rows + tid // chunks
        if chunk * vector < hdim and row < sizes.seq_k:
            k_gmem = advance(advance(tensors.k, uint64(batch) * tensors.k_batch), uint64(head) * tensors.k_head)
            k_rmem = load(k_gmem, row, sizes.seq_k - 1, tensors.k_row, k_columns_of(chunk, rotation.rotary_dim))
            first = uint64(batch * sizes.kv_heads + head) * uint64(sizes.seq_k) + uint64(row)
            out = advance(rotated, first * uint64(hdim) + uint64(chunk * vector))
            store(out, k_rmem, load_rates(rotation, chunk), rotation, batch, row, sizes.seq_k - 1, chunk)

    size, flags = f"d{hdim}_r{block_rows}", "_halves" * shape.half_split + "_pdl" * overlap
    kernel.__name__ = kernel.__qualname__ = f"rotate_keys_{shape.dtype}_{size}_{shape.embedding}{flags}"
    return Kernel(kernel, (*types_of(shape.element), shape.element.pointer), shape.threads), block_rows
