"""Loads, stores, atomics and asynchronous copies: checked, counted and entered in the shadows."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from ..ptx.program import SlottedKernel
from ..report import Finding
from ..row import ALL, Chosen, Mask, Row
from .contents import GAP, GLOBAL_BASE, PADDING, RANK_SHIFT, U8, UNWRITTEN, WRITTEN, Memory
from .order import I64, Order
from .shadow import Shadow
from .wavefronts import wavefronts, wavefronts_of

SECTOR = 32


def log2(width: int) -> int:
    """The exponent of a power of two."""
    return width.bit_length() - 1


class LaunchAborted(Exception):
    """An access to unmapped memory: the launch ends here, as it would on the hardware."""


class MemoryUnit:
    """All memory accesses of a launch. Lanes are given as an index array, or ALL of a row."""

    def __init__(
        self,
        program: SlottedKernel,
        memory: Memory,
        order: Order,
        written_params: set[str],
        place_of: Callable[[int], str],
        rng: np.random.Generator,
    ) -> None:
        self.program = program
        self.memory = memory
        self.order = order
        self.place_of = place_of
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.findings: list[Finding] = []
        self.current = 0
        self.granule = program.granule
        self.granule_shift = program.granule.bit_length() - 1
        sectors = len(memory.data) // SECTOR
        self.touched = {"read": np.zeros(sectors, bool), "write": np.zeros(sectors, bool)}
        self.complete = [
            bool((memory.state[s:e] == WRITTEN).all()) for s, e in zip(memory.starts, memory.ends, strict=True)
        ]
        self.shadows = {
            index: Shadow((memory.ends[index] - memory.starts[index]) // self.granule + 1, order, "grid")
            for index, name in enumerate(memory.names)
            if name in written_params
        }
        self._places: dict[int, str] = {}

    def begin(self, index: int) -> None:
        """Advance the step counter for the memory instruction at `index`."""
        self.current = index
        self.order.tick(index)

    # --- findings -----------------------------------------------------------------------------------

    def found(self, kind: str, space: str, place: str, thread: int, count: int, other: int = -1) -> None:
        block, thread = self.order.block_and_thread(int(thread))
        text = self.program.source.statements[self.current].text
        against = self.program.source.statements[other].text if other >= 0 else ""
        self.findings.append(Finding(kind, self.program.name, space, place, block, thread, text, against, count))

    def _found_where(
        self,
        kind: str,
        space: str,
        places: np.ndarray,
        threads: np.ndarray,
        bad: np.ndarray,
        others: np.ndarray | None = None,
    ) -> bool:
        """Record one finding per place of the bad accesses. Returns whether an access is bad.

        `places` are arena offsets (global) or offsets in the block's memory.
        """
        if not bad.any():
            return False
        places, threads = places[bad], threads[bad]
        others = others if others is None else others[bad]
        name_of = self.memory.place if space == "global" else self.shared_place
        names = {int(offset): name_of(int(offset)) for offset in np.unique(places)}
        labels = np.array([names[int(offset)] for offset in places])
        for name in dict.fromkeys(labels.tolist()):
            chosen = np.flatnonzero(labels == name)
            other = int(self.order.trace[int(others[chosen[0]]) >> 32]) if others is not None else -1
            self.found(kind, space, name, threads[chosen[0]], len(chosen), other)
        return True

    def shared_place(self, offset: int) -> str:
        if offset not in self._places:
            self._places[offset] = self._shared_place(offset)
        return self._places[offset]

    def _shared_place(self, offset: int) -> str:
        source = self.program.source
        if offset >= source.static_bytes:
            return self.place_of(offset - source.static_bytes)
        for name, size in source.shared_sizes.items():
            if source.shared[name] <= offset < source.shared[name] + size:
                return name
        return "shared"

    def abort_where(self, kind: str, space: str, places: np.ndarray, threads: np.ndarray, bad: np.ndarray) -> None:
        if self._found_where(kind, space, places, threads, bad):
            raise LaunchAborted

    # --- addresses ----------------------------------------------------------------------------------

    def _global(
        self, row: Row, lanes: Chosen, addresses: np.ndarray, width: int, access: str
    ) -> tuple[np.ndarray, list]:
        """Check a global access. Returns arena offsets and [(buffer, selection or None)]."""
        memory = self.memory
        offsets = addresses - GLOBAL_BASE
        threads = row.threads[lanes]
        bad = (offsets & (width - 1)) != 0
        self.abort_where("misaligned", "global", offsets, threads, bad)
        low, high = int(offsets.min()), int(offsets.max()) + width
        buffer = memory.index_of(low)
        inside = buffer >= 0 and high <= memory.ends[buffer]
        if not (inside and (access == "write" or self.complete[buffer])):
            outside = (offsets < 0) | (offsets + width > len(memory.data))
            self.abort_where("out_of_bounds", "global", offsets, threads, outside)
            states = memory.state.reshape(-1, width)[offsets // width]
            worst = states.min(axis=1)
            fatal = worst == GAP if access == "read" else worst <= PADDING
            self.abort_where("out_of_bounds", "global", offsets, threads, fatal)
            if access != "write":
                for state, kind in ((PADDING, "out_of_bounds"), (UNWRITTEN, "uninitialised")):
                    self._found_where(kind, "global", offsets, threads, (states == state).any(axis=1))
        if inside:
            buffers: list[tuple[int, np.ndarray | None]] = [(buffer, None)]
        else:
            owner = np.searchsorted(memory.starts, offsets, side="right") - 1
            buffers = [(int(k), np.flatnonzero(owner == k)) for k in np.unique(owner)]
        for direction in {"read": ("read",), "write": ("write",), "atomic": ("read", "write")}[access]:
            self._count_sectors(row, lanes, offsets, buffers, direction)
        if access == "read":
            self.counts["global.read.bytes_requested"] += width * len(offsets)
        return offsets, buffers

    def _count_sectors(self, row: Row, lanes: Chosen, offsets: np.ndarray, buffers: list, direction: str) -> None:
        grid = row.by_warp(lanes, offsets >> 5)
        if not (grid[:, 1:] >= grid[:, :-1]).all():
            grid = np.sort(grid, axis=1)
        first = np.empty(grid.shape, bool)
        first[:, 0] = grid[:, 0] >= 0
        np.not_equal(grid[:, 1:], grid[:, :-1], out=first[:, 1:])
        distinct = grid[first]
        self.touched[direction][distinct] = True
        name = f"global.{direction}.sectors"
        self.counts[name] += len(distinct)
        if len(buffers) == 1:
            self.counts[f"{name}.{self.memory.names[buffers[0][0]]}"] += len(distinct)
        else:
            owner = np.searchsorted(self.memory.starts, distinct * SECTOR, side="right") - 1
            for buffer, _ in buffers:
                self.counts[f"{name}.{self.memory.names[buffer]}"] += int(np.count_nonzero(owner == buffer))

    def _shared(
        self,
        row: Row,
        lanes: Chosen,
        addresses: np.ndarray,
        width: int,
        distributed: bool,
        count: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Check a shared access. Returns offsets in the block's memory and indices in the batch's."""
        memory = row.shared
        base = row.shared_base[lanes]
        offsets = addresses
        plain = addresses.min() >= 0 and addresses.max() + width <= memory.size
        if not plain or np.bitwise_or.reduce(addresses) & (width - 1):
            threads = row.threads[lanes]
            ranks = addresses >> RANK_SHIFT
            if ranks.any():
                offsets = addresses & ((1 << RANK_SHIFT) - 1)
                own = (base // memory.stride) % self.order.cluster
                rank = np.where(ranks == 0, own, ranks - 1)
                beyond = (rank < 0) | (rank >= self.order.cluster)
                if not distributed:
                    beyond |= rank != own
                self.abort_where("out_of_bounds", "shared", offsets, threads, beyond)
                base = base + (rank - own) * memory.stride
            bad = (offsets & (width - 1)) != 0
            self.abort_where("misaligned", "shared", offsets, threads, bad)
            beyond = offsets + width > memory.size
            self.abort_where("out_of_bounds", "shared", offsets, threads, beyond)
        if count:
            self._count_wavefronts(row, lanes, offsets, width)
        return offsets, base + offsets

    def _count_wavefronts(self, row: Row, lanes: Chosen, offsets: np.ndarray, width: int) -> None:
        unit = max(width, 4)
        warps = row.by_warp(lanes, offsets >> log2(unit))
        requests = len(warps)
        first = warps[0]
        if np.count_nonzero(warps == first) == warps.size:  # all blocks access the same pattern, as is usual
            # a shift by any number of words rotates the banks and does not change the conflicts
            relative = np.where(first < 0, -1, first - first[first >= 0].min())
            waves = requests * wavefronts_of(relative.tobytes(), unit)
        else:
            requests = int(np.count_nonzero((warps >= 0).any(axis=1)))
            waves = int(wavefronts(warps, unit).sum())
        self.counts["shared.requests"] += requests
        self.counts["shared.wavefronts"] += waves

    def _granules(self, positions: np.ndarray, threads: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        granules = positions >> self.granule_shift
        per_access = width >> self.granule_shift
        if per_access == 1:
            return granules, threads
        return (granules[:, None] + np.arange(per_access)).ravel(), np.repeat(threads, per_access)

    # --- loads --------------------------------------------------------------------------------------

    def load(
        self, row: Row, mask: Mask, space: str, addresses: np.ndarray, width: int
    ) -> tuple[Chosen, np.ndarray, np.ndarray]:
        """Returns the active lanes, the bytes they read from, and where in them (in units of `width`)."""
        lanes = ALL if mask is True else mask.nonzero()[0]
        active = addresses[lanes]
        if space == "global":
            offsets, buffers = self._global(row, lanes, active, width, "read")
            self._race_global_read(row, lanes, offsets, buffers, width)
            return lanes, self.memory.data, offsets >> log2(width)
        if space == "local":
            return lanes, row.local, self._local(row, lanes, active, width)
        offsets, positions = self._shared(row, lanes, active, width, space == "cluster")
        self._read_shared(row, lanes, offsets, positions, width)
        return lanes, row.shared.data, positions >> log2(width)

    def _read_shared(self, row: Row, lanes: Chosen, offsets: np.ndarray, positions: np.ndarray, width: int) -> None:
        threads = row.threads[lanes]
        if lanes is ALL and (positions.reshape(-1, 32) == positions[::32, None]).all():
            # a broadcast: two lanes of each warp represent all of them
            self._check_shared_read(row, offsets[::32], positions[::32], threads[::32], width, 32)
            self._check_shared_read(row, offsets[1::32], positions[1::32], threads[1::32], width, 0)
        else:
            self._check_shared_read(row, offsets, positions, threads, width, 1)

    def _check_shared_read(
        self, row: Row, offsets: np.ndarray, positions: np.ndarray, threads: np.ndarray, width: int, weight: int
    ) -> None:
        if weight:
            written = row.shared.written.reshape(-1, width)[positions >> log2(width)]
            if np.count_nonzero(written) < written.size:
                hit = ~written.all(axis=1)
                each = (x.repeat(weight) for x in (offsets, threads, hit))
                self._found_where("uninitialised", "shared", *each)
        granules, owners = self._granules(positions, threads, width)
        racing = row.shared.shadow.read(granules, owners)
        if weight:
            self._report_shared(row, granules, owners, racing)

    def load_for_products(self, row: Row, lanes: np.ndarray, addresses: np.ndarray, width: int) -> np.ndarray:
        """uint8[accesses, width] of shared memory, read for `lanes` by the asynchronous proxy; not counted."""
        offsets, positions = self._shared(row, lanes, addresses, width, False, count=False)
        threads = row.threads[lanes]
        self._check_shared_read(row, offsets, positions, threads, width, 1)
        self.check_fenced(row, *self._granules(positions, threads, width))
        return row.shared.data.reshape(-1, width)[positions // width]

    def check_fenced(self, row: Row, granules: np.ndarray, owners: np.ndarray) -> None:
        """Find reads of the asynchronous proxy that no proxy fence orders after the write of another proxy."""
        writers = row.shared.shadow.writer[granules]
        itself = self.program.is_bulk[np.frombuffer(self.order.trace, np.int32)[writers >> 32]]
        hit = self.order.unfenced(writers, owners) & ~itself
        places = (granules << self.granule_shift) % row.shared.stride
        self._found_where("unfenced", "shared", places, owners, hit, writers)

    def read_until_now(self, row: Row, lanes: np.ndarray, addresses: np.ndarray, width: int) -> None:
        """These lanes have read shared memory up to now, all the time since they began."""
        _, positions = self._shared(row, lanes, addresses, width, False, count=False)
        granules, owners = self._granules(positions, row.threads[lanes], width)
        racing = row.shared.shadow.read(granules, owners)
        self._report_shared(row, granules, owners, racing)

    def _report_shared(self, row: Row, granules: np.ndarray, owners: np.ndarray, racing: np.ndarray | None) -> None:
        if racing is not None:
            offsets = (granules << self.granule_shift) % row.shared.stride
            self._found_where("race", "shared", offsets, owners, racing != 0, racing)

    def _race_global_read(self, row: Row, lanes: Chosen, offsets: np.ndarray, buffers: list, width: int) -> None:
        for buffer, selection in buffers:
            shadow = self.shadows.get(buffer)
            if shadow is None:
                continue
            granules, owners = self._global_granules(row, lanes, offsets, buffer, selection, width)
            racing = shadow.read(granules, owners)
            self._report_global(buffer, granules, owners, racing)

    def _global_granules(
        self,
        row: Row,
        lanes: Chosen,
        offsets: np.ndarray,
        buffer: int,
        selection: np.ndarray | None,
        width: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        threads = row.threads[lanes]
        start, end = self.memory.starts[buffer], self.memory.ends[buffer]
        if selection is None:
            return self._granules(offsets - start, threads, width)
        granules, owners = self._granules(offsets[selection] - start, threads[selection], width)
        inside = granules << self.granule_shift < end - start  # the rest is in the padding
        return granules[inside], owners[inside]

    def _report_global(self, buffer: int, granules: np.ndarray, owners: np.ndarray, racing: np.ndarray | None) -> None:
        if racing is not None:
            offsets = self.memory.starts[buffer] + (granules << self.granule_shift)
            self._found_where("race", "global", offsets, owners, racing != 0, racing)

    def _local(self, row: Row, lanes: Chosen, addresses: np.ndarray, width: int) -> np.ndarray:
        threads = row.threads[lanes]
        for kind, bad in (
            ("misaligned", (addresses & (width - 1)) != 0),
            ("out_of_bounds", (addresses < 0) | (addresses + width > self.program.source.local_bytes)),
        ):
            if bad.any():
                self.found(kind, "local", "local", threads[bad][0], int(bad.sum()))
                raise LaunchAborted
        return (row.local_base[lanes] + addresses) // width

    # --- stores -------------------------------------------------------------------------------------

    def store(self, row: Row, mask: Mask, space: str, addresses: np.ndarray, values: np.ndarray) -> None:
        """`values` is [lanes of the row] or [lanes, vector elements]."""
        lanes = ALL if mask is True else np.flatnonzero(mask)
        active, values = addresses[lanes], np.ascontiguousarray(values[lanes])
        width = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
        if space == "local":
            row.local.view(values.dtype).reshape(-1, *values.shape[1:])[self._local(row, lanes, active, width)] = values
        elif space == "global":
            offsets, buffers = self._global(row, lanes, active, width, "write")
            threads = row.threads[lanes]
            data = self.memory.data
            for buffer, selection in buffers:
                granules, owners = self._global_granules(row, lanes, offsets, buffer, selection, width)
                chosen = values if selection is None else values[selection]
                changed = self._changed(data[self.memory.starts[buffer] :], granules, chosen)
                shadow = self.shadows.get(buffer)
                if shadow is not None:
                    self._report_global(buffer, granules, owners, shadow.write(granules, owners, changed, None))
                if not self.complete[buffer]:
                    spots = offsets if selection is None else offsets[selection]
                    self.memory.state.reshape(-1, width)[spots // width] = WRITTEN
            self._put("global", data, offsets // width, values, offsets, threads)
        else:
            offsets, positions = self._shared(row, lanes, active, width, space == "cluster")
            threads = row.threads[lanes]
            self._write_shared(row, threads, offsets, positions, values)

    def _write_shared(
        self,
        row: Row,
        threads: np.ndarray,
        offsets: np.ndarray,
        positions: np.ndarray,
        values: np.ndarray,
        writer: np.ndarray | None = None,
    ) -> None:
        """Store for `threads`; `writer`, if given, is recorded instead of them."""
        shared = row.shared
        width = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
        granules, owners = self._granules(positions, threads, width)
        changed = self._changed(shared.data, granules, values)
        recorded = None if writer is None else self._granules(positions, writer, width)[1]
        racing = shared.shadow.write(granules, owners, changed, None, writer=recorded)
        self._report_shared(row, granules, owners, racing)
        shared.written.reshape(-1, width)[positions // width] = 1
        self._put("shared", shared.data, positions // width, values, offsets, threads)

    def _changed(self, data: np.ndarray, granules: np.ndarray, values: np.ndarray) -> np.ndarray:
        kind = np.dtype(f"u{self.granule}")
        usable = len(data) // self.granule * self.granule
        new = values.reshape(-1).view(kind)
        old = data[:usable].view(kind)[granules]
        if len(new) != len(old):  # part of a vector is in the padding; a store there has ended the launch
            return np.ones(len(old), bool)
        return old != new

    def _put(
        self, space: str, data: np.ndarray, slots: np.ndarray, values: np.ndarray, at: np.ndarray, threads: np.ndarray
    ) -> None:
        """Store values; lanes race that store different ones in the same slot. `at` are the offsets for findings."""
        kind = np.dtype(f"u{values.dtype.itemsize}")
        bits = values.view(kind)
        table = data.view(kind).reshape(-1, *values.shape[1:])
        table[slots] = bits
        lost = (table[slots] != bits).reshape(len(slots), -1).any(axis=1)
        self._found_where("race", space, at, threads, lost, np.full(len(slots), self.order.now << 32, I64))

    # --- atomics ------------------------------------------------------------------------------------

    def atomic(
        self, row: Row, mask: Mask, space: str, addresses: np.ndarray, operation: Callable, operand: np.ndarray
    ) -> tuple:
        """Apply `operation(old, operand)` lane by lane in random order. Returns (lanes, old values)."""
        lanes = row.indices(mask)
        active = addresses[lanes]
        values = operand[lanes]
        dtype = values.dtype
        width = dtype.itemsize
        threads = row.threads[lanes]
        is_atomic = self.program.is_atomic
        everywhere = np.ones(len(lanes) * max(width >> self.granule_shift, 1), bool)
        if space == "global":
            slots, buffers = self._global(row, lanes, active, width, "atomic")
            for buffer, selection in buffers:
                granules, owners = self._global_granules(row, lanes, slots, buffer, selection, width)
                shadow = self.shadows.get(buffer)
                if shadow is not None:
                    racing = shadow.write(granules, owners, everywhere[: len(granules)], is_atomic)
                    self._report_global(buffer, granules, owners, racing)
            data = self.memory.data
        else:
            offsets, slots = self._shared(row, lanes, active, width, space == "cluster")
            written = row.shared.written.reshape(-1, width)[slots // width].all(axis=1)
            self._found_where("uninitialised", "shared", offsets, threads, ~written)
            granules, owners = self._granules(slots, threads, width)
            racing = row.shared.shadow.write(granules, owners, everywhere, is_atomic)
            self._report_shared(row, granules, owners, racing)
            data = row.shared.data
        table, slots = data.view(dtype), slots // width
        old = np.empty(len(lanes), dtype)
        waiting = self.rng.permutation(len(lanes))
        while len(waiting):
            _, first = np.unique(slots[waiting], return_index=True)
            turn = waiting[first]
            old[turn] = table[slots[turn]]
            table[slots[turn]] = operation(old[turn], values[turn])
            waiting = np.delete(waiting, first)
        return lanes, old

    # --- asynchronous copies ------------------------------------------------------------------------

    def copy_async(
        self, row: Row, mask: Mask, destination: np.ndarray, source: np.ndarray, size: int, used: np.ndarray | None
    ) -> None:
        """cp.async: the source is read now; the destination changes at the wait and counts as unwritten until then.

        Only the first `used` bytes of each lane are read; the rest of `size` is filled with zeros.
        """
        lanes = row.indices(mask)
        data = np.zeros((len(lanes), size), U8)
        partial = np.full(len(lanes), size) if used is None else used[lanes].astype(I64)
        for length in np.unique(partial[partial > 0]).tolist():
            chosen = np.flatnonzero(partial == length)
            if length & (length - 1):
                raise NotImplementedError(f"cp.async of {length} bytes")
            offsets, buffers = self._global(row, lanes[chosen], source[lanes[chosen]], length, "read")
            self._race_global_read(row, lanes[chosen], offsets, buffers, length)
            data[chosen, :length] = self.memory.data.reshape(-1, length)[offsets // length]
        threads = row.threads[lanes]
        offsets, positions = self._shared(row, lanes, destination[lanes], size, False)
        granules, owners = self._granules(positions, threads, size)
        racing = row.shared.shadow.write(granules, owners, np.ones(len(granules), bool), None, record=False)
        self._report_shared(row, granules, owners, racing)
        row.shared.written.reshape(-1, size)[positions // size] = 0
        row.copies.append((lanes, row.groups_committed[lanes].copy(), offsets, positions, data))

    def wait_async(self, row: Row, mask: Mask, pending: int | None) -> None:
        """Complete the copies of all but the last `pending` committed groups of each lane (None: all copies)."""
        kept = []
        active = np.ones(row.size, bool) if mask is True else mask
        for lanes, group, offsets, positions, data in row.copies:
            landing = active[lanes]
            if pending is not None:
                landing = landing & (group < row.groups_committed[lanes] - pending)
            if landing.any():
                words = data[landing].view(np.uint32)
                self._write_shared(row, row.threads[lanes[landing]], offsets[landing], positions[landing], words)
            if not landing.all():
                stay = ~landing
                kept.append((lanes[stay], group[stay], offsets[stay], positions[stay], data[stay]))
        row.copies[:] = kept

    # --- mbarriers ----------------------------------------------------------------------------------

    def place_barriers(self, row: Row, lanes: np.ndarray, addresses: np.ndarray) -> np.ndarray:
        """Positions in the memory of the batch of barriers that are initialised, which is a write."""
        offsets, positions = self._shared(row, lanes, addresses, 8, False, count=False)
        self._write_shared(row, row.threads[lanes], offsets, positions, np.zeros((len(lanes), 2), np.uint32))
        return positions

    def find_barriers(
        self, row: Row, lanes: np.ndarray, addresses: np.ndarray, distributed: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Slots and positions of the barriers at these addresses; if there is none, the launch ends."""
        offsets, positions = self._shared(row, lanes, addresses, 8, distributed, count=False)
        slots = row.barriers.slot_at[positions // 8]
        self.abort_where("uninitialised", "shared", offsets, row.threads[lanes], slots < 0)
        return slots, positions

    def use_barriers(self, row: Row, lanes: np.ndarray, addresses: np.ndarray, distributed: bool) -> np.ndarray:
        """Slots of the barriers that these lanes use: an atomic access that must not race with the initialisation."""
        slots, positions = self.find_barriers(row, lanes, addresses, distributed)
        granules, owners = self._granules(positions, row.threads[lanes], 8)
        racing = row.shared.shadow.read(granules, owners)
        self._report_shared(row, granules, owners, racing)
        return slots

    def store_async(
        self,
        row: Row,
        lanes: np.ndarray,
        addresses: np.ndarray,
        values: np.ndarray,
        blocks: np.ndarray,
        agents: np.ndarray,
    ) -> None:
        """Store to the shared memory of `blocks` of the batch, which hold the barriers, recorded as by `agents`."""
        width = values.itemsize * values.shape[1]
        offsets, positions = self._shared(row, lanes, addresses, width, True)
        elsewhere = positions // row.shared.stride != blocks
        self.abort_where("out_of_bounds", "shared", offsets, row.threads[lanes], elsewhere)
        if self.program.is_bulk[self.current]:
            self.check_fenced(row, *self._granules(positions, row.threads[lanes], width))
        self._write_shared(row, row.threads[lanes], offsets, positions, values, agents)
