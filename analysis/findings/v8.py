"""V8: RoPE fused completely."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pandas as pd

from kernels import VERSIONS, Problem

from ..evidence import Comparison, Estimate, Estimates, Evidence, NotMeasured
from ..measure.studies import FUSIONS, MAIN
from ..models import profiles, steps, targets
from ..models.advice import decoding, starved
from ..models.targets import BEYOND, PORTABLE, V7, V8, beside_one_graph, rivals
from . import Says, checks, faster, finding, not_faster, not_slower, numbers, slower

FULL, HYBRID, SEPARATE = FUSIONS


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


@finding("v8-main", """There it is {v7} as fast as the log's hybrid, `rope_v7`, and {peer} as fast as the fastest way of
PyTorch or Triton that was timed ({name}). Over a hybrid and separate kernels on the same core, fusing alone gains
{hybrid} and {separate}.""")
def main(e: Evidence) -> Says:
    v7, hybrid, separate = (over(e, (MAIN,), (name,)) for name in (V7, HYBRID, SEPARATE))
    fastest = next(iter(rivals(e, MAIN)), None)
    if fastest is None:
        raise NotMeasured(f"{V8} was not timed right beside another on {MAIN}")
    peer, name = Estimates({MAIN: fastest.over}, "×"), VERSIONS[fastest.version].title
    return numbers(v7=v7, peer=peer, name=name, hybrid=hybrid, separate=separate), checks(
        *map(faster, (v7, peer, hybrid, separate))
    )


# ---------------------------------------------------------------- how it works


@finding("v8-tiles", """With 4 heads of 64 queries this gives {tiles} tiles of {queries} queries a head. Each is a
cluster of {cluster} blocks with {width} dims: {blocks} blocks for {sms} SMs of an {card}. K is rotated {tiles} times in
all, not 64.""")
def tiles(e: Evidence) -> Says:
    launch = VERSIONS[V8](MAIN, e.target).launches[-1]
    queries, width = launch.shape.queries, launch.shape.width if launch.cluster > 1 else MAIN.hdim
    count, blocks, sms = -(-MAIN.seq_q // queries), math.prod(launch.grid), e.gpu["sms"]
    return numbers(
        tiles=count, queries=queries, cluster=launch.cluster, width=width, blocks=blocks, sms=sms
    ), checks(launch.cluster > 1, sms / 2 < blocks <= sms, count < MAIN.seq_q)


def shapes(e: Evidence) -> pd.DataFrame:
    """The rows of shapes.csv. Raises: NotMeasured of none."""
    found = steps.shapes(e)
    if found.empty:
        raise NotMeasured("the shapes of V8 were not searched: `make tune`")
    return found


@finding("v8-cuts", """Copies and exchanges are most of it at the main shape: without any product or rotation the kernel
still takes {copies} of its time on an {card}. Rotation is the smallest part: without it, {unrotated} of the time is
left.""")
def cuts(e: Evidence) -> Says:
    searched = shapes(e)
    whole = steps.base(searched, MAIN)
    left = {name: us / whole for name in steps.CUTS if whole and (us := steps.best(searched, MAIN, cut=name))}
    if len(left) < len(steps.CUTS):
        raise NotMeasured("parts of the kernel were left out in a past audit of another card alone")
    copies, unrotated = left.pop("copies_alone"), left.pop("no_embedding")
    return numbers(copies=f"{100 * copies:.1f} %", unrotated=f"{100 * unrotated:.1f} %"), checks(
        0.5 < copies < 1, max(left.values()) < unrotated < 1
    )


@finding("v8-steps", """Products by warpgroups (four warps that share one tensor-core instruction) instead of single
warps make it {warpgroups} as fast on an {card}. That four warpgroups per block hide more latency than two was
predicted, and wrong: with four it is {four} as fast.""")
def taken(e: Evidence) -> Says:
    searched = shapes(e)
    warpgroups, four = (
        Estimates({problem: Estimate.exact(gain) for problem, gain in step.compare(searched).items()}, "×")
        for step in (steps.WARPGROUPS, steps.FOUR_WARPGROUPS)
    )
    return numbers(warpgroups=warpgroups, four=four), checks(faster(warpgroups), slower(four))


@finding("v8-counters", """No unit is the limit on an {card}: at the main shape the busiest is used to {busiest:.1f} %
of its peak, and no cause of waiting takes more than {wait:.1f} % of a warp's time. SMs read {read:.1f} times the bytes
of Q, K and V, with what blocks send each other.""")
def counters(e: Evidence) -> Says:
    frame = profiles.attention(profiles.launches(e.record.folder))
    rows = frame[(frame["problem"] == MAIN) & (frame["version"] == V8)].to_dict("records")
    if not rows:
        raise NotMeasured("V8 was not profiled: `make counters`")
    wait = 100 * max(each for cause, each in profiles.waits(rows[-1]).items() if cause != profiles.ISSUES)
    busiest = max(rows[-1][column] for column in profiles.UNITS.values())
    return numbers(busiest=busiest, wait=wait, read=targets.times_read(rows[-1])), checks(
        busiest < profiles.BUSY, wait < 50
    )


@finding("v8-family", """On problems of up to 64 tokens, with head dims up to 16384, full fusion is {hybrid} as fast as
the hybrid and {separate} as fast as separate kernels on an {card}: it saves a launch or two, and moves K less. From
2,048 tokens on it gains nothing over the hybrid: {long}.""")
def family(e: Evidence) -> Says:
    few, many = ([p for p in BEYOND if of(p.seq_q)] for of in (lambda n: n <= 64, lambda n: n >= 2048))
    hybrid, separate, long = over(e, few, (HYBRID,)), over(e, few, (SEPARATE,)), over(e, many, (HYBRID,))
    return numbers(hybrid=hybrid, separate=separate, long=long), checks(
        faster(hybrid), faster(separate), not_faster(long), max(problem.hdim for problem in few) == 16384
    )


@finding("v8-portable", """The portable core, for cards before compute capability 9, has neither clusters nor tensor
cores. V8 is {portable} as fast as it on an {card}.""")
def portable(e: Evidence) -> Says:
    found = over(e, names=(PORTABLE,))
    return numbers(portable=found), checks(faster(found))


@finding("v8-targets", """On an {card} V8 reaches {reached} of its {targets} targets at every problem that they cover.
The others are the first rows of the table. The targets cover {covered} problems, none of them decoding.""")
def reached(e: Evidence) -> Says:
    found = targets.results(e)
    count = sum(all(each.verdict == targets.REACHED for each in own) for own in found.values())
    return numbers(reached=count, targets=len(found), covered=len(BEYOND)), checks(
        2 * count > len(found), not any(map(decoding, BEYOND))
    )
