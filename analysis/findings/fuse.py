"""Should I fuse? Three calls, and full fusion beside a hybrid and separate kernels of the same core, by shape."""

from collections.abc import Callable
from typing import NamedTuple

from kernels import Problem
from kernels.flash.decode.plan import MOST_QUERIES

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..models.rivals import (
    FULL,
    HYBRID,
    PROMPT,
    SEPARATE,
    STAYING,
    Rival,
    beside_op,
    right,
    rivals,
    served,
    standing,
    winners,
)  # fmt: skip
from ..studies import FLASHINFER, HALF_PEERS, MAIN, NAIVE, ONE_GRAPH, unrotated
from . import Says, checks, exact, faster, finding, not_slower, numbers, of_values, slower, times
from .decode import COLD, MANY, RAW, STUDY, UNROTATED, rival, step

WARM, HALF, LONG = "device_warm", ("float16", "bfloat16"), 1000  # tokens of a long prompt
MAPPED = ("map", "heldout")  # studies of full fusion, the hybrid and separate kernels of one core
FEW_QUERIES = 128  # of a head: few tiles of them rotate the same keys
FUSED = {FULL, RAW, "rope_chunk", "rope_wide_decode"}  # kernels of the op that rotate Q and K themselves
FLOAT_DECODE, HALF_DECODE = (step(dtype, MANY) for dtype in ("float32", "float16"))
LAYER = Problem("rope", 1, 32, 8, 2048, 2048, 128, 128, dtype="bfloat16", causal=True)  # of the same layer


class Outcomes(NamedTuple):
    """On how many problems something is fastest, ties with the fastest, and loses."""

    won: int
    tied: int
    lost: int


def compared(e: Evidence, of: Callable[[Problem], bool]) -> list[tuple[Problem, set[str]]]:
    """Problems on which full fusion, the hybrid and separate kernels of one core were timed, with the fastest."""
    asked = [(study, problem) for study in MAPPED for problem in e.study(study).problems("rope")]
    found = ((problem, winners(e, problem, study)) for study, problem in asked if of(problem))
    return [(problem, fastest) for problem, fastest in found if fastest]


def outcomes(e: Evidence, of: Callable[[Problem], bool]) -> Outcomes:
    """How full fusion does against the hybrid and separate kernels of its core."""
    found = [fastest for _, fastest in compared(e, of)]
    if not found:
        raise NotMeasured("the map is not measured: `make measure STUDY=map`")
    alone, among = found.count({FULL}), sum(FULL in fastest for fastest in found)
    return Outcomes(alone, among - alone, len(found) - among)


def few_queries(problem: Problem) -> bool:
    return MOST_QUERIES < problem.seq_q <= FEW_QUERIES


def many_queries(problem: Problem) -> bool:
    return problem.seq_q > FEW_QUERIES


def decodes(problem: Problem) -> bool:
    return problem.seq_q <= MOST_QUERIES


def beside(gains: Estimates) -> Outcomes:
    """Of speedups over a rival."""
    sides = [each.side for each in gains.values() if each]
    return Outcomes(*map(sides.count, (1, 0, -1)))


def over_others(e: Evidence, study: str, version: str, timer: str, *dtypes: str, kernel: str = "") -> Estimates:
    """Where the op runs a version ("": any), how many times as fast as the fastest peer it, or `kernel`, is."""
    found: dict[Problem, Estimate] = {}
    for problem in e.study(study).problems("rope"):
        ours = kernel or standing(e, problem, study)
        if problem.dtype in dtypes and version in ("", ours) and (peers := rivals(e, problem, ours, (study,), timer)):
            found[problem] = peers[0].over
    if not found:
        raise NotMeasured(f"calls of rope_attention were not timed beside others: `make measure STUDY={study}`")
    return Estimates(found, "×")


def float32_over_others(e: Evidence, of: Callable[[Problem], bool] = bool) -> Estimates:
    """Of every float32 call timed beside a peer: how many times as fast as the fastest it is."""
    found = {problem: rival.over for problem, rival in beside_op(e).items() if of(problem)}
    if not found:
        raise NotMeasured("nothing was timed beside the op's kernels: `make measure STUDY=peers`")
    return Estimates(found, "×")


def fastest_other(
    e: Evidence, problem: Problem, study: str, timer: str = WARM, ours: str = ""
) -> tuple[Rival, Estimates]:
    """The fastest peer, and how many times as long as `ours`, or the op's kernel, it takes."""
    if not (found := rivals(e, problem, ours or served(e, problem), (study,), timer)):
        raise NotMeasured(f"nothing was timed beside this call: `make measure STUDY={study}`")
    return found[0], times(Estimates({problem: found[0].over}, "×"))


@finding("fuse-rule", """Yes, where a head has few queries: when you decode from a cache of raw (unrotated) keys, and in
float32 with up to {few} queries a head. We timed {all} float32 shapes with {least} to {few} queries a head, and fusing
lost at {lost}. With more than {few} queries fusing mostly gains nothing.""")
def rule(e: Evidence) -> Says:
    few, many = outcomes(e, few_queries), outcomes(e, many_queries)
    read = (e.study(name).source("timings") for name in MAPPED)
    return numbers(few=FEW_QUERIES, least=MOST_QUERIES + 1, **exact(*read, lost=few.lost, all=sum(few))), checks(
        20 * few.lost < sum(few), 3 * few.won > 2 * sum(few), 2 * many.won < sum(many),
        over_others(e, STUDY, RAW, COLD, "float32", *HALF) > 1,
    )  # fmt: skip


@finding("fuse-choice", """`rope_attention`, *the op*, chooses for you. In float32 it fused up to {few} queries at every
shape that we timed, and beyond that mostly not. At the few longer shapes where it fused, rotating first with the same
attention was not faster.""")
def choice(e: Evidence) -> Says:
    alike = dict(compared(e, bool))
    few, many = ([problem for problem in {**alike, **beside_op(e)} if (problem.seq_q > FEW_QUERIES) is long]
                 for long in (False, True))  # fmt: skip
    kept = [problem for problem in many if served(e, problem) in FUSED]
    return numbers(few=FEW_QUERIES), checks(
        {served(e, problem) for problem in few} <= FUSED, 2 * len(kept) < len(many),
        all(FULL in alike[problem] for problem in kept),
    )  # fmt: skip


@finding("fuse-marks", """In the shaded cells the marks are of V8, but a call with up to {most} queries runs
`rope_decode` or `rope_wide_decode`. At {lost} of those shapes, all with one query, V8 is
slower than rotating first. The op does not run it there.""")
def marks(e: Evidence) -> Says:
    alike = compared(e, decodes)
    lost = [problem for problem, fastest in alike if FULL not in fastest]
    return numbers(most=MOST_QUERIES, lost=len(lost)), checks(
        {served(e, problem) for problem, _ in alike} <= {RAW, "rope_wide_decode"},
        all(problem.seq_q == 1 for problem in lost),
    )


@finding("fuse-raw", """Must your cache hold raw keys? If it can hold rotated ones, our kernel without RoPE is up to
{most:faster} faster in float16, and level in float32 on many keys. [Raw keys](decode.html) pay where a cache is cut,
moved, reused at other positions or stretched.""")
def raw(e: Evidence) -> Says:
    half, single = (rival(e, dtype, UNROTATED, False) for dtype in ("float16", "float32"))
    return numbers(most=1 / half.slowest), checks(slower(half.slowest), not_slower(single.at(MANY)))


@finding("fuse-decode", """**You generate a token**, and the cache holds {keys:,} raw keys in float16. *Fuse.* The call
takes {us:.0}. [FlashInfer](decode.html), the fastest other that takes raw keys, needs {other:.1} as long.""")
def decode(e: Evidence) -> Says:
    rival, over = fastest_other(e, HALF_DECODE, STUDY, COLD)
    us = e.time(RAW, STUDY, COLD, problem=HALF_DECODE)
    return numbers(keys=MANY, us=us, other=over), checks(
        served(e, HALF_DECODE) == RAW, rival.version == FLASHINFER[0], faster(over)
    )


@finding("fuse-prompt", """**You read a prompt** of {tokens:,} tokens in bfloat16. *Rotate K first.* `rope_prompt` takes
{us:.0}. Of the others timed on this card, RoPE compiled by PyTorch in front of cuDNN is the fastest, and needs
{other:.1} as long. [FlashAttention 3](#beside-flash3), timed on an H200 only, is
faster than cuDNN.""")
def prompt(e: Evidence) -> Says:
    rival, over = fastest_other(e, LAYER, "half_prompts", ours=PROMPT)
    us = e.time(PROMPT, "half_prompts", problem=LAYER)
    return numbers(tokens=LAYER.seq_q, us=us, other=over), checks(
        served(e, LAYER) in (PROMPT, STAYING), rival.version == "torch_rope_half_cudnn", faster(over)
    )


@finding("fuse-short", """**You have few tokens and huge heads** in float32, as the authors do. *Fuse.* The call takes
{us:.0}. PyTorch's fastest way, one compiled graph, needs {other:.1} as long. Without fusing, the same attention and its
rotation take {apart:.1} as long.""")
def short(e: Evidence) -> Says:
    rival, over = fastest_other(e, MAIN, "peers")
    us, apart = e.time(FULL, "peers", problem=MAIN), times(e.speedup(FULL, SEPARATE, "beyond", problem=MAIN))
    return numbers(us=us, other=over, apart=apart), checks(
        served(e, MAIN) == FULL, rival.version in ONE_GRAPH, faster(over), faster(apart), over > apart
    )


@finding("fuse-untimed", """We timed no fully fused kernel for prompts in half precision on an {card}. There RoPE adds
up to {short:slower} to the time of a short prompt. From {tokens:,} tokens on it adds up to {long:slower}. Fusing could
save no more.""")
def untimed(e: Evidence) -> Says:
    prompts = {problem: unrotated(problem) for problem in e.study("half_prompts").problems("rope")}
    cost = Estimates({
        problem: plain / rotated for problem, bare in prompts.items()
        if (plain := e.time("attention_prompt", "half_prompts", problem=bare)[bare])
        and (rotated := e.time("rope_prompt", "half_prompts", problem=problem)[problem])
    }, "×")  # fmt: skip
    short, long = (cost.at(*(p for p in cost if (p.seq_q >= LONG) is so)) for so in (False, True))
    return numbers(tokens=LONG, long=long.slowest, short=short.slowest), checks(short.slowest < long.slowest)


@finding("fuse-half", """Without RoPE, cuDNN is faster than our `attention_prompt` at {lost} of {all} prompts in half
precision. FlashInfer is faster at {other}. With RoPE, cuDNN needs another pass over Q and K, and neither is faster at
any.""")
def half(e: Evidence) -> Says:
    gain = over_others(e, "half_prompts", "", WARM, *HALF, kernel=PROMPT)
    prompts = e.study("half_prompts").problems("attention")
    plain, other = (
        e.speedup("attention_prompt", over=peer, study="half_prompts", problem=prompts).known
        for peer in (HALF_PEERS[3], FLASHINFER[1])
    )
    counted = {"lost": beside(plain).lost, "all": len(plain), "other": beside(other).lost}
    return numbers(**{name: Estimate.count(n, plain.values()) for name, n in counted.items()}), checks(
        gain > 1, of_values(faster(gain)), counted["lost"] > counted["other"] > 0
    )


@finding("fuse-how", """Writing the kernel better gains more than choosing what to fuse. V6b, the authors' last fully
fused kernel, rotates K again for every query. At each of the {shapes} shapes where both were timed, V8 is at least
{naive:.2} as fast.""")
def how(e: Evidence) -> Says:
    naive, *whether = (
        e.speedup(FULL, over=over, study="map", problem=[
            problem for problem in e.study("map").problems("rope") if right(e, "map", problem, over, FULL)
        ]).known
        for over in (NAIVE, HYBRID, SEPARATE)
    )  # fmt: skip
    return numbers(naive=times(naive.slowest), shapes=Estimate.count(len(naive), naive.values())), checks(
        faster(naive), *(naive.slowest > each.fastest for each in whether)
    )
