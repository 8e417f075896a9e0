"""Split keys: the keys and rows of queries of a block, and the shape of a block.

The grid is (splits, KV heads * row tiles, batch). The rows of a KV head are its query heads' queries, head by head;
a tile of them shares each key that is read. All blocks run in one wave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from numba import cuda

from ..device.cint import cint
from ..version import SharedLayout
from .dtype import DTYPES, Dtype

WARP = 32
LEAST_DIMS = 64
ROW_STEPS = 8  # rows of a tile that a thread copies and rotates: `embed` computes exact angles every 8 steps
MMA_KEYS = 16  # of a batch on tensor cores; a fragment has 8 rows of queries


def dims_of(hdim: int) -> int:
    return max(LEAST_DIMS, 1 << (hdim - 1).bit_length())


class Shape:
    """Base of all shapes. `rows`: queries of a tile; `embedding`: see `embed`."""

    dtype: str
    hdim: int
    rows: int
    embedding: str
    half_split: bool
    atoms: str = "tiles"

    @property
    def approx_angles(self) -> bool:
        """Whether angles are exact to 4e-6 alone, below the rounding of half precision: with tensor cores, exact ones
        would take longer than the products.
        """
        return self.atoms == "mma"

    @property
    def threads(self) -> int:
        """Threads of a block that compute."""
        raise NotImplementedError

    @property
    def element(self) -> Dtype:
        return DTYPES[self.dtype]

    @property
    def rotates(self) -> bool:
        return self.embedding not in ("none", "alibi")

    @property
    def dims(self) -> int:
        """hdim rounded up to a power of two; padded dims are zero."""
        return dims_of(self.hdim)

    @property
    def row_chunks(self) -> int:
        """Chunks of 16 bytes in a row of keys."""
        return self.dims // self.element.vector

    @property
    def lanes(self) -> int:
        """Threads that share a row, a chunk each at a time."""
        return self.row_chunks

    @property
    def row_step(self) -> int:
        """Rows of keys from one of a thread to its next."""
        return self.threads // self.lanes

    @property
    def rows_at_once(self) -> int:
        """Rows of a tile that a thread rotates at a time: fewer where rows of tables take registers."""
        return ROW_STEPS // 2 if self.hdim > 128 and "tables" in self.embedding else ROW_STEPS

    @property
    def staged_rows(self) -> int:
        """Rows of queries in shared memory, zeros after the last."""
        return self.rows


@dataclass(frozen=True)
class DecodeShape(Shape):
    """A decode kernel.

    rows: queries of a tile, a power of two. batch_rows: keys that a lane loads at a time. atoms: "fma", or "mma" in
    half precision. blocks: blocks an SM holds, which bounds the registers. ahead: prefetch the next batch, as soon as
    the registers of this one are free. overlap: the launch that combines splits starts early (programmatic dependent
    launch, compute capability 9.0).
    """

    dtype: str
    hdim: int
    rows: int
    batch_rows: int
    warps: int
    blocks: int
    ahead: bool
    atoms: str = "fma"
    embedding: str = "rates"
    half_split: bool = False
    overlap: bool = False

    even_splits = True
    cluster = 1  # blocks that share a split

    @property
    def name(self) -> str:
        """Unique to the shape: it names the kernel, and with that its entry in the compile cache."""
        size = f"d{self.hdim}_r{self.rows}_u{self.batch_rows}_w{self.warps}x{self.blocks}{'a' * self.ahead}"
        flags = "_halves" * self.half_split + "_pdl" * self.overlap
        return f"decode_{self.atoms}_{self.dtype}_{size}_{self.embedding}{flags}"

    @property
    def threads(self) -> int:
        return WARP * self.warps

    @property
    def lanes(self) -> int:
        """Lanes that share a key."""
        return min(WARP, self.row_chunks)

    @property
    def chunks(self) -> int:
        """Chunks of a key that a lane owns, `lanes` chunks from one to the next."""
        return self.row_chunks // self.lanes

    @property
    def row_step(self) -> int:
        """Keys that the lanes of a warp have at once: from one of a lane to its next."""
        return WARP // self.lanes

    @property
    def batch(self) -> int:
        """Keys that a warp takes at a time."""
        return self.batch_rows * self.row_step

    @property
    def block_keys(self) -> int:
        """Keys that a block takes at a time."""
        return self.batch * self.warps

    @property
    def elements(self) -> int:
        """Dims of a key that a lane owns."""
        return self.element.vector * self.chunks

    @property
    def sets(self) -> int:
        """Fragments of 8 rows, of one row set on FMA units."""
        return -(-self.rows // 8) if self.atoms == "mma" else 1

    @property
    def row_pitch(self) -> int:
        """Floats from row to row of a warp's accumulators in shared memory."""
        return self.dims + 8 * (self.atoms == "mma")

    @property
    def staged_rows(self) -> int:
        return 8 * self.sets if self.atoms == "mma" else self.rows

    @property
    def query_rows(self) -> int:
        """Rows of staged queries; on tensor cores, up to 8 rows are stored as high and low halves."""
        return 16 if self.atoms == "mma" else self.rows

    @property
    def layout(self) -> SharedLayout:
        """Floats of each array; on tensor cores the accumulators take the space of the tiles of rotated keys."""
        sums = self.warps * self.rows * self.row_pitch
        if self.atoms == "fma":
            weights, query, rates, sums = WARP * self.warps, self.rows * self.dims, 0, sums
        else:
            sums = max(sums, self.warps * MMA_KEYS * self.dims // 2)
            weights, query, rates = 0, self.query_rows * self.dims // 2, self.lanes * 16
        statistics = self.warps * self.rows
        return SharedLayout(
            sums=sums, query=query, rates=rates, weights=weights, row_max=statistics, row_sum=statistics
        )


class Atoms(NamedTuple):
    """Products of a warp, scores and weighted sums, on FMA units or on tensor cores: sizes and device functions.

    values: rows of V in a batch that a lane loads, from its own on; `value_chunks` of each, `value_lanes` apart.
    keys: keys of which a lane has scores, from its own on; lanes that differ in `masks` have others of the same rows.
    size: accumulators of a lane; rescale: see `softmax.online_softmax`.
    """

    values: tuple[int, ...]
    value_chunks: int
    value_lanes: int
    keys: tuple[int, ...]
    masks: Sequence[int]
    size: int
    rescale: Any
    indices: Any  # (lane) -> the lane's row and chunk of V, and its row and key of scores
    store_q: Any  # (shared, row, chunk, values) of a rotated query
    prepare: Any  # (shared, tid, state, chunk) -> queries and rotation; has the barrier after `store_q`
    consume_k: Any  # (shared, warp, lane, keys, prepared, rotation, (batch, first, last)): after it `keys` are free
    score: Any  # (shared, warp, lane, consumed) -> scores
    weigh: Any  # (shared, warp, lane, acc, values, weights) -> acc
    store_acc: Any  # (shared, warp, lane, acc): to shared memory


def block_of(shape: DecodeShape) -> Any:
    """block(sizes) -> (batch, KV head, tile, first key, end, first query)."""
    batch_keys, cluster = shape.batch, shape.cluster

    @cuda.jit(device=True, forceinline=True)
    def block(sizes):
        split, y, batch = cint(cuda.blockIdx.x) // cluster, cint(cuda.blockIdx.y), cint(cuda.blockIdx.z)
        head, tile = y, cint(0)
        if sizes.tiles > 1:
            head = y // sizes.tiles
            tile = y - head * sizes.tiles
        keys, first_query, split_keys = sizes.seq_k, sizes.q_offset, sizes.split_keys
        if sizes.by_length != 0:
            keys = min(cint(sizes.lengths[batch]), sizes.seq_k)
            first_query = keys - sizes.seq_q
            split_keys = (keys + sizes.splits * batch_keys - 1) // (sizes.splits * batch_keys) * batch_keys
        start = split * split_keys
        return batch, head, tile, start, min(start + split_keys, keys), first_query

    return block


@cuda.jit(device=True, forceinline=True)
def query_of(row, sizes):
    """(head within the group, query) of a row."""
    head, query = row, cint(0)
    if sizes.seq_q > 1:
        head = row // sizes.seq_q
        query = row - head * sizes.seq_q
    return head, query
