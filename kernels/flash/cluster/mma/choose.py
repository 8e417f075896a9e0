"""Which shape of the mma core serves a problem."""

from ....constants import require, require_shared
from ....limits import EMULATED_TARGET, Share, limits_of
from ....version import Problem
from ..shape import GROUP, WHOLE, power_of_two, resident, width_of
from .shape import STEP, Shape

MANY = 8192  # elements of a slice of Q and K that are embedded


def choose(
    problem: Problem, embedded_dim: int | None = None, target: str = EMULATED_TARGET, share: Share = WHOLE
) -> Shape:
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
    widest = min(power_of_two(-(-problem.hdim // GROUP)), limits.cluster, share.cluster)
    tiles = heads * -(-problem.seq_q // queries)

    def shaped(cluster: int, blocks: int = 1) -> Shape:
        width, warps_m = width_of(problem.hdim, cluster), queries // 16
        warps_n = min(keys // 8, 4)
        warps_k = min(max(8 // (warps_m * warps_n), 1), max(width // (2 * STEP), 1))
        if width >= 256 and queries == 32 and keys == 64:
            warps_n, warps_k = 2, 2
        if queries == 16 and (queries + keys) * width * embedded_dim > MANY * problem.hdim:
            warps_k *= 2
        return Shape(cluster, queries, keys, width, warps_n, warps_k, blocks)

    if tiles * min(widest, 8) > 2 * share.sms:
        for cluster in (1, 2, 4, 8, 16):
            shape = shaped(cluster, 2)
            needed = 2 * (shape.layout.nbytes + limits.reserved_shared_bytes)
            if cluster <= widest and needed <= limits.shared_bytes:
                return shape
    cluster = min(widest, 16 if tiles * 16 <= resident(16, share) else 8)
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
