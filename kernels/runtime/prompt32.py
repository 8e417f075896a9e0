"""Float32 prompts of one signature on a device, by the kernels of `flash.prompts.float32`."""

import math
from typing import Any

import torch

from ..flash.prompts.float32_plan import Prompt32, chosen32
from . import gpu
from .arguments import Settled, Tensors
from .decode import NAMES, Caller, values_of
from .prepared import build

PARTS, MAPS = ("scales", "q_parts", "k_parts", "v_parts"), ("q_map", "k_map", "v_map")
ALIGNED = 64  # float32: 256 bytes, which a tensor map begins on
MOST_KEPT = 4096  # maps that are remembered


class Prompter32(Caller):
    """Attends float32 prompts of a signature that `pays32` takes."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, tensors: Tensors, settled: Settled, device: int) -> None:
        super().__init__(q, tensors, settled, device)
        batch, heads, seq_q, hdim = q.shape
        how = (batch, heads, k.shape[1], seq_q, settled.causal, settled.scale)
        self.call = chosen32(hdim, self.embedding, self.half_split, gpu.multiprocessors(device), *how)
        self.turns = self.call.shape.dims // 2, self.call.shape.row_step  # of the rates
        split, attend = self.call.launches((), k.shape[2])
        build((attend, split), self.target, device)
        self._kernels = self.prepared(split, (*NAMES, *PARTS)), self.prepared(attend, (*NAMES, *PARTS, *MAPS))
        self._maps: dict[Any, tuple[bytes, ...]] = {}

    def launch(self, addresses: Any, strides: Any, seq_k: int, q_offset: int, lengths: int, others: Any) -> None:
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
