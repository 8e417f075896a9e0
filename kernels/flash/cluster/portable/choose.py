"""Which shape of the portable core serves a problem."""

from ....version import Problem
from ..shape import power_of_two
from .shape import QUERY_FLOATS, Shape

ENOUGH = 128  # blocks: about as many as the large GPUs have SMs


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
