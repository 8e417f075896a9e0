"""What the search of V8's shapes tries: shapes of both cores, and lines of the kernel left out or written otherwise.

A part left out makes the result wrong by design; an idea that was tried and lost stays right.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
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
PROBLEMS = (
    *(partial_rope(1, 4, 64, hdim) for hdim in (128, 256, 512, 1024, 2048, 4096)),
    partial_rope(1, 2, 32, 4096),
    *(partial_rope(8, 16, 64, hdim) for hdim in (128, 512)),
    FILLED,
    *LONG,
)


# ---------------------------------------------------------------- the kernel with some lines replaced


Edit = tuple[str, str]  # a regular expression, which must match once, and what replaces it


@dataclass(frozen=True)
class Change:
    """Lines of kernels/v8/wgmma.py that are replaced, for some problems. `right`: its result is still right."""

    name: str
    about: str
    edits: tuple[Edit, ...]
    problems: tuple[Problem, ...]
    right: bool = False
    fits: Callable[[wgmma.Shape], bool] = lambda shape: True


NO_SCORES: Edit = (r"^( +)group = warpgroup$", r"\1group = uint32(groups)")
NO_OUTPUT: Edit = (r"^( +)weigh\(shared, acc, .*\)$", r"\1pass")
NO_EMBEDDING: Edit = (r"^( +)(bias, of_batch = embedding)", r"\1embeds_query = embeds_keys = once = False\n\1\2")
CUT_AT = (MAIN, SMALL, PREFILL)
CUTS = (
    Change("no_scores", "no products of Q and K", (NO_SCORES,), CUT_AT),
    Change("no_output", "no products with V, nor the output rescaled", (NO_OUTPUT,), CUT_AT),
    Change("no_embedding", "nothing rotated", (NO_EMBEDDING,), CUT_AT),
    Change("copies_alone", "only copies and exchanges", (NO_SCORES, NO_OUTPUT, NO_EMBEDDING), CUT_AT),
)


def _in_turn(name: str) -> Edit:
    """Rows in the outer loop; a barrier of the warp keeps the compiler from mixing them again."""
    return (
        rf"^( +)(for bit in range\(5\):)\n +(for i in range\(per_warp\):)\n( +{name}\[i\] .*)",
        r"\1\3\n\1    \2\n\4\n\1    cuda.syncwarp()",
    )


SCORE = r"score\(shared, scores, fragment, group\)"
IDEAS = (
    Change(
        "values_early",
        "copies of V begin before the products of Q and K",
        (
            (r"^( +)if cluster == 1:(\n +copy_values\()", r"\1if not in_place:\2"),
            (
                r"^( +)if in_place:\n +cuda\.syncthreads\(\)\n +(copy_values\(.*\)\n)( +cp_async_commit\(\)\n)",
                r"\1if in_place:\n\1    cuda.syncthreads()\n\1    \2    \3",
            ),
        ),
        (MAIN, SMALL),
        right=True,
        fits=lambda shape: shape.cluster > 1 and shape.blocks == 1,  # two blocks an SM put V where K was
    ),
    Change(
        "rows_in_turn",
        "a warp reduces the rows of its softmax one after the other",
        (_in_turn("new_max"), _in_turn("row_sum")),
        (MAIN, PREFILL),
        right=True,
    ),
    Change(
        "two_paths",
        "dims that are not rotated take a path of their own",
        ((rf"^( +)({SCORE})$", r"\1    \2\n\1else:\n\1    \2"),),
        (MAIN, PREFILL),
        right=True,
    ),
    Change(
        "wait_for_stores",
        "the wait for K waits for what was stored of Q as well",
        (
            (r"cp_async_wait, cp_async_wait_but_one", "cp_async_wait_all, cp_async_wait_but_one"),
            (r"cp_async_wait\(\)", "cp_async_wait_all()"),
        ),
        (MAIN, SMALL),
        right=True,
    ),
    Change(
        "values_in_turn",
        "fragments of V are loaded when the products before them have ended",
        ((r"ahead = shape\.blocks == 1", "ahead = False"),),
        (MAIN, SMALL, PREFILL),
        right=True,
        fits=lambda shape: shape.blocks == 1,
    ),
    Change(
        "barriers_first",
        "the mbarriers are made before Q and K are asked for",
        (
            (
                r"(^            owned = .*\n)((?:.*\n)*?)        if cluster > 1:\n"
                r"(            if tid == uint32\(threads - 1\):(?:.*\n)+?            cluster_start\(\)\n)",
                r"\1\3\2",
            ),
        ),
        (MAIN, SMALL),
        right=True,
        fits=lambda shape: shape.cluster > 1,
    ),
    Change(
        "queries_unordered",
        "the compiler may load Q behind the copies of K",
        ((r"cuda\.syncthreads\(\)  # or the compiler would move.*", "pass"),),
        (MAIN, FILLED),
        right=True,
    ),
    Change(
        "first_queries_first",
        "blocks of the first queries begin first",
        ((r"first_query = .*gridDim\.z.*", "first_query = uint32(uint32(cuda.blockIdx.z) * uint32(queries))"),),
        (CAUSAL,),
        right=True,
    ),
)
CHANGES = {change.name: change for change in (*CUTS, *IDEAS)}


@functools.cache
def changed(*names: str) -> types.ModuleType:
    """The module kernels/v8/wgmma.py with the lines of some changes replaced; itself where there are none.

    Raises: ValueError for a change whose lines are not in it exactly once.
    """
    if not names:
        return wgmma
    source = inspect.getsource(wgmma)
    for name in names:
        for pattern, new in CHANGES[name].edits:
            source, found = re.subn(pattern, new, source, flags=re.MULTILINE)
            if found != 1:
                raise ValueError(
                    f"change {name!r} does not fit {wgmma.__name__}: {pattern!r} is there {found} times instead of once"
                )
    module = types.ModuleType(f"{wgmma.__name__}_{'_'.join(names)}")
    module.__package__ = wgmma.__package__
    module.__file__ = f"<{module.__name__}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[module.__name__] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return module


# ---------------------------------------------------------------- what is tried


@dataclass(frozen=True)
class Candidate:
    """RoPE attention on a problem by a core in a shape, with the lines of a change replaced if it is named."""

    problem: Problem
    core: str
    shape: Any  # of that core
    change: str = ""
    target: str = EMULATED_TARGET

    @property
    def chosen(self) -> bool:
        """Whether the version takes this core and shape for the problem."""
        return (self.core, self.shape) == choice(self.problem, self.target)

    def plan(self) -> Plan:
        """Raises: Unsupported where the shape does not take the problem."""
        core, shape = CORES[self.core], self.shape
        if self.change:
            core = changed(self.change)
            shape = core.Shape(**asdict(shape))
        launch = core.attend(self.problem, ROPE, "rates", self.problem.rotary_dim, shape=shape)
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
            "cut": self.change,
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
    warpgroups = (1, 2, 4) if problem in CUT_AT else (1, 2)
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
    """Everything that is tried on a target, in the order of the problems; of wgmma where that has it.

    Raises: ValueError for a change that does not fit.
    """
    for name in CHANGES:
        changed(name)
    found = []
    warpgroups = capability(target) == WARPGROUPS_ON
    for problem in PROBLEMS:
        if warpgroups:
            found += [Candidate(problem, "wgmma", shape) for shape in wgmma_shapes(problem)]
        if not problem.causal:
            found += [Candidate(problem, "mma", shape, target=target) for shape in mma_shapes(problem, target)]
        if not warpgroups:
            continue
        shape = wgmma.choose(problem)
        for change in CHANGES.values():
            if problem in change.problems and change.fits(shape):
                found.append(Candidate(problem, "wgmma", shape, change.name))
    return found
