"""data/their_test.csv: what the test of the documents' programs counts in the results of the rebuilt kernels.

    python -m analysis their_test

As theirs it draws Q, K and V of each shape in turn by C's rand() with seed 42, and counts the elements that differ from
the reference by more than 0.05, which no NaN does. The kernels run in the emulator. Rows of code that has not changed
are kept; the others take minutes.
"""

import ctypes
import functools
import math

import numpy as np
import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.checking.reference import attention
from kernels.runtime.emulator import run

from ..evidence.current import Row, today
from ..record.files import problem_columns, problem_of
from ..studies import Pair
from .static import update

TOLERANCE, SEED, RAND_MAX = 0.05, 42, 2**31 - 1
SHAPES = ((4, 64, 512), (4, 64, 2048), (2, 32, 4096), (1, 16, 8192))  # heads, queries, head dim: in this order
PROBLEMS = tuple(Problem("attention", 1, heads, seq_q=queries, hdim=hdim) for heads, queries, hdim in SHAPES)


@functools.cache
def inputs() -> dict[Problem, dict[str, np.ndarray]]:
    """float32 Q, K and V in [-1, 1] of each problem, as the programs draw them."""
    libc = ctypes.CDLL("libc.so.6")
    libc.srand(SEED)

    def drawn(shape: tuple[int, ...]) -> np.ndarray:
        values = np.fromiter((libc.rand() for _ in range(math.prod(shape))), np.float32)
        return (values / np.float32(RAND_MAX) * 2 - 1).reshape(shape)

    return {problem: {name: drawn(problem.q_shape) for name in "qkv"} for problem in PROBLEMS}


def judged(out: np.ndarray, expected: np.ndarray) -> Row:
    """Counts of the test in an output beside the right one, and what it does not."""
    difference = np.abs(out - expected)
    counted = difference > TOLERANCE
    ratio = float(np.median(out[counted] / expected[counted])) if counted.any() else None
    found = {"elements": out.size, "nan": int(np.isnan(out).sum()), "counted": int(counted.sum())}
    return {**found, "largest": float(np.nanmax(difference)), "ratio": ratio}


def tested(name: str, problem: Problem) -> list[Row]:
    """The row of a version on a problem; none where it cannot run."""
    given = inputs()[problem]
    try:
        out = run(VERSIONS[name](problem), given, schedule="in step").out
    except Unsupported:
        return []
    assert out is not None
    tensors = {key: torch.from_numpy(values) for key, values in given.items()}
    found = judged(out.reshape(problem.q_shape), attention(problem, **tensors, dtype=torch.float64).numpy())
    return [{"version": name, **problem_columns(problem), **found, "source_hash": today(name)}]


def pairs() -> list[Pair]:
    """The attention kernels of the documents, each on all problems."""
    own = (v.id for v in VERSIONS.values() if v.family == "attention" and v.of_log and not v.fast_math)
    return [(name, problem) for name in own for problem in PROBLEMS]


def main(arguments: list[str] | None = None) -> int:
    order = {pair: place for place, pair in enumerate(pairs())}

    def key(row: Row) -> int:
        return order[row["version"], problem_of(row)]

    return update("their_test", arguments or [], key, (tested, None), pairs=pairs)
