"""The sinusoidal tables of the log's kernels, computed on the host."""

from functools import partial

import numpy as np

from ...constants import FREQUENCY_BASE
from ...version import Buffer, Problem


def table(function: np.ufunc, seq: int, dims: int) -> np.ndarray:
    """`function`, such as np.sin, of the angle of each pair twice: float32 `[seq, dims]`.

    Computed in float32; each function is rounded from float64, so that every machine gets the same table.
    """
    exponent = np.float32(2) * (np.arange(dims) // 2).astype(np.float32) / np.float32(dims)
    power = np.power(FREQUENCY_BASE, exponent.astype(np.float64)).astype(np.float32)
    angle = np.arange(seq, dtype=np.float32)[:, None] * (np.float32(1) / power)
    return function(angle.astype(np.float64)).astype(np.float32)


def sinusoidal_tables(problem: Problem) -> dict[str, Buffer]:
    """sin and cos, float32 `[seq_k, hdim]`, both at full width: even dims add sin, odd dims cos."""
    shape = (problem.seq_k, problem.hdim)
    return {
        "sin": Buffer(shape, init=partial(table, np.sin, *shape)),
        "cos": Buffer(shape, init=partial(table, np.cos, *shape)),
    }
