"""Which shape of the wgmma core serves a problem."""

from ....constants import OPT_IN_SHARED_LIMIT
from ....device.wgmma import ROWS
from ....version import MOST_BLOCKS, Problem
from ..card import RESIDENT, SMS, resident
from ..shape import MAX_CLUSTER, power_of_two, width_of
from .shape import KEYS, MAX_WIDTH, Shape

STREAM_WIDTH = 128  # dims of a chunk, so that two blocks share an SM
QUERIES = (64, 48, 40, 32, 24, 16, 8)
NARROW = (48, 24, 16, 8)  # fewer, so that the prompts of a model need few kernels
TILE_COST = 24  # the fixed cost of a tile, in queries
REWRITE_COST = 4  # cost of a dim embedded in global memory, relative to one embedded in registers
WAIT_COST = 256  # cost of the wait for the last tile, in the same unit
PAYS = 0.95  # of the estimated time, below which narrower slices pay


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


def choose(problem: Problem, embedded_dim: int | None = None, sms: int = SMS) -> tuple[Shape, int]:
    """The shape for a problem and into how many parts keys are split, on a card with `sms` SMs, by a rule fitted to timings on an H200.

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
        return streamed, 1
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
    return shape, 1


def keys_before(problem: Problem, embedded_dim: int, sms: int = SMS) -> bool:
    return False
