"""Sines and cosines of the angles that rotations take, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

from kernels.constants import FLOATS
from kernels.device.angle import sincos, sincospi
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import Memory, execute, parse
from kernels.version import Kernel

THREADS = 128
STEP = 2.0**-24  # half a unit in the last place of 1: a rounding of the square, of the polynomial and of the product


def sines_of_angles(x, y, sines, cosines):
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    sines[i], cosines[i] = sincos(float32(x[i] * y[i]))


def sines_of_half_turns(x, y, sines, cosines):
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    sines[i], cosines[i] = sincospi(x[i], y[i])


def evaluate(function, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    names = ("x", "y", "sines", "cosines")
    memory = Memory(dict(zip(names, (x, y, np.zeros_like(x), np.zeros_like(x)))), unwritten=set(names[2:]))
    module = parse(compile_ptx(Kernel(function, (FLOATS,) * 4)))
    execute(module, memory, (len(x) // THREADS,), (THREADS,), names)
    return memory["sines"], memory["cosines"]


@pytest.mark.parametrize("positions", [64, 16_384, 4_000_000])
def test_half_turns_are_as_exact_at_every_position(positions: int) -> None:
    dice = np.random.default_rng(0)
    position = np.floor(dice.uniform(0, positions, 4096)).astype(np.float32)
    rate = dice.uniform(0, 1 / np.pi, 4096).astype(np.float32)
    turned = np.pi * (position.astype(np.float64) * rate % 2)
    sines, cosines = evaluate(sines_of_half_turns, position, rate)
    assert np.abs(sines - np.sin(turned)).max() < 3 * STEP
    assert np.abs(cosines - np.cos(turned)).max() < 3 * STEP


def test_half_turns_hit_the_axes() -> None:
    """Whole and half numbers, where the nearest integer changes and signs do."""
    position = np.tile(np.arange(64, dtype=np.float32), 2)
    rate = np.repeat(np.float32([1.0, 0.5]), 64)
    sines, cosines = evaluate(sines_of_half_turns, position, rate)
    turned = np.pi * (position * rate % 2).astype(np.float64)
    np.testing.assert_allclose(sines, np.sin(turned), rtol=0, atol=3 * STEP)
    np.testing.assert_allclose(cosines, np.cos(turned), rtol=0, atol=3 * STEP)


def test_radians_are_accurate_to_two_units() -> None:
    dice = np.random.default_rng(1)
    angle = dice.uniform(0, 100_000, 4096).astype(np.float32)
    sines, cosines = evaluate(sines_of_angles, angle, np.ones_like(angle))
    assert np.abs(sines - np.sin(angle.astype(np.float64))).max() < 4 * STEP
    assert np.abs(cosines - np.cos(angle.astype(np.float64))).max() < 4 * STEP
