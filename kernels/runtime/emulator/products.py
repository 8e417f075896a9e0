"""Asynchronous wgmma products in flight."""

from collections.abc import Callable

import numpy as np

BEGUN = -1


class Products:
    """The wgmma products of one warp index in flight: their accumulators, by register, and the tiles that they read."""

    def __init__(self) -> None:
        self._registers: dict[int, np.ndarray] = {}
        self._totals: dict[int, np.ndarray] = {}
        self._groups: dict[int, np.ndarray] = {}  # by warp: 0 none in flight, BEGUN, or the number of its group
        self._committed = np.zeros(0, np.int64)  # groups by warp
        self._reads: list[tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], None]]] = []

    def total(self, target: int, register: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """float32[warps, 32]: the accumulator of a further product."""
        if target not in self._totals:
            return register.reshape(-1, 32)[warps]
        under_way = self._groups[target][warps] != 0
        return np.where(under_way[:, None], self._totals[target][warps], register.reshape(-1, 32)[warps])

    def begin(self, target: int, register: np.ndarray, warps: np.ndarray, total: np.ndarray) -> None:
        lines = register.reshape(-1, 32)
        if target not in self._totals:
            self._registers[target] = lines
            self._totals[target] = np.empty_like(lines)
            self._groups[target] = np.zeros(len(lines), np.int64)
        self._totals[target][warps] = total
        self._groups[target][warps] = BEGUN
        lines[warps] = np.nan

    def reading(self, warps: np.ndarray, count: int, again: Callable[[np.ndarray], None]) -> None:
        """A product of these warps, of `count`, reads until it completes; again(warps) then records that anew."""
        group = np.zeros(count, np.int64)
        group[warps] = BEGUN
        self._reads.append((group, warps, again))

    def commit(self, warps: np.ndarray) -> None:
        if not len(self._committed):
            self._committed = np.zeros(len(warps), np.int64)
        self._committed[warps] += 1
        for group in (*self._groups.values(), *(group for group, _, _ in self._reads)):
            begun = warps & (group == BEGUN)
            group[begun] = self._committed[begun]

    def wait(self, warps: np.ndarray, pending: int) -> None:
        """Complete all but the last `pending` committed groups of these warps."""
        if not len(self._committed):
            return

        def done_of(group: np.ndarray) -> np.ndarray:
            return warps & (group > 0) & (group <= self._committed - pending)

        for target, group in self._groups.items():
            done = done_of(group)
            self._registers[target][done] = self._totals[target][done]
            group[done] = 0
        for group, of, again in self._reads:
            done = done_of(group)
            if done.any():
                again(done[of])
                group[done] = 0
        self._reads = [read for read in self._reads if read[0].any()]
