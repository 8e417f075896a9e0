"""Which kernel takes a chunk of queries in float32, and how its keys are split."""

from dataclasses import dataclass, replace

from ...constants import require, require_raw_keys
from ...limits import capability, limits_of
from ...version import Kernel
from ..call import Request
from ..cluster.wgmma.choose import fastest, takes
from ..decode.plan import OVERLAP_SINCE, Decode
from .kernel import chunk_kernel
from .shape import FRAGMENT_ROWS, ChunkShape

MOST_DIMS, DIMS_STEP = 320, 32
LEAST_SPLITS, LEAST_CHUNK_KEYS, LEAST_RATIO = 4, 512, 8  # that pay; the last is keys by queries
THREADS = 256  # that keep an SM busy
KEY_COST = 16  # of a key that a tile reads and rotates, in rows
STARTED, ROW, WIDE = 15_600, 1 / 60, 1.4  # cycles: of both launches; of a row and a dim of a key; above 128 dims
SINCE = (8, 6)  # min.xorsign.abs, with TF32 and cp.async


@dataclass(frozen=True)
class Chunk(Decode):
    """As `Decode`, with a `ChunkShape`."""

    name, any_keys = "chunk", False
    shape: ChunkShape

    @property
    def kernel(self) -> Kernel:
        return chunk_kernel(self.shape)

    @property
    def cycles(self) -> float:
        """An estimate, of the SM that has the most to do: what its blocks' keys take by themselves, and by rows."""
        tiles, sms, hdim = self.of.shared_heads * self.tiles, self.of.sms, self.of.problem.hdim
        splits, keys = self.splits(self.of.problem.seq_k)
        met = -(-tiles * splits // sms) * keys * (self.shape.rows + KEY_COST)
        return STARTED + ROW * (WIDE if hdim > 128 else 1) * met * hdim


def require_chunk(request: Request) -> None:
    """Raises: Unsupported for what no kernel of chunks takes."""
    request.require(" in chunks", DIMS_STEP, MOST_DIMS, 4)
    require(request.problem.dtype == "float32", "dtype", request.problem.dtype, "float32")
    template = "chunks need compute capability {allowed}, this GPU has {needed}"
    require(capability(request.target) >= SINCE, "capability", request.target, "8.6", template)


def chunk_call(request: Request) -> Chunk:
    """Raises: Unsupported.

    The tile of rows that costs least: each reads all keys of its split. Small tiles leave room for two blocks an SM;
    more keys a warp would spill. Measured on an H100.
    """
    require_chunk(request)
    require_raw_keys(request.problem)
    hdim, limits, overlap = request.problem.hdim, limits_of(request.target), capability(request.target) >= OVERLAP_SINCE

    def room(shape: ChunkShape) -> int:
        """Blocks that an SM holds."""
        return limits.shared_bytes // (shape.layout.nbytes + limits.reserved_shared_bytes)

    def shaped(tile: int) -> ChunkShape:
        most = 64 if tile == FRAGMENT_ROWS else 192
        for keys in (16, 8):
            shape = ChunkShape(
                "float32", hdim, tile, keys, 2 if tile == 64 else 4, 1, True,
                embedding=request.embedding, half_split=request.half_split, overlap=overlap,
            )  # fmt: skip
            if room(shape) and (keys == 8 or hdim <= most):
                break
        return replace(shape, blocks=2) if tile == FRAGMENT_ROWS and room(shape) > 1 else shape

    def cost(call: Chunk) -> tuple[bool, float]:
        return call.shape.threads * call.shape.blocks < THREADS, call.cycles

    calls = [Chunk(shaped(tile), request) for tile in (64, 32, FRAGMENT_ROWS)]
    least = min(call.shape.layout.nbytes for call in calls)
    template = f"hdim is {hdim}; the tiles of no shape fit shared memory"
    require(any(room(call.shape) for call in calls), "shared_memory", least, limits.block_shared_bytes, template)
    return min((call for call in calls if room(call.shape)), key=cost)


def pays(call: Chunk) -> bool:
    """Whether a call is faster than V8: few tiles of rows, and many keys for each.

    Measured on an H100, 36 shapes of 9 to 512 queries, where the clusters of V8 walked all keys; where they split keys,
    too, the estimates decide.
    """
    problem, (splits, _) = call.of.problem, call.splits(call.of.problem.seq_k)
    if splits < LEAST_SPLITS or problem.seq_k < max(LEAST_CHUNK_KEYS, LEAST_RATIO * problem.seq_q):
        return False
    if call.of.target != "sm_90" or not takes(problem, call.of.share):
        return True
    return call.cycles < fastest(problem, problem.rotary_dim, call.of.share)[1]
