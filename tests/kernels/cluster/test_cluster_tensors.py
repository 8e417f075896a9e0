"""Addresses of rows beyond 32 bits, and the division by which the V8 cores find them."""

from typing import Any

import numpy as np
import pytest
from numba import cuda, types, uint32

from kernels.constants import FLOATS, UINT
from kernels.device.rows import ROWS as TENSOR
from kernels.device.rows import quotient, reciprocal_of, rows_of
from kernels.device.vector import ld4, st4
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import LaunchReport, Memory, execute, parse
from kernels.version import Kernel

# --- addresses --------------------------------------------------------------------------------------


def four_of_a_row(rows, batch, head, first, out):
    st4(out, uint32(0), ld4(rows_of(rows, batch, head, first), uint32(0)))


def ran(function: Any, signature: tuple[Any, ...], memory: Memory, args: tuple[Any, ...], grid: int) -> LaunchReport:
    return execute(parse(compile_ptx(Kernel(function, signature))), memory, (grid,), (THREADS,), args)


THREADS = 128


@pytest.mark.parametrize(
    "strides, batch, head, first",
    [
        ((2**31, 8, 4), 3, 5, 7),  # their sum has more than 32 bits
        ((8, 2**32 - 4, 4), 1, 2, 3),  # a stride times a head has
        ((8, 4, 2**31 + 4), 1, 1, 3),
    ],
)
def test_rows_lie_beyond_32_bits(strides: tuple[int, int, int], batch: int, head: int, first: int) -> None:
    offset = sum(stride * index for stride, index in zip(strides, (batch, head, first), strict=True))
    assert offset > 2**32
    memory = Memory({"x": np.arange(4, dtype=np.float32), "out": np.zeros(4, np.float32)})
    data = memory.address("x") - 4 * offset
    report = ran(
        four_of_a_row, (TENSOR, UINT, UINT, UINT, FLOATS), memory, (data, *strides, batch, head, first, "out"), 1
    )
    assert not [finding for finding in report.findings if finding.kind != "race"]
    assert memory["out"].tolist() == [0, 1, 2, 3]


# --- division ---------------------------------------------------------------------------------------


def divided(numbers, divisors, reciprocals, out):
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    out[i] = quotient(numbers[i], divisors[i], reciprocals[i])


def test_quotients_are_those_of_a_division() -> None:
    """For numbers up to 2^31 - 1, around multiples of the divisor, and divisors of every size."""
    rng, limit = np.random.default_rng(0), 2**31 - 1
    divisors = np.concatenate([np.arange(1, 600), 2 ** np.arange(1, 31), 2 ** np.arange(2, 31) - 1, [limit, limit - 1]])
    divisors = np.concatenate([divisors, np.exp2(rng.uniform(0, 31, 300)).astype(np.int64)])
    numbers = [np.full(len(divisors), limit), divisors - 1, divisors, limit // divisors * divisors]
    numbers += [numbers[-1] - 1, *(rng.integers(0, limit, (9, len(divisors))))]
    number = np.concatenate([np.minimum(x, limit) for x in numbers])
    divisor = np.tile(divisors, len(numbers))
    size = len(number) // THREADS * THREADS
    number, divisor = number[:size].astype(np.uint32), divisor[:size].astype(np.uint32)
    reciprocal = np.array([reciprocal_of(int(each)) for each in divisor], np.uint32)
    buffers = {"number": number, "divisor": divisor, "reciprocal": reciprocal, "out": np.zeros(size, np.uint32)}
    memory = Memory(buffers)
    ran(divided, (types.CPointer(types.uint32),) * 4, memory, tuple(buffers), size // THREADS)
    np.testing.assert_array_equal(memory["out"], number // divisor)
