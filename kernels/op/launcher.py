"""Launches of the calls of one signature on a device: any kernels of `flash`, with a workspace that torch allocates.

Maps are passed by value, so a CUDA graph holds them as it holds numbers.
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..flash.args import Rotation
from ..flash.call import NAMES, Call
from ..runtime import gpu
from ..tensor_map import TensorMap
from ..version import Launch
from .prepared import MAPS, REWRITTEN, WORKSPACE, Prepared, build, prepared

MOST_PLANS, MOST_MAPS = 256, 4096  # that are remembered: of a signature, of a plan
ALIGNED = 256  # bytes, which a tensor map begins on
VALUES = (*NAMES[:-2], *WORKSPACE, *MAPS)  # which a launch picks its arguments from; NAMES end as WORKSPACE begins
NO_WORKSPACE, NO_MAPS = (0,) * len(WORKSPACE), (b"",) * len(MAPS)

Addresses = tuple[int, int, int, int]  # of q, k, v and out
Strides = Sequence[tuple[int, ...]]  # of q, k, v and out, each of batch, head, row and dim, in elements
Pick = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def picker(args: Sequence[Any]) -> Pick:
    """A function that picks arguments, names of VALUES or numbers, from the values."""
    if args == VALUES[: len(args)]:
        return operator.itemgetter(slice(len(args)))
    numbers = tuple(each for each in args if not isinstance(each, str))
    behind = itertools.count(len(VALUES))
    pick = operator.itemgetter(*(VALUES.index(each) if isinstance(each, str) else next(behind) for each in args))
    return lambda values: pick(values + numbers)


class Plan(NamedTuple):
    """The launches of calls alike: of each the kernel, its grid, and what picks its arguments.

    The workspace has `nbytes`, with each of WORKSPACE at its offset, or without it. `maps` are none, or by MAPS the
    number in REWRITTEN of the address that each is of, or None. `encoded` are maps that were made, by that number and
    address.
    """

    call: Call
    steps: list[tuple[Prepared, tuple[int, ...], Pick]]
    nbytes: int
    offsets: list[int | None]
    maps: list[tuple[int, TensorMap] | None]
    encoded: dict[tuple[int, int], bytes]


class Launcher:
    """Launcher of a signature's calls on a device, which `call` was chosen for; `plan` comes before `launch`."""

    kept: Any = None  # the `Rotation` and its tensors, where all calls have the same

    def __init__(self, call: Call, device: torch.device, index: int) -> None:
        self.call, self.device, self.index, self.target = call, device, index, gpu.device_target()
        self.turns, self.interleaved = call.turns, not call.half_split
        self._by_strides = call.by_strides
        self._plans: dict[Any, Plan] = {}
        self._last: tuple[int, Strides, Any] = (0, (), None)  # keys, strides and plan of the last call

    def plan(self, seq_k: int, strides: Strides) -> Plan:
        """Plan so many keys, and load the kernels of it. Raises: Unsupported."""
        key = self.call.alike(seq_k), self._by_strides and strides
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._planned(seq_k, strides)
        self._last = seq_k, strides, plan
        return plan

    def _planned(self, seq_k: int, strides: Strides) -> Plan:
        k_strides, v_strides = (each[:3] for each in strides[1:3])
        call = self.call.at(seq_k, k_strides, v_strides)
        needed = sorted(call.all_launches(seq_k), key=lambda each: -each.dynamic_bytes)
        build(needed, self.target, self.index)
        for launch in needed:
            self._prepared(launch)
        launches = call.launches(NAMES, seq_k)
        steps = [(self._prepared(launch), launch.grid, picker(launch.args)) for launch in launches]
        buffers, offsets, nbytes = call.buffers(seq_k), [], 0
        for buffer in map(buffers.get, WORKSPACE):
            offsets.append(nbytes if buffer else None)
            if buffer:
                nbytes += -(-buffer.size * getattr(torch, buffer.dtype).itemsize // ALIGNED) * ALIGNED
        maps = call.maps(seq_k, k_strides, v_strides)
        described = {name: (REWRITTEN.index(of.buffer), of) for name, of in maps.items()}
        return Plan(call, steps, nbytes, offsets, [described.get(name) for name in MAPS] if maps else [], {})

    def _prepared(self, launch: Launch) -> Prepared:
        return prepared(launch, self.target, self.device, self.index)

    def launch(
        self,
        addresses: Addresses,
        strides: Strides,
        seq_k: int,
        q_offset: int,
        lengths: int,
        rotation: Rotation,
    ) -> None:
        """Launch on torch's current stream, on the current device. `lengths` is an address, 0 for none."""
        last_seq_k, last_strides, plan = self._last
        if last_seq_k != seq_k or (self._by_strides and last_strides != strides):
            plan = self.plan(seq_k, strides)
        workspace, maps = NO_WORKSPACE, NO_MAPS
        if plan.nbytes:
            memory = torch.empty(plan.nbytes, dtype=torch.uint8, device=self.device)
            start = memory.data_ptr()
            workspace = tuple([0 if offset is None else start + offset for offset in plan.offsets])
        rewritten: tuple[Any, ...] = (*addresses, lengths, *workspace)  # those of REWRITTEN
        if plan.maps:
            maps = encoded(plan, rewritten)
            rewritten = (*rewritten, *maps)
        made_of = (self, seq_k, q_offset, strides) if self.kept else None
        values: tuple[Any, ...] = ()
        for made, grid, pick in plan.steps:
            if made_of and made.launch_again(rewritten, made_of):
                continue
            if not values:
                row_strides = [stride for each in strides for stride in each[:3]]
                sizes = plan.call.sizes(seq_k, q_offset, lengths)
                values = (*addresses, *row_strides, *sizes, *rotation, *workspace, *maps)
            made.launch(grid, pick(values), made_of)


def encoded(plan: Plan, rewritten: Sequence[Any]) -> tuple[bytes, ...]:
    """The maps of a call by MAPS, made once for an address: a call's tensors lie where an earlier one's did."""
    made = []
    for described in plan.maps:
        if described is None:
            made.append(b"")
            continue
        number, of = described
        key = number, rewritten[number]
        found = plan.encoded.get(key)
        if found is None:
            if len(plan.encoded) >= MOST_MAPS:
                plan.encoded.clear()
            found = plan.encoded[key] = gpu.DRIVER.encode_map(of, rewritten[number])
        made.append(found)
    return tuple(made)
