"""The time that an access to shared memory takes: 32 banks of 4 bytes, each of which serves one word per cycle."""

from functools import lru_cache

import numpy as np

from .order import I64


def wavefronts(words: np.ndarray, unit: int) -> np.ndarray:
    """int[warps]: the cycles of each warp's access to words of `unit` bytes; `words` is int64[warps, 32].

    A wide access proceeds in phases of 128 bytes. Two neighbouring phases that together use no bank twice are served at
    once. This rule was fitted to the counters of an H200.
    """
    banks = 128 // unit
    waves = _conflicts(words.reshape(-1, banks), banks)
    if unit > 4:
        both = _conflicts(words.reshape(-1, 2 * banks), banks)
        waves = np.where(both <= 1, both, waves.reshape(-1, 2).sum(axis=1))
    return waves.reshape(len(words), -1).sum(axis=1)


@lru_cache(maxsize=1 << 12)
def wavefronts_of(words: bytes, unit: int) -> int:
    return int(wavefronts(np.frombuffer(words, I64).reshape(1, 32), unit)[0])


def _conflicts(phases: np.ndarray, banks: int) -> np.ndarray:
    """The most different words that a phase, a row of word numbers, requests from one bank; -1 is no word."""
    keyed = np.sort(np.where(phases < 0, -1, (phases % banks << 40) | phases), axis=1)
    distinct = keyed >= 0
    distinct[:, 1:] &= keyed[:, 1:] != keyed[:, :-1]
    phase, lane = np.nonzero(distinct)
    busy = np.bincount(phase * banks + (keyed[phase, lane] >> 40), minlength=len(phases) * banks)
    return busy.reshape(-1, banks).max(axis=1)
