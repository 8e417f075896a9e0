"""Decode calls of one signature on a device: two launches, with a workspace of torch's allocator between them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..flash import args
from ..flash.combine import NAMES as COMBINED
from ..runtime import gpu
from ..runtime.gpu import C_FORMATS
from ..version import Launch
from .prepared import Prepared, build, prepared

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
MOST_MAPS = 4096  # that are remembered
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


def workspace(floats: Sequence[int], device: torch.device) -> tuple[torch.Tensor | None, tuple[int, ...]]:
    """One tensor for so many float32 after one another, and where each begins; None and 0 for none at all."""
    if not any(floats):
        return None, (0,) * len(floats)
    memory = torch.empty(sum(floats), dtype=torch.float32, device=device)
    return memory, tuple(memory.data_ptr() + 4 * sum(floats[:i]) for i in range(len(floats)))


class Caller:
    """What calls of a signature on a device have in common; `call` is the first of them."""

    kept: Any = None  # what a call has beside, where no call has its own

    def __init__(self, call: Any, device: torch.device, index: int) -> None:
        self.call, self.device, self.index, self.target = call, device, index, gpu.device_target()
        self.problem, self.rotary_dim = call.of.problem, call.of.problem.rotary_dim
        self.interleaved = not call.of.half_split  # what the kernels take; it is what the call asks
        self._maps: dict[Any, Any] = {}
        self.turns = call.shape.dims // 2, call.shape.row_step  # the pairs and positions of the rates

    def remembered(self, key: Any, make: Callable[[], Any]) -> Any:
        """Maps, made once: a call's tensors lie where an earlier one's did."""
        found = self._maps.get(key)
        if found is None:
            if len(self._maps) >= MOST_MAPS:
                self._maps.clear()
            found = self._maps[key] = make()
        return found

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
    """Decodes calls of a signature, or attends chunks of queries, however many keys they have."""

    def __init__(self, call: Any, device: torch.device, index: int) -> None:
        super().__init__(call, device, index)
        attend, combine = call.launches((), call.of.problem.seq_k)
        build((attend, combine), self.target, index)
        self._attend, self._combine = self.prepared(attend, NAMES), self.prepared(combine, COMBINED)
        self._last: tuple[Any, ...] = (None,)  # seq_k, and what follows of it

    def launch(self, addresses: Any, strides: Any, seq_k: int, q_offset: int, lengths: int, others: Any) -> None:
        last = self._last
        if last[0] != seq_k:
            floats = [math.prod(shape) for shape in self.call.parts(self.call.splits(seq_k)[0]).values()]
            last = self._last = (seq_k, self.call.launches((), seq_k), floats)
        _, (attend, combine), floats = last
        _memory, (part, totals) = workspace(floats or (0, 0), self.device)
        made_of = (self, seq_k, q_offset, strides) if self.kept else None
        if not (made_of and self._attend.launch_again((*addresses, lengths, part, totals), made_of)):
            sizes = self.call.sizes(seq_k, q_offset, lengths)
            values = values_of(addresses, strides, sizes, self.rotary_dim, others, part, totals)
            self._attend.launch(attend.grid, values, made_of)
        out = addresses[3]
        if floats and not (made_of and self._combine.launch_again((out, part, totals), made_of)):
            self._combine.launch(combine.grid, (part, totals, out, *strides[12:15], *combine.args[6:]), made_of)
