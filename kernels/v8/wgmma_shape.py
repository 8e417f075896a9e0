"""The shape that the wgmma core is compiled for, and the choice of a shape for a problem."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..constants import OPT_IN_SHARED_LIMIT
from ..device.wgmma import ROWS, WARPGROUP
from ..version import MOST_BLOCKS, Problem, SharedLayout
from .launch import power_of_two, require_field, require_threads
from .mma_shape import BARRIER, COPIERS, GROUP, MAX_CLUSTER, RESIDENT, SMS, resident, width_of

KEYS = ROWS  # of a tile
TILE_ALIGNMENT = 1024  # bytes, of what wgmma reads from shared memory
MAX_WIDTH = 256
MAX_HDIM = 2**20
WARPGROUPS = (1, 2, 4)  # sizes whose threads copy a tile of K in whole passes
STREAM_WIDTH = 128  # dims of a chunk, so that two blocks share an SM
QUERIES = (64, 48, 40, 32, 24, 16, 8)
NARROW = (48, 24, 16, 8)  # fewer, so that the prompts of a model need few kernels
TILE_COST = 24  # the fixed cost of a tile, in queries
REWRITE_COST = 4  # cost of a dim embedded in global memory, relative to one embedded in registers
WAIT_COST = 256  # cost of the wait for the last tile, in the same unit
PAYS = 0.95  # of the estimated time, below which narrower slices pay


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for: blocks of a cluster, queries of a tile, dims of a slice, warpgroups of a block.

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
    once: bool = False  # whether blocks that share keys embed them together before the main loop
    streams: bool = False  # whether a block streams its dims, `width` at a time; for one tile of keys

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
        return name + "_once" * self.once + "_streams" * self.streams

    @property
    def abreast(self) -> int:
        """wgmma products per panel of V: a lane reads 4 dims of a key for two, 2 for one."""
        return 2 if self.width % (2 * ROWS * self.warpgroups) == 0 else 1

    @property
    def panels(self) -> int:
        """Panels of V that a warpgroup multiplies, at most."""
        return -(-self.width // (ROWS * self.abreast * self.warpgroups))

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups

    @property
    def groups(self) -> int:
        """Groups of dims of a slice."""
        return self.width // GROUP

    @property
    def passes(self) -> int:
        """Rows that one pass copies."""
        return self.threads // COPIERS

    @property
    def query_turns(self) -> int:
        """Passes over the queries of a tile."""
        return -(-self.queries // self.passes)

    @property
    def rows(self) -> int:
        """Rows of the score tile that a block owns."""
        return -(-self.queries // self.cluster)

    @property
    def rows_of_warp(self) -> int:
        """Rows for which a warp computes the softmax, at most."""
        return -(-self.rows // (self.threads // 32))

    @property
    def most_dims(self) -> int:
        """Dims that a cluster takes."""
        return MAX_HDIM if self.streams else self.cluster * self.width

    @property
    def weights_at(self) -> int:
        """Where the weights are: a block that streams its dims is done with Q when they come."""
        return self.layout["query" if self.streams else "weights"]

    @property
    def values_at(self) -> int:
        """Where the values are: a block that streams its dims is done with K when they come."""
        return self.layout["keys" if self.streams else "values"]

    @property
    def apart(self) -> bool:
        """Whether a tile has an accumulator of its own, which is added to the output with one rounding per tile.

        The rounding error of the row sum is then kept, too.
        """
        return self.queries <= 16 and self.blocks == 1

    @property
    def layout(self) -> SharedLayout:
        """Shared memory of a block; the high and low parts of Q and of the weights come first, as they need the largest
        alignment.
        """
        return SharedLayout(
            query=2 * self.queries * max(self.width, KEYS * self.streams),
            weights=0 if self.streams else 2 * self.queries * KEYS,
            keys=KEYS * self.width * (1 + self.streams),
            values=0 if self.streams else KEYS * self.width,
            parts=self.cluster * self.warpgroups * self.rows * KEYS,
            rescale=2 * self.queries,
            arrived=2 * BARRIER if self.cluster > 1 else 0,
            taken=2 if self.once else 0,
        )


def takes(problem: Problem, sms: int = SMS) -> bool:
    """Whether tiles of 64 keys pay off, and the slices of a cluster of 16 cover the head dim, or are streamed."""
    covered = problem.hdim <= MAX_CLUSTER * MAX_WIDTH or streaming(problem, sms) is not None
    return problem.seq_k > KEYS // 2 and covered


def streaming(problem: Problem, sms: int = SMS) -> Shape | None:
    """A shape that streams the head dim, where one tile holds all keys and that pays; else None.

    That is where no cluster holds the head dim, and where clusters that do would need more than two waves. The largest
    cluster that leaves all blocks resident, two to an SM.
    """
    queries = next(n for n in (8, 16, 32) if n >= min(problem.seq_q, 32))
    tiles, heads = -(-problem.seq_q // queries), problem.batch * problem.kv_heads
    tiles *= problem.batch * problem.heads
    held = power_of_two(-(-problem.hdim // STREAM_WIDTH))  # blocks whose slices are one chunk
    pays = problem.hdim > MAX_CLUSTER * MAX_WIDTH or (held > 1 and tiles * held > 4 * sms)
    if problem.seq_k > KEYS or not pays or heads > MOST_BLOCKS["z"]:
        return None
    fitting = [c for c in RESIDENT if c <= held and tiles * c <= 2 * resident(c, sms)]
    return Shape(max(fitting, default=1), queries, STREAM_WIDTH, 2, 2, streams=True)


def nanoseconds(problem: Problem, shape: Shape, sms: int) -> float:
    """An estimate of the time of a launch, which tells shapes apart: fitted to 120 timings on an H100, within 13 %.

    For each dim of a slice a tile of keys is split and multiplied by the queries; for each query scores are sent.
    """
    sends = 7 * shape.queries * (shape.warpgroups + 2) if shape.cluster > 1 else 0
    tile = 800 + shape.width * (7 + 0.34 * max(shape.queries, 20)) + sends
    tiles = -(-problem.seq_k // KEYS)
    if problem.causal:
        tiles -= (min(problem.seq_q, problem.seq_k) - KEYS) // (2 * KEYS)
    return 2100 + waves(problem, shape, sms) * (tiles * tile + 2.5 * shape.width)


def waves(problem: Problem, shape: Shape, sms: int) -> int:
    tiles = problem.batch * problem.heads * -(-problem.seq_q // shape.queries)
    return -(-tiles * shape.cluster // resident(shape.cluster, sms))


def choose(problem: Problem, embedded_dim: int | None = None, sms: int = SMS) -> Shape:
    """The shape for a problem, on a card with `sms` SMs, by a rule fitted to timings on an H200.

    The smallest cluster whose slices fit. Where few keys or queries would leave half of the GPU idle, up to 8 blocks,
    with slices of at least 64 dims. Among the queries per tile that fit, those with the lowest cost over all waves: a
    tile costs its queries plus 24, for copies and exchanges. A larger cluster, with narrower slices and perhaps more
    queries, where it is estimated to be faster. `streaming` comes first.

    `embedded_dim` dims of a key are embedded (None: all that rotate). They are embedded once, together, where an SM
    would otherwise embed more than its part of reading and writing all keys costs, plus the wait.
    """
    embedded_dim = problem.rotary_dim if embedded_dim is None else embedded_dim
    heads = problem.batch * problem.heads
    if streamed := streaming(problem, sms):
        return streamed
    cluster = power_of_two(-(-problem.hdim // MAX_WIDTH))
    few = problem.seq_k <= KEYS or problem.seq_q <= 16
    if few and heads * -(-problem.seq_q // KEYS) * cluster < sms // 2:
        cluster = max(cluster, min(power_of_two(-(-problem.hdim // ROWS)), 8))

    def fitting(cluster: int, tiles: tuple[int, ...] = QUERIES) -> list[Shape]:
        width = width_of(problem.hdim, cluster, ROWS)
        shapes = (Shape(cluster, queries, width, 1 if width == ROWS else 2) for queries in tiles)
        return [shape for shape in shapes if shape.layout.nbytes <= OPT_IN_SHARED_LIMIT]

    shape = min(fitting(cluster), key=lambda shape: waves(problem, shape, sms) * (shape.queries + TILE_COST))
    others = (new for size in RESIDENT if size > cluster for new in fitting(size, NARROW) if new.width < shape.width)
    narrow = min(others, key=lambda new: nanoseconds(problem, new, sms), default=shape)
    if nanoseconds(problem, narrow, sms) < PAYS * nanoseconds(problem, shape, sms):
        shape = narrow
    tiles, sharers = -(-problem.seq_k // KEYS), problem.heads // problem.kv_heads * -(-problem.seq_q // shape.queries)
    met = waves(problem, shape, sms) * tiles
    if problem.causal:
        met = max(tiles, met // 2)
    alone = met * min(-(-embedded_dim // (GROUP * shape.cluster)) * GROUP, shape.width)
    together = -(-tiles // sharers) * shape.width
    return replace(shape, once=sharers > 1 and alone > REWRITE_COST * together + WAIT_COST)
