"""Can RoPE be fused? V8."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kernels import VERSIONS, Problem

from ..evidence import Comparison, Estimates, Evidence, NotMeasured, every
from ..measure.studies import FUSIONS, MAIN
from ..models import steps
from ..models.advice import decoding, starved
from ..models.rivals import BEYOND, V8, beside_one_graph, rivals, v8_time
from ..record.text import number
from . import AUDITED, Says, checks, faster, finding, not_slower, numbers, of_values, slower
from .common import times

FULL, HYBRID, SEPARATE = FUSIONS
LOG_SEPARATE = "rope_separate"


# ---------------------------------------------------------------- beside others


def over(e: Evidence, problems: Iterable[Problem] = BEYOND, names: Iterable[str] = ()) -> Estimates:
    """How many times as fast as the fastest right peer V8 is, or as the fastest of `names`, where both were timed."""
    found = {problem: each[0].over for problem in problems if (each := rivals(e, problem, names))}
    return Estimates(found, "×")


class Part(NamedTuple):
    """How many times as fast as the fastest right peer V8 is, on problems of one kind."""

    over: Estimates

    @property
    def problems(self) -> int:
        return len(self.over)

    @property
    def lost(self) -> int:
        """On how many it is slower, interval included."""
        return sum(slower(Estimates({problem: one})).intervals is True for problem, one in self.over.items())


class BesidePyTorch(NamedTuple):
    """V8 beside the fastest right peer, where PyTorch compiled all as one graph: on problems where few queries meet
    many keys, with one query a head, and on all others."""

    starved: Part
    one_query: Part
    elsewhere: Part

    @property
    def split(self) -> Comparison:
        """Whether V8 loses somewhere of the first kind, mostly with one query, and is slower nowhere else."""
        single = self.one_query
        return checks(self.starved.lost > 0, 2 * single.lost > single.problems, not_slower(self.elsewhere.over))


def beside_pytorch(e: Evidence) -> BesidePyTorch:
    """Raises: NotMeasured."""
    found = beside_one_graph(e)
    if not found:
        raise NotMeasured("PyTorch as one graph was not timed beside V8")

    def part(of: Callable[[Problem], bool]) -> Part:
        return Part(Estimates({problem: each.over for problem, each in found.items() if of(problem)}, "×"))

    return BesidePyTorch(part(starved), part(decoding), part(lambda problem: not starved(problem)))


# ---------------------------------------------------------------- the chapter


@finding(
    "v8-time",
    """V8 takes {v8}. The authors' separate kernels take {separate} as long. PyTorch's fastest way, RoPE and attention
compiled as a graph, takes {peer:.1} as long.""",
)
def taken(e: Evidence) -> Says:
    peer, separate, us = over(e, (MAIN,)), over(e, (MAIN,), (LOG_SEPARATE,)), v8_time(e)
    return numbers(
        v8=number(us.value, "µs", 1), peer=times(peer), separate=f"{separate[MAIN].value:.0f} times"
    ), checks(faster(peer), faster(separate))


@finding(
    "v8-core",
    """Most of this lead is a better attention kernel. Over separate kernels with the same attention V8 is still
{fused:.1} as fast: that is what fusing is worth here.""",
)
def core(e: Evidence) -> Says:
    fused = over(e, (MAIN,), (SEPARATE,))
    core = e.speedup(SEPARATE, over=LOG_SEPARATE, study="beyond", problem=MAIN)
    return numbers(fused=times(fused)), checks(faster(fused), core > fused)


@finding(
    "v8-tiles",
    """A cluster of {cluster} blocks handles a tile of {queries} queries. A head has {tiles} such tiles, so each key is
rotated that often, and not once per query.""",
)
def tiles(e: Evidence) -> Says:
    launch = VERSIONS[V8](MAIN, e.target).launches[-1]
    queries, blocks, sms = launch.shape.queries, math.prod(launch.grid), e.gpu["sms"]
    count = -(-MAIN.seq_q // queries)
    return numbers(tiles=count, queries=queries, cluster=launch.cluster), checks(
        launch.cluster > 1, sms / 2 < blocks <= sms, count < MAIN.seq_q
    )


@finding(
    "v8-cuts",
    """On an H200, with all products and rotations removed, {copies} of the time remained. The rotations alone, which
the documents found so expensive, took {rotations}.""",
    card=AUDITED,
)
def cuts(e: Evidence) -> Says:
    searched = steps.shapes(e)
    whole = steps.base(searched, MAIN)
    left = {name: us / whole for name in steps.CUTS if whole and (us := steps.best(searched, MAIN, cut=name))}
    if len(left) < len(steps.CUTS):
        raise NotMeasured("parts of the kernel were left out in a past audit of another card alone")
    copies, unrotated = left.pop("copies_alone"), left.pop("no_embedding")
    return numbers(copies=number(100 * copies, "%", 0), rotations=number(100 - 100 * unrotated, "%", 0)), checks(
        0.5 < copies < 1, max(left.values()) < unrotated < 1
    )


@finding(
    "v8-worth",
    """With up to 64 tokens V8 beats separate kernels at every shape timed, and beats the hybrid or is level with it.
From 2,048 tokens on the three are about level.""",
)
def worth(e: Evidence) -> Says:
    few, many = ([p for p in BEYOND if of(p.seq_q)] for of in (lambda n: n <= 64, lambda n: n >= 2048))
    long = [over(e, many, (name,)) for name in (HYBRID, SEPARATE)]
    return numbers(), checks(
        not_slower(over(e, few, (HYBRID,))), faster(over(e, few, (SEPARATE,))),
        *(of_values(every(each > 0.95, each < 1.06)) for each in long),
    )  # fmt: skip
