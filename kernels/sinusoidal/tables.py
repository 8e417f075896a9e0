"""The sinusoidal tables of the log's kernels, computed on the host, and the launch of a kernel that adds them."""

from collections.abc import Callable
from functools import partial

import numpy as np

from ..constants import FLOATS, FREQUENCY_BASE, THREADS
from ..device.cint import CINT
from ..version import Buffer, Kernel, Launch, Problem


def _table(function: np.ufunc, seq: int, hdim: int) -> np.ndarray:
    """Computed in float32; each function is rounded from float64, so that every machine gets the same table."""
    exponent = np.float32(2) * (np.arange(hdim) // 2).astype(np.float32) / np.float32(hdim)
    power = np.power(FREQUENCY_BASE, exponent.astype(np.float64)).astype(np.float32)
    angle = np.arange(seq, dtype=np.float32)[:, None] * (np.float32(1) / power)
    return function(angle.astype(np.float64)).astype(np.float32)


def sinusoidal_tables(problem: Problem) -> dict[str, Buffer]:
    """sin and cos, float32 `[seq_k, hdim]`, both at full width: even dims add sin, odd dims cos."""
    shape = (problem.seq_k, problem.hdim)
    return {
        "sin": Buffer(shape, init=partial(_table, np.sin, *shape)),
        "cos": Buffer(shape, init=partial(_table, np.cos, *shape)),
    }


def launch_tokens(embed_tokens: Callable[..., None], problem: Problem, x: str, embedded: str) -> Launch:
    """Add the sinusoidal embedding to every token of buffer `x` and store it in `embedded`: one block per token."""
    return Launch(
        Kernel(embed_tokens, (FLOATS,) * 4 + (CINT,) * 2),
        grid=(problem.batch * problem.heads * problem.seq_q,),
        block=(THREADS,),
        args=(x, "sin", "cos", embedded, problem.seq_q, problem.hdim),
    )
