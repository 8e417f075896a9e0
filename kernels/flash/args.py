"""The arguments of the decode kernels, in groups. A group is one named tuple in the kernel and flat in the launch."""

from collections import namedtuple
from typing import Any

from numba import types

from ..constants import FLOATS, INTS
from ..device.cint import CINT
from .dtype import Dtype

STRIDE = types.uint64

# Addresses and strides in elements of q and out [batch, heads, seq_q, hdim], k and v [batch, kv_heads, seq_k, hdim].
# The last dim is contiguous; rows start on 16 bytes.
Tensors = namedtuple(
    "Tensors", "q k v out q_batch q_head q_row k_batch k_head k_row v_batch v_head v_row out_batch out_head out_row"
)

# `group` query heads share a KV head. Query i has index `q_offset + i`; `split_keys` keys make a split. `tiles` of
# `tile_rows` query rows cover group * seq_q rows of a KV head. `scale` includes log2(e). With `by_length`, sequence b
# has `lengths[b]` keys and its queries are the last of them; neither q_offset nor split_keys is read.
Sizes = namedtuple(
    "Sizes", "kv_heads group seq_q seq_k tiles tile_rows split_keys splits q_offset causal scale lengths by_length"
)

# RoPE or ALiBi. rates: float32[2, pairs, 2], see `kernels/rates.py`, zero from rotary_dim on. cos
# and sin: float32 tables of `rows` positions, `pitch` elements apart. positions: int32, of each index, `batch` elements
# from one sequence to the next. slopes: float32[batch, heads]. What the kernel's embedding does not use is not read.
Rotation = namedtuple("Rotation", "rotary_dim rates cos sin pitch rows positions batch slopes")

# Partial results, see `combine`.
Workspace = namedtuple("Workspace", "part totals")


def types_of(dtype: Dtype) -> tuple[Any, ...]:
    """The Numba types of a kernel's four arguments."""
    return (
        types.NamedTuple((*(dtype.pointer,) * 4, *(STRIDE, STRIDE, CINT) * 4), Tensors),
        types.NamedTuple((*(CINT,) * 10, types.float32, INTS, CINT), Sizes),
        types.NamedTuple((CINT, FLOATS, FLOATS, FLOATS, CINT, CINT, INTS, CINT, FLOATS), Rotation),
        types.NamedTuple((FLOATS, FLOATS), Workspace),
    )
