"""Products of warpgroups that are under way."""

from __future__ import annotations

import numpy as np


class Products:
    """The products of one warp index that are under way: their totals, by register."""

    def __init__(self) -> None:
        self._registers: dict[int, np.ndarray] = {}
        self._totals: dict[int, np.ndarray] = {}
        self._groups: dict[int, np.ndarray] = {}  # by warp: 0 not under way, 1 begun, 2 committed

    def total(self, target: int, register: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """float32[warps, 32]: what a further product adds to."""
        if target not in self._totals:
            return register.reshape(-1, 32)[warps]
        under_way = self._groups[target][warps] > 0
        return np.where(under_way[:, None], self._totals[target][warps], register.reshape(-1, 32)[warps])

    def begin(self, target: int, register: np.ndarray, warps: np.ndarray, total: np.ndarray) -> None:
        lines = register.reshape(-1, 32)
        if target not in self._totals:
            self._registers[target] = lines
            self._totals[target] = np.empty_like(lines)
            self._groups[target] = np.zeros(len(lines), np.int8)
        self._totals[target][warps] = total
        self._groups[target][warps] = 1
        lines[warps] = np.nan

    def commit(self, warps: np.ndarray) -> None:
        for group in self._groups.values():
            group[warps & (group == 1)] = 2

    def wait(self, warps: np.ndarray) -> None:
        for target, group in self._groups.items():
            done = warps & (group == 2)
            self._registers[target][done] = self._totals[target][done]
            group[done] = 0
