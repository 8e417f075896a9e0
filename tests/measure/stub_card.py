"""A made-up card for tests of runs and files: its identity, and rows as a run on it writes them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from analysis.record.columns import SCHEMAS
from analysis.record.problems import problem_columns
from kernels import Problem

CARD: dict[str, Any] = {
    "name": "Made-up card", "slug": "made-up-card", "uuid": "GPU-aaaa1111-0000-0000-0000-000000000000",
    "compute_capability": "9.0", "sms": 2, "memory_bytes": 1 << 30, "l2_bytes": 1 << 20, "power_limit_w": 300,
    "target": "sm_90", "node": "n", "driver": "1", "cuda": "13", "python": "3.12", "numba": "0", "numba_cuda": "0",
    "torch": "2", "sm_mhz_max": 1, "commit": "c",
}  # fmt: skip
_VALUES = {"text": "x", "integer": 1, "number": 1.0, "flag": True}


def filled(schema: str, /, **values: Any) -> dict[str, Any]:
    """A row of a table with something in every cell."""
    return {**{column.name: _VALUES[column.kind] for column in SCHEMAS[schema]}, **values}


PROBLEM = problem_columns(Problem("attention", hdim=64))


def check_row(run: str, number: int, study: str = "log") -> dict[str, Any]:
    """The check of a run with that number, which stands in its error."""
    return filled("checks", **PROBLEM, run=run, study=study, max_abs_err=float(number))


@contextlib.contextmanager
def compilers(target: str) -> Iterator[Callable[..., None]]:
    """In the place of the processes that compile: everything is compiled."""
    yield lambda build, jobs: None
