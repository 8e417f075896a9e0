"""What the search of V8's shapes tries: fields of the shapes of both cores that need clusters."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kernels import VERSIONS, Problem, Unsupported
from kernels.limits import EMULATED_TARGET, capability, limits_of
from kernels.rope.v8 import ROPE, rates_buffer
from kernels.v8 import WARPGROUPS_ON, mma, mma_shape, plan, wgmma, wgmma_shape
from kernels.version import Plan

from ..records.files import problem_columns
from .studies import MAIN, partial_rope

VERSION = "rope_v8"
CORES = {"wgmma": wgmma, "mma": mma}
HEIGHTS = (8, 16, 24, 32, 48, 64)  # queries of a tile that are tried
OTHER_HEIGHTS = (16, 32)  # the same where clusters or blocks an SM are not those that the rule chooses


SMALL = partial_rope(1, 4, 64, 512)
PREFILL = partial_rope(1, 8, 2048, 128)
CAUSAL = partial_rope(1, 8, 2048, 128, causal=True)
FILLED = partial_rope(8, 16, 64, 2048)
LONG = (partial_rope(1, 8, 256, 128), partial_rope(1, 8, 512, 128), PREFILL, CAUSAL)
WARPGROUPS_AT = (MAIN, SMALL, PREFILL)  # where four warpgroups a block are tried too
PROBLEMS = (
    *(partial_rope(1, 4, 64, hdim) for hdim in (128, 256, 512, 1024, 2048, 4096)),
    partial_rope(1, 2, 32, 4096),
    *(partial_rope(8, 16, 64, hdim) for hdim in (128, 512)),
    FILLED,
    *LONG,
)


# ---------------------------------------------------------------- what is tried


@dataclass(frozen=True)
class Candidate:
    """RoPE attention on a problem by a core in a shape."""

    problem: Problem
    core: str
    shape: Any  # of that core
    target: str = EMULATED_TARGET

    @property
    def chosen(self) -> bool:
        """Whether the version takes this core and shape for the problem."""
        return (self.core, self.shape) == choice(self.problem, self.target)

    def plan(self) -> Plan:
        """Raises: Unsupported where the shape does not take the problem."""
        launch = CORES[self.core].attend(self.problem, ROPE, "rates", self.problem.rotary_dim, shape=self.shape)
        return plan(self.problem, launch, rates=rates_buffer(self.problem.rotary_dim))

    def columns(self) -> dict[str, Any]:
        """The columns of shapes.csv that say what was tried."""
        return {
            **problem_columns(self.problem),
            "core": self.core,
            "cluster": self.shape.cluster,
            "queries": self.shape.queries,
            "keys": getattr(self.shape, "keys", wgmma_shape.KEYS),
            "width": self.shape.width,
            "warps": self.shape.threads // 32,
            "across": getattr(self.shape, "across", None),
            "blocks_per_sm": self.shape.blocks,
            "once": getattr(self.shape, "once", False),
            "cut": "",
            "chosen": self.chosen,
        }

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.columns().values())


@functools.cache
def choice(problem: Problem, target: str = EMULATED_TARGET) -> tuple[str, Any]:
    """The core and the shape that `rope_v8` takes for a problem."""
    shape = VERSIONS[VERSION](problem, target).launches[-1].shape
    return shape.core, shape


def wgmma_shapes(problem: Problem) -> list[wgmma.Shape]:
    """What the rule chooses; in its clusters tiles of half to twice the queries, other warpgroups; other clusters."""
    chosen = wgmma.choose(problem)
    near = [height for height in HEIGHTS if chosen.queries <= 2 * height and height <= 2 * chosen.queries]
    warpgroups = (1, 2, 4) if problem in WARPGROUPS_AT else (1, 2)
    shapes = [chosen, *(replace(chosen, queries=height) for height in near)]
    if problem.seq_k > wgmma_shape.KEYS:
        shapes.append(replace(chosen, once=not chosen.once))
    shapes += [replace(chosen, warpgroups=n) for n in warpgroups if n * mma_shape.GROUP <= chosen.width]
    shapes += [replace(chosen, queries=height, blocks=3 - chosen.blocks) for height in (*OTHER_HEIGHTS, 64)]
    for cluster in (chosen.cluster // 2, 2 * chosen.cluster):
        width = wgmma_shape.width_of(problem.hdim, max(cluster, 1))
        if (
            1 <= cluster <= mma_shape.MAX_CLUSTER
            and width <= wgmma_shape.MAX_WIDTH
            and (cluster - 1) * width < problem.hdim
        ):
            number = 1 if width == wgmma_shape.ROWS else 2
            shapes += [wgmma.Shape(cluster, height, width, number) for height in OTHER_HEIGHTS]
    return _fitting(problem, shapes, EMULATED_TARGET)


def mma_shapes(problem: Problem, target: str) -> list[mma.Shape]:
    """What the rule chooses, and shapes that differ from it in one thing; none where no tile fits the target."""
    try:
        chosen = mma.choose(problem, target=target)
    except Unsupported:
        return []
    shapes = [chosen, replace(chosen, queries=48 - chosen.queries)]
    for cluster in (chosen.cluster // 2, 2 * chosen.cluster):
        if 1 <= cluster <= limits_of(target).cluster and (cluster - 1) * mma_shape.GROUP < problem.hdim:
            shapes.append(replace(chosen, cluster=cluster, width=mma_shape.width_of(problem.hdim, cluster)))
    if chosen.blocks > 1:
        shapes.append(replace(chosen, blocks=1))
    return _fitting(problem, shapes, target)


def _fitting(problem: Problem, shapes: Iterable[Any], target: str) -> list[Any]:
    """Each shape once that fits shared memory, that of the SM for two blocks, and has a row for the queries."""
    limits = limits_of(target)

    def fits(shape: Any) -> bool:
        most = limits.shared_bytes // shape.blocks - limits.reserved_shared_bytes
        return shape.layout.nbytes <= most and shape.queries - problem.seq_q < 16

    return [shape for shape in dict.fromkeys(shapes) if fits(shape)]


def candidates(target: str = EMULATED_TARGET) -> list[Candidate]:
    """Everything that is tried on a target, in the order of the problems; of wgmma where that has it."""
    found = []
    for problem in PROBLEMS:
        if capability(target) == WARPGROUPS_ON:
            found += [Candidate(problem, "wgmma", shape) for shape in wgmma_shapes(problem)]
        if not problem.causal:
            found += [Candidate(problem, "mma", shape, target) for shape in mma_shapes(problem, target)]
    return found
