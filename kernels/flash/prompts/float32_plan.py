"""Which float32 prompts the kernels of `float32` take, and their plan over named buffers."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...constants import MUST_BE, require
from ...limits import EMULATED_TARGET
from ...planning import require_raw_keys
from ...tensor_map import MAP_BYTES, TensorMap
from ...version import Buffer, Launch, Plan, Problem, Unsupported
from ..atoms.wgmma import GROUP_ROWS
from ..decode.plan import H100_SMS, embedding_of, given_buffers
from .float32 import prompt32_kernel
from .plan import Prompt
from .shapes import SLAB_DIMS, SPLIT_THREADS, Prompt32Shape
from .split import split_kernel, tile_count

MOST_DIMS, DIMS_STEP = 256, 16
FAMILIES = ("attention", "rope")
LEAST_ROWS, LEAST_WIDE_ROWS, MOST_ROWS = 256, 1024, 1 << 22  # the last as a grid has 65,535 blocks in a dim


def require_prompt32(family: str, hdim: int, rotary_dim: int, half_split: bool, target: str) -> None:
    """Raises: Unsupported for what the kernels do not take."""
    whole = hdim % DIMS_STEP == 0 and hdim <= MOST_DIMS
    require(whole, "hdim", hdim, f"a multiple of {DIMS_STEP} up to {MOST_DIMS}", MUST_BE)
    require(family in FAMILIES, "family", family, "attention or rope")
    if half_split:
        require(rotary_dim % 4 == 0, "rotary_dim", rotary_dim, "a multiple of 4 where half-split", MUST_BE)
    template = "kernels on wgmma need compute capability {allowed}, this GPU has {needed}"
    require(target == "sm_90", "capability", target, "9.0", template)


@dataclass(frozen=True)
class Prompt32(Prompt):
    """Calls alike but for how many keys there are, as `plan.Prompt`."""

    shape: Prompt32Shape  # type: ignore[assignment]

    def buffers(self, seq_k: int) -> dict[str, tuple[int, ...]]:
        """float32 shapes of what the first launch fills."""
        heads = self.heads + 2 * self.kv_heads
        keys = (self.batch, self.kv_heads, seq_k, self.shape.dims)
        queries = (self.batch, self.heads, self.seq_q, self.shape.dims)
        scales = (self.batch, heads, tile_count(self.shape, self.seq_q, seq_k))
        return {"scales": scales, "q_parts": queries, "k_parts": keys, "v_parts": keys}

    def maps(self, seq_k: int) -> dict[str, TensorMap]:
        """Of the parts; the rows of all query heads of a KV head are one after the other."""
        shape, made = self.shape, {}
        for name, rows, box in (("q", self.heads // self.kv_heads * self.seq_q, GROUP_ROWS),
                                ("k", seq_k, shape.tile_keys), ("v", seq_k, shape.tile_keys)):  # fmt: skip
            row = 4 * shape.dims
            strides = (row, row * rows, row * rows * self.kv_heads)
            sizes = (2 * shape.dims, rows, self.kv_heads, self.batch)
            made[f"{name}_map"] = TensorMap(f"{name}_parts", sizes, strides, (SLAB_DIMS, box, 1, 1))
        return made

    def launches(self, args: tuple[Any, ...], seq_k: int) -> tuple[Launch, ...]:
        buffers = self.buffers(seq_k)
        args = (*args, *buffers)
        blocks = (buffers["scales"][2], buffers["scales"][1], self.batch)
        attend = Launch(
            prompt32_kernel(self.shape), self.grid, (self.shape.threads,), (*args, *self.maps(seq_k)), self.shape.layout
        )
        return Launch(split_kernel(self.shape), blocks, (SPLIT_THREADS,), args), attend


def pays32(
    target: str, family: str, half_split: bool, by_length: bool, scale: float,
    hdim: int, rotary_dim: int, batch: int, heads: int, seq_q: int, seq_k: int,
) -> bool:  # fmt: skip
    """Whether the kernels take a call, and are faster than V8: measured on an H100."""
    try:
        require_prompt32(family, hdim, rotary_dim, half_split, target)
    except Unsupported:
        return False
    least = LEAST_ROWS if hdim <= 128 else LEAST_WIDE_ROWS
    return not by_length and scale > 0 and min(seq_q, seq_k) >= least and batch * heads * seq_q <= MOST_ROWS


def chosen32(
    hdim: int, embedding: str, half_split: bool, sms: int, batch: int, heads: int, kv_heads: int, seq_q: int, *how: Any
) -> Prompt32:
    """The call with 64 rows a block while these fit on the card at once, twice where causal; 128 rows beyond.

    With more than 128 dims, shared memory and registers hold 64 rows.

    `how` are the last fields of `Prompt32`: causal, scale.
    """
    call = Prompt32(Prompt32Shape(hdim, 1, 2, embedding, half_split), batch, heads, kv_heads, seq_q, *how)
    few = call.tiles * kv_heads * batch <= sms * (1 + call.causal)
    return call if few or hdim > 128 else replace(call, shape=replace(call.shape, groups=2))


def prompt32_plan(
    problem: Problem,
    target: str = EMULATED_TARGET,
    half_split: bool = False,
    tables: tuple[np.ndarray, np.ndarray] | None = None,
    positions: np.ndarray | None = None,
    **fields: Any,
) -> Plan:
    """Plan a float32 prompt. Further arguments are those of `decode_plan`. Raises: Unsupported."""
    batch, heads, seq_q, hdim = problem.q_shape
    rotary_dim, kv_heads = problem.rotary_dim, problem.kv_heads
    require_raw_keys(problem)
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32")
    require_prompt32(problem.family, hdim, rotary_dim, half_split, target)
    embedding = embedding_of(problem.family, rotary_dim, tables is not None, positions is not None)
    how = (batch, heads, kv_heads, seq_q, problem.causal, problem.softmax_scale)
    call = chosen32(hdim, embedding, half_split and rotary_dim > 0, H100_SMS, *how)
    call = replace(call, shape=replace(call.shape, **fields))
    shape = call.shape
    given = given_buffers(problem, shape, tables, positions, None, None)
    buffers = given.buffers
    buffers |= {name: Buffer(of) for name, of in call.buffers(problem.seq_k).items()}
    for name, tensor_map in call.maps(problem.seq_k).items():
        buffers[name] = Buffer((MAP_BYTES // 4,), "int32", tensor_map=tensor_map)
    args = given.arguments(call.sizes(problem.seq_k, problem.q_offset, given.named("lengths")), "q", "q")
    return Plan(problem, buffers, call.launches(args, problem.seq_k))
