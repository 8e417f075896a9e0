"""The shape that the mma core is compiled for."""

from dataclasses import dataclass
from typing import ClassVar

from ....version import SharedLayout
from ..shape import BARRIER, COPIERS, GROUP, MAX_CLUSTER, RowShape, require_field, require_threads

KEYS = (16, 32, 64)  # of a tile
STEP = 16  # dims or keys of two mma


@dataclass(frozen=True)
class Shape(RowShape):
    """A kernel of the mma core: the blocks of a cluster, its tile, and how a block's warps share the tile of scores.

    `warps_n` warps take different keys, `warps_k` warps different dims of the same scores.

    Raises: ValueError unless the tile divides into products of 16 queries and 8 keys, groups of dims, and rows of
    scores for every block and lane; also for more threads than a block can have.
    """

    core: ClassVar = "mma"
    cluster: int
    queries: int
    keys: int
    width: int
    warps_n: int
    warps_k: int
    blocks: int = 1  # that share an SM

    def __post_init__(self) -> None:
        queries, eighths = self.queries, self.keys // 8
        require_field(self, "queries", queries > 0 and queries % 16 == 0, "a positive multiple of 16")
        divides = 0 < self.cluster <= MAX_CLUSTER and queries % self.cluster == 0
        require_field(self, "cluster", divides, f"up to {MAX_CLUSTER} and divide queries, which is {queries}")
        require_field(self, "keys", self.keys in KEYS, f"one of {KEYS}")
        require_field(self, "width", self.width > 0 and self.width % GROUP == 0, f"a positive multiple of {GROUP}")
        require_field(self, "warps_n", self.warps_n > 0 and eighths % self.warps_n == 0, f"a divisor of {eighths}")
        require_field(self, "warps_k", self.warps_k > 0, "1 or more")
        require_threads(self)

    @property
    def name(self) -> str:
        tile = f"c{self.cluster}_q{self.queries}_k{self.keys}_w{self.width}"
        return f"attention_{tile}_a{self.warps_n}_d{self.warps_k}"

    @property
    def warps_m(self) -> int:
        return self.queries // 16

    @property
    def warps(self) -> int:
        return self.warps_m * self.warps_n * self.warps_k

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def warps_d(self) -> int:
        """Warps along the dims of the output."""
        return self.warps_n * self.warps_k

    @property
    def panels(self) -> int:
        """Groups of output dims that a warp multiplies, at most; they are `warps_d` groups apart."""
        return -(-self.width // (GROUP * self.warps_d))

    @property
    def columns(self) -> int:
        """mma tiles of a warp along the keys."""
        return self.keys // 8 // self.warps_n

    @property
    def sharers(self) -> int:
        """Threads that alternate between the groups of a row when they copy it."""
        height = max(self.queries, self.keys)
        return next(n for n in (4, 2, 1) if n == 1 or (n * height * COPIERS <= self.threads and self.groups % n == 0))

    @property
    def rows_per_pass(self) -> int:
        """Rows that one pass copies."""
        return self.threads // COPIERS // self.sharers

    @property
    def passes(self) -> int:
        """Passes over the rows of Q or K, whichever are more."""
        return -(-max(self.queries, self.keys) // self.rows_per_pass)

    @property
    def parts(self) -> int:
        """Parts of a score: of the blocks, and of the warps that take different dims."""
        return self.cluster * self.warps_k

    @property
    def layout(self) -> SharedLayout:
        """Shared memory of a block; rows are padded so that the lanes of a fragment hit different banks."""
        return SharedLayout(
            query=self.queries * (self.width + 16),
            keys=self.keys * (self.width + 16),
            values=self.keys * (self.width + 4),
            parts=self.parts * self.rows * self.keys,
            weights=self.queries * (self.keys + 8),
            rescale=2 * self.queries,
            arrived=2 * BARRIER if self.cluster > 1 else 0,
        )
