"""Runs a decoded kernel: all blocks of a batch at once, one warp index after the other between barriers.

Within a warp index the lanes form groups with one program counter each. The group with the lowest counter runs until it
reaches the counter of another group, where the two merge. A warp index runs until all its lanes wait at a barrier or
have exited. Then the next warp index runs, in an order drawn anew in every round.
"""

from collections.abc import Iterator

import numpy as np

from .launch import LaunchState
from .memory.access import LaunchAborted
from .memory.barriers import Barriers
from .memory.contents import SharedMemory
from .memory.shadow import Shadow
from .registers import views
from .row import Mask, Row, union
from .units.decoding import BARRIER, BRANCH, CLUSTER_WAIT, CONVERGENT, EXIT, PHASE_WAIT, PLAIN


class Batch:
    """Blocks that run together. `blocks` are linear indices, whole clusters."""

    def __init__(self, launch: LaunchState, blocks: np.ndarray) -> None:
        self.launch, self.module, self.unit, self.order = launch, launch.module, launch.unit, launch.order
        self.blocks = blocks
        self.codes = self.order.code(blocks)
        self.code = self.module.instructions
        granule = self.module.granule
        size = self.module.source.static_bytes + launch.shared_bytes
        bytes_shared = len(blocks) * SharedMemory.stride_for(size)
        scope = "cluster" if launch.cluster > 1 and self.module.uses_cluster else "block"
        self.shared = SharedMemory(len(blocks), size, Shadow(bytes_shared // granule, self.order, scope), granule)
        self.barriers = Barriers(self.shared, self.order, self.codes) if self.module.uses_mbarriers else None
        self.clusters = np.unique(blocks // launch.cluster)
        self.completed = np.zeros(len(blocks) // launch.cluster, np.int64)
        exists = [np.tile(32 * warp + np.arange(32) < launch.threads, len(blocks)) for warp in range(launch.warps)]
        self.rows = [
            Row(self.unit, self.codes, warp, launch.warps, operands, exists[warp], self.shared, self.barriers)
            for warp, operands in enumerate(views(launch, blocks))
        ]

    # --- scheduling ---------------------------------------------------------------------------------

    def run(self) -> None:
        while runnable := [row for row in self.rows if row.groups or row.parked]:
            if self.launch.schedule == "in step":
                while runnable:
                    for row in reversed(runnable):  # so that work of warp 0 alone does not always come first
                        self._advance(row)
                    runnable = [row for row in runnable if row.groups or row.parked]
            else:
                for position in self.launch.rng.permutation(len(runnable)):
                    while runnable[position].groups or runnable[position].parked:
                        self._advance(runnable[position])
            self._release()
        self._check_registers()

    def _check_registers(self) -> None:
        """Find blocks whose warps raise their registers above those at the start: a GPU would hang."""
        had = self.module.source.entry_registers * len(self.rows)
        held = np.stack([row.registers for row in self.rows])
        asked = [i for i, statement in enumerate(self.module.source.statements) if statement.parts[0] == "setmaxnreg"]
        over = np.flatnonzero(held.sum(axis=0) > had)
        if asked and len(over):
            self.unit.current = asked[-1]
            counts = " + ".join(str(count) for count in held[::4, over[0]])
            place = f"{counts} registers a thread where {had // len(self.rows)} each are"
            self.unit.found("registers", "", place, self.rows[0].threads[32 * over[0]], len(over))

    def _advance(self, row: Row) -> None:
        """Run the lanes of a row with the lowest program counter up to their next branch, reconvergence point or
        barrier.
        """
        groups, parked = row.groups, row.parked
        forced = not groups
        if forced:
            pc = min(parked)
            groups[pc] = parked.pop(pc)
        pc = min(groups)
        mask = groups.pop(pc)
        if pc in parked:
            mask = union(mask, parked.pop(pc))
        self.launch.lines += 1
        if self.launch.lines > self.launch.endless:
            groups[pc] = mask
            self._end_endless_loop(row)
        limit = min((other for other in (*groups, *parked) if other > pc), default=len(self.code))
        for at, lanes in self._straight(row, pc, mask, limit, forced):
            where = parked if at < 0 else groups
            at = ~at if at < 0 else at
            where[at] = union(where[at], lanes) if at in where else lanes

    def _end_endless_loop(self, row: Row) -> None:
        pc, mask = next(iter(row.groups.items()))
        self.unit.current = min(pc, len(self.code) - 1)
        first = 0 if mask is True else int(np.flatnonzero(mask)[0])
        self.unit.found("endless_loop", "", f"after {self.launch.lines:,} straight lines", row.threads[first], 1)
        raise LaunchAborted

    def _straight(self, row: Row, pc: int, mask: Mask, limit: int, forced: bool) -> list[tuple[int, Mask]]:
        """Run one group until it joins another or diverges. Returns the remaining groups; ~pc: to be parked."""
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
                    row.waiting[pc] = union(row.waiting[pc], waits) if pc in row.waiting else waits
                    ready = ~waits if mask is True else mask & ~waits
                    return [(pc, ready)] if ready.any() else []
                elif kind == CLUSTER_WAIT and self._passes(row, on):
                    pc += 1
                else:
                    row.waiting[pc] = union(row.waiting[pc], on) if pc in row.waiting else on
                    rest = [] if on is mask else [(pc + 1, mask & ~on if mask is not True else ~on)]
                    return self._after(pc, rest, threads, warps)
        finally:
            launch.segment(start, pc, threads, warps)

    def _after(self, pc: int, left: list, threads: int, warps: int) -> list:
        """Count the instruction at `pc`, which ends a straight line, and return the groups that remain."""
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
        """Row of warps in which a live member lane has not arrived yet; None if there are none."""
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
        """Release the threads whose barrier or phase has completed; resolve barriers that cannot complete."""
        if not any(row.waiting for row in self.rows) or self._release_phases():
            return
        first = next(iter(self.rows[0].waiting), -1)
        if (
            first >= 0
            and self.code[first].kind == BARRIER
            and all(not row.groups and row.waiting.get(first) is True for row in self.rows)
        ):
            self._sync_blocks(first, np.arange(len(self.blocks)))
            for row in self.rows:
                row.groups, row.waiting = {first + 1: True}, {}
        else:
            self._release_some()

    def _phase_waits(self) -> Iterator[tuple[Row, int, Mask, np.ndarray | None]]:
        """(row, pc, waiting lanes, the barrier that each still waits for) at every wait for an mbarrier."""
        for row in self.rows:
            for pc, mask in list(row.waiting.items()):
                if self.code[pc].kind == PHASE_WAIT:
                    yield row, pc, mask, self.code[pc].blocked(row, mask)

    def _release_phases(self) -> bool:
        """Release the threads whose mbarrier phase has completed. Returns whether any was released."""
        if self.barriers is None:
            return False
        some = False
        for row, pc, mask, waited in self._phase_waits():
            ready = mask if waited is None else waited < 0 if mask is True else mask & (waited < 0)
            if ready is not True and not ready.any():
                continue
            some = True
            ready = True if ready is True or ready.all() else ready
            row.groups[pc] = union(row.groups[pc], ready) if pc in row.groups else ready
            del row.waiting[pc]
            if waited is not None:
                row.waiting[pc] = waited >= 0
        return some

    def _end_deadlock(self) -> None:
        """No thread can continue: report a deadlock and end the launch where some wait for an mbarrier."""
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

    def _release_some(self) -> None:
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
        late = at_cluster & ~arrived  # the barrier had completed before these lanes waited for it
        waiting = at_cluster.any(axis=(0, 2)).reshape(-1, cluster).any(axis=1)
        ready = waiting & (arrived | ~live).all(axis=(0, 2)).reshape(-1, cluster).all(axis=1)
        if ready.any():
            self.unit.begin(int(at[at_cluster].min()))
            self.order.sync_clusters(self.clusters[ready])
            self.completed[ready] += 1

        if not (released.any() or divergent.any() or ready.any() or late.any()):
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
                    row.groups[pc + 1] = union(row.groups[pc + 1], leaving) if pc + 1 in row.groups else leaving
                if staying.any():
                    still[pc] = staying
            row.waiting = still

    def _sync_blocks(self, pc: int, blocks: np.ndarray) -> None:
        self.unit.begin(pc)
        self.order.sync_blocks(self.codes[blocks])
        self.launch.barriers += len(blocks)
