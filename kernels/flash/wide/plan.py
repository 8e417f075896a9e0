"""Decode of wide heads: which shape takes a call, how its keys are split, and its launches."""

from dataclasses import dataclass

from ...constants import require, require_raw_keys
from ...limits import CLUSTERS_SINCE, capability
from ...version import Kernel
from ..call import Request
from ..cluster.shape import power_of_two, resident
from ..decode.plan import Decode, require_queries
from .kernel import wide_kernel
from .shape import WideShape

MOST_DIMS = 16_384
MOST_ROWS = 8  # of a tile
NARROW_DIMS = 512  # that decode takes

# By (dims, rows), up to which it is for: warps, chunks of a thread, keys of a batch, blocks an SM. Measured on an H200,
# where up to 4 rows take 1.1 to 1.3 times as long as a copy of as many bytes, and 8 rows 1.3 to 1.8 times. Neither
# copies to shared memory further ahead nor prefetches to the L2 made 8 rows faster.
SHAPES = {
    (1024, 1): (4, 2, 4, 2),
    (1024, 4): (4, 1, 8, 2),
    (512, 8): (4, 1, 4, 4),
    (1024, 8): (8, 1, 4, 2),
    (MOST_DIMS, 1): (8, 2, 4, 2),
    (MOST_DIMS, 4): (8, 2, 8, 1),
    (MOST_DIMS, 8): (8, 2, 4, 1),
}


@dataclass(frozen=True)
class Wide(Decode):
    """As `Decode`, with a `WideShape`."""

    name = "wide_decode"
    shape: WideShape

    @property
    def kernel(self) -> Kernel:
        return wide_kernel(self.shape)

    def splits(self, seq_k: int) -> tuple[int, int]:
        """(splits, keys of each): as many as stay within one wave of clusters."""
        shape, heads = self.shape, self.of.shared_heads * self.tiles
        room = max(resident(shape.cluster, self.of.share) * shape.blocks // (shape.cluster * heads), 1)
        keys = -(-seq_k // (room * shape.batch)) * shape.batch
        return -(-seq_k // keys), keys


def shape_of(hdim: int, rows: int, embedding: str, half_split: bool) -> WideShape:
    """The kernel for `rows` query rows of a KV head, which it takes in tiles of up to 8, all alike."""
    taken = -(-rows // -(-rows // MOST_ROWS))
    warps, chunks, keys, blocks = next(how for (dims, most), how in SHAPES.items() if hdim <= dims and taken <= most)
    if embedding not in ("none", "alibi", "rates"):  # what each key reads or computes for itself takes registers
        keys, blocks = (2 if taken > 4 else 4), 1
    cluster = power_of_two(-(-hdim // (128 * warps * chunks)))
    return WideShape(
        "float32", hdim, taken, keys, warps, blocks, True, "fma", embedding, half_split, True, cluster, chunks
    )  # fmt: skip


def wide_call(request: Request) -> Wide:
    """Raises: Unsupported for what no kernel of wide heads takes."""
    problem, target = request.problem, request.target
    require_queries(request, MOST_DIMS, 4)
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32")
    template = "decode of wide heads needs compute capability {allowed}, this GPU has {needed}"
    require(capability(target) >= CLUSTERS_SINCE, "capability", target, "9.0", template)
    require_raw_keys(problem)
    shape = shape_of(problem.hdim, request.rows, request.embedding, request.half_split)
    template = "decode of wide heads needs clusters of {needed} blocks, this card takes clusters of up to {allowed}"
    require(shape.cluster <= request.share.cluster, "cluster", shape.cluster, request.share.cluster, template)
    return Wide(shape, request)


def pays_wide(request: Request) -> bool:
    """Whether a warp of decode has too few registers for the dims of a key, or for as many rows as share it."""
    hdim = request.problem.hdim
    return hdim > NARROW_DIMS or (hdim > NARROW_DIMS // 2 and request.rows > 2)
