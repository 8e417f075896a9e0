"""The shape that the wgmma core is compiled for."""

from dataclasses import dataclass
from typing import ClassVar

from ....device.wgmma import ROWS, WARPGROUP
from ....version import SharedLayout
from ..shape import BARRIER, COPIERS, MAX_CLUSTER, RowShape, require_field, require_threads

KEYS = ROWS  # of a tile
MAX_WIDTH = 256
MAX_HDIM = 2**20
WARPGROUPS = (1, 2, 4)  # sizes whose threads copy a tile of K in whole passes


@dataclass(frozen=True)
class Shape(RowShape):
    """A kernel of the wgmma core: blocks of a cluster, queries of a tile, dims of a slice, warpgroups of a block.

    Raises: ValueError for queries or dims that are not a whole number of products, more dims than the registers of a
    warpgroup hold, or warpgroups that cannot share the rows of a tile evenly.
    """

    core: ClassVar = "wgmma"
    keys: ClassVar = KEYS
    cluster: int
    queries: int
    width: int
    warpgroups: int
    blocks: int = 1  # that share an SM
    streams: bool = False  # whether a block streams its dims, `width` at a time; for one tile of keys
    splits: bool = False  # whether clusters share the keys of a tile of queries, and leave parts of its result

    def __post_init__(self) -> None:
        require_field(self, "cluster", 1 <= self.cluster <= MAX_CLUSTER, f"1 to {MAX_CLUSTER}")
        whole = self.queries % 8 == 0 and 8 <= self.queries <= KEYS
        require_field(self, "queries", whole, f"a multiple of 8 up to {KEYS}")
        whole = self.width % ROWS == 0 and 0 < self.width <= MAX_WIDTH
        require_field(self, "width", whole, f"a multiple of {ROWS} up to {MAX_WIDTH}")
        require_field(self, "warpgroups", self.warpgroups in WARPGROUPS, f"one of {WARPGROUPS}")
        require_threads(self)

    @property
    def name(self) -> str:
        name = f"attention_wgmma_c{self.cluster}_q{self.queries}_w{self.width}_g{self.warpgroups}"
        return name + "_streams" * self.streams + "_splits" * self.splits

    @property
    def mmas_per_panel(self) -> int:
        """wgmma products per panel of V: a lane reads 4 dims of a key for two, 2 for one."""
        return 2 if self.width % (2 * ROWS * self.warpgroups) == 0 else 1

    @property
    def panels(self) -> int:
        """Panels of V that a warpgroup multiplies, at most."""
        return -(-self.width // (ROWS * self.mmas_per_panel * self.warpgroups))

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups

    @property
    def rows_per_pass(self) -> int:
        """Rows that one pass copies."""
        return self.threads // COPIERS

    @property
    def query_passes(self) -> int:
        """Passes over the queries of a tile."""
        return -(-self.queries // self.rows_per_pass)

    @property
    def most_dims(self) -> int:
        """Dims that a cluster takes."""
        return MAX_HDIM if self.streams else super().most_dims

    @property
    def parts(self) -> int:
        """Parts of a score: of the blocks, and of their warpgroups."""
        return self.cluster * self.warpgroups

    @property
    def weights_at(self) -> int:
        """The float where the weights begin: in the space of Q, if a block streams its dims."""
        return self.layout["query" if self.streams else "weights"]

    @property
    def values_at(self) -> int:
        """The float where the values begin: in the space of K, if a block streams its dims."""
        return self.layout["keys" if self.streams else "values"]

    @property
    def per_tile_accumulator(self) -> bool:
        """Whether a tile has an accumulator of its own, which is added to the output with one rounding per tile.

        The rounding error of the row sum is then kept, too.
        """
        return self.queries <= 16 and self.blocks == 1 and not self.splits

    @property
    def layout(self) -> SharedLayout:
        """Floats of each array. The high and low parts of Q and of the weights come first: they need the largest
        alignment.
        """
        return SharedLayout(
            query=2 * self.queries * max(self.width, KEYS * self.streams),
            weights=0 if self.streams else 2 * self.queries * KEYS,
            keys=KEYS * self.width * (1 + self.streams),
            values=0 if self.streams else KEYS * self.width,
            parts=self.parts * self.rows * KEYS,
            rescale=2 * self.queries,
            arrived=2 * BARRIER if self.cluster > 1 else 0,
        )
