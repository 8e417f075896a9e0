"""Launches of the calls of one signature on a device: any kernels of `flash`, with a workspace that torch allocates.

Maps are passed by value, so a CUDA graph holds them as it holds numbers.
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..flash.call import NAMES, Call
from ..runtime import gpu
from ..tensor_map import TensorMap
from ..version import Launch
from .prepared import LEFT, MAPS, MOVING, Prepared, build, prepared

DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
MOST_PLANS, MOST_MAPS = 256, 4096  # that are remembered: of a signature, of a plan
ALIGNED = 256  # bytes, which a tensor map begins on
VALUES = (*NAMES[:-2], *LEFT, *MAPS)  # which a launch picks its arguments from; NAMES end with the first two of LEFT
NO_WORKSPACE, NO_MAPS = (0,) * len(LEFT), (b"",) * len(MAPS)
K, V = slice(4, 7), slice(8, 11)  # of the strides: batch, head and row

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

    The workspace has `nbytes`, with each of LEFT at its offset, or without it. `maps` are none, or by MAPS the number
    in MOVING of the address that each is of, or None. `encoded` are maps that were made, by that number and address.
    """

    call: Call
    steps: list[tuple[Prepared, tuple[int, ...], Pick]]
    nbytes: int
    offsets: list[int | None]
    maps: list[tuple[int, TensorMap] | None]
    encoded: dict[tuple[int, int], bytes]


class Launcher:
    """Launcher of a signature's calls on a device, which `call` was chosen for; `plan` comes before `launch`."""

    kept: Any = None  # addresses of tables, where all calls have the same

    def __init__(self, call: Call, device: torch.device, index: int) -> None:
        self.call, self.device, self.index, self.target = call, device, index, gpu.device_target()
        self.rotary_dim, self.turns, self.interleaved = call.of.problem.rotary_dim, call.turns, not call.half_split
        self._by_strides = call.by_strides
        self._plans: dict[Any, Plan] = {}
        self._last: tuple[int, tuple[int, ...], Any] = (0, (), None)  # keys, strides and plan of the last call

    def plan(self, seq_k: int, strides: tuple[int, ...]) -> Plan:
        """Plan so many keys, and load the kernels of it; `strides` are as for `launch`. Raises: Unsupported."""
        key = self.call.alike(seq_k), self._by_strides and strides
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._planned(seq_k, strides)
        self._last = seq_k, strides, plan
        return plan

    def _planned(self, seq_k: int, strides: tuple[int, ...]) -> Plan:
        call = self.call.at(seq_k, strides[K], strides[V])
        needed = sorted(call.all_launches(seq_k), key=lambda each: -each.dynamic_bytes)
        build(needed, self.target, self.index)
        for launch in needed:
            self._prepared(launch)
        launches = call.launches(NAMES, seq_k)
        steps = [(self._prepared(launch), launch.grid, picker(launch.args)) for launch in launches]
        buffers, offsets, nbytes = call.buffers(seq_k), [], 0
        for buffer in map(buffers.get, LEFT):
            offsets.append(nbytes if buffer else None)
            if buffer:
                nbytes += -(-buffer.size * getattr(torch, buffer.dtype).itemsize // ALIGNED) * ALIGNED
        maps = call.maps(seq_k, strides[K], strides[V])
        described = {name: (MOVING.index(of.buffer), of) for name, of in maps.items()}
        return Plan(call, steps, nbytes, offsets, [described.get(name) for name in MAPS] if maps else [], {})

    def _prepared(self, launch: Launch) -> Prepared:
        return prepared(launch, self.target, self.device, self.index)

    def launch(
        self,
        addresses: tuple[int, int, int, int],
        strides: tuple[int, ...],
        seq_k: int,
        q_offset: int,
        lengths: int,
        others: Sequence[int],
    ) -> None:
        """Launch on torch's current stream; `strides` are four of each tensor. The device is the current one.

        `others` are the addresses of cos, sin, rates, positions and slopes, the rows and pitch of tables, and the
        elements from one sequence's positions to the next.
        """
        last_seq_k, last_strides, plan = self._last
        if last_seq_k != seq_k or (self._by_strides and last_strides != strides):
            plan = self.plan(seq_k, strides)
        moving: tuple[Any, ...] = (*addresses, lengths, *NO_WORKSPACE)  # the first of MOVING
        if plan.nbytes:
            memory = torch.empty(plan.nbytes, dtype=torch.uint8, device=self.device)
            start = memory.data_ptr()
            left = [0 if offset is None else start + offset for offset in plan.offsets]
            moving = (*addresses, lengths, *left)
        if plan.maps:
            moving = (*moving, *encoded(plan, moving))
        made_of = (self, seq_k, q_offset, strides) if self.kept else None
        values: tuple[Any, ...] = ()
        for made, grid, pick in plan.steps:
            if made_of and made.launch_again(moving, made_of):
                continue
            if not values:
                cos, sin, rates, positions, slopes, rows, pitch, apart = others
                apart_in_rows = (*strides[0:3], *strides[4:7], *strides[8:11], *strides[12:15])
                sizes = plan.call.sizes(seq_k, q_offset, lengths)
                rotation = (self.rotary_dim, rates, cos, sin, pitch, rows, positions, apart, slopes)
                moved = moving[5:] if plan.maps else (*moving[5:], *NO_MAPS)
                values = (*addresses, *apart_in_rows, *sizes, *rotation, *moved)
            made.launch(grid, pick(values), made_of)


def encoded(plan: Plan, moving: Sequence[Any]) -> tuple[bytes, ...]:
    """The maps of a call by MAPS, made once for an address: a call's tensors lie where an earlier one's did."""
    made = []
    for described in plan.maps:
        if described is None:
            made.append(b"")
            continue
        number, of = described
        key = number, moving[number]
        found = plan.encoded.get(key)
        if found is None:
            if len(plan.encoded) >= MOST_MAPS:
                plan.encoded.clear()
            found = plan.encoded[key] = gpu.DRIVER.encode_map(of, moving[number])
        made.append(found)
    return tuple(made)
