"""The cos and sin tables that the log's RoPE kernels read, computed on the host."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..constants import FREQUENCY_BASE
from ..version import Buffer, Problem


def _table(function: np.ufunc, seq: int, rotary_dim: int) -> np.ndarray:
    pair = np.arange(rotary_dim) // 2
    angle = np.arange(seq)[:, None] * FREQUENCY_BASE ** (-2.0 * pair / rotary_dim)
    return function(angle).astype(np.float32)


def rope_tables(problem: Problem, padding: int = 0) -> dict[str, Buffer]:
    """cos and sin, float32 `[seq_k, rotary_dim]`: each pair's value stands twice, as the kernels read it."""
    shape = (problem.seq_k, problem.rotary_dim)
    return {
        "cos": Buffer(shape, init=partial(_table, np.cos, *shape), padding=padding),
        "sin": Buffer(shape, init=partial(_table, np.sin, *shape), padding=padding),
    }
