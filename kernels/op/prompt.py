"""Prompts of one signature on a device: in half precision by the kernel that the rule takes for so many keys.

The kernel on wgmma has its tensor maps among its arguments, so a CUDA graph holds them as it holds numbers. Tensors
that no map describes, as expanded ones, and sequences with lengths of their own go to the kernel on mma.sync. In
float32 a launch that splits numbers into parts comes first.
"""

import math
from dataclasses import replace
from typing import Any

import torch

from ..constants import require
from ..flash.prompts.plan import Prompt, on_mma, prompt_call
from ..flash.shapes import WgmmaShape
from ..runtime import gpu
from ..version import Launch
from .launcher import NAMES, Caller, values_of, workspace
from .prepared import Prepared, build

MAPS, ROTATED = ("k_map", "v_map"), "k_rotated"
PARTS = ("scales", "q_parts", "k_parts", "v_parts")  # of a float32 prompt
ALIGNED = 64  # float32: 256 bytes, which a tensor map begins on
MOST_BLOCKS = 65_535  # of a grid's second and third dim
VALUES = slice(8, 11)  # of the strides: batch, head and row of v


class Prompter(Caller):
    """Attends prompts of a signature, however many keys they have. Raises: Unsupported where no kernel takes them."""

    def __init__(self, call: Any, device: torch.device, index: int) -> None:
        super().__init__(call, device, index)
        p, scale = self.problem, call.of.scale
        template = "scale is {needed}; in half precision kernels for prompts take {allowed}"
        require(scale > 0, "scale", scale, "one above 0", template)
        blocks = max(p.batch, p.kv_heads, -(-call.of.rows // 32) if p.causal else 1)
        template = "the call has {needed:,} blocks in one dim of its grid; a launch takes {allowed:,}"
        require(blocks <= MOST_BLOCKS, "grid", blocks, MOST_BLOCKS, template)
        self._last: tuple[Any, ...] = (None, None)  # seq_k, strides of v, and what follows of them

    def planned(self, seq_k: int, strides: tuple[int, ...]) -> tuple[Any, ...]:
        """Both, and the call with its launches, compiled and loaded; `strides` are those of v but the last."""
        sizes = zip((self.problem.batch, self.problem.kv_heads, seq_k), strides, strict=True)
        choose = prompt_call if all(size == 1 or stride for size, stride in sizes) else on_mma
        call = choose(replace(self.call.of, problem=replace(self.problem, seq_k=seq_k)))
        launches = call.launches((), seq_k)
        build(launches[::-1], self.target, self.index)
        return seq_k, strides, call, [(self._prepared(each), each.grid) for each in launches]

    def _prepared(self, launch: Launch) -> Prepared:
        more = ((), (ROTATED,), MAPS)[len(launch.kernel.parameters) - len(NAMES)]
        return self.prepared(launch, (*NAMES, *more))

    def _map(self, call: Prompt, address: int, seq_k: int, strides: tuple[int, ...]) -> bytes:
        def make() -> bytes:
            sizes = call.keys(seq_k)
            apart = tuple(stride if size > 1 else sizes[3] for size, stride in zip(sizes, strides))
            return gpu.encode_map(call.tensor_map("", seq_k, apart), address)

        return self.remembered((address, seq_k, strides), make)

    def launch(self, addresses: Any, strides: Any, seq_k: int, q_offset: int, lengths: int, others: Any) -> None:
        last = self._last
        if last[0] != seq_k or last[1] != strides[VALUES]:
            last = self._last = self.planned(seq_k, strides[VALUES])
        _, _, call, launches = last
        made_of = (self, seq_k, q_offset, strides) if self.kept else None
        key, key_strides = addresses[1], strides[4:7]
        values: tuple[Any, ...] = ()

        def start(prepared: Prepared, grid: tuple[int, ...], made_of: Any, *more: Any) -> None:
            """With the addresses in `more` that move too, or with maps, which `made_of` has as well."""
            nonlocal values
            moving = (addresses[0], key, *addresses[2:], lengths, 0, 0, *(each for each in more if type(each) is int))
            if made_of and prepared.launch_again(moving, made_of):
                return
            if not values:
                values = values_of(addresses, strides, call.sizes(seq_k, q_offset, lengths), self.rotary_dim, others)
            given = values if key == addresses[1] else call.rotated(values, key, seq_k)
            prepared.launch(grid, (*given, *more), made_of)

        *before, (attend, grid) = launches
        for rotate, blocks in before:
            dtype = getattr(torch, self.problem.dtype)
            rotated = torch.empty(call.keys(seq_k), dtype=dtype, device=self.device)
            start(rotate, blocks, made_of, rotated.data_ptr())
            key, key_strides = rotated.data_ptr(), rotated.stride()[:3]
        if not isinstance(call.shape, WgmmaShape):
            start(attend, grid, made_of)
            return
        maps = self._map(call, key, seq_k, key_strides), self._map(call, addresses[2], seq_k, strides[VALUES])
        start(attend, grid, made_of and (*made_of, *maps), *maps)


class Prompter32(Caller):
    """Attends float32 prompts of a signature that `chosen32` takes."""

    def __init__(self, call: Any, device: torch.device, index: int) -> None:
        super().__init__(call, device, index)
        split, attend = call.launches((), self.problem.seq_k)
        build((attend, split), self.target, index)
        self._kernels = self.prepared(split, (*NAMES, *PARTS)), self.prepared(attend, (*NAMES, *PARTS, "q_map", *MAPS))

    def launch(self, addresses: Any, strides: Any, seq_k: int, q_offset: int, lengths: int, others: Any) -> None:
        call = self.call
        sizes = [-(-math.prod(shape) // ALIGNED) * ALIGNED for shape in call.buffers(seq_k).values()]
        _memory, parts = workspace(sizes, self.device)
        tensors = zip(call.maps(seq_k).values(), parts[1:], strict=True)
        maps = self.remembered((parts[0], seq_k), lambda: tuple(gpu.encode_map(*each) for each in tensors))
        values = values_of(addresses, strides, call.sizes(seq_k, q_offset, lengths), self.rotary_dim, others)
        split, attend = call.launches((), seq_k)
        self._kernels[0].launch(split.grid, (*values, *parts))
        self._kernels[1].launch(attend.grid, (*values, *parts, *maps))
