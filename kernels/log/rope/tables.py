"""The cos and sin tables that the log's RoPE kernels read, computed on the host."""

from functools import partial

import numpy as np

from ...version import Buffer, Problem
from ..sinusoidal.tables import table


def rope_tables(problem: Problem, padding: int = 0) -> dict[str, Buffer]:
    """cos and sin, float32 `[seq_k, rotary_dim]`; the value of each pair is stored twice, as the kernels read it."""
    shape = (problem.seq_k, problem.rotary_dim)
    return {
        "cos": Buffer(shape, init=partial(table, np.cos, *shape), padding=padding),
        "sin": Buffer(shape, init=partial(table, np.sin, *shape), padding=padding),
    }
