"""Which kernel takes a chunk of queries in float32, how its keys are split, and its plan over named buffers."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...constants import MUST_BE, require
from ...limits import EMULATED_TARGET, capability, limits_of
from ...planning import require_raw_keys
from ...version import Kernel, Plan, Problem, Unsupported
from ..cluster.wgmma.choose import fastest, takes
from ..decode.choose import OVERLAP_SINCE, splits_of
from ..decode.plan import H100_SMS, Decode, embedding_of, plan_of
from .kernel import chunk_kernel
from .shape import FRAGMENT_ROWS, ChunkShape

MOST_DIMS, DIMS_STEP = 320, 32
LEAST_SPLITS, LEAST_CHUNK_KEYS, LEAST_RATIO = 4, 512, 8  # that pay; the last is keys by queries
THREADS = 256  # that keep an SM busy
KEY_COST = 16  # of a key that a tile reads and rotates, in rows
STARTED, ROW = 15_600, 1 / 60  # cycles: of both launches, and of a row and a dim of a key
SINCE = (8, 6)  # min.xorsign.abs, with TF32 and cp.async


@dataclass(frozen=True)
class Chunk(Decode):
    """As `Decode`, with a `ChunkShape`."""

    shape: ChunkShape

    @property
    def kernel(self) -> Kernel:
        return chunk_kernel(self.shape)


def require_chunk(problem_dtype: str, hdim: int, rotary_dim: int, half_split: bool, target: str) -> None:
    """Raises: Unsupported for what no kernel of chunks takes."""
    whole = hdim % DIMS_STEP == 0 and hdim <= MOST_DIMS
    require(whole, "hdim", hdim, f"a multiple of {DIMS_STEP} up to {MOST_DIMS} in chunks", MUST_BE)
    require(problem_dtype == "float32", "dtype", problem_dtype, "float32")
    if half_split:
        require(rotary_dim % 4 == 0, "rotary_dim", rotary_dim, "a multiple of 4 where half-split", MUST_BE)
    template = "chunks need compute capability {allowed}, this GPU has {needed}"
    require(capability(target) >= SINCE, "capability", target, "8.6", template)


def shape_of(
    hdim: int, rows: int, embedding: str, half_split: bool, target: str, heads: int, seq_k: int, sms: int
) -> ChunkShape:
    """The kernel for `heads` KV heads in the whole batch, of `rows` query rows each. Raises: Unsupported.

    The tile of rows that costs least: each reads all keys of its split. Small tiles leave room for two blocks an SM;
    more keys a warp would spill. Measured on an H100.
    """
    limits, overlap = limits_of(target), capability(target) >= OVERLAP_SINCE

    def room(shape: ChunkShape) -> int:
        """Blocks that an SM holds."""
        return limits.shared_bytes // (shape.layout.nbytes + limits.reserved_shared_bytes)

    def shaped(tile: int) -> ChunkShape:
        most = 64 if tile == FRAGMENT_ROWS else 192
        for keys in (16, 8):
            shape = ChunkShape(
                "float32", hdim, tile, keys, 2 if tile == 64 else 4, 1, True,
                embedding=embedding, half_split=half_split, overlap=overlap,
            )  # fmt: skip
            if room(shape) and (keys == 8 or hdim <= most):
                break
        return replace(shape, blocks=2) if tile == FRAGMENT_ROWS and room(shape) > 1 else shape

    def cost(shape: ChunkShape) -> tuple[bool, int]:
        """Of the SM that has the most to do: its blocks' keys times rows, and what a key takes beside."""
        tiles = heads * -(-rows // shape.rows)
        splits, keys = splits_of(shape, tiles, seq_k, sms)
        return shape.threads * shape.blocks < THREADS, -(-tiles * splits // sms) * keys * (shape.rows + KEY_COST)

    shapes = [shaped(tile) for tile in (64, 32, FRAGMENT_ROWS)]
    least = min(shape.layout.nbytes for shape in shapes)
    template = f"hdim is {hdim}; the tiles of no shape fit shared memory"
    require(any(map(room, shapes)), "shared_memory", least, limits.block_shared_bytes, template)
    return min(filter(room, shapes), key=cost)


def pays(shape: ChunkShape, heads: int, rows: int, seq_q: int, seq_k: int, sms: int) -> bool:
    """Whether a call is faster than on a V8 whose clusters walk all keys: few tiles of rows, and many keys for each.

    Measured on an H100, 36 shapes of 9 to 512 queries; `heads` and `rows` as in `shape_of`. Where V8 splits keys, too,
    `chosen` asks for more.
    """
    splits, _ = splits_of(shape, heads * -(-rows // shape.rows), seq_k, sms)
    return splits >= LEAST_SPLITS and seq_k >= max(LEAST_CHUNK_KEYS, LEAST_RATIO * seq_q)


def chosen(
    dtype: str, hdim: int, rotary_dim: int, embedding: str, half_split: bool, target: str, by_length: bool,
    batch: int, heads: int, kv_heads: int, seq_q: int, seq_k: int, sms: int,
) -> ChunkShape | None:  # fmt: skip
    """The kernel for a call where it pays, or V8 has none as sequences have lengths of their own; else None."""
    rows, shared = heads // kv_heads * seq_q, batch * kv_heads
    try:
        require_chunk(dtype, hdim, rotary_dim, half_split, target)
        shape = shape_of(hdim, rows, embedding, half_split, target, shared, seq_k, sms)
    except Unsupported:
        return None
    if by_length:
        return shape
    if not pays(shape, shared, rows, seq_q, seq_k, sms):
        return None
    problem = Problem("rope", batch, heads, kv_heads, seq_q, seq_k, hdim, rotary_dim)
    if target == "sm_90" and takes(problem, sms):  # where V8 splits keys, too
        tiles = shared * -(-rows // shape.rows)
        splits, keys = splits_of(shape, tiles, seq_k, sms)
        cycles = STARTED + ROW * -(-tiles * splits // sms) * keys * (shape.rows + KEY_COST) * hdim
        return shape if cycles < fastest(problem, rotary_dim, sms)[1] else None
    return shape


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
    """Plan a chunk; arguments are those of `decode_plan`. Raises: Unsupported."""
    batch, heads, seq_q, hdim = problem.q_shape
    kv_heads, rotary_dim = problem.kv_heads, problem.rotary_dim
    require_chunk(problem.dtype, hdim, rotary_dim, half_split, target)
    require_raw_keys(problem)
    embedding = embedding_of(problem.family, rotary_dim, tables is not None, positions is not None)
    where = batch * kv_heads, problem.seq_k, sms
    shape = shape_of(hdim, heads // kv_heads * seq_q, embedding, half_split and rotary_dim > 0, target, *where)
    shape = replace(shape, **fields)
    scale, by_length = problem.softmax_scale, lengths is not None
    call = Chunk(shape, batch, heads, kv_heads, seq_q, problem.causal, scale, by_length, sms)
    return plan_of(problem, call, tables, positions, lengths, capacity)
