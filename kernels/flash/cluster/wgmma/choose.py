"""Which shape of the wgmma core serves a problem, and in how many parts its keys: what is estimated to take least.

The estimate is in cycles, from what a tile of 64 keys takes a block. Its coefficients were fitted to half of the shapes
that were timed on an H100, then rounded and adjusted where the rule missed a shape that was timed as faster.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ....constants import OPT_IN_SHARED_LIMIT
from ....device.wgmma import ROWS
from ....limits import Share
from ....version import MOST_BLOCKS, Problem
from ..shape import GROUP, RESIDENT, WHOLE, resident, width_of
from .shape import KEYS, MAX_WIDTH, Shape

QUERIES = (8, 16, 24, 32, 40, 48, 64)
FEWER = (8, 16, 32)  # and the most that fit, where a block holds the head dim: prompts of a model need few kernels
STREAMED = (8, 16, 32)  # queries of a tile whose head dim is streamed
STREAM_WIDTH = 128  # dims of a chunk, so that two blocks share an SM
MOST_PART_FLOATS = 2**26
MOST_OUTPUTS = 2**13  # of a block that registers hold beside what the exchange takes

LAUNCH = 3400.0  # until the first block runs, its queries, and from the last store to the end
PROLOGUE = 15.0  # a dim of a block: its first copy, and its stores
TILE = 1750.0  # barriers, and a softmax that waits for all parts of the scores
SENT = 13.0  # a query: for each warpgroup that sends its part of the scores, and twice for the weights
MULTIPLIED = 0.71  # a dim and a query: six products of 64 keys, each of 8 terms
PAIRED = 0.82  # of that, where dims stream and two blocks share an SM: one multiplies while the other copies
LEAST_QUERIES = 17.0  # that take as long as the copies of K and V from the L2, at 42 bytes a cycle
EMBEDDED = 11.0  # a dim: the angles of 32 pairs, at 128 lanes
COMBINE, BEFORE = 3500.0, 2400.0  # the launches that combine parts, and that embed K
BYTES = 14.0  # of an SM, that these read and write
PAYS = 1.05  # how much faster a call is to be with another launch, which is another kernel to compile


class Choice(NamedTuple):
    """A shape, the parts of the keys, and the estimated cycles."""

    shape: Shape
    splits: int
    cycles: float


def streams(problem: Problem) -> bool:
    """Whether the head dim may stream: each tile of keys then leaves a part of the output."""
    tiles = -(-problem.seq_k // KEYS)
    part_floats = tiles * problem.batch * problem.heads * problem.seq_q * problem.hdim
    return problem.batch * problem.kv_heads <= MOST_BLOCKS["z"] and (tiles == 1 or part_floats <= MOST_PART_FLOATS)


def takes(problem: Problem, share: Share = WHOLE) -> bool:
    """Whether tiles of 64 keys pay off, and a share of a card has a shape."""
    return problem.seq_k > KEYS // 2 and any(shapes(problem, share))


def cycles(problem: Problem, shape: Shape, splits: int, embedded_dim: int, share: Share = WHOLE) -> float:
    """Of the launch that attends to the keys in these parts, and of the one that combines them."""
    width, slots = shape.width, max(resident(shape.cluster, share) // shape.cluster, 1)
    if shape.streams:  # two blocks share an SM, and its time
        width *= -(-problem.hdim // (STREAM_WIDTH * shape.cluster))
    embedded = min(-(-embedded_dim // (GROUP * shape.cluster)) * GROUP, width)
    heads = problem.batch * problem.heads
    clusters, tiles = heads * splits * -(-problem.seq_q // shape.queries), -(-problem.seq_k // KEYS)
    keys, waves = -(-tiles // splits), float(-(-clusters // slots))
    multiplied = MULTIPLIED * (PAIRED if shape.streams and waves > 1 else 1)
    tile = TILE + width * multiplied * max(shape.queries, LEAST_QUERIES) + EMBEDDED * embedded
    if shape.cluster > 1:
        tile += SENT * shape.queries * (shape.warpgroups + 2)
    met = waves * keys
    if problem.causal and splits == 1:  # the longest tiles begin first
        least = min(-(-(problem.q_offset + shape.queries) // KEYS), keys)
        waves = max(clusters / slots, 1)
        met = max(keys, waves * (keys + least) / 2 + least / 2)
    total = LAUNCH + waves * PROLOGUE * width + met * tile
    if splits > 1:
        total += COMBINE + 8 * (splits + 1) * heads * problem.seq_q * problem.hdim / (BYTES * share.sms)
    return total * (PAYS if splits > 1 else 1)


def shapes(problem: Problem, share: Share) -> Iterator[tuple[Shape, int]]:
    """Those that hold the head dim, or stream it, with the parts of the keys that fill one or two waves."""
    tiles, heads = -(-problem.seq_k // KEYS), problem.batch * problem.heads
    for cluster in (size for size in RESIDENT if resident(size, share) or size == 1):
        width = width_of(problem.hdim, cluster, ROWS)
        made = [Shape(cluster, queries, width, 1 if width == ROWS else 2) for queries in QUERIES if width <= MAX_WIDTH]
        fitting = [shape for shape in made if shape.layout.nbytes <= OPT_IN_SHARED_LIMIT]
        if cluster > 1:
            fitting = [shape for shape in fitting if shape.queries * width <= MOST_OUTPUTS]
        for shape in fitting:
            queries = shape.queries
            if problem.hdim <= MAX_WIDTH and queries not in (*FEWER, fitting[-1].queries):
                continue
            clusters, parts = heads * -(-problem.seq_q // queries), set()
            for waves in range(3):
                most = min(max(waves * resident(cluster, share) // cluster // clusters, 1), tiles)
                parts.add(-(-tiles // -(-tiles // most)))
            for splits in parts:
                yield replace(shape, splits=splits > 1), splits
        if streams(problem) and problem.hdim > MAX_WIDTH:
            for queries in STREAMED:
                yield Shape(cluster, queries, STREAM_WIDTH, 2, 2, streams=True, splits=tiles > 1), tiles


def best(problem: Problem, embedded_dim: int, share: Share = WHOLE) -> Choice:
    made = (Choice(*each, cycles(problem, *each, embedded_dim, share)) for each in shapes(problem, share))
    return min(made, key=lambda choice: choice.cycles)


def choose(problem: Problem, embedded_dim: int | None = None, share: Share = WHOLE) -> tuple[Shape, int]:
    """The shape for a problem of which `embedded_dim` dims of a key are embedded (None: all that rotate), and the parts
    of its keys, on a share of a card.
    """
    return best(problem, problem.rotary_dim if embedded_dim is None else embedded_dim, share)[:2]


def fastest(problem: Problem, embedded_dim: int, share: Share = WHOLE) -> tuple[bool, float]:
    """Whether a launch before should embed the keys, and the estimated cycles."""
    elements = problem.batch * problem.kv_heads * problem.seq_k * problem.hdim
    alone = best(problem, embedded_dim, share).cycles
    behind = PAYS * (best(problem, 0, share).cycles + BEFORE + 8 * elements / (BYTES * share.sms))
    return behind < alone, min(behind, alone)
