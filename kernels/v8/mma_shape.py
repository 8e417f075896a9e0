"""The shape that the mma core is compiled for, and the choice of a shape for a problem."""

from dataclasses import dataclass
from typing import ClassVar

from ..constants import require, require_shared
from ..limits import EMULATED_TARGET, limits_of
from ..version import Problem, SharedLayout
from .launch import power_of_two, require_field, require_threads

GROUP = 32  # dims of a group: a cache line of 128 bytes
KEYS = (16, 32, 64)  # keys of a tile: a lane has one or two scores of a row
STEP = 16  # dims or keys of two mma
COPIERS = GROUP // 4  # threads that copy one row of a group
BARRIER = 2  # floats of an mbarrier
MAX_CLUSTER = 16
SMS = 132  # of an H100 or H200: of plans, which are the same on every machine
RESIDENT = {1: 132, 2: 132, 4: 120, 8: 120, 16: 112}  # blocks in clusters of a size that it holds, one to an SM
MANY = 8192  # elements of a slice of Q and K that are embedded


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for: the blocks of a cluster, and how the warps of a block share its score tile.

    `across` warps take different keys, `depth` warps different dims of the same scores.

    Raises: ValueError unless the tile divides into products of 16 queries and 8 keys, groups of dims, and rows of
    scores for every block and lane; also for more threads than a block can have.
    """

    core: ClassVar = "mma"
    cluster: int
    queries: int
    keys: int
    width: int
    across: int
    depth: int
    blocks: int = 1  # that share an SM

    def __post_init__(self) -> None:
        queries, eighths = self.queries, self.keys // 8
        require_field(self, "queries", queries > 0 and queries % 16 == 0, "a positive multiple of 16")
        divides = 0 < self.cluster <= MAX_CLUSTER and queries % self.cluster == 0
        require_field(self, "cluster", divides, f"up to {MAX_CLUSTER} and divide queries, which is {queries}")
        require_field(self, "keys", self.keys in KEYS, f"one of {KEYS}")
        require_field(self, "width", self.width > 0 and self.width % GROUP == 0, f"a positive multiple of {GROUP}")
        require_field(self, "across", self.across > 0 and eighths % self.across == 0, f"a divisor of {eighths}")
        require_field(self, "depth", self.depth > 0, "1 or more")
        require_threads(self)

    @property
    def name(self) -> str:
        tile = f"c{self.cluster}_q{self.queries}_k{self.keys}_w{self.width}"
        return f"attention_{tile}_a{self.across}_d{self.depth}"

    @property
    def most_dims(self) -> int:
        """Dims that a cluster takes."""
        return self.cluster * self.width

    @property
    def down(self) -> int:
        return self.queries // 16

    @property
    def warps(self) -> int:
        return self.down * self.across * self.depth

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def abreast(self) -> int:
        """Warps along the dims of the output."""
        return self.across * self.depth

    @property
    def panels(self) -> int:
        """Groups of output dims that a warp multiplies, at most; they are `abreast` groups apart."""
        return -(-self.width // (GROUP * self.abreast))

    @property
    def columns(self) -> int:
        """mma tiles of a warp along the keys."""
        return self.keys // 8 // self.across

    @property
    def groups(self) -> int:
        """Groups of dims of a slice."""
        return self.width // GROUP

    @property
    def sharers(self) -> int:
        """Threads that alternate between the groups of a row when they copy it."""
        height = max(self.queries, self.keys)
        return next(n for n in (4, 2, 1) if n == 1 or (n * height * COPIERS <= self.threads and self.groups % n == 0))

    @property
    def passes(self) -> int:
        """Rows that one pass copies."""
        return self.threads // COPIERS // self.sharers

    @property
    def turns(self) -> int:
        """Passes over the rows of Q or K, whichever are more."""
        return -(-max(self.queries, self.keys) // self.passes)

    @property
    def rows(self) -> int:
        """Rows of the score tile that a block owns."""
        return self.queries // self.cluster

    @property
    def layout(self) -> SharedLayout:
        """Shared memory of a block; rows are padded so that the lanes of a fragment hit different banks."""
        return SharedLayout(
            query=self.queries * (self.width + 16),
            keys=self.keys * (self.width + 16),
            values=self.keys * (self.width + 4),
            parts=self.cluster * self.depth * self.rows * self.keys,
            weights=self.queries * (self.keys + 8),
            rescale=2 * self.queries,
            running=4 * self.rows,
            arrived=2 * BARRIER if self.cluster > 1 else 0,
        )


def width_of(hdim: int, cluster: int, whole: int = GROUP) -> int:
    """Dims of a slice, a multiple of `whole`."""
    return -(-hdim // (cluster * whole)) * whole


def resident(cluster: int, sms: int) -> int:
    """Blocks, in whole clusters of a size, that a card with `sms` SMs holds, one to an SM; in proportion to an H200."""
    return RESIDENT[cluster] * sms // SMS // cluster * cluster


def choose(problem: Problem, embedded_dim: int | None = None, target: str = EMULATED_TARGET, sms: int = SMS) -> Shape:
    """The shape for a problem with `embedded_dim` embedded dims (None: all that rotate), fitted to timings on an H200.

    Few heads: slices as narrow as a cluster of 8 makes them (of 16 where every cluster gets a GPC to itself), and tiles
    that hold the whole problem if they fit. Many heads: the smallest cluster of which two blocks fit an SM, so that one
    computes while the other waits. Twice the warps where a block with few queries embeds many elements.

    Raises: Unsupported where the target has no clusters, or no tile fits its shared memory.
    """
    limits = limits_of(target)
    template = "the core of warps needs clusters, of compute capability {needed}; the target is {allowed}"
    require(limits.cluster > 1, "capability", "9.0", target, template)
    embedded_dim = problem.rotary_dim if embedded_dim is None else embedded_dim
    heads = problem.batch * problem.heads
    keys = min(max(power_of_two(problem.seq_k), 16), 64)
    queries = 16 if problem.seq_q <= 16 else 32
    widest = min(power_of_two(-(-problem.hdim // GROUP)), limits.cluster)
    tiles = heads * -(-problem.seq_q // queries)

    def shaped(cluster: int, blocks: int = 1) -> Shape:
        width, down = width_of(problem.hdim, cluster), queries // 16
        across = min(keys // 8, 4)
        depth = min(max(8 // (down * across), 1), max(width // (2 * STEP), 1))
        if width >= 256 and queries == 32 and keys == 64:
            across, depth = 2, 2
        if queries == 16 and (queries + keys) * width * embedded_dim > MANY * problem.hdim:
            depth *= 2
        return Shape(cluster, queries, keys, width, across, depth, blocks)

    if tiles * min(widest, 8) > 2 * sms:
        for cluster in (1, 2, 4, 8, 16):
            shape = shaped(cluster, 2)
            needed = 2 * (shape.layout.nbytes + limits.reserved_shared_bytes)
            if cluster <= widest and needed <= limits.shared_bytes:
                return shape
    cluster = min(widest, 16 if tiles * 16 <= resident(16, sms) else 8)
    if tiles * cluster < 64 and queries == 32:
        queries = 16
    while shaped(cluster).layout.nbytes > limits.block_shared_bytes:
        if cluster < widest:
            cluster *= 2
        elif keys > queries:
            keys //= 2
        elif queries > 16:
            queries //= 2
        elif keys > 16:
            keys //= 2
        else:
            break
    shape = shaped(cluster)
    require_shared(shape.layout, problem, limits.block_shared_bytes)
    return shape
