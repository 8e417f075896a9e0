"""The arguments of the decode kernels, in groups. A group is one NamedTuple in the kernel and flat in the launch."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import types

from ..constants import FLOATS, INTS
from ..device.cint import CINT
from .dtype import Dtype


class Tensors(NamedTuple):
    """Addresses and strides in elements of q and out `[batch, heads, seq_q, hdim]`, k and v `[batch, kv_heads, ...]`.

    The last dim is contiguous; rows start on 16 bytes.
    """

    q: Any
    k: Any
    v: Any
    out: Any
    q_batch: Any
    q_head: Any
    q_row: Any
    k_batch: Any
    k_head: Any
    k_row: Any
    v_batch: Any
    v_head: Any
    v_row: Any
    out_batch: Any
    out_head: Any
    out_row: Any


class Sizes(NamedTuple):
    """`group` query heads share a KV head. Query i stands at `q_offset + i`; `split_keys` keys make a split.

    `tiles` of `tile_rows` query rows cover group * seq_q rows of a KV head. `scale` includes log2(e).
    With `by_length`, sequence b has `lengths[b]` keys and its queries are the last of them; neither q_offset nor
    split_keys is read.
    """

    kv_heads: Any
    group: Any
    seq_q: Any
    seq_k: Any
    tiles: Any
    tile_rows: Any
    split_keys: Any
    splits: Any
    q_offset: Any
    causal: Any
    scale: Any
    lengths: Any
    by_length: Any


class Rotation(NamedTuple):
    """RoPE or ALiBi. rates: float32[pairs, 2], half turns a position and what the first lacks, zero behind rotary_dim.

    cos and sin: float32 tables of `rows` positions, `pitch` elements apart. positions: int32, of each place, `batch`
    elements from one sequence to the next. slopes: float32[batch, heads]. What the kernel's embedding does not use is
    not read.
    """

    rotary_dim: Any
    rates: Any
    cos: Any
    sin: Any
    pitch: Any
    rows: Any
    positions: Any
    batch: Any
    slopes: Any


class Workspace(NamedTuple):
    """Partial results: float32[head, split, row, hdim], and (row max, row sum) of each."""

    part: Any
    maxima: Any


STRIDE = types.uint64


def types_of(dtype: Dtype) -> tuple[Any, ...]:
    """The Numba types of a kernel's four arguments."""
    return (
        types.NamedTuple((*(dtype.pointer,) * 4, *(STRIDE, STRIDE, CINT) * 4), Tensors),
        types.NamedTuple((*(CINT,) * 10, types.float32, INTS, CINT), Sizes),
        types.NamedTuple((CINT, FLOATS, FLOATS, FLOATS, CINT, CINT, INTS, CINT, FLOATS), Rotation),
        types.NamedTuple((FLOATS, FLOATS), Workspace),
    )
