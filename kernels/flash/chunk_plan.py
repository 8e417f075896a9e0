"""Which kernel takes a chunk of queries in float32, how its keys are split, and its plan over named buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..constants import MUST_BE, require
from ..limits import EMULATED_TARGET, capability, limits_of
from ..version import Kernel, Plan, Problem
from .choose import LEAST_KEYS, OVERLAP_SINCE
from .chunk import chunk_kernel
from .chunk_shape import ChunkShape
from .plan import H100_SMS, Decode, embedding_of, plan_of

MOST_DIMS, DIMS_STEP = 320, 32
SINCE = (8, 0)  # TF32 and cp.async


@dataclass(frozen=True)
class Chunk(Decode):
    """As `Decode`, with a `ChunkShape`."""

    shape: ChunkShape

    @property
    def kernel(self) -> Kernel:
        return chunk_kernel(self.shape)

    def splits(self, seq_k: int) -> tuple[int, int]:
        """As many as fill one wave; no split is smaller than a tile of keys, nor than what one launch takes faster."""
        splits = max(self.sms * self.shape.blocks // (self.batch * self.kv_heads * self.tiles), 1)
        tile = self.shape.batch
        keys = max(-(-seq_k // splits), LEAST_KEYS)
        keys = -(-keys // tile) * tile
        return -(-seq_k // keys), keys


def require_chunk(problem_dtype: str, hdim: int, rotary_dim: int, half_split: bool, target: str) -> None:
    """Raises: Unsupported for what no kernel of chunks takes."""
    whole = hdim % DIMS_STEP == 0 and hdim <= MOST_DIMS
    require(whole, "hdim", hdim, f"a multiple of {DIMS_STEP} up to {MOST_DIMS} in chunks", MUST_BE)
    require(problem_dtype == "float32", "dtype", problem_dtype, "float32")
    if half_split:
        require(rotary_dim % 4 == 0, "rotary_dim", rotary_dim, "a multiple of 4 where half-split", MUST_BE)
    template = "chunks need compute capability {allowed}, this GPU has {needed}"
    require(capability(target) >= SINCE, "capability", target, "8.0", template)


def shape_of(hdim: int, rows: int, embedding: str, half_split: bool, target: str) -> ChunkShape:
    """The kernel for tiles of `rows` rows, or of as many as are needed and fit. Raises: Unsupported."""
    limits, overlap = limits_of(target), capability(target) >= OVERLAP_SINCE
    wanted = min(max(1 << (rows - 1).bit_length(), 16), 64)
    shapes = [
        ChunkShape("float32", hdim, each, 8, warps // (each // 16), 1, ahead, "tf32", embedding, half_split, overlap)
        for each in (64, 32, 16) if each <= wanted for warps in (8, 4) for ahead in (True, False)
    ]  # fmt: skip
    fitting = [shape for shape in shapes if shape.layout.nbytes <= limits.block_shared_bytes]
    least = min(shape.layout.nbytes for shape in shapes)
    template = f"hdim is {hdim}; the tiles of no shape fit shared memory"
    require(bool(fitting), "shared_memory", least, limits.block_shared_bytes, template)
    return fitting[0]


def pays(heads: int, group: int, seq_q: int, seq_k: int, hdim: int, target: str, sms: int) -> bool:
    return seq_k > 512


def chunk_plan(
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
    """Plan a chunk; arguments are those of `plan.decode_plan`. Raises: Unsupported."""
    batch, heads, seq_q, hdim = problem.q_shape
    kv_heads, rotary_dim = problem.kv_heads, problem.rotary_dim
    require_chunk(problem.dtype, hdim, rotary_dim, half_split, target)
    require(problem.cache == "none", "cache", problem.cache, "none")
    require(problem.q_offset >= 0, "q_offset", problem.q_offset, "0 or more", MUST_BE)
    embedding = embedding_of(problem.family, rotary_dim, tables is not None, positions is not None)
    shape = shape_of(hdim, heads // kv_heads * seq_q, embedding, half_split and rotary_dim > 0, target)
    scale, by_length = problem.softmax_scale, lengths is not None
    call = Chunk(shape, batch, heads, kv_heads, seq_q, problem.causal, scale, by_length, sms)
    return plan_of(problem, call, tables, positions, lengths, capacity)
