"""The contents of memory, and which bytes exist and were written."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import numpy as np

from .shadow import Shadow

U8 = np.uint8
GAP, PADDING, UNWRITTEN, WRITTEN = range(4)
GUARD = 4096
GLOBAL_BASE = 1 << 36
RANK_SHIFT = 24  # a shared::cluster address is (rank + 1) << 24 | offset; without a rank it refers to the block itself


class Memory:
    """Global memory: the buffers of a plan in one arena with guard gaps between them.

    Buffers are copied in; `memory[name]` is a view of the current contents. Which bytes were written persists from
    launch to launch. `padding` bytes after a buffer exist, hold 0xFF (NaN) and are out of bounds. `unwritten` buffers
    keep their contents but count as never written.
    """

    def __init__(
        self,
        buffers: Mapping[str, np.ndarray],
        unwritten: Iterable[str] = (),
        padding: Mapping[str, int] | None = None,
    ) -> None:
        self.data = np.full(GUARD, 0xFF, U8)
        self.state = np.full(GUARD, GAP, U8)
        self.names: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self._types: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        self._add(buffers, set(unwritten), padding or {})

    def _add(self, buffers: Mapping[str, np.ndarray], unwritten: set[str], padding: Mapping[str, int]) -> None:
        data, state, position = [self.data], [self.state], len(self.data)
        for name, buffer in buffers.items():
            content = np.ascontiguousarray(buffer).reshape(-1).view(U8)
            size, extra = len(content), padding.get(name, 0)
            room = -(-(size + extra) // 256) * 256 + GUARD
            block, flags = np.full(room, 0xFF, U8), np.full(room, GAP, U8)
            block[:size] = content
            flags[:size] = UNWRITTEN if name in unwritten else WRITTEN
            flags[size : size + extra] = PADDING
            data.append(block)
            state.append(flags)
            self.names.append(name)
            self.starts.append(position)
            self.ends.append(position + size)
            self._types[name] = (buffer.shape, buffer.dtype)
            position += room
        self.data, self.state = np.concatenate(data), np.concatenate(state)

    def add_constants(self, constants: Mapping[str, np.ndarray]) -> None:
        """Add the initialised variables of a module after the buffers, unless they were added before."""
        missing = {name: value for name, value in constants.items() if name not in self._types}
        if missing:
            self._add(missing, set(), {})

    def __getitem__(self, name: str) -> np.ndarray:
        shape, dtype = self._types[name]
        index = self.names.index(name)
        return self.data[self.starts[index] : self.ends[index]].view(dtype).reshape(shape)

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def address(self, name: str) -> int:
        if name not in self._types:
            raise KeyError(f"no buffer is called {name!r}; known: {', '.join(self.names)}")
        return GLOBAL_BASE + self.starts[self.names.index(name)]

    def written(self, name: str) -> np.ndarray:
        """bool per byte of the buffer: whether it was written."""
        index = self.names.index(name)
        return self.state[self.starts[index] : self.ends[index]] == WRITTEN

    def index_of(self, offset: int) -> int:
        """Index of the last buffer that starts at or before an arena offset; -1 before the first."""
        return bisect_right(self.starts, offset) - 1

    def place(self, offset: int) -> str:
        """Name of the buffer nearest to an arena offset, for findings."""
        inside = self.index_of(offset)
        if inside < 0:
            return self.names[0] if self.names and -GUARD <= offset < len(self.data) else "nowhere"
        if offset >= len(self.data):
            return "nowhere"
        if offset >= self.starts[inside] - 1 and inside + 1 < len(self.starts):
            behind, ahead = offset - self.ends[inside], self.starts[inside + 1] - offset
            if behind > ahead:
                return self.names[inside + 1]
        return self.names[inside]


class SharedMemory:
    """Shared memory of the blocks of one batch: `stride` bytes per block, initially 0xFF and unwritten."""

    def __init__(self, blocks: int, size: int, shadow: Shadow, granule: int) -> None:
        self.size = size
        self.stride = self.stride_for(size)
        self.data = np.full(blocks * self.stride, 0xFF, U8)
        self.written = np.zeros(blocks * self.stride, U8)
        self.shadow = shadow
        self.granule = granule

    @staticmethod
    def stride_for(size: int) -> int:
        return max(-(-size // 16) * 16, 16)
