"""Shapes of the kernels for prompts: their tiles of queries and keys, and their shared memory."""

from dataclasses import dataclass

from ..version import SharedLayout
from .schedule import ROW_STEPS, WARP, Shape

SLAB_DIMS, SLAB_CHUNKS, SLAB_ROW = 64, 8, 128  # a slab's dims, its chunks of 16 bytes and bytes in a row
FRAGMENT_ROWS = 16  # of queries that a warp multiplies
SPLIT_THREADS = 256  # of a block that splits float32 rows


@dataclass(frozen=True)
class PromptShape(Shape):
    """A kernel on mma.sync: rows / 16 warps share a tile's queries, `key_warps` of each its keys.

    stages: tiles of keys, and of values, in shared memory. ahead: tiles in flight: all stages where none is used twice,
    else one less, or none. weigh: units of the weighted sum, "mma" or "fma". overlap: a launch starts before the one
    before it is complete, and waits for that itself (programmatic dependent launch, compute capability 9.0). A launch
    before rotates the keys; with `split` a block has a split of the keys, and rotates them itself.
    """

    dtype: str
    hdim: int
    rows: int = 32
    key_warps: int = 4
    stages: int = 3
    ahead: int = 2
    embedding: str = "rates"
    half_split: bool = False
    weigh: str = "mma"
    overlap: bool = True
    split: bool = False

    @property
    def name(self) -> str:
        flags = "_fma" * (self.weigh == "fma") + "_pdl" * self.overlap + "_split" * self.split
        pairs = "_halves" * self.half_split
        size = f"d{self.hdim}_r{self.rows}x{self.key_warps}_s{self.stages}a{self.ahead}"
        return f"prompt_mma_{self.dtype}_{size}_{self.embedding}{pairs}{flags}"

    @property
    def row_warps(self) -> int:
        return self.rows // FRAGMENT_ROWS

    @property
    def in_block(self) -> bool:
        """Whether blocks rotate their keys."""
        return self.split

    @property
    def approx_angles(self) -> bool:
        return self.split

    @property
    def warps(self) -> int:
        """Partial results of a row."""
        return self.key_warps

    @property
    def threads(self) -> int:
        return WARP * self.row_warps * self.key_warps

    @property
    def tile_keys(self) -> int:
        return ROW_STEPS * self.row_step

    @property
    def warp_keys(self) -> int:
        return self.tile_keys // self.key_warps

    @property
    def tile_bytes(self) -> int:
        return self.tile_keys * self.dims * self.element.size

    @property
    def row_pitch(self) -> int:
        """Floats from row to row of accumulators in shared memory."""
        return self.dims + 8

    @property
    def sums(self) -> int:
        """Floats of all warps' accumulators in shared memory."""
        return self.key_warps * self.rows * self.row_pitch

    @property
    def layout(self) -> SharedLayout:
        """Floats of each array; the accumulators take the space of the tiles of keys and values."""
        statistics = self.key_warps * self.rows
        return SharedLayout(
            sums=max(2 * self.stages * self.tile_bytes // 4, self.sums),
            query=self.rows * self.dims * self.element.size // 4,
            row_max=statistics,
            row_sum=statistics,
        )


class PipelinedShape(Shape):
    """A kernel on wgmma: a thread copies `stages` tiles of keys and of values, and warpgroups take 64 rows each.

    A factor has `parts`, of `part_dims` dims each; `terms` are the pairs of parts whose products are added, small ones
    first. sum_dims: dims of a weighted sum. sums_stay: whether it stays in the tensor cores' accumulators from tile to
    tile.
    """

    tile_keys: int
    stages: int
    parts, terms, sums_stay, in_block = 1, ((0, 0),), True, False

    @property
    def kind(self) -> str:
        """The element type of products."""
        return self.element.ptx

    @property
    def part_dims(self) -> int:
        return self.hdim

    @property
    def sum_dims(self) -> int:
        return self.hdim

    @property
    def slabs(self) -> int:
        return self.parts * -(-self.part_dims // SLAB_DIMS)

    @property
    def tile_bytes(self) -> int:
        return self.slabs * self.tile_keys * SLAB_ROW

    @property
    def layout(self) -> SharedLayout:
        tiles = self.stages * self.tile_bytes // 4
        return SharedLayout(
            query=self.slabs * self.rows * SLAB_ROW // 4, keys=tiles, values=tiles, barriers=2 * (4 * self.stages + 1)
        )


@dataclass(frozen=True)
class WgmmaShape(PipelinedShape):
    """A prompt in half precision on two warpgroups. A launch before rotates the keys; `embedding` is that of Q.

    split: a block has a split of the keys.
    """

    dtype: str
    hdim: int
    tile_keys: int = 128
    stages: int = 2
    embedding: str = "rates"
    half_split: bool = False
    overlap: bool = True
    split: bool = False

    rows = 128
    threads = 256  # type: ignore[assignment]

    @property
    def name(self) -> str:
        flags = "_halves" * self.half_split + "_pdl" * self.overlap + "_split" * self.split
        size = f"d{self.hdim}_k{self.tile_keys}_s{self.stages}"
        return f"prompt_wgmma_{self.dtype}_{size}_{self.embedding}{flags}"


@dataclass(frozen=True)
class PersistentShape(WgmmaShape):
    """As `WgmmaShape`, of blocks that take tile after tile of queries: the next tile has a place of its own."""

    @property
    def layout(self) -> SharedLayout:
        sizes = super().layout.sizes
        return SharedLayout(**sizes | {"query": 2 * sizes["query"], "barriers": 2 * (4 * self.stages + 5)})

    @property
    def name(self) -> str:
        return super().name.replace("wgmma", "persistent")


@dataclass(frozen=True)
class Prompt32Shape(PipelinedShape):
    """A float32 prompt as two float16 parts of each number, on `groups` warpgroups.

    Half-split pairs have the order of dims of `loads`. With 256 dims accumulators spill, though a sum has 128 dims.
    """

    hdim: int
    groups: int = 2
    stages: int = 2
    embedding: str = "rates"
    half_split: bool = False

    dtype, kind = "float32", "f16"  # type: ignore[assignment]
    parts, terms, sums_stay = 2, ((0, 1), (1, 0), (0, 0)), False  # type: ignore[assignment]
    row_step = property(lambda self: SPLIT_THREADS // self.row_chunks)

    @property
    def name(self) -> str:
        pairs = "_halves" * self.half_split
        return f"prompt_parts_float32_d{self.hdim}_g{self.groups}_s{self.stages}_{self.embedding}{pairs}"

    @property
    def rows(self) -> int:  # type: ignore[override]
        return 64 * self.groups

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)

    @property
    def tile_keys(self) -> int:  # type: ignore[override]
        """Keys of a tile, which share a scale; also the rows that a block of `split` takes."""
        return ROW_STEPS * self.row_step

    @property
    def part_dims(self) -> int:
        return self.dims

    @property
    def sum_dims(self) -> int:
        return min(self.dims, 128)

    @property
    def layout(self) -> SharedLayout:
        return SharedLayout(**super().layout.sizes, tops=self.threads // 16)
