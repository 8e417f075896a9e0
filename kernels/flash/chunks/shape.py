"""The shape of a kernel for chunks of queries against many keys, in float32 on tensor cores.

Split keys, as in decode; the warps of a block share tiles of keys and values in shared memory, by rows and by keys.
"""

from dataclasses import dataclass

from ...version import SharedLayout
from ..schedule import WARP, DecodeShape

FRAGMENT_ROWS = 16  # of queries that a warp multiplies


@dataclass(frozen=True)
class ChunkShape(DecodeShape):
    """`rows` / 16 times `warps` warps: each takes 16 rows and `batch_rows` keys of a tile.

    `warps` is how many share the keys of a tile, each with a partial result of its rows. Two tiles of keys and
    values lie in shared memory, one of which is copied while the other is multiplied.
    """

    atoms: str = "tf32"

    even_splits = False

    @property
    def name(self) -> str:
        return super().name.replace("decode_", "chunk_")

    @property
    def warp_keys(self) -> int:
        return self.batch_rows

    @property
    def row_warps(self) -> int:
        return self.rows // FRAGMENT_ROWS

    @property
    def threads(self) -> int:
        return WARP * self.row_warps * self.warps

    @property
    def dims(self) -> int:
        return self.hdim

    @property
    def lanes(self) -> int:
        """Threads that share a row when it is copied."""
        return self.row_chunks

    @property
    def row_step(self) -> int:
        """Rows of a tile from one to the next that a thread copies."""
        return self.threads // self.row_chunks

    @property
    def batch(self) -> int:
        """Keys of a tile."""
        return self.warp_keys * self.warps

    block_keys = batch

    @property
    def key_pitch(self) -> int:
        """Floats from one row of keys or queries to the next: the rows of a fragment lie in different banks."""
        return self.hdim + 16

    @property
    def value_pitch(self) -> int:
        return self.hdim + 4

    row_pitch = value_pitch

    @property
    def values_at(self) -> int:
        """The float of shared memory where tiles of values begin, after those of keys."""
        return 2 * self.batch * self.key_pitch

    @property
    def query_at(self) -> int:
        return self.values_at + 2 * self.batch * self.value_pitch

    @property
    def layout(self) -> SharedLayout:
        """Tiles and queries give way to the accumulators."""
        statistics = self.warps * self.rows
        tiles = self.query_at + self.rows * self.key_pitch
        return SharedLayout(sums=max(tiles, statistics * self.row_pitch), row_max=statistics, row_sum=statistics)
