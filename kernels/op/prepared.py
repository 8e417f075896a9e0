"""Compiled kernels on a device, launched with new arguments on each call."""

import sys
import threading
from collections.abc import Iterable, Sequence
from ctypes import addressof, create_string_buffer
from typing import Any

import torch

from ..flash.call import TENSORS
from ..runtime import cache, gpu, kept
from ..runtime import compile as compiler
from ..tensor_map import MAP_BYTES
from ..version import Launch
from . import resident

PACKAGE = __name__.split(".")[0]
WORD = 8  # bytes of an address
WORKSPACE = ("part", "totals", "k_embedded", "k_rotated", "scales", "q_parts", "k_parts", "v_parts")
MAPS = ("q_map", "k_map", "v_map")
ADDRESSES = (*TENSORS, "lengths", *WORKSPACE)
REWRITTEN = (*ADDRESSES, *MAPS)  # arguments that each launch has its own of, where all else is as in the last


class _Cells(threading.local):
    """A thread's own arguments and configuration of a launch: the driver reads both outside of Python's lock."""

    def __init__(self, function: Any, launch: Launch, size: int, offsets: Sequence[int], device: Any, early: bool):
        torch.zeros(1, device=device)  # makes torch's context current in this thread
        self.buffer = create_string_buffer(-(-size // WORD) * WORD)
        self.bytes = memoryview(self.buffer).cast("B")
        self.words = self.bytes.cast("Q")
        self.filled: Any = None  # what the arguments but for those of REWRITTEN were made of
        start = addressof(self.buffer)
        self.config = gpu.configure(function, launch, early)
        self.grid = launch.grid
        self.launch = gpu.launcher(function, self.config, [start + offset for offset in offsets], self.buffer)


class Prepared:
    """A compiled kernel on one device, launched with new arguments on each call, from any thread."""

    def __init__(self, function: Any, launch: Launch, device: torch.device, early: bool) -> None:
        layout, offsets = gpu.laid_out(gpu.formats_of(launch, MAPS))
        self._pack = layout.pack_into
        own = [(offset, REWRITTEN.index(name)) for name, offset in zip(launch.args, offsets) if name in REWRITTEN]
        self._words = [(at // WORD, number) for at, number in own if number < len(ADDRESSES)]
        self._maps = [(slice(at, at + MAP_BYTES), number) for at, number in own if number >= len(ADDRESSES)]
        self._cells = _Cells(function, launch, layout.size, offsets, device, early)

    def launch(self, grid: tuple[int, ...], values: Sequence[Any], made_of: Any = None) -> None:
        """Launch on torch's current stream; the device is the current one. Raises: GpuError, struct.error.

        `made_of`: what tells the grid and the values apart from others, but for those of REWRITTEN.
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

    def launch_again(self, rewritten: Sequence[Any], made_of: Any) -> bool:
        """Launch with other values of REWRITTEN, if this thread's last launch was made of the same."""
        cells = self._cells
        if cells.filled != made_of:
            return False
        words = cells.words
        for word, number in self._words:
            words[word] = rewritten[number]
        for span, number in self._maps:
            cells.bytes[span] = rewritten[number]
        cells.launch()
        return True


_made: dict[Any, Prepared] = kept({})


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


def prepared(launch: Launch, target: str, device: torch.device, index: int) -> Prepared:
    """The kernel of a launch on a device, whatever its grid; its `args` are names of arguments, or numbers."""
    key = _key(launch, index)
    if key not in _made:
        resident.refuse_capture("a kernel")
        ptx = compiler.compile_ptx(launch.kernel, target)
        function = gpu.load_ptx(ptx)
        gpu.configure(function, launch)  # or it is refused
        _made[key] = Prepared(function, launch, device, gpu.waits_for_launch(ptx))
    return _made[key]
