"""Decode calls of one signature on a device: two launches, with a workspace of torch's allocator between them."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..flash import args
from ..flash.chunks.plan import Chunk, require_chunk
from ..flash.chunks.plan import shape_of as chunk_shape_of
from ..flash.combine import NAMES as COMBINED
from ..flash.decode.choose import MOST_QUERIES, require_decode, shape_of
from ..flash.decode.plan import Decode, embedding_of
from ..version import Launch
from . import gpu
from .arguments import Settled, Tensors
from .prepared import C_FORMATS, Prepared, build, prepared

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
NAMES = (*args.Tensors._fields, *args.Sizes._fields, *args.Rotation._fields, *args.Workspace._fields)


def values_of(
    addresses: Sequence[int],
    strides: Sequence[int],
    sizes: Sequence[Any],
    rotary_dim: int,
    others: Sequence[int],
    part: int = 0,
    totals: int = 0,
) -> tuple[Any, ...]:
    """The values of a launch, in the order of `NAMES`; `strides` are four of each tensor."""
    cos, sin, rates, positions, slopes, rows, pitch, apart = others
    apart_in_rows = (*strides[0:3], *strides[4:7], *strides[8:11], *strides[12:15])
    rotation = (rotary_dim, rates, cos, sin, pitch, rows, positions, apart, slopes)
    return (*addresses, *apart_in_rows, *sizes, *rotation, part, totals)


class Caller:
    """What calls of a signature on a device have in common."""

    turns: tuple[int, int]  # the pairs and positions of the rates
    kept: Any = None  # what a call has beside, where no call has its own

    def __init__(self, q: torch.Tensor, tensors: Tensors, settled: Settled, index: int) -> None:
        self.index, self.device, self.target, self.rotary_dim = index, q.device, gpu.device_target(), settled.rotary_dim
        self.half_split = not settled.interleaved and settled.rotary_dim > 0
        self.interleaved = not self.half_split  # what the kernels take; it is what the call asks
        given = tensors.cos is not None, tensors.positions is not None
        self.embedding = embedding_of(settled.family, settled.rotary_dim, *given)

    def prepared(self, launch: Launch, names: Sequence[str]) -> Prepared:
        """A launch whose arguments have these names; those that end with "_map" are maps."""
        types = map(str, launch.kernel.parameters)
        kinds = ("map" if name.endswith("_map") else kind for name, kind in zip(names, types, strict=True))
        arguments = [(name, kind if kind in (*C_FORMATS, "map") else "uint64") for name, kind in zip(names, kinds)]
        return prepared(launch, arguments, self.target, self.device, self.index)

    def launch(
        self,
        addresses: tuple[int, int, int, int],
        strides: tuple[int, ...],
        seq_k: int,
        q_offset: int,
        lengths: int,
        others: Sequence[int],
    ) -> None:
        """Launch on torch's current stream; `strides` are four of each tensor. The device is the current one."""
        raise NotImplementedError


class Decoder(Caller):
    """Decodes calls of a signature, or attends chunks of queries, however many keys they have.

    Raises: Unsupported where no kernel takes them.
    """

    def __init__(self, q: torch.Tensor, k: torch.Tensor, tensors: Tensors, settled: Settled, device: int) -> None:
        super().__init__(q, tensors, settled, device)
        (batch, heads, seq_q, hdim), dtype = q.shape, DTYPES.get(q.dtype, str(q.dtype))
        kv_heads, by_length, sms = k.shape[1], tensors.lengths is not None, gpu.multiprocessors(device)
        of_shape = (hdim, heads // kv_heads * seq_q, self.embedding, self.half_split, self.target)
        how_rotated = self.rotary_dim, self.half_split, self.target
        how = (batch, heads, kv_heads, seq_q, settled.causal, settled.scale, by_length, sms)
        if seq_q > MOST_QUERIES:
            require_chunk(dtype, hdim, *how_rotated)
            self.call: Decode = Chunk(chunk_shape_of(*of_shape, batch * kv_heads, k.shape[2], sms), *how)
        else:
            require_decode(dtype, hdim, seq_q, *how_rotated)
            self.call = Decode(shape_of(dtype, *of_shape), *how)
        attend, combine = self.call.launches(splits=2)
        build((attend, combine), self.target, device)
        self._attend, self._combine = self.prepared(attend, NAMES), self.prepared(combine, COMBINED)
        self.turns = self.call.shape.dims // 2, self.call.shape.row_step
        self._last: tuple[Any, ...] = (None,)  # seq_k, and what follows of it

    def launch(self, addresses: Any, strides: Any, seq_k: int, q_offset: int, lengths: int, others: Any) -> None:
        last = self._last
        if last[0] != seq_k:
            splits = self.call.splits(seq_k)[0]
            floats = [math.prod(shape) for shape in self.call.workspace(splits).values()]
            last = self._last = (seq_k, self.call.launches(splits), *floats)
        _, (attend, *combine), part_floats, total_floats = last
        part = totals = 0
        if combine:
            workspace = torch.empty(part_floats + total_floats, dtype=torch.float32, device=self.device)
            part = workspace.data_ptr()
            totals = part + 4 * part_floats
        made_of = (self, seq_k, q_offset, strides) if self.kept else None
        if not (made_of and self._attend.launch_again((*addresses, lengths, part, totals), made_of)):
            sizes = self.call.sizes(seq_k, q_offset, lengths)
            values = values_of(addresses, strides, sizes, self.rotary_dim, others, part, totals)
            self._attend.launch(attend.grid, values, made_of)
        out = addresses[3]
        for launch in combine:
            if not (made_of and self._combine.launch_again((out, part, totals), made_of)):
                values = (part, totals, out, *strides[12:15], *launch.args[6:])
                self._combine.launch(launch.grid, values, made_of)
