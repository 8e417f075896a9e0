"""The int of C++ in a kernel: its operators, its conversions, what compilers may do with it."""

import operator
import re
from typing import Any

import numpy as np
import pytest
from instruction_cases import truncated
from numba import cuda

from kernels import Problem
from kernels.constants import FLOATS, INTS
from kernels.device.cint import CINT, cint
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import run
from kernels.version import Buffer, Kernel, Launch, Plan

NUMBERS = (0, 1, -1, 7, -7, 31, -32, 1000, -1001, 46_000, 2**31 - 1, -(2**31))


OPERATORS = {
    "+": (lambda a, b: a + b, operator.add),
    "-": (lambda a, b: a - b, operator.sub),
    "*": (lambda a, b: a * b, operator.mul),
    "//": (lambda a, b: a // b, truncated),
    "%": (lambda a, b: a % b, lambda a, b: a - truncated(a, b) * b),
    "&": (lambda a, b: a & b, operator.and_),
    "|": (lambda a, b: a | b, operator.or_),
    "^": (lambda a, b: a ^ b, operator.xor),
    "min": (lambda a, b: min(a, b), min),
    "<": (lambda a, b: cint(a < b), operator.lt),
    ">=": (lambda a, b: cint(a >= b), operator.ge),
    "==": (lambda a, b: cint(a == b), operator.eq),
}


def of_ints(function: Any, *arrays: np.ndarray) -> np.ndarray:
    """The result of a kernel of one block, with a thread for each element, on the arrays."""
    names = [f"x{place}" for place in range(len(arrays))]
    buffers = {name: Buffer(x.shape, "int32", lambda x=x: x) for name, x in zip(names, arrays, strict=True)}
    kernel = Kernel(function, (INTS,) * (len(arrays) + 1))
    launch = Launch(kernel, (1,), (len(arrays[0]),), (*names, "out"))
    plan = Plan(Problem("attention"), {**buffers, "out": Buffer(arrays[0].shape, "int32")}, (launch,))
    report = run(plan, {})
    assert report.out is not None and not report.findings
    return report.out


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_is_that_of_cpp(name: str) -> None:
    compute, expected = OPERATORS[name]
    device = cuda.jit(device=True)(compute)

    def kernel(left, right, out):
        i = cint(cuda.threadIdx.x)
        out[i] = device(cint(left[i]), cint(right[i]))

    pairs = [(a, b) for a in NUMBERS for b in NUMBERS if name not in ("//", "%") or b not in (0, -1)]
    pairs = [pair for pair in pairs if -(2**31) <= expected(*pair) < 2**31]
    left, right = (np.array(x, np.int32) for x in zip(*pairs, strict=True))
    assert of_ints(kernel, left, right).tolist() == [int(expected(*pair)) for pair in pairs]


def test_other_integers_become_an_int() -> None:
    def kernel(x, out):
        i = cint(cuda.threadIdx.x)
        out[i] = 2 * i + cuda.blockDim.x - x[i]

    x = np.arange(40, dtype=np.int32) ** 2
    assert of_ints(kernel, x).tolist() == (2 * np.arange(40) + 40 - x).tolist()


def test_places_are_computed_in_32_bits_and_widened_with_their_sign() -> None:
    def kernel(x, rows, pitch, out):
        place = cint(cuda.threadIdx.x)
        row = cint(0)
        while row < rows:
            out[row * pitch + place] = x[(row - rows) * pitch + place]
            row += 1

    ptx = compile_ptx(Kernel(kernel, (FLOATS, CINT, CINT, FLOATS)))
    assert "mad.lo.s32" in ptx and "mul.wide.s32" in ptx
    assert not re.search(r"mul\.lo\.s64|mad\.lo\.s64|cvt\.u64\.u32", ptx)
    assert not re.search(r"selp|slct", ptx)  # no place is taken from behind
