"""Sines and cosines of the angles that rotations take, against float64."""

import numpy as np
import pytest
from numba import cuda

from kernels.constants import FLOATS, MOST_POSITIONS
from kernels.device.angle import sincos, sincospi
from kernels.rates import rates_of_turning
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import Memory, execute, parse
from kernels.version import Kernel

THREADS = 128
STEP = 2.0**-24  # half a unit in the last place of 1: a rounding of the square, of the polynomial and of the product


def sines_of_angles(angle, sines, cosines):
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    sines[i], cosines[i] = sincos(angle[i])


def sines_of_half_turns(position, rate, rest, sines, cosines):
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    sines[i], cosines[i] = sincospi(position[i], rate[i], rest[i])


def evaluate(function, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    names = (*map(str, range(len(inputs))), "sines", "cosines")
    x = np.zeros_like(inputs[0])
    memory = Memory(dict(zip(names, (*inputs, x, x))), unwritten=set(names[-2:]))
    module = parse(compile_ptx(Kernel(function, (FLOATS,) * len(names))))
    execute(module, memory, (len(x) // THREADS,), (THREADS,), names)
    return memory["sines"], memory["cosines"]


def off(position: np.ndarray, rate: np.ndarray, rest: np.ndarray) -> tuple[float, float]:
    """The largest errors of sin and cos, in STEPs. Both products are exact in float64, and so is the first mod 2."""
    sines, cosines = evaluate(sines_of_half_turns, position, rate, rest)
    place = position.astype(np.float64)
    turned = np.pi * (place * rate % 2 + place * rest)
    return np.abs(sines - np.sin(turned)).max() / STEP, np.abs(cosines - np.cos(turned)).max() / STEP


# What remains of an angle, x, is rounded twice, by a quarter of a STEP each below half a turn and half a STEP above it;
# pi times as much is the error of an angle. Where cos is steepest, at half a turn, it is a polynomial of x squared with
# slope 4, whose last coefficient is about 4: both are rounded by a quarter of a STEP, and count four times. So cos is
# off by pi * (1 / 4 + 1 / 2) + 1 + 1 at most, and 1 / 4 for the other coefficients; sin, whose slope is less wherever
# its polynomial is large, by pi / sqrt(8) for x, a STEP for the last coefficient, and half of one for the product.
SIN_STEPS, COS_STEPS = 3.0, 5.0


def parts_of(rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    high = rate.astype(np.float32)
    return high, (rate - high).astype(np.float32)


@pytest.mark.parametrize("positions", [64, 16_384, MOST_POSITIONS])
def test_half_turns_are_as_exact_at_every_position(positions: int) -> None:
    dice = np.random.default_rng(0)
    position = np.floor(dice.uniform(0, positions, 4096)).astype(np.float32)
    sin, cos = off(position, *parts_of(dice.uniform(0, 1 / np.pi, 4096)))
    assert sin < SIN_STEPS and cos < COS_STEPS


def test_half_turns_are_exact_where_the_rest_carries_an_angle_past_a_half() -> None:
    """The last positions, whole and half numbers but for a rest that is as large as it gets, of the same sign."""
    dice = np.random.default_rng(1)
    position = np.floor(dice.uniform(MOST_POSITIONS / 2, MOST_POSITIONS, 4096)).astype(np.float32)
    turns = np.floor(position * dice.uniform(0.25, 1 / np.pi, 4096)) + np.where(np.arange(4096) % 2, 0.5, 0.0)
    rate = (turns / position).astype(np.float32)
    remains = position * rate.astype(np.float64)
    rest = np.copysign(np.spacing(rate) / 2, remains - np.rint(remains)).astype(np.float32)
    assert np.abs(position * rest).max() > 2.0**-6.1
    sin, cos = off(position, rate, rest)
    assert sin < SIN_STEPS and cos < COS_STEPS


def test_rates_have_two_parts_that_a_double_would_have() -> None:
    for rotary_dim, base in ((128, 10_000.0), (70, 500_000.0)):
        rates = rates_of_turning(rotary_dim, base).astype(np.float64)
        pairs = rotary_dim // 2
        exact = base ** (-np.arange(pairs) / pairs) / np.pi
        assert rates.shape == (pairs + pairs % 2, 2) and not rates[pairs:].any()
        assert (np.abs(rates[:pairs].sum(1) - exact) <= 2.0**-48 * exact).all()


def test_radians_are_accurate_to_two_units() -> None:
    dice = np.random.default_rng(1)
    angle = dice.uniform(0, 100_000, 4096).astype(np.float32)
    sines, cosines = evaluate(sines_of_angles, angle)
    assert np.abs(sines - np.sin(angle.astype(np.float64))).max() < 4 * STEP
    assert np.abs(cosines - np.cos(angle.astype(np.float64))).max() < 4 * STEP
