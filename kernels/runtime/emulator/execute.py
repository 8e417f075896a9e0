"""Runs a decoded kernel: all blocks of a batch at once, one warp index after the other between barriers.

Within a warp index the lanes are kept in groups with one program counter each; the group with the
lowest counter runs, up to the next group's counter, where the two become one. A warp index runs until
all its lanes wait at a barrier or have exited; then the next, in an order drawn anew every round.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .access import LaunchAborted, MemoryUnit
from .decoding import BARRIER, BRANCH, CLUSTER_WAIT, CONVERGENT, EXIT, PHASE_WAIT, PLAIN, YIELD, Mask
from .mbarriers import Barriers
from .memory import Memory, Order, Shadow, SharedMemory
from .module import Module
from .ptx import numpy_type
from .report import LaunchReport, merge
from .warpgroups import Products

SCHEDULES = ("random", "in step")
IDLE_ROUNDS = 1000  # in which nobody gets further but warps that give way, in a loop
ENDLESS = 20_000_000  # straight lines of code in a launch: hours, where the longest kernel takes seconds
BATCH_LANES = 1 << 15
BATCH_REGISTER_BYTES = 1 << 28
BATCH_READERS = 1 << 26  # granules times warps, where the latest reader of each granule in each warp is kept

Grid = Sequence[int | np.integer] | int


def triple(size: Grid) -> tuple[int, int, int]:
    values = (size,) if isinstance(size, int) else tuple(size)
    return tuple(int(v) for v in values + (1,) * (3 - len(values)))  # type: ignore[return-value]


class Row:
    """One warp index of all blocks of a batch: lane `32 * b + l` is lane l of the batch's block b."""

    def __init__(self, batch: Batch, index: int, views: list, live: np.ndarray) -> None:
        self.unit = batch.unit
        self.index = index
        self.warps = batch.launch.warps
        self.views = views
        self.size = len(live)
        self.live = live
        self.threads = (batch.codes << batch.order.block_shift).repeat(32) | (
            32 * index + np.tile(np.arange(32), len(batch.codes))
        )
        self.shared = batch.shared
        self.shared_base = (np.arange(len(batch.codes)) * batch.shared.stride).repeat(32)
        stride = -(-batch.module.source.local_bytes // 16) * 16
        self.local = np.full(self.size * stride, 0xFF, np.uint8)
        self.local_base = np.arange(self.size) * stride
        self.barriers: Any = batch.barriers
        self.groups: dict[int, Mask] = {0: True if live.all() else live.copy()}
        self.parked: dict[int, Mask] = {}
        self.waiting: dict[int, Mask] = {}
        self.groups_committed = np.zeros(self.size, np.int64)
        self.copies: list[tuple] = []
        self.arrived = np.zeros(self.size, np.int64)
        self.products = Products()

    def lanes(self, slot: int) -> np.ndarray:
        """The operand with a value for every lane."""
        value = self.views[slot]
        return value if isinstance(value, np.ndarray) else np.full(self.size, value)


def join(first: Mask, second: Mask) -> Mask:
    """Union of two masks."""
    if first is True or second is True:
        return True
    both = first | second
    return True if both.all() else both


class Batch:
    """Blocks that run together. `blocks` are linear indices, whole clusters."""

    def __init__(self, launch: Launch, blocks: np.ndarray) -> None:
        self.launch, self.module, self.unit, self.order = launch, launch.module, launch.unit, launch.order
        self.blocks = blocks
        self.codes = self.order.code(blocks)
        self.order.begin(self.codes)
        self.code = self.module.instructions
        granule = self.module.granule
        size = self.module.source.static_bytes + launch.shared_bytes
        bytes_shared = len(blocks) * SharedMemory.stride_for(size)
        scope = "cluster" if launch.cluster > 1 and self.module.uses_cluster else "block"
        self.shared = SharedMemory(len(blocks), size, Shadow(bytes_shared // granule, self.order, scope), granule)
        self.barriers = Barriers(self.shared, self.order, self.codes) if self.module.uses_mbarriers else None
        self.clusters = np.unique(blocks // launch.cluster)
        self.completed = np.zeros(len(blocks) // launch.cluster, np.int64)
        self.idle_rounds = 0
        self.rows = list(self._rows())

    def _rows(self) -> Iterator[Row]:
        lanes = 32 * len(self.blocks)
        warps = self.launch.warps
        module = self.module
        common = [
            rest[0] if kind == "constant" else None if kind in ("register", "special") else self.launch.value(kind, *rest)
            for kind, *rest in module.slots
        ]
        storage = {
            width: np.zeros((len(names), warps, lanes), np.dtype(f"u{width}") if width else bool)
            for width, names in module.registers.items()
        }
        for warp in range(warps):
            special = self._special(warp)
            views: list = common.copy()
            for (width, dtype), places in module.register_views.items():
                ratio = max(width // dtype.itemsize, 1)
                lines = list(storage[width][:, warp].view(dtype)[:, ::ratio])
                for slot, number in places:
                    views[slot] = lines[number]
            for slot, name, dtype in module.specials:
                views[slot] = special(name).astype(dtype)
            yield Row(self, warp, views, np.tile(32 * warp + np.arange(32) < self.launch.threads, len(self.blocks)))

    def _special(self, warp: int) -> Callable[[str], np.ndarray]:
        launch = self.launch
        lane = np.tile(np.arange(32), len(self.blocks))
        thread, block = 32 * warp + lane, self.blocks.repeat(32)
        constant = {
            "%nwarpid": launch.warps,
            "%cluster_nctarank": launch.cluster,
            "%dynamic_smem_size": launch.shared_bytes,
            "%total_smem_size": launch.shared_bytes + self.module.source.static_bytes,
        }
        masks = {"eq": 1 << lane, "lt": (1 << lane) - 1, "le": (2 << lane) - 1,
                 "gt": 0xFFFFFFFF & ~((2 << lane) - 1), "ge": 0xFFFFFFFF & ~((1 << lane) - 1)}  # fmt: skip
        clusters = (launch.grid[0] // launch.cluster, launch.grid[1], launch.grid[2])

        def at(linear: np.ndarray, shape: tuple[int, int, int], axis: int) -> np.ndarray:
            return linear // math.prod(shape[:axis]) % shape[axis]

        def value(name: str) -> np.ndarray:
            if name in constant:
                return np.full(len(lane), constant[name])
            if name.startswith("%lanemask_"):
                return masks[name[-2:]]
            simple = {"%laneid": lane, "%warpid": np.full(len(lane), warp), "%cluster_ctarank": block % launch.cluster}
            if name in simple:
                return simple[name]
            base, axis = name[1:-2], "xyz".index(name[-1])
            shape = {
                "tid": launch.block,
                "ctaid": launch.grid,
                "clusterid": clusters,
                "cluster_ctaid": (launch.cluster, 1, 1),
            }
            linear = {
                "tid": thread,
                "ctaid": block,
                "clusterid": block // launch.cluster,
                "cluster_ctaid": block % launch.cluster,
            }
            if base in linear:
                return at(linear[base], shape[base], axis)
            sizes = {
                "ntid": launch.block,
                "nctaid": launch.grid,
                "nclusterid": clusters,
                "cluster_nctaid": (launch.cluster, 1, 1),
            }
            return np.full(len(lane), sizes[base][axis])

        return value

    # --- scheduling ---------------------------------------------------------------------------------

    def run(self) -> None:
        while runnable := [row for row in self.rows if row.groups or row.parked]:
            if self.launch.schedule == "in step":
                while runnable:
                    for row in runnable:
                        self._advance(row)
                    runnable = [row for row in runnable if row.groups or row.parked]
            else:
                for position in self.launch.rng.permutation(len(runnable)):
                    while runnable[position].groups or runnable[position].parked:
                        self._advance(runnable[position])
            self._release()

    def _advance(self, row: Row) -> None:
        """Run the lanes of a row that are furthest behind up to their next branch, meeting point or barrier."""
        groups, parked = row.groups, row.parked
        forced = not groups
        if forced:
            pc = min(parked)
            groups[pc] = parked.pop(pc)
        pc = min(groups)
        mask = groups.pop(pc)
        if pc in parked:
            mask = join(mask, parked.pop(pc))
        self.launch.lines += 1
        if self.launch.lines > ENDLESS:
            groups[pc] = mask
            self._end_endless_loop(row)
        limit = min((other for other in (*groups, *parked) if other > pc), default=len(self.code))
        for at, lanes in self._straight(row, pc, mask, limit, forced):
            where = parked if at < 0 else groups
            at = ~at if at < 0 else at
            where[at] = join(where[at], lanes) if at in where else lanes

    def _end_endless_loop(self, row: Row) -> None:
        pc, mask = next(iter(row.groups.items()))
        self.unit.current = min(pc, len(self.code) - 1)
        first = 0 if mask is True else int(np.flatnonzero(mask)[0])
        self.unit.found("endless_loop", "", f"after {self.launch.lines:,} straight lines", row.threads[first], 1)
        raise LaunchAborted

    def _straight(self, row: Row, pc: int, mask: Mask, limit: int, forced: bool) -> list[tuple[int, Mask]]:
        """Run one group until it meets another or splits. Returns the groups left; ~pc for one to be parked."""
        code, views, launch = self.code, row.views, self.launch
        start = pc
        threads, warps = self._sizes(row, mask)
        try:
            while True:
                if pc >= limit:
                    if pc < len(code):
                        return [(pc, mask)]
                    self._exit(row, mask)
                    return []
                instruction = code[pc]
                kind = instruction.kind
                on = mask
                if instruction.guard >= 0:
                    on = views[instruction.guard]
                    on = ~on if instruction.negated else on.copy()
                    if mask is not True:
                        on &= mask
                    count = int(np.count_nonzero(on))
                    launch.guarded[pc] += count - threads
                    if kind == BRANCH:
                        if count == threads:
                            on = mask
                        elif count:
                            rest = ~on if mask is True else mask & ~on
                            return self._after(pc, [(pc + 1, rest), (instruction.target, on)], threads, warps)
                    elif count == threads:
                        on = mask
                    if not count:
                        pc += 1
                        continue
                if kind == PLAIN:
                    instruction.step(row, on)
                    pc += 1
                elif kind == BRANCH:
                    if instruction.target <= pc or instruction.target >= limit:
                        return self._after(pc, [(instruction.target, on)], threads, warps)
                    launch.segment(start, pc + 1, threads, warps)
                    start = pc = instruction.target
                elif kind == CONVERGENT:
                    if on is not True and not forced:
                        absent = self._absent(
                            row, on, views[instruction.members] if instruction.members >= 0 else np.uint32(0xFFFFFFFF)
                        )
                        if absent is not None:
                            if on is not mask:
                                launch.guarded[pc] += threads - int(np.count_nonzero(on))
                            left = [(~pc, mask & absent), (pc, mask & ~absent)]
                            return [(at, lanes) for at, lanes in left if lanes.any()]
                    if forced:
                        self.unit.current = pc
                        first = int(np.flatnonzero(on)[0]) if on is not True else 0
                        self.unit.found("divergent_warp", "", "warp", row.threads[first], int(np.count_nonzero(on)))
                        forced = False
                    instruction.step(row, on)
                    pc += 1
                elif kind == EXIT:
                    self._exit(row, on)
                    rest = [] if on is mask else [(pc + 1, mask & ~on if mask is not True else ~on)]
                    return self._after(pc, rest, threads, warps)
                elif kind == PHASE_WAIT:
                    waited = instruction.blocked(row, mask)
                    if waited is None:
                        instruction.step(row, mask)
                        pc += 1
                        continue
                    waits = waited >= 0
                    row.waiting[pc] = join(row.waiting[pc], waits) if pc in row.waiting else waits
                    ready = ~waits if mask is True else mask & ~waits
                    return [(pc, ready)] if ready.any() else []
                elif kind == CLUSTER_WAIT and self._passes(row, on):
                    pc += 1
                else:
                    row.waiting[pc] = join(row.waiting[pc], on) if pc in row.waiting else on
                    rest = [] if on is mask else [(pc + 1, mask & ~on if mask is not True else ~on)]
                    return self._after(pc, rest, threads, warps)
        finally:
            launch.segment(start, pc, threads, warps)

    def _after(self, pc: int, left: list, threads: int, warps: int) -> list:
        """Count the instruction at `pc`, which ends a straight line, and hand on the groups that it leaves."""
        self.launch.segment(pc, pc + 1, threads, warps)
        return left

    @staticmethod
    def _sizes(row: Row, mask: Mask) -> tuple[int, int]:
        if mask is True:
            return row.size, row.size // 32
        return int(np.count_nonzero(mask)), int(np.count_nonzero(mask.reshape(-1, 32).any(axis=1)))

    @staticmethod
    def _exit(row: Row, mask: Mask) -> None:
        row.live = np.zeros_like(row.live) if mask is True else row.live & ~mask

    @staticmethod
    def _absent(row: Row, mask: np.ndarray, members: np.ndarray | np.uint32) -> np.ndarray | None:
        """Lanes of the warps of which a live member lane has not come here yet; None if there are none."""
        by_warp = mask.reshape(-1, 32)
        here = by_warp.any(axis=1)
        if (by_warp.all(axis=1) == here).all():
            return None
        members = np.broadcast_to(members, row.size)
        # the union of the member masks of the lanes that are here
        named = np.bitwise_or.reduce(np.where(mask, members, np.uint32(0)).reshape(-1, 32), axis=1)
        wanted = (named[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)) == 1
        missing = (wanted & row.live.reshape(-1, 32) & ~by_warp).any(axis=1) & here
        return missing.repeat(32) if missing.any() else None

    # --- barriers -----------------------------------------------------------------------------------

    def _passes(self, row: Row, mask: Mask) -> bool:
        """Whether the cluster barrier at which these lanes would wait is already complete."""
        done = self.completed.repeat(32 * self.launch.cluster)
        passed = row.arrived <= done
        return bool(passed.all() if mask is True else passed[mask].all())

    def _release(self) -> None:
        """Let go who gave way, and units whose barrier is complete; break up those that can never be."""
        yielded = self._release_yields()
        moved = self._release_waiting(yielded)
        self.idle_rounds = self.idle_rounds + 1 if yielded and not moved else 0
        if self.idle_rounds > IDLE_ROUNDS:
            self._end_endless_loop(next(row for row in self.rows if row.groups))

    def _release_waiting(self, yielded: bool) -> bool:
        """Let go who waits for a phase or a barrier that is complete; whether there were any."""
        if not any(row.waiting for row in self.rows):
            return False
        if self._release_phases():
            return True
        first = next(iter(self.rows[0].waiting), -1)
        if (
            first >= 0
            and self.code[first].kind == BARRIER
            and all(not row.groups and row.waiting.get(first) is True for row in self.rows)
        ):
            self._sync_blocks(first, np.arange(len(self.blocks)))
            for row in self.rows:
                row.groups, row.waiting = {first + 1: True}, {}
            return True
        return self._release_some(yielded)

    def _release_yields(self) -> bool:
        """Let go who gave way; whether there were any."""
        some = False
        for row in self.rows:
            for pc in [pc for pc in row.waiting if self.code[pc].kind == YIELD]:
                mask, some = row.waiting.pop(pc), True
                row.groups[pc + 1] = join(row.groups[pc + 1], mask) if pc + 1 in row.groups else mask
        return some

    def _phase_waits(self) -> Iterator[tuple[Row, int, Mask, np.ndarray | None]]:
        """(row, pc, who waits there, the barriers they still wait for) at every wait for an mbarrier."""
        for row in self.rows:
            for pc, mask in list(row.waiting.items()):
                if self.code[pc].kind == PHASE_WAIT:
                    yield row, pc, mask, self.code[pc].blocked(row, mask)

    def _release_phases(self) -> bool:
        """Let go who waits for a phase of an mbarrier that has completed since; whether there were any."""
        if self.barriers is None:
            return False
        some = False
        for row, pc, mask, waited in self._phase_waits():
            ready = mask if waited is None else waited < 0 if mask is True else mask & (waited < 0)
            if ready is not True and not ready.any():
                continue
            some = True
            ready = True if ready is True or ready.all() else ready
            row.groups[pc] = join(row.groups[pc], ready) if pc in row.groups else ready
            del row.waiting[pc]
            if waited is not None:
                row.waiting[pc] = waited >= 0
        return some

    def _end_deadlock(self) -> None:
        """Nobody can go on: end the launch where some wait for an mbarrier."""
        dead = False
        for row, pc, _, waited in self._phase_waits():
            assert waited is not None
            for slot in np.unique(waited[waited >= 0]):
                dead = True
                lanes = np.flatnonzero(waited == slot)
                place = self.unit.shared_place(int(row.barriers.position[slot] % self.shared.stride))
                self.unit.current = pc
                place = f"mbarrier in '{place}', {row.barriers.lacking(slot)}"
                self.unit.found("deadlock", "", place, row.threads[lanes[0]], len(lanes))
        if dead:
            raise LaunchAborted

    def _release_some(self, yielded: bool) -> bool:
        blocks, cluster = len(self.blocks), self.launch.cluster
        at = np.full((len(self.rows), blocks, 32), -1)
        for row in self.rows:
            for pc, mask in row.waiting.items():
                at[row.index].reshape(-1)[mask if mask is not True else slice(None)] = pc
        kinds = np.array([instruction.kind for instruction in self.code] + [-1])
        live = np.stack([row.live.reshape(-1, 32) for row in self.rows])
        exists = (32 * np.arange(len(self.rows))[:, None, None] + np.arange(32)) < self.launch.threads
        at_block = (at >= 0) & (kinds[at] == BARRIER)
        at_cluster = (at >= 0) & (kinds[at] == CLUSTER_WAIT)

        released = np.zeros(blocks, bool)
        some = at_block.any(axis=(0, 2))
        lowest = np.where(at_block, at, len(self.code)).min(axis=(0, 2))
        highest = np.where(at_block, at, -1).max(axis=(0, 2))
        stuck = (live & ~at_block).any(axis=(0, 2))
        gone = (exists & ~live).any(axis=(0, 2))
        clean = some & (lowest == highest) & ~stuck & ~gone
        divergent = some & ~stuck & ~clean
        for pc in np.unique(lowest[clean]):
            self._sync_blocks(int(pc), np.flatnonzero(clean & (lowest == pc)))
        released |= clean

        arrivals = np.stack([row.arrived.reshape(-1, 32) for row in self.rows])
        arrived = arrivals > self.completed.repeat(cluster)[None, :, None]
        late = at_cluster & ~arrived  # the barrier was complete before these came to wait for it
        waiting = at_cluster.any(axis=(0, 2)).reshape(-1, cluster).any(axis=1)
        ready = waiting & (arrived | ~live).all(axis=(0, 2)).reshape(-1, cluster).all(axis=1)
        if ready.any():
            self.unit.begin(int(at[at_cluster].min()))
            self.order.sync_clusters(self.clusters[ready])
            self.completed[ready] += 1

        moved = bool(released.any() or divergent.any() or ready.any() or late.any())
        if not moved and not yielded:
            self._end_deadlock()
            divergent = some | (waiting.repeat(cluster) & at_cluster.any(axis=(0, 2)))
            ready = waiting
        for pc in np.unique(at[:, divergent][at[:, divergent] >= 0])[:1]:
            here = divergent & (at == pc).any(axis=(0, 2))
            here = divergent if not here.any() else here
            missing = (exists & (at != pc))[:, here]
            warp, block, lane = (int(i[0]) for i in np.nonzero(missing)) if missing.any() else (0, 0, 0)
            self.unit.begin(int(pc))
            thread = (int(self.codes[here][block]) << self.order.block_shift) + 32 * warp + lane
            self.unit.found("divergent_barrier", "", "barrier", thread, int(missing.sum()))
        if divergent.any():
            self.order.sync_blocks(self.codes[divergent])
        free_block = released | divergent
        free_cluster = ready.repeat(cluster) | divergent
        for row in self.rows:
            still = {}
            for pc, mask in row.waiting.items():
                go = (free_block if self.code[pc].kind == BARRIER else free_cluster).repeat(32) | late[
                    row.index
                ].reshape(-1)
                leaving, staying = (go, ~go) if mask is True else (mask & go, mask & ~go)
                if leaving.any():
                    leaving = True if leaving.all() else leaving
                    row.groups[pc + 1] = join(row.groups[pc + 1], leaving) if pc + 1 in row.groups else leaving
                if staying.any():
                    still[pc] = staying
            row.waiting = still
        return moved

    def _sync_blocks(self, pc: int, blocks: np.ndarray) -> None:
        self.unit.begin(pc)
        self.order.sync_blocks(self.codes[blocks])
        self.launch.barriers += len(blocks)


class Launch:
    """One launch: its batches, one after the other, with one order and one global shadow over all of them."""

    def __init__(
        self, module: Module, memory: Memory, grid: Grid, block: Grid, args: Sequence, shared_bytes: int,
        place_of: Callable[[int], str], cluster: int, seed: int, schedule: str,
    ) -> None:  # fmt: skip
        self.module, self.memory, self.cluster, self.shared_bytes = module, memory, cluster, shared_bytes
        self.grid, self.block = triple(grid), triple(block)
        self.threads = math.prod(self.block)
        self.warps = -(-self.threads // 32)
        if self.grid[0] % cluster:
            raise ValueError(f"grid is {self.grid}; its x must be a multiple of the cluster size, which is {cluster}")
        if len(args) != len(module.source.params):
            raise ValueError(f"{module.name} takes {len(module.source.params)} arguments, {len(args)} were given")
        self.args = dict(zip(module.source.params, args, strict=True))
        memory.add_constants(
            {name: module.source.constants[name] for kind, name, *_ in module.slots if kind == "symbol"}
        )
        self.rng = np.random.default_rng(seed)
        self.schedule = schedule
        self.lines = 0
        self.order = Order(math.prod(self.grid), self.warps, cluster, module.uses_mbarriers, module.uses_fences)
        written = {a for p, a in self.args.items() if isinstance(a, str) and p in module.stored_params}
        self.unit = MemoryUnit(module, memory, self.order, written, place_of, self.rng)
        size = len(module.instructions) + 1
        self.executed, self.issued, self.guarded = [0] * size, [0] * size, [0] * size
        self.barriers = 0

    def segment(self, start: int, stop: int, threads: int, warps: int) -> None:
        """Count a straight run of instructions by its ends; `report` adds up."""
        self.executed[start] += threads
        self.executed[stop] -= threads
        self.issued[start] += warps
        self.issued[stop] -= warps

    def value(self, kind: str, name: str, dtype: np.dtype) -> Any:
        """A parameter or the address of a symbol."""
        if kind == "symbol":
            return np.array(self.memory.address(name), np.uint64).astype(dtype)[()]
        argument = self.args[name]
        if isinstance(argument, str):
            argument = self.memory.address(argument)
        declared = numpy_type(self.module.source.params[name])
        if declared.kind in "iu":
            value = np.array(int(argument) & (1 << 8 * declared.itemsize) - 1, f"u{declared.itemsize}")
        else:
            value = np.array(argument, declared)
        same_size = value.dtype.itemsize == dtype.itemsize
        return (value.view(dtype) if same_size else value.view(declared).astype(dtype))[()]

    def run(self, blocks: np.ndarray) -> LaunchReport:
        per_block = max(self.warps * 32, 1)
        count = min(BATCH_LANES // per_block, BATCH_REGISTER_BYTES // (per_block * max(self.module.register_bytes, 1)))
        if self.module.uses_mbarriers:
            size = self.module.source.static_bytes + self.shared_bytes
            count = min(count, BATCH_READERS // (self.warps * (size // self.module.granule + 1)))
        count = max(count // self.cluster, 1) * self.cluster
        with np.errstate(all="ignore"):
            try:
                for first in range(0, len(blocks), count):
                    Batch(self, blocks[first : first + count]).run()
            except LaunchAborted:
                pass
        return self.report()

    def report(self) -> LaunchReport:
        counts: Counter[str] = Counter()
        executed = np.cumsum(self.executed) + np.array(self.guarded)
        for instruction, threads in zip(self.module.instructions, executed.tolist(), strict=False):
            counts[instruction.counter] += threads
        counts["warp_inst"] = int(np.cumsum(self.issued).sum())
        counts.update(self.unit.counts)
        for direction, touched in self.unit.touched.items():
            counts[f"global.unique_sectors.{direction}"] = int(np.count_nonzero(touched))
        counts["barriers"] = self.barriers
        return LaunchReport(self.module.name, dict(sorted(counts.items())), merge(self.unit.findings))


def execute(
    module: Module,
    memory: Memory,
    grid: Grid,
    block: Grid,
    args: Sequence[str | int | float],
    shared_bytes: int = 0,
    shared_place: Callable[[int], str] = lambda byte: "shared",
    cluster: int = 1,
    seed: int = 0,
    blocks: Sequence[int] | None = None,
    schedule: str = "random",
) -> LaunchReport:
    """Run one launch on `memory`.

    `args` holds one value per kernel parameter; a str is a buffer of `memory`, passed as its address.
    `grid` counts blocks. `shared_place` names the array that holds a byte of dynamic shared memory.
    `blocks` limits the run to some linear block indices, whole clusters. Between barriers the warps run
    one after the other in an order drawn from `seed` (schedule "random"), or side by side from branch to
    branch, nearer to what a GPU does ("in step").

    Raises:
        ValueError: another schedule, wrong number of arguments, or blocks that are not whole clusters.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}; allowed: {', '.join(SCHEDULES)}")
    launch = Launch(module, memory, grid, block, args, shared_bytes, shared_place, cluster, seed, schedule)
    chosen = np.arange(math.prod(launch.grid)) if blocks is None else np.unique(np.asarray(blocks, np.int64))
    whole = len(chosen) % cluster == 0 and (np.unique(chosen // cluster, return_counts=True)[1] == cluster).all()
    if not whole or (chosen.size and (chosen[0] < 0 or chosen[-1] >= math.prod(launch.grid))):
        raise ValueError("blocks must be whole clusters of the grid")
    return launch.run(chosen)
