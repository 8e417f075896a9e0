"""The cos and sin tables that the log's RoPE kernels read, computed on the host."""

from functools import partial

import numpy as np

from ..constants import FREQUENCY_BASE
from ..version import Buffer, Problem


def _table(function: np.ufunc, seq: int, rotary_dim: int) -> np.ndarray:
    """Computed in float32; each function is rounded from float64, so that every machine gets the same table."""
    exponent = np.float32(2) * (np.arange(rotary_dim) // 2).astype(np.float32) / np.float32(rotary_dim)
    power = np.power(FREQUENCY_BASE, exponent.astype(np.float64)).astype(np.float32)
    angle = np.arange(seq, dtype=np.float32)[:, None] * (np.float32(1) / power)
    return function(angle.astype(np.float64)).astype(np.float32)


def rope_tables(problem: Problem, padding: int = 0) -> dict[str, Buffer]:
    """cos and sin, float32 `[seq_k, rotary_dim]`; the value of each pair is stored twice, as the kernels read it."""
    shape = (problem.seq_k, problem.rotary_dim)
    return {
        "cos": Buffer(shape, init=partial(_table, np.cos, *shape), padding=padding),
        "sin": Buffer(shape, init=partial(_table, np.sin, *shape), padding=padding),
    }
