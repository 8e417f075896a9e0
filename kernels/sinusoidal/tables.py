"""The sinusoidal tables that the log's kernels read, computed on the host."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..constants import FREQUENCY_BASE
from ..version import Buffer, Problem


def _table(function: np.ufunc, seq: int, hdim: int) -> np.ndarray:
    pair = np.arange(hdim) // 2
    angle = np.arange(seq)[:, None] * FREQUENCY_BASE ** (-2.0 * pair / hdim)
    return function(angle).astype(np.float32)


def sinusoidal_tables(problem: Problem) -> dict[str, Buffer]:
    """sin and cos, float32 `[seq_k, hdim]`, each at full width: even dims add sin, odd dims cos."""
    shape = (problem.seq_k, problem.hdim)
    return {
        "sin": Buffer(shape, init=partial(_table, np.sin, *shape)),
        "cos": Buffer(shape, init=partial(_table, np.cos, *shape)),
    }
