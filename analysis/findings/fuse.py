"""When to fuse: full fusion beside a hybrid and separate kernels of the same core, and beside PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kernels import Problem

from ..evidence import Estimates, Evidence, NotMeasured
from ..measure.studies import FUSIONS, NAIVE
from ..models import fusion
from ..models.advice import FEW_QUERIES, few_heads, log_load, many_heads, short
from . import Says, checks, faster, finding, not_faster, numbers, of_values
from .common import right
from .v8 import beside_pytorch

FULL, HYBRID, SEPARATE = FUSIONS
DIMS = (128, 512, 2048)
MUCH = 1.06


def everywhere(problem: Problem) -> bool:
    return True


def longer(problem: Problem) -> bool:
    """Whether there are more keys than one tile holds."""
    return not short(problem)


def prefill(problem: Problem) -> bool:
    """Whether it has many heads, and more queries and keys than where full fusion is fastest."""
    return many_heads(problem) and problem.seq_q > 64 and max(problem.seq_q, problem.seq_k) > 256


def many_but_prefill(problem: Problem) -> bool:
    return many_heads(problem) and not prefill(problem)


def problems(e: Evidence, of: Callable[[Problem], bool]) -> list[Problem]:
    """Those of the map. Raises: NotMeasured of none."""
    found = [problem for problem in e.study("map").problems("rope") if of(problem)]
    if not found:
        raise NotMeasured("the map is not measured: `make measure STUDY=map`")
    return found


def gains(e: Evidence, over: str, of: Callable[[Problem], bool], version: str = FULL) -> Estimates:
    """How much faster full fusion, or another version, is than one of its core, where both were timed right."""
    chosen = [problem for problem in problems(e, of) if right(e, "map", problem, over, version)]
    return e.speedup(version, over=over, study="map", problem=chosen).known


def worst(gain: Estimates) -> Estimates:
    """The speedup of the other where this is slowest."""
    return 1 / gain.slowest


class Outcomes(NamedTuple):
    """On how many problems full fusion is fastest, ties with the fastest, and loses, as the map's figure draws it."""

    won: int
    tied: int
    lost: int

    @property
    def problems(self) -> int:
        return sum(self)


def outcomes(e: Evidence, of: Callable[[Problem], bool]) -> Outcomes:
    """How full fusion does against the hybrid and separate kernels of its core. Raises: NotMeasured."""
    winners = [fusion.winners(e, problem) for problem in problems(e, of)]
    found = Counter(fusion.outcome(each) for each in winners if each)
    return Outcomes(found[fusion.ALONE], found[fusion.TIES], found[fusion.LOSES])


def many_rule(e: Evidence) -> Says:
    """What rule 2 rests on."""
    many, rest, at = outcomes(e, many_heads), outcomes(e, prefill), gains(e, HYBRID, prefill)
    others, slower = outcomes(e, many_but_prefill), [gains(e, each, many_heads) for each in (HYBRID, SEPARATE)]
    return numbers(many=many, prefill=rest, at=at, over=slower[0]), checks(
        many.won > many.lost, others.won == others.problems, rest.lost >= rest.won, at < MUCH,
        *(of_values(each > 1 / MUCH) for each in slower),
    )  # fmt: skip


@finding("map-dims", """At the documents' shape, 4 heads of 64 tokens, fusing pays at every head dim timed on an {card}:
full fusion is {small} as fast as the hybrid at head dim 128, {middle} at 512 and {large} at 2048, and {separate} as
fast as separate kernels.""")
def map_dims(e: Evidence) -> Says:
    hybrid, separate = (gains(e, each, lambda p: p.hdim in DIMS and log_load(p)) for each in (HYBRID, SEPARATE))
    small, middle, large = (hybrid.at(*(problem for problem in hybrid if problem.hdim == hdim)) for hdim in DIMS)
    return numbers(small=small, middle=middle, large=large, separate=separate), checks(faster(hybrid), faster(separate))


@finding("map-naive", """How it is fused matters more than whether. The log's last full fusion, V6b, rotates K again for
every query; V8 is {naive} as fast as it on the {count} problems where both are right ({card}).""")
def map_naive(e: Evidence) -> Says:
    naive, *whether = (gains(e, each, everywhere) for each in (NAIVE, HYBRID, SEPARATE))
    return numbers(naive=naive, count=len(naive)), checks(
        faster(naive), *(naive.slowest > each.fastest for each in whether)
    )


@finding("v8-loses", """**When it loses.** With up to 64 keys it is the fastest of the three versions on its core (full
fusion, hybrid, separate kernels) on all {keys.problems} problems of [When to fuse](map.html). With more keys it loses
to one of the others on {more.lost} of {more.problems}, mostly those with fewer than 32 heads of K; at worst the hybrid
is {worst} as fast ({card}).""")
def v8_loses(e: Evidence) -> Says:
    keys, more, few = (outcomes(e, of) for of in (short, longer, few_heads))
    hybrid = worst(gains(e, HYBRID, longer))
    return numbers(keys=keys, more=more, worst=hybrid), checks(
        keys.won == keys.problems, faster(hybrid), 2 * few.lost > more.lost
    )


# ---------------------------------------------------------------- the box of the front page


@finding("fuse-tiles", """> **Should I fuse?** Not with a kernel that rotates K again for every query. With V8's tiles
it depends on the shape: on an {card} V8 was timed against two rivals with the same attention, a hybrid, which rotates K
in an earlier launch, and separate kernels, which rotate Q and K in earlier launches.""")
def fuse_tiles(e: Evidence) -> Says:
    published, found = e.speedup(NAIVE, over="rope_separate"), outcomes(e, everywhere)
    return numbers(), checks(not_faster(published), faster(gains(e, NAIVE, everywhere)), found.won > 0, found.lost > 0)


@finding("fuse-short", "> - **Up to 64 keys: fuse.** Full fusion is fastest on all {keys.problems} shapes timed.")
def fuse_short(e: Evidence) -> Says:
    found = outcomes(e, short)
    return numbers(keys=found), checks(found.won == found.problems)


@finding("fuse-many", """> - **More keys, 32 or more heads of K in all (heads of K × batch): fuse, but for prefill.** Of
{many.problems} shapes it is fastest on {many.won}, ties on {many.tied}, and is slower on {many.lost}, by at most 6 %.
It wins with at most 64 queries, or with at most 256 queries and 256 keys; in the {prefill.problems} shapes with more,
it is {at} as fast as the hybrid.""")
def fuse_many(e: Evidence) -> Says:
    return many_rule(e)


@finding("fuse-few", """> - **More keys, fewer heads: rotate K before,** with PyTorch, and call `attention`; the package
has no call for both. The hybrid that does so in one call was timed: of {few.problems} shapes full fusion is fastest on
{few.won}, ties on {few.tied}, and is slower on {few.lost}.""")
def fuse_few(e: Evidence) -> Says:
    found = outcomes(e, few_heads)
    return numbers(few=found), checks(found.lost > found.won)


@finding("fuse-pytorch", """> - **Exception: with more than 64 keys and at most {most:,} queries in all (queries per
head × heads × batch), time PyTorch first,** compiled as one graph. In other studies than that of the rules above, it
beats V8 on {starved.lost} of {starved.problems} such shapes, and with one query per head on {single.lost} of
{single.problems}.""")
def fuse_pytorch(e: Evidence) -> Says:
    found = beside_pytorch(e)
    return numbers(most=FEW_QUERIES, starved=found.starved, single=found.one_query), found.split
