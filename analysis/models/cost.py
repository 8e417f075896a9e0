"""What a call costs, by the launches of its plan: the terms that take time, and how much of each a launch does.

Everything is that of the busiest SM. What one of each term takes is fitted to measured times in fit.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kernels import Problem
from kernels.limits import EMULATED_TARGET, limits_of
from kernels.v8 import wgmma_shape
from kernels.version import Launch, Plan

REGISTERS = 168  # of a thread, where a kernel's launch bounds allow as many
CLUSTERED = 10 / 11  # of the SMs, whole clusters find room on: GPCs have SMs left over
NAIVE_KEYS = 32  # of its tile


class Term(NamedTuple):
    """Something that takes time. `unit` is what one of it is; terms of one `group` add up and overlap other groups."""

    about: str
    unit: str
    group: str
    prior: Callable[[Mapping[str, float]], float]  # of the card's ceilings: microseconds of one, to begin with


def _constant(us: float) -> Callable[[Mapping[str, float]], float]:
    return lambda ceilings: us


def _ceiling(name: str, share: float) -> Callable[[Mapping[str, float]], float]:
    """A share of a measured ceiling: TFLOP/s for MFLOP, GB/s for MB."""
    scale = 1e-3 if name.endswith("gb_s") else 1.0
    return lambda ceilings: 1.0 / (scale * share * ceilings[name])


TERMS = {
    "launch": Term("a launch, behind the one before", "launch", "", _constant(1.5)),
    "start": Term("the start and end of a block, once a wave", "wave", "", _constant(1.0)),
    "turn": Term("a round that rotates keys waits for the angles", "round", "", _constant(0.1)),
    "rotation": Term("rotations in shared memory", "M", "", _ceiling("fp32_tflops", 1 / 50)),
    "wait": Term("keys rotated by all blocks together: taking tiles, waiting", "launch", "", _constant(2.0)),
    "together": Term("their reads and writes, one tile after the other", "MB", "", _ceiling("l2_read_gb_s", 0.25)),
    "round": Term("a tile of keys: barriers, softmax, latencies", "round", "rounds", _constant(1.0)),
    "exchange": Term("the same, of scores over a cluster", "round", "rounds", _constant(1.0)),
    "mma": Term("products of mma.sync", "MFLOP", "products", _ceiling("tensor_tflops", 1 / 3)),
    "wgmma": Term("products of wgmma", "MFLOP", "products", _ceiling("tensor_tflops", 1 / 2)),
    "copy": Term("copies to shared memory", "MB", "copies", _ceiling("l2_read_gb_s", 0.5)),
    "rewrite": Term("a rotation's reads and writes", "MB", "copies", _ceiling("l2_read_gb_s", 0.5)),
    "memory": Term("what L2 does not hold", "MB", "memory", _ceiling("read_gb_s", 1.0)),
    "naive_round": Term("a tile of keys of the log's fusion", "round", "rounds", _constant(1.0)),
    "naive_dim": Term("its products, a thread a key", "dim of a tile", "products", _constant(0.01)),
    "naive_turn": Term("its rotations, again for every query", "pair of a tile", "", _constant(0.01)),
    "portable": Term("products of the portable core", "MFLOP", "products", _ceiling("fp32_tflops", 1 / 2)),
}
NAMES = tuple(TERMS)
GROUPS = tuple(dict.fromkeys(term.group for term in TERMS.values() if term.group))

CORE_KEYS = wgmma_shape.KEYS
LINE = 32  # dims that stay in one block of a cluster


@dataclass(frozen=True)
class Card:
    """What the model knows of a GPU."""

    sms: int
    l2_bytes: int
    ceilings: tuple[tuple[str, float], ...]
    target: str = EMULATED_TARGET

    @classmethod
    def of(cls, gpu: Mapping[str, Any]) -> Card:
        """From the content of a gpu.json."""
        target = "sm_" + gpu["compute_capability"].replace(".", "")
        return cls(gpu["sms"], gpu["l2_bytes"], tuple(gpu["ceilings"].items()), target)

    def room(self, launch: Launch) -> tuple[int, int]:
        """The SMs that a launch can use, and how many of its blocks one holds at a time."""
        limits, threads = limits_of(self.target), math.prod(map(int, launch.block))
        bounds = launch.kernel.launch_bounds or ()
        least = bounds[1] if len(bounds) > 1 else 1
        registers = min(REGISTERS, limits.registers // (threads * least))
        by_shared = limits.shared_bytes // max(launch.shared_bytes + limits.reserved_shared_bytes, 1)
        by_registers = limits.registers // (threads * registers)
        blocks = min(limits.blocks, 32 * limits.warps // threads, by_registers, by_shared)
        whole = int(self.sms * CLUSTERED) // launch.cluster * launch.cluster
        return max(whole, launch.cluster) if launch.cluster > 1 else self.sms, max(blocks, 1)


def _rounds(problem: Problem, queries: int, keys: int, tiles: int) -> tuple[float, int]:
    """Tiles of keys that a tile of queries sees: the mean, and the most."""
    if not problem.causal:
        all_keys = -(-problem.seq_k // keys)
        return all_keys, all_keys
    last = [min(problem.seq_k, problem.q_offset + min((tile + 1) * queries, problem.seq_q)) for tile in range(tiles)]
    seen = [-(-max(end, 1) // keys) for end in last]
    return sum(seen) / tiles, max(seen)


def _bytes(plan: Plan, launch: Launch) -> int:
    """Of the buffers that a launch names, each once."""
    named = {arg for arg in launch.args if isinstance(arg, str)}
    return 4 * sum(plan.buffers[name].size for name in named)


def together(launch: Launch) -> bool:
    """Whether the blocks of a launch embed the keys together first, each once."""
    return getattr(launch.shape, "once", False)


def _core(problem: Problem, launch: Launch, card: Card) -> dict[str, float]:
    """An attention of the V8 family; products on tensor cores are three each."""
    queries, keys, width = launch.shape.queries, launch.shape.keys, launch.shape.width
    blocks = math.prod(launch.grid)
    sms, held = card.room(launch)
    waves, blocks_of_busiest = -(-blocks // (sms * held)), -(-blocks // sms)
    tiles = -(-problem.seq_q // queries)
    mean, most = _rounds(problem, queries, keys, tiles)
    chain = waves * mean + (most - mean)  # the longest may come last
    rounds = blocks_of_busiest * mean + (most - mean)

    once = together(launch)
    embeds_keys, embeds_queries = launch.embedding.keys and not once, launch.embedding.query
    key_tiles = -(-problem.seq_k // keys)
    taken = once * -(-key_tiles // math.prod(launch.grid[1:]))  # tiles that a block embeds for all
    lines = -(-problem.rotary_dim // LINE)
    pairs = min(-(-lines // launch.cluster) * LINE, width) / 2  # of the block that has most
    rows = blocks_of_busiest * embeds_queries * queries + (rounds * embeds_keys + taken) * keys
    some_queries, some_keys = min(queries, problem.seq_q), min(keys, problem.seq_k)
    copied = 2 * (blocks_of_busiest * some_queries + rounds * some_keys) * problem.hdim / launch.cluster
    products = (1 if launch.shape.core == "portable" else 3) * 4 * rounds * queries * keys * width
    millions = card.sms / 1e6  # of the busiest SM, as if of all
    return {
        "start": waves,
        "round": chain,
        "exchange": chain * (launch.cluster > 1),
        launch.shape.core: products * millions,
        "copy": 4 * copied * millions,
        "turn": chain * embeds_keys,
        "wait": once,
        "together": 2 * 4 * taken * keys * width * millions,
        "rotation": rows * pairs * millions,
    }


def _naive(problem: Problem, launch: Launch, card: Card) -> dict[str, float]:
    """The log's full fusion: a block a query."""
    blocks = math.prod(launch.grid)
    sms, held = card.room(launch)
    tiles = -(-problem.seq_k // NAIVE_KEYS)
    busiest = -(-blocks // sms) * tiles
    return {
        "start": -(-blocks // (sms * held)),
        "naive_round": -(-blocks // (sms * held)) * tiles,
        "naive_dim": busiest * problem.hdim,
        "naive_turn": busiest * problem.rotary_dim / 2,
    }


def work(plan: Plan, card: Card) -> np.ndarray:
    """float64[launches, terms]: how much of each term every launch of a plan does.

    Of a kernel that it does not know it counts the launch and the bytes of its buffers.
    """
    whole = _bytes(plan, Launch(plan.launches[0].kernel, (1,), (1,), tuple(plan.buffers)))
    missed = min(
        max(2 * whole / card.l2_bytes - 1, 0.0), 1.0
    )  # half the L2 is near an SM, and all is too small at last
    rows = []
    for launch in plan.launches:
        megabytes = _bytes(plan, launch) / 1e6
        if launch.shape is not None and launch.shape.core in NAMES:
            does = _core(plan.problem, launch, card)
        elif "v" in launch.args:  # attends
            does = _naive(plan.problem, launch, card)
        else:
            does = {"rewrite": megabytes}
        does |= {"launch": 1.0, "memory": missed * megabytes}
        rows.append([does.get(name, 0.0) for name in NAMES])
    return np.array(rows, dtype=float)
