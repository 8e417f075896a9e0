"""Launches of a decode problem, and its plan over named buffers."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...checking.reference import alibi_slopes
from ...constants import FREQUENCY_BASE
from ...limits import EMULATED_TARGET
from ...planning import require_raw_keys
from ...rope.v8 import rates_of_turning
from ...version import Buffer, Kernel, Launch, Plan, Problem
from ..args import Sizes
from ..combine import launch_combine, shapes
from ..schedule import DecodeShape, Shape
from .choose import require_decode, shape_of, splits_of
from .kernel import decode_kernel

H100_SMS = 132  # of plans, which are the same on every machine
SPLITS = Sizes._fields.index("splits")
NAMES = ("q", "k", "v", "out")  # of a launch's first arguments


@dataclass(frozen=True)
class Call:
    """Calls alike but for how many keys there are: their kernel, and its arguments.

    `scale` multiplies scores, as in softmax(scale q k). by_length: sequences have lengths of their own, up to seq_k.
    """

    shape: Any
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    causal: bool
    scale: float
    by_length: bool = False

    @property
    def rows(self) -> int:
        """Rows of queries of a KV head."""
        return self.heads // self.kv_heads * self.seq_q

    @property
    def tiles(self) -> int:
        return -(-self.rows // self.shape.rows)

    def splits(self, seq_k: int) -> tuple[int, int]:
        """(splits, keys of each)."""
        return 1, seq_k

    def sizes(self, seq_k: int, q_offset: int, lengths: Any) -> tuple[Any, ...]:
        """The arguments of `args.Sizes`; `lengths` is what stands for their buffer."""
        splits, split_keys = self.splits(seq_k)
        rows = (self.kv_heads, self.heads // self.kv_heads, self.seq_q, seq_k, self.tiles, self.shape.rows)
        scale = self.scale * math.log2(math.e)
        return (*rows, split_keys, splits, q_offset, int(self.causal), scale, lengths, int(self.by_length))


@dataclass(frozen=True)
class Decode(Call):
    shape: DecodeShape
    sms: int = H100_SMS

    @property
    def kernel(self) -> Kernel:
        return decode_kernel(self.shape)

    def splits(self, seq_k: int) -> tuple[int, int]:
        return splits_of(self.shape, self.batch * self.kv_heads * self.tiles, seq_k, self.sms)

    @property
    def q_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.seq_q, self.shape.hdim

    def workspace(self, splits: int) -> dict[str, tuple[int, ...]]:
        """float32 shapes of what is left to the launch that combines."""
        return shapes(self.batch * self.heads * self.seq_q, self.shape.hdim, splits if splits > 1 else 0)

    def launches(self, splits: int, args: tuple[Any, ...] = ()) -> tuple[Launch, ...]:
        """The launch that decodes and, where keys are split, the one that combines. Raises: Unsupported."""
        shape, grid = self.shape, (splits, self.kv_heads * self.tiles, self.batch)
        decode = Launch(self.kernel, grid, (shape.threads,), args, shape.layout)
        if splits == 1:
            return (decode,)
        return decode, launch_combine(shape.dtype, self.q_shape, splits, strides_of(self.q_shape), shape.overlap)


def embedding_of(family: str, rotary_dim: int, tables: bool, positions: bool) -> str:
    if family == "alibi" or not rotary_dim:
        return "alibi" if family == "alibi" else "none"
    return ("rates", "positions", "tables", "placed_tables")[positions + 2 * tables]


def decode_plan(
    problem: Problem,
    target: str = EMULATED_TARGET,
    half_split: bool = False,
    tables: tuple[np.ndarray, np.ndarray] | None = None,
    positions: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    capacity: int | None = None,
    sms: int = H100_SMS,
    **fields: Any,
) -> Plan:
    """Plan a decode problem. Raises: Unsupported.

    tables: cos and sin `[positions, rotary_dim / 2]`; positions: int `[batch, places]`; lengths: int `[batch]`.
    capacity: rows of the cache that k and v are the first of, seq_k by default. `fields` are changed in the shape.
    """
    batch, heads, seq_q, hdim = problem.q_shape
    kv_heads, rotary_dim = problem.kv_heads, problem.rotary_dim
    require_decode(problem.dtype, hdim, seq_q, rotary_dim, half_split, target)
    require_raw_keys(problem)
    embedding = embedding_of(problem.family, rotary_dim, tables is not None, positions is not None)
    rows = heads // kv_heads * seq_q
    shape = replace(shape_of(problem.dtype, hdim, rows, embedding, half_split and rotary_dim > 0, target), **fields)
    call = Decode(shape, batch, heads, kv_heads, seq_q, problem.causal, problem.softmax_scale, lengths is not None, sms)
    return plan_of(problem, call, tables, positions, lengths, capacity)


def plan_of(
    problem: Problem,
    call: Decode,
    tables: tuple[np.ndarray, np.ndarray] | None,
    positions: np.ndarray | None,
    lengths: np.ndarray | None,
    capacity: int | None,
) -> Plan:
    """The plan of a call; further arguments are those of `decode_plan`."""
    given = given_buffers(problem, call.shape, tables, positions, lengths, capacity)
    sizes = call.sizes(problem.seq_k, problem.q_offset, given.named("lengths"))
    splits, buffers = sizes[SPLITS], given.buffers
    args = given.arguments(sizes, *(("part", "totals") if splits > 1 else ("q", "q")))
    if splits > 1:
        buffers |= {name: Buffer(shape) for name, shape in call.workspace(splits).items()}
    return Plan(problem, buffers, call.launches(splits, args))


@dataclass(frozen=True)
class Given:
    """The named buffers of a plan's inputs and output, and what the kernels are told of them."""

    buffers: dict[str, Buffer]
    rotary_dim: int

    def named(self, name: str) -> str:
        """The buffer of an argument; q stands for one that the kernel does not read."""
        return name if name in self.buffers else "q"

    @property
    def strides(self) -> list[tuple[int, int, int]]:
        """Of `NAMES`."""
        return [strides_of(self.buffers[name].shape) for name in NAMES]

    def arguments(self, sizes: tuple[Any, ...], part: str, totals: str) -> tuple[Any, ...]:
        """All arguments of a kernel; `part` and `totals` name its workspace."""
        table_rows, pitch = self.buffers["cos"].shape if "cos" in self.buffers else (0, 0)
        places = self.buffers["positions"].shape[1] if "positions" in self.buffers else 0
        rotation = (self.rotary_dim, *map(self.named, ("rates", "cos", "sin")), pitch, table_rows)
        strides = sum(self.strides, ())
        ends = (self.named("positions"), places, self.named("slopes"), part, totals)
        return (*NAMES, *strides, *sizes, *rotation, *ends)


def given_buffers(
    problem: Problem,
    shape: Shape,
    tables: tuple[np.ndarray, np.ndarray] | None,
    positions: np.ndarray | None,
    lengths: np.ndarray | None,
    capacity: int | None,
) -> Given:
    """The buffers of a problem for a kernel of `shape`; further arguments are those of `decode_plan`."""
    cache, embedding = (problem.batch, problem.kv_heads, capacity or problem.seq_k, problem.hdim), shape.embedding
    buffers = {name: Buffer(cache if name in "kv" else problem.q_shape, problem.dtype) for name in NAMES}
    given = {"positions": (positions, "int32"), "lengths": (lengths, "int32")}
    given |= {"cos": (tables and tables[0], "float32"), "sin": (tables and tables[1], "float32")}
    for name, (values, dtype) in given.items():
        if values is not None:
            buffers[name] = Buffer(values.shape, dtype, init=partial(np.asarray, values))
    if embedding in ("rates", "positions"):
        pairs, step = shape.dims // 2, shape.row_step
        buffers["rates"] = Buffer((2, pairs, 2), init=partial(rates_of, problem.rotary_dim, pairs, step))
    if embedding == "alibi":
        rows = problem.batch * problem.heads
        buffers["slopes"] = Buffer((rows,), init=partial(slopes_of, problem.batch, problem.heads))
    return Given(buffers, problem.rotary_dim)


def strides_of(shape: tuple[int, ...]) -> tuple[int, int, int]:
    _, heads, rows, dims = shape
    return heads * rows * dims, rows * dims, dims


def slopes_of(batch: int, heads: int) -> np.ndarray:
    return np.tile(alibi_slopes(heads), batch).astype(np.float32)


def rates_of(rotary_dim: int, pairs: int, step: int, base: float = FREQUENCY_BASE) -> np.ndarray:
    """float32[2, pairs, 2]: `rates_of_turning`, and (cos - 1, sin) of the angle of `step` positions.

    Pairs behind rotary_dim do not turn. In the kernel the steps would take 15 operations a pair before the first batch.
    """
    made, turning = np.zeros((2, pairs, 2), np.float32), rotary_dim // 2
    angle = step * float(base) ** (-np.arange(0, rotary_dim, 2) / max(rotary_dim, 1))
    made[0, :turning] = rates_of_turning(rotary_dim, base)[:turning]
    made[1, :turning] = np.stack([-2 * np.sin(angle / 2) ** 2, np.sin(angle)], axis=1)  # cos - 1 would lose digits
    return made
