"""Float32 prompts of one signature on a device, by the kernels of `flash.prompt32`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..flash.plan import embedding_of
from ..flash.prompt32_plan import Prompt32, chosen32
from ..version import Launch
from . import gpu
from .arguments import Settled, Tensors
from .decode import NAMES, values_of
from .prepared import C_FORMATS, Prepared, prepared

PARTS, MAPS = ("scales", "q_parts", "k_parts", "v_parts"), ("q_map", "k_map", "v_map")
ALIGNED = 64  # float32: 256 bytes, which a tensor map begins on
MOST_KEPT = 4096  # maps that are remembered


class Prompter32:
    """Attends float32 prompts of a signature that `pays32` takes."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, tensors: Tensors, settled: Settled, device: int) -> None:
        batch, heads, seq_q, hdim = q.shape
        kv_heads, rotary_dim = k.shape[1], settled.rotary_dim
        half_split, self.target = not settled.interleaved and rotary_dim > 0, gpu.device_target()
        embedding = embedding_of(settled.family, rotary_dim, tensors.cos is not None, tensors.positions is not None)
        how = (batch, heads, kv_heads, seq_q, settled.causal, settled.scale)
        self.call = chosen32(hdim, embedding, half_split, gpu.multiprocessors(device), *how)
        self.rotary_dim, self.index, self.device = rotary_dim, device, q.device
        self.interleaved = not half_split  # what its kernels take; it is what the call asks
        self.turns = self.call.shape.dims // 2, self.call.shape.row_step  # of the rates
        self.kept: Any = None  # what a call has beside, where no call has its own
        self._kernels = [self._prepared(launch) for launch in self.call.launches((), k.shape[2])]
        self._maps: dict[Any, tuple[bytes, ...]] = {}

    def _prepared(self, launch: Launch) -> Prepared:
        names = (*NAMES, *PARTS, *MAPS)[: len(launch.kernel.parameters)]
        types = [str(kind) if str(kind) in C_FORMATS else "uint64" for kind in launch.kernel.parameters]
        arguments = [(name, "map" if name in MAPS else kind) for name, kind in zip(names, types, strict=True)]
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
        call: Prompt32 = self.call
        sizes = [-(-math.prod(shape) // ALIGNED) * ALIGNED for shape in call.buffers(seq_k).values()]
        workspace = torch.empty(sum(sizes), dtype=torch.float32, device=self.device)
        parts = [workspace.data_ptr() + 4 * sum(sizes[:i]) for i in range(len(sizes))]
        key = parts[0], seq_k
        maps = self._maps.get(key)
        if maps is None:
            if len(self._maps) >= MOST_KEPT:
                self._maps.clear()
            tensors = zip(call.maps(seq_k).values(), parts[1:], strict=True)
            maps = self._maps[key] = tuple(gpu.encode_map(of, address) for of, address in tensors)
        values = values_of(addresses, strides, call.sizes(seq_k, q_offset, lengths), self.rotary_dim, others)
        split, attend = call.launches((), seq_k)
        self._kernels[0].launch(split.grid, (*values, *parts))
        self._kernels[1].launch(attend.grid, (*values, *parts, *maps))
