"""Should I fuse? Full fusion beside a hybrid and separate kernels of the same core, by dtype and shape."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kernels import Problem

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..evidence.interval import TIE
from ..measure.studies import FUSIONS, HALF_PEERS, NAIVE
from ..models import fusion
from ..models.advice import FEW_QUERIES, few_queries, shares_keys
from . import Says, checks, faster, finding, numbers, of_values
from .common import times
from .decode import COLD, RAW, UNROTATED, unrotated

FULL, HYBRID, SEPARATE = FUSIONS
PYTORCH = ("torch_rope_half_cudnn", "torch_rope_half_flash")  # RoPE as one compiled kernel before each


class Outcomes(NamedTuple):
    """On how many problems fusing is fastest, ties with the fastest, and loses; 3 % are a tie."""

    won: int
    tied: int
    lost: int


def many_queries(problem: Problem) -> bool:
    return not few_queries(problem) and not shares_keys(problem)


def outcomes(e: Evidence, of: Callable[[Problem], bool]) -> Outcomes:
    """How full fusion does against the hybrid and separate kernels of its core. Raises: NotMeasured."""
    found = [fusion.winners(e, problem) for problem in e.study("map").problems("rope") if of(problem)]
    if not any(found):
        raise NotMeasured("the map is not measured: `make measure STUDY=map`")
    alone, among = found.count({FULL}), sum(FULL in fastest for fastest in found)
    return Outcomes(alone, among - alone, sum(map(bool, found)) - among)


def beside(gains: Iterable[Estimate]) -> Outcomes:
    """Of speedups over one rival, by their values."""
    values = [each.value for each in gains if each]
    won, lost = sum(value > TIE for value in values), sum(value < 1 / TIE for value in values)
    return Outcomes(won, len(values) - won - lost, lost)


def rotating_costs(e: Evidence, half: bool) -> list[Estimate]:
    """How many times as fast as without RoPE the decode kernel is, from keys that are rotated already: 1 is free."""
    found = []
    for step in e.study("split_keys").problems("rope"):
        if step.cache == "none" and (step.dtype != "float32") == half:
            plain = unrotated(step)
            without, rotating = (
                e.time(name, "split_keys", COLD, problem=problem)[problem]
                for name, problem in ((UNROTATED, plain), (RAW, step))
            )
            found.append(without / rotating)
    if not any(found):
        raise NotMeasured("decoding was not measured: `make measure STUDY=split_keys`")
    return found


def half_prompts(e: Evidence, rivals: tuple[str, ...] = PYTORCH, family: str = "rope") -> Estimates:
    """How many times as fast as the fastest of the rivals that take them prompts in half precision are."""
    found: dict[Problem, Estimate] = {}
    for problem in e.study("half_prompts").problems(family):
        over = (
            e.speedup(f"{family}_prompt", over=rival, study="half_prompts", problem=problem)[problem]
            for rival in rivals
        )
        if known := [each for each in over if each]:
            found[problem] = min(known, key=lambda each: each.value)
    if not found:
        raise NotMeasured("prompts in half precision were not measured: `make measure STUDY=half_prompts`")
    return Estimates(found, "×")


@finding("fuse-rule", """**To keep in mind: fuse if a head has at most {queries} queries, and keys of its own.** We
timed {all} such shapes. Fusing wins on {won} of them, and loses on none.""")
def rule(e: Evidence) -> Says:
    found = outcomes(e, few_queries)
    won = 2 * found.won > sum(found)
    return numbers(queries=FEW_QUERIES, all=sum(found), won=found.won), checks(found.lost == 0, won)


@finding("fuse-half", """We timed {plain} of these prompts without RoPE, too, and there cuDNN wins {lost}. With RoPE
it needs another pass over Q and K, and loses on every prompt.""")
def half(e: Evidence) -> Says:
    gain, plain = half_prompts(e), beside(half_prompts(e, HALF_PEERS[2:], "attention").values())
    return numbers(lost=plain.lost, plain=sum(plain)), checks(gain > 1, of_values(faster(gain)), plain.lost > 0)


@finding("fuse-how", """Writing the kernel better gains more than choosing what to fuse. V8 is at least {naive:.1} as
fast as the authors' last full fusion, which rotates K again for every query.""")
def how(e: Evidence) -> Says:
    naive, *whether = (
        e.speedup(FULL, over=over, study="map", problem=[
            problem for problem in e.study("map").problems("rope") if fusion.right(e, "map", problem, over, FULL)
        ]).known
        for over in (NAIVE, HYBRID, SEPARATE)
    )  # fmt: skip
    return numbers(naive=times(naive.slowest)), checks(
        faster(naive), *(naive.slowest > each.fastest for each in whether)
    )
