"""The shape that the portable core is compiled for, and which shape serves a problem."""

from dataclasses import dataclass
from typing import ClassVar

from ....version import Problem, SharedLayout
from ..shape import MAX_THREADS, RowShape, power_of_two, require_field

QUERY_FLOATS = 8_192  # at most, of embedded queries in shared memory
BLOCK = 4  # keys whose weights are read together
ENOUGH = 128  # blocks: about as many as the large GPUs have SMs


@dataclass(frozen=True)
class Shape(RowShape):
    """A kernel of the portable core. All fields except hdim are powers of two.

    For the scores, `lanes` threads of a warp share the dims of a key and a thread takes `each` keys at a time;
    `warps_n` warps take different keys, the others different dims of the same keys.

    Raises: ValueError for a field that is not a power of two or not a multiple of four dims, and for scores, keys or
    slices of the queries that threads cannot share evenly.
    """

    core: ClassVar = "portable"
    cluster: ClassVar = 1
    lane_step: ClassVar = 1
    key_step: ClassVar = 32
    queries: int
    hdim: int
    each: int
    lanes: int
    warps_n: int
    threads: int = 256

    def __post_init__(self) -> None:
        require_field(self, "hdim", self.hdim > 0 and self.hdim % 4 == 0, "a positive multiple of 4")
        for name, least, most in (
            ("queries", 1, QUERY_FLOATS),
            ("each", 1, QUERY_FLOATS),
            ("lanes", 2, 32),
            ("threads", 32, MAX_THREADS),
            ("warps_n", 1, self.threads // 32),
        ):
            value = getattr(self, name)
            allowed = least <= value <= most and value == power_of_two(value)
            require_field(self, name, allowed, f"a power of two from {least} to {most}")
        require_field(self, "keys", self.keys % BLOCK == 0, f"a multiple of {BLOCK}")
        if self.queries * self.each % self.lanes:
            raise ValueError(
                f"queries * each is {self.queries * self.each}; it must be a multiple of lanes, which is {self.lanes}"
            )
        if not self.slice or self.slice % self.step:
            raise ValueError(f"a slice of the queries has {self.slice} dims; a step of {self.step} does not fit it")

    @property
    def name(self) -> str:
        tile = f"q{self.queries}_d{self.hdim}_e{self.each}_l{self.lanes}"
        return f"attention_portable_{tile}_a{self.warps_n}_t{self.threads}"

    @property
    def ahead(self) -> bool:
        """Whether a thread has the registers to prefetch the next values; otherwise many warps hide the latency."""
        return self.threads <= 256

    @property
    def warps_k(self) -> int:
        """Warps that take different dims of the same keys."""
        return self.threads // 32 // self.warps_n

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        return self.warps_n * 32 // self.lanes * self.each

    @property
    def step(self) -> int:
        """Dims that a block multiplies at a time."""
        return 4 * self.lanes * self.warps_k

    @property
    def width(self) -> int:
        """The head dim, in whole steps."""
        return -(-self.hdim // self.step) * self.step

    @property
    def slice(self) -> int:
        """Dims of the queries that are staged at a time."""
        return self.width if self.queries * self.width <= QUERY_FLOATS else QUERY_FLOATS // 2 // self.queries

    @property
    def query_floats(self) -> int:
        """Of a slice of the queries, for a thread."""
        return 4 * -(-self.queries * self.slice // 4 // self.threads)

    @property
    def columns(self) -> int:
        """Threads that share the dims of the output; the others take different keys."""
        return min(max(power_of_two(-(-self.hdim // 4)), self.threads * BLOCK // self.keys), self.threads)

    @property
    def stride(self) -> int:
        """Distance of two rows of scores: the rows that a quarter of a warp stores start in different banks."""
        return self.keys + 4

    @property
    def most_dims(self) -> int:
        return self.hdim

    @property
    def keys_per_lane(self) -> int:
        """Scores of a row that a lane has."""
        return -(-self.keys // 32)

    @property
    def layout(self) -> SharedLayout:
        staged = self.queries * self.slice * (1 if self.slice == self.width else 2)
        joined = 4 * self.queries * self.threads // 2 if self.columns < self.threads else 0
        return SharedLayout(
            query=max(staged, joined),  # and, at the end, outputs on their way to the thread that joins them
            scores=self.warps_k * self.queries * self.stride,
            rescale=2 * self.queries,
        )


def choose(problem: Problem) -> Shape:
    """The shape for a problem.

    Many queries per tile reduce reads of K and V, few give many blocks. The choice is the largest of 16, 8 and 4 that
    gives `ENOUGH` blocks and is at least half full. With fewer queries a thread needs fewer registers and more warps
    share the SM. A tile covers up to 512 keys of seq_k; lanes and warps that the keys do not need share the head dim.
    """
    heads = problem.batch * problem.heads
    enough = (n for n in (16, 8) if n < 2 * problem.seq_q and heads * -(-problem.seq_q // n) >= ENOUGH)
    queries = next(enough, 4)
    each, threads = 8 if queries == 4 else 4, 256 if queries == 16 else 512
    warps = threads // 32
    lanes = min(max(power_of_two(-(-problem.hdim // 4)), 8), 32)
    while lanes > 8 and warps * 32 // lanes * each < problem.seq_k:
        lanes //= 2
    widest = min(power_of_two(problem.hdim), QUERY_FLOATS // 2 // queries)
    deepest = max(widest // (4 * lanes), 1)
    warps_n = max(min(power_of_two(-(-problem.seq_k * lanes // (32 * each))), warps), warps // deepest, 1)
    return Shape(queries, problem.hdim, each, lanes, warps_n, threads)
