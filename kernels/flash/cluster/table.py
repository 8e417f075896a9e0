"""Attention on the V8 core that adds the row of a table at each position to Q and K."""

from functools import partial
from typing import Any

import numpy as np
import torch
from numba import cuda, uint64

from ...constants import FLOATS
from ...device import HALVES, make_float4
from ...device.table import WORDS, load_float8, load_floats, load_halves
from ...rates import require_table, stored_table
from ...version import Buffer, Plan, Problem
from . import attend, plan
from .embedding import Embedding, no_values


def rows_by(load: Any) -> Any:
    """A function that loads 4 dims of the row of a position."""

    @cuda.jit(device=True)
    def row(table, position, dim, dim_values, hdim):
        x = load(table, uint64(uint64(position) * uint64(hdim) + uint64(dim)))
        return x.x, x.y, x.z, x.w

    return row


@cuda.jit(device=True)
def added(x, s, t, u, v):
    return make_float4(x.x + s, x.y + t, x.z + u, x.w + v)


# By the dtype of the table: the embedding, the type of the pointer, and the dtype of the buffer.
TABLES: dict[str, tuple[Embedding, Any, str]] = {
    "float32": (Embedding("table_float32", no_values, rows_by(load_floats), added), FLOATS, "float32"),
    "float16": (Embedding("table_float16", no_values, rows_by(load_halves), added), HALVES, "float16"),
    "float8": (Embedding("table_float8", no_values, rows_by(load_float8), added), WORDS, "uint8"),
}


def _contents(problem: Problem) -> np.ndarray:
    """The problem's table; float8 as its bits."""
    table = stored_table(problem)
    return (table.view(torch.uint8) if problem.table == "float8" else table).numpy()


def add_rows(problem: Problem, target: str) -> Plan:
    """Plan attention with the problem's table. Raises: Unsupported where the family has no such table."""
    require_table(problem)
    embedding, pointer, dtype = TABLES[problem.table]
    positions = max(problem.seq_k, problem.q_offset + problem.seq_q)
    table = Buffer((positions, problem.hdim), dtype, partial(_contents, problem))
    launch = attend(problem, embedding, "table", problem.hdim, table_type=pointer, target=target)
    return plan(problem, launch, table=table)
