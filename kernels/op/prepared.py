"""Compiled kernels on a device, launched with new arguments on each call."""

import sys
import threading
from collections.abc import Iterable, Sequence
from ctypes import addressof, create_string_buffer
from typing import Any

import torch

from ..runtime import cache, gpu
from ..runtime import compile as compiler
from ..runtime.gpu import C_FORMATS, MAP
from ..version import Launch
from . import resident

PACKAGE = __name__.split(".")[0]
WORD = 8  # bytes of an address
TENSORS = ("q", "k", "v", "out")
MOVING = (*TENSORS, "lengths", "part", "totals", "k_rotated")  # addresses that differ between calls else alike


class _Cells(threading.local):
    """A thread's own arguments and configuration of a launch: the driver reads both outside of Python's lock."""

    def __init__(
        self,
        function: Any,
        launch: Launch,
        size: int,
        offsets: Sequence[int],
        moving: Sequence[int],
        device: Any,
        early: bool,
    ) -> None:
        torch.zeros(1, device=device)  # makes torch's context current in this thread
        self.buffer = create_string_buffer(-(-size // WORD) * WORD)
        self.words = memoryview(self.buffer).cast("B").cast("Q")
        self.moving = [offsets[number] // WORD for number in moving]
        self.filled: Any = None  # what the arguments but for the addresses that move were made of
        start = addressof(self.buffer)
        self.config = gpu.configure(function, launch, early)
        self.grid = launch.grid
        self.launch = gpu.launcher(function, self.config, [start + offset for offset in offsets], self.buffer)


class Prepared:
    """A compiled kernel on one device, launched with new arguments on each call, from any thread."""

    def __init__(
        self,
        function: Any,
        launch: Launch,
        arguments: Sequence[tuple[Any, str]],
        device: torch.device,
        early: bool,
    ) -> None:
        names, types = zip(*arguments, strict=True)
        layout, offsets = gpu.laid_out([MAP if name == "map" else C_FORMATS[name] for name in types])
        self._pack = layout.pack_into
        places = [names.index(each) for each in MOVING if each in names]
        self._cells = _Cells(function, launch, layout.size, offsets, places, device, early)

    def launch(self, grid: tuple[int, ...], values: Sequence[Any], made_of: Any = None) -> None:
        """Launch on torch's current stream; the device is the current one. Raises: GpuError, struct.error.

        `made_of`: what tells the grid and the values apart from others, but for the addresses that move.
        """
        cells = self._cells
        cells.filled = None
        self._pack(cells.buffer, 0, *values)
        if grid != cells.grid:
            config = cells.config
            config.gridDimX, config.gridDimY, config.gridDimZ = (*grid, 1, 1)[:3]
            cells.grid = grid
        cells.filled = made_of
        cells.launch()

    def launch_again(self, addresses: Sequence[int], made_of: Any) -> bool:
        """Launch with other addresses of what it has of `MOVING`, if this thread's last launch was made of the same."""
        cells = self._cells
        if cells.filled != made_of:
            return False
        words = cells.words
        for place, address in zip(cells.moving, addresses):
            words[place] = address
        cells.launch()
        return True


_made: dict[Any, Prepared] = {}


def _key(launch: Launch, index: int) -> Any:
    return launch.kernel, launch.block, launch.dynamic_bytes, launch.cluster, index


def build(launches: Iterable[Launch], target: str, index: int) -> None:
    """Compile the kernels of launches that are not cached, side by side, and say so: the longest should be first."""
    unmade = [launch.kernel for launch in launches if _key(launch, index) not in _made]
    missing = [kernel for kernel in unmade if not compiler.is_cached(kernel, target)]
    if missing:
        resident.refuse_capture("a kernel")
        names = ", ".join(kernel.name for kernel in missing)
        kept = f"once (kept in {cache.FOLDER})" if cache.keeps() else "in each process: no FUSED_PE_CACHE to write"
        print(f"{PACKAGE}: compiling {names} for {target}, {kept}", file=sys.stderr, flush=True)
        compiler.build(missing, target)


def prepared(
    launch: Launch,
    arguments: Sequence[tuple[Any, str]],
    target: str,
    device: torch.device,
    index: int,
) -> Prepared:
    """One for each kernel and device, whatever the grid.

    `arguments` are (name, Numba type or "map").
    """
    key = _key(launch, index)
    if key not in _made:
        resident.refuse_capture("a kernel")
        build([launch], target, index)
        ptx = compiler.compile_ptx(launch.kernel, target)
        function = gpu.load_ptx(ptx)
        gpu.configure(function, launch)  # or it is refused
        _made[key] = Prepared(function, launch, arguments, device, gpu.waits_for_launch(ptx))
    return _made[key]
