"""How far sines and cosines of RoPE are off by position: the angle in float32, and V8's half turns.

The half turns are those of the kernel: its function, compiled and run in the emulator.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numba import cuda

from kernels.constants import FLOATS, FREQUENCY_BASE
from kernels.device.angle import sincospi
from kernels.rope.v8 import rates_of_turning
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import Memory, execute, parse
from kernels.v8.embedding import MOST_POSITIONS
from kernels.version import Kernel

ROTARY_DIM = 128
A_STEP = 8  # positions of an octave
THREADS = 128
RADIANS, HALF_TURNS = "angle in float32", "half turns, as V8"


def _half_turns(position, rate, rest, sin, cos):
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    sin[i], cos[i] = sincospi(position[i], rate[i], rest[i])


def half_turns(position: np.ndarray, rate: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sin, cos) by the function of the kernel, each float32[n], n a multiple of 128; as its three arguments."""
    names, empty = ("position", "rate", "rest", "sin", "cos"), np.zeros_like(position)
    memory = Memory(dict(zip(names, (position, rate, rest, empty, empty))), unwritten={"sin", "cos"})
    module = parse(compile_ptx(Kernel(_half_turns, (FLOATS,) * len(names))))
    execute(module, memory, (len(position) // THREADS,), (THREADS,), names)
    return memory["sin"], memory["cos"]


def radians(position: np.ndarray, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sin, cos) of position times frequency, both and their product in float32, and nothing else rounded."""
    exponent = pair.astype(np.float32) * np.float32(2) / np.float32(ROTARY_DIM)
    frequency = (FREQUENCY_BASE ** -exponent.astype(np.float64)).astype(np.float32)
    angle = (position * frequency).astype(np.float64)
    return np.sin(angle), np.cos(angle)


def errors_by_position() -> pd.DataFrame:
    """The largest error of a sine or cosine over the pairs, in float64, at some positions of every octave up to 2^20.

    Columns: way, position (the octave's first), error.
    """
    dice = np.random.default_rng(0)
    octaves = 2 ** np.arange(MOST_POSITIONS.bit_length() - 1)
    start = np.repeat(octaves, A_STEP)
    place = start + dice.integers(0, start, len(start))
    pairs = ROTARY_DIM // 2
    position, pair = np.repeat(place, pairs).astype(np.float32), np.tile(np.arange(pairs), len(place))
    exact = np.repeat(place, pairs) * FREQUENCY_BASE ** (-2.0 * pair / ROTARY_DIM)
    rate, rest = rates_of_turning(ROTARY_DIM)[pair].T.copy()
    ways = {RADIANS: radians(position, pair), HALF_TURNS: half_turns(position, rate, rest)}
    frame = pd.DataFrame({"position": np.repeat(start, pairs)})
    for way, (sin, cos) in ways.items():
        frame[way] = np.maximum(np.abs(sin - np.sin(exact)), np.abs(cos - np.cos(exact)))
    worst = frame.groupby("position", as_index=False).max()
    return worst.melt("position", var_name="way", value_name="error")[["way", "position", "error"]]
