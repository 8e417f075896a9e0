"""Where the V8 cores read and write: tensors of any strides, offsets beyond 32 bits, and the division that they do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numba import cuda, types, uint32
from test_v8_modes import RAGGED, ROWS, tables_of
from v8_plans import CORES, inputs_of, plan_in_mode

from kernels import Plan
from kernels.constants import FLOATS, UINT
from kernels.device.rows import ROWS as TENSOR
from kernels.device.rows import quotient, reciprocal_of, rows_of
from kernels.device.vector import ld4, st4
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import LaunchReport, Memory, execute, parse, run
from kernels.version import Buffer, Kernel

# [batch, heads, seq, hdim] of each tensor, as the shape that memory has and the elements from one to the next of the
# first three: q as a model's [batch, seq, heads, hdim], k as the first rows of a cache, v packed with another tensor,
# out with gaps between its rows.
LAYOUTS: dict[str, Any] = {
    "q": lambda b, h, s, d: ((b, s, h, d), (s * h * d, d, h * d)),
    "k": lambda b, h, s, d: ((b, h, s + 7, d), (h * (s + 7) * d, (s + 7) * d, d)),
    "v": lambda b, h, s, d: ((b, s, h, 2 * d), (2 * s * h * d, 2 * d, 2 * h * d)),
    "out": lambda b, h, s, d: ((b, s, h, d + 4), (s * h * (d + 4), d + 4, h * (d + 4))),
}


def view_of(x: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(x, shape, [4 * stride for stride in (*strides, 1)])


def run_apart(plan: Plan, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """out, what lies between its rows, and the findings of a plan on tensors that lie as in LAYOUTS, NaN elsewhere."""
    buffers, given, steps = dict(plan.buffers), {}, []
    for name, layout in LAYOUTS.items():
        shape = plan.buffers[name].shape
        held, strides = layout(*shape)
        buffers[name] = Buffer(held)
        if name in inputs:
            given[name] = np.full(held, np.nan, np.float32)
            view_of(given[name], shape, strides)[:] = inputs[name]
    for launch in plan.launches:
        args = list(launch.args)
        for name, layout in LAYOUTS.items():
            if name in args and isinstance(args[(at := args.index(name) + 1)], int):
                args[at : at + 3] = layout(*plan.buffers[name].shape)[1]
        steps.append(replace(launch, args=tuple(args)))
    report = run(replace(plan, buffers=buffers, steps=tuple(steps)), given)
    hdim = plan.problem.hdim
    return report.out[..., :hdim].swapaxes(1, 2), report.out[..., hdim:], report.findings


CASES = {
    "wgmma": ("wgmma", {"positions": np.tile(np.arange(70, dtype=np.int32), (2, 1))}, None),
    "mma": ("mma", {"tables": tables_of(RAGGED)}, None),
    "portable": (
        "portable",
        {"tables": tables_of(RAGGED), "positions": np.arange(140, dtype=np.int32).reshape(2, 70) % ROWS},
        None,
    ),
    "three launches": ("wgmma", {"tables": tables_of(RAGGED), "before": True}, wgmma.Shape(2, 8, 128, 1, splits=True)),
}


@pytest.mark.parametrize("case", [*list(CASES)[:3], pytest.param("three launches", marks=pytest.mark.deep)])
def test_tensors_of_any_strides_give_the_same_result(case: str) -> None:
    """To the bit, without a read or a write outside of them."""
    core, options, shape = CASES[case]
    plan, inputs = plan_in_mode(CORES[core], RAGGED, True, shape=shape, **options), inputs_of(RAGGED)
    together = run(plan, inputs)
    out, between, findings = run_apart(plan, inputs)
    assert not findings, [str(finding) for finding in findings]
    assert np.array_equal(out, together.out.reshape(out.shape)) and np.isfinite(out).all()
    assert np.isnan(between).all()


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
