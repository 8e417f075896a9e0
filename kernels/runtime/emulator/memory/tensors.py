"""Tensor maps in memory, in the emulator's own encoding, and the copies that they describe.

The data of a copy arrives at once, recorded as by the mbarrier at which it counts: a reader that has not waited for the
phase races with it.
"""

import numpy as np

from ....tensor_map import MAP_BYTES, TensorMap
from ..row import Row
from .access import SECTOR, MemoryUnit
from .contents import GLOBAL_BASE, UNWRITTEN, WRITTEN, Memory
from .order import I64

__all__ = ["MAP_BYTES", "copy_tensor", "encode", "put_map"]

PIECE = 16
MAGIC = 0x7E4504A9
DIMS = 4


def encode(of: TensorMap, address: int) -> np.ndarray:
    """uint8[128]: the map of a tensor that starts at this address."""
    rank = len(of.sizes)
    fill = [1] * (DIMS - rank)
    words = [MAGIC, address, rank, of.itemsize, of.swizzle, *of.sizes, *fill, *of.strides, *fill, *of.box, *fill]
    return np.array([*words, *[0] * (MAP_BYTES // 8 - len(words))], I64).view(np.uint8)


def put_map(memory: Memory, name: str, of: TensorMap) -> None:
    """Fill the buffer `name` with the map of a tensor in another buffer, or in a part of it."""
    memory[name].view(np.uint8).reshape(-1)[:MAP_BYTES] = encode(of, memory.address(of.buffer))


def copy_tensor(
    unit: MemoryUnit, row: Row, lane: int, destination: int, where: int, place: list[int], slot: int
) -> None:
    """cp.async.bulk.tensor by one lane: the box at coordinates `place`; its bytes count at a barrier."""
    memory, thread = unit.memory, row.threads[lane]
    threads, lanes = np.array([thread]), np.array([lane])
    at = where - GLOBAL_BASE
    buffer = memory.index_of(at)
    words = memory.data[at : at + MAP_BYTES].view(I64) if buffer >= 0 and at % 64 == 0 else np.zeros(16, I64)
    if words[0] != MAGIC or words[2] != len(place):
        unit.abort_where("uninitialised", "global", np.array([at]), threads, np.ones(1, bool))
    if (lane, where) not in row.fenced_maps:
        unit.found("unfenced", "global", memory.names[buffer], thread, 1)
    address, rank, itemsize, swizzle = (int(word) for word in words[1:5])
    sizes, strides, box = words[5:9][:rank], words[9:12][: rank - 1], words[12:16][:rank]
    data = _box(unit, row, lane, address - GLOBAL_BASE, itemsize, sizes, strides, box, np.array(place))
    offsets = destination + PIECE * np.arange(data.size // PIECE)
    if destination % 128:
        unit.abort_where("misaligned", "shared", offsets[:1], threads, np.ones(1, bool))
    if swizzle:
        offsets ^= offsets >> 7 << 4 & swizzle - PIECE
    count = len(offsets)
    block, agent = row.barriers.position[slot] // row.shared.stride, row.barriers.agent[slot]
    unit.store_async(
        row, lanes.repeat(count), offsets, data.reshape(-1, PIECE).view(np.uint32), block.repeat(count),
        agent.repeat(count),
    )  # fmt: skip
    row.barriers.deliver(np.array([slot]), threads >> 5, data.size)


def _box(
    unit: MemoryUnit, row: Row, lane: int, start: int, itemsize: int, sizes: np.ndarray, strides: np.ndarray,
    box: np.ndarray, place: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """uint8 of all elements of the box, zeros outside of the tensor; the reads are checked and counted.

    Of rows of the fastest dim, the part inside the tensor is read.
    """
    memory = unit.memory
    index = np.stack(np.meshgrid(*[np.arange(n) for n in box[:0:-1]], indexing="ij"), -1).reshape(-1, len(box) - 1)
    at = index[:, ::-1] + place[1:]
    inside = ((at >= 0) & (at < sizes[1:])).all(axis=1)
    first, last = max(int(place[0]), 0), min(int(place[0] + box[0]), int(sizes[0]))
    out = np.zeros((len(at), int(box[0]), itemsize), np.uint8)
    if first < last and inside.any():
        offsets = start + at[inside] @ strides + first * itemsize
        span = (last - first) * itemsize
        places = offsets[:, None] + np.arange(span)
        thread = np.full(len(offsets), row.threads[lane])
        outside = (offsets < 0) | (offsets + span > len(memory.data))
        unit.abort_where("out_of_bounds", "global", offsets, thread, outside)
        state = memory.state[places].min(axis=1)
        for bad, kind in ((state < UNWRITTEN, "out_of_bounds"), (state < WRITTEN, "uninitialised")):
            unit.abort_where(kind, "global", offsets, thread, bad)
        chosen = slice(first - int(place[0]), last - int(place[0]))
        out[inside, chosen] = memory.data[places].reshape(len(offsets), -1, itemsize)
        sectors = np.unique(places // SECTOR)
        unit.touched["read"][sectors] = True
        buffer = memory.names[memory.index_of(start)]
        for name in ("global.read.sectors", f"global.read.sectors.{buffer}"):
            unit.counts[name] += len(sectors)
        unit.counts["global.read.bytes_requested"] += span * len(offsets)
    return out.reshape(-1)
