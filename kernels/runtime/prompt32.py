"""Float32 prompts of one signature on a device, by the kernels of `flash.prompts.float32`."""

import math
from typing import Any

import torch

from . import gpu
from .decode import NAMES, Caller, values_of
from .prepared import build

PARTS, MAPS = ("scales", "q_parts", "k_parts", "v_parts"), ("q_map", "k_map", "v_map")
ALIGNED = 64  # float32: 256 bytes, which a tensor map begins on


class Prompter32(Caller):
    """Attends float32 prompts of a signature that `chosen32` takes."""

    def __init__(self, call: Any, device: torch.device, index: int) -> None:
        super().__init__(call, device, index)
        split, attend = call.launches((), self.problem.seq_k)
        build((attend, split), self.target, index)
        self._kernels = self.prepared(split, (*NAMES, *PARTS)), self.prepared(attend, (*NAMES, *PARTS, *MAPS))

    def launch(self, addresses: Any, strides: Any, seq_k: int, q_offset: int, lengths: int, others: Any) -> None:
        call = self.call
        sizes = [-(-math.prod(shape) // ALIGNED) * ALIGNED for shape in call.buffers(seq_k).values()]
        workspace = torch.empty(sum(sizes), dtype=torch.float32, device=self.device)
        parts = [workspace.data_ptr() + 4 * sum(sizes[:i]) for i in range(len(sizes))]
        tensors = zip(call.maps(seq_k).values(), parts[1:], strict=True)
        maps = self.remembered((parts[0], seq_k), lambda: tuple(gpu.encode_map(*each) for each in tensors))
        values = values_of(addresses, strides, call.sizes(seq_k, q_offset, lengths), self.rotary_dim, others)
        split, attend = call.launches((), seq_k)
        self._kernels[0].launch(split.grid, (*values, *parts))
        self._kernels[1].launch(attend.grid, (*values, *parts, *maps))
