"""Should I fuse? Three calls, and full fusion beside a hybrid and separate kernels of the same core, by shape."""

from collections.abc import Callable, Iterable

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
    winners,
)  # fmt: skip
from ..studies import FLASH3, FLASHINFER, HALF_PEERS, MAIN, NAIVE, ONE_GRAPH, unrotated
from . import Outcomes, Says, beside, checks, committed, exact, faster, finding, numbers, of_values, slower, ties, times
from .decode import COLD, MANY, RAW, STUDY, UNROTATED, rival, step

WARM, HALF, LONG = "device_warm", ("float16", "bfloat16"), 1000  # tokens of a long prompt
MAPPED = ("map", "heldout")  # studies of full fusion, the hybrid and separate kernels of one core
FEW_QUERIES = 128  # of a head: few tiles of them rotate the same keys
FUSED = {FULL, RAW, "rope_chunk", "rope_wide_decode"}  # kernels of the op that rotate Q and K themselves
SERVED = {  # in words, calls of a server: a study beside FlashAttention 3, and which of its problems
    "decode, up to 8 queries": ("few", lambda problem: decodes(problem)),
    "a chunk: 9 queries or more, on more keys": ("few", lambda problem: not decodes(problem)),
    "a prompt of 1,024 tokens and more": ("long", lambda problem: True),
}
DECODE, CHUNK, PROMPTS = SERVED
WITHOUT_FLASHINFER = "FlashInfer was not timed: set the folder of its headers in FLASHINFER"
FLASH3_CARD = "nvidia-h200"  # was timed beside FlashAttention 3
FLOAT_DECODE, HALF_DECODE = (step(dtype, MANY) for dtype in ("float32", "float16"))
LAYER = Problem("rope", 1, 32, 8, 2048, 2048, 128, 128, dtype="bfloat16", causal=True)  # of the same layer


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


def over_others(e: Evidence, study: str, version: str, timer: str, *dtypes: str, kernel: str = "") -> Estimates:
    """Where the op runs a version ("": any), how many times as fast as the fastest peer it, or `kernel`, is."""
    found: dict[Problem, Estimate] = {}
    for problem in e.study(study).problems("rope"):
        ours = kernel or served(e, problem)
        if problem.dtype in dtypes and version in ("", ours) and (peers := rivals(e, problem, ours, (study,), timer)):
            found[problem] = peers[0].over
    if not found:
        raise NotMeasured(f"calls of rope_attention were not timed beside others: `make measure STUDY={study}`")
    return Estimates(found, "×")


def float32_over_others(e: Evidence, of: Callable[[Problem], bool] = bool) -> Estimates:
    """Of every float32 call whose kernel, as it is today, was timed beside a peer: how many times as fast it is."""
    every = ((problem, rival.over) for problem, rival in beside_op(e).items() if of(problem))
    found = {problem: over for problem, over in every if not over.about.stale}
    if not found:
        raise NotMeasured("nothing was timed beside the op's kernels: `make measure STUDY=peers`")
    return Estimates(found, "×")


def untimed_among(gains: Estimates, problems: Iterable[Problem]) -> int:
    """The number of problems where the kernel that the op runs today has no time beside a peer."""
    return len({*problems} - {*gains.known})


def with_flash3(e: Evidence) -> Evidence:
    """The card if it was timed beside FlashAttention 3, else the recorded one that was."""
    return e if e.study("long") else committed(FLASH3_CARD)


def named(e: Evidence) -> str:
    return e.card.removeprefix("NVIDIA ")


def over_flash3(e: Evidence, study: str, of: Callable[[Problem], bool] = bool) -> tuple[Estimates, Estimates]:
    """How many times as fast as FlashAttention 3 the op is at the problems of a study: RoPE on both sides, on neither.
    """
    rope, alone = {}, {}
    for problem in filter(of, e.study(study).problems("rope")):
        ours, bare = served(e, problem), unrotated(problem)
        rope[problem] = e.speedup(ours, FLASH3[0], study, problem=problem)[problem]
        alone[problem] = e.speedup(ours.replace("rope_", "attention_"), FLASH3[1], study, problem=bare)[bare]
    return Estimates(rope, "×"), Estimates(alone, "×")


def fastest_other(
    e: Evidence, problem: Problem, study: str, timer: str = WARM, ours: str = ""
) -> tuple[Rival, Estimates]:
    """The fastest peer, and how many times as fast as it `ours`, or the op's kernel, is."""
    if not (found := rivals(e, problem, ours or served(e, problem), (study,), timer)):
        raise NotMeasured(f"nothing was timed beside this call: `make measure STUDY={study}`")
    return found[0], times(Estimates({problem: found[0].over}, "×"))


@finding("fuse-server", """**Rotated keys in half precision, the usual cache of a server:** fuse nothing. Only the new
query and key are left to rotate. Call `attention` to decode, and on Hopper cards FlashAttention 3 for long prompts. On
an {where}, in bfloat16 and by the GPU alone, `attention` is {decode:.2} as fast as FlashAttention 3 in decode, shape by
shape. For long prompts it is {long:.2} as fast.""")
def server(e: Evidence) -> Says:
    timed = with_flash3(e)
    decode, long = (over_flash3(timed, *SERVED[call])[1] for call in (DECODE, PROMPTS))
    won, lost = beside(decode), beside(long)
    return numbers(where=named(timed), decode=times(decode), long=times(long)), checks(
        won.won > won.tied + won.lost, lost.lost > lost.won + lost.tied
    )


@finding("fuse-cache", """**Raw keys in half precision:** call `rope_attention`. In decode it fuses. On an {where}, in
bfloat16 and by the GPU alone, it is then {decode:.2} as fast as compiled RoPE in front of FlashAttention 3. For long
prompts it rotates K first, and is {long:.2} as fast.""")
def cache(e: Evidence) -> Says:
    timed = with_flash3(e)
    decode, long = (over_flash3(timed, *SERVED[call])[0] for call in (DECODE, PROMPTS))
    return numbers(where=named(timed), decode=times(decode), long=times(long)), checks(
        faster(decode), of_values(long > 1)
    )


@finding("fuse-rule", """**float32:** fuse with up to {few} queries a head, and to decode from raw keys. On the {card},
by the GPU alone, fusing lost at {lost} of {all} shapes with {least} to {few} queries a head. With more queries it
mostly gains nothing.""")
def rule(e: Evidence) -> Says:
    few, many = outcomes(e, few_queries), outcomes(e, many_queries)
    read = (e.study(name).source("timings") for name in MAPPED)
    return numbers(few=FEW_QUERIES, least=MOST_QUERIES + 1, **exact(*read, lost=few.lost, all=sum(few))), checks(
        20 * few.lost < sum(few), 3 * few.won > 2 * sum(few), 2 * many.won < sum(many),
        over_others(e, STUDY, RAW, COLD, "float32", *HALF) > 1,
    )  # fmt: skip


@finding("fuse-choice", """`rope_attention`, *the op*, chooses for you. In float32 it fused up to {few} queries at every
shape that we timed, and beyond that mostly not. It also fused at {kept} shapes with more queries. At those {kept},
rotating Q or K first was never faster with the same attention.""")
def choice(e: Evidence) -> Says:
    alike = dict(compared(e, bool))
    few, many = ([problem for problem in {**alike, **beside_op(e)} if (problem.seq_q > FEW_QUERIES) is long]
                 for long in (False, True))  # fmt: skip
    kept = [problem for problem in many if served(e, problem) in FUSED]
    return numbers(few=FEW_QUERIES, kept=len(kept)), checks(
        {served(e, problem) for problem in few} <= FUSED, 2 * len(kept) < len(many),
        all(FULL in alike[problem] for problem in kept),
    )  # fmt: skip


@finding("fuse-raw", """Must your cache hold raw keys? On the {card}, with K and V read from DRAM, our decode step on
rotated keys is up to {most:.2} as fast as on raw ones in float16. In float32 the two are level with {many:,} keys. [Raw
keys](decode.html) pay where a cache is cut, moved, reused at other positions or stretched.""")
def raw(e: Evidence) -> Says:
    half, single = (rival(e, dtype, UNROTATED, False) for dtype in ("float16", "float32"))
    return numbers(most=times(1 / half.slowest), many=MANY), checks(
        slower(half.slowest), ties(single.at(MANY))
    )


@finding("fuse-decode", """**You generate a token**, and the cache holds {keys:,} raw keys in float16. *Fuse.* On the
{card}, with K and V read from DRAM, the call takes {us:.0}. It is {other:.1} as fast as [FlashInfer](decode.html), the
fastest other that takes raw keys.""")
def decode(e: Evidence) -> Says:
    if not e.time(FLASHINFER[0], STUDY, COLD, problem=HALF_DECODE):
        raise NotMeasured(WITHOUT_FLASHINFER)
    rival, over = fastest_other(e, HALF_DECODE, STUDY, COLD)
    us = e.time(RAW, STUDY, COLD, problem=HALF_DECODE)
    return numbers(keys=MANY, us=us, other=over), checks(
        served(e, HALF_DECODE) == RAW, rival.version == FLASHINFER[0], faster(over)
    )


@finding("fuse-prompt", """**You read a prompt** of {tokens:,} tokens in bfloat16. *Rotate K first.* On an {where}, by
the GPU alone, `rope_prompt_persistent`, the kernel that runs, takes {us:.0}. It is {other:.2} as fast as compiled RoPE
and [FlashAttention 3](#beside-flash3), the fastest other.""")
def prompt(e: Evidence) -> Says:
    timed = with_flash3(e)
    rival, over = min((fastest_other(timed, LAYER, study) for study in ("long", "half_prompts")), key=_over)
    us = timed.time(STAYING, "long", problem=LAYER)
    return numbers(where=named(timed), tokens=LAYER.seq_q, us=us, other=over), checks(
        served(timed, LAYER) == STAYING, rival.version == FLASH3[0], faster(over)
    )


def _over(found: tuple[Rival, Estimates]) -> float:
    return found[0].over.value


@finding("fuse-short", """**You have few tokens and huge heads** in float32, as the authors do. *Fuse.* On the {card},
by the GPU alone, the call takes {us:.0}. It is {other:.1} as fast as PyTorch's fastest way, one compiled graph. With
the same attention, it is {hybrid:.2} as fast as a hybrid, and {apart:.2} as separate kernels.""")
def short(e: Evidence) -> Says:
    rival, over = fastest_other(e, MAIN, "peers")
    us = e.time(FULL, "peers", problem=MAIN)
    hybrid, apart = (times(e.speedup(FULL, first, "beyond", problem=MAIN)) for first in (HYBRID, SEPARATE))
    return numbers(us=us, other=over, hybrid=hybrid, apart=apart), checks(
        served(e, MAIN) == FULL, rival.version in ONE_GRAPH, faster(over), faster(hybrid), apart > hybrid, over > apart
    )


@finding("fuse-untimed", """We timed no fully fused kernel for prompts in half precision on an {card}. An upper bound
of what it could save: RoPE adds up to {short:slower} to the time of a short prompt, and up to {long:slower} from
{tokens:,} tokens on.""")
def untimed(e: Evidence) -> Says:
    prompts = {problem: unrotated(problem) for problem in e.study("half_prompts").problems("rope")}
    cost = Estimates({
        problem: plain / rotated for problem, bare in prompts.items()
        if (plain := e.time("attention_prompt", "half_prompts", problem=bare)[bare])
        and (rotated := e.time("rope_prompt", "half_prompts", problem=problem)[problem])
    }, "×")  # fmt: skip
    short, long = (cost.at(*(p for p in cost if (p.seq_q >= LONG) is so)) for so in (False, True))
    return numbers(tokens=LONG, long=long.slowest, short=short.slowest), checks(short.slowest < long.slowest)


def prompts_over(e: Evidence, peer: str) -> Estimates:
    """How many times as fast as a peer `attention_prompt` is, at every prompt where both were timed."""
    found = e.speedup("attention_prompt", peer, "half_prompts", problem=e.study("half_prompts").problems("attention"))
    return found.known


@finding("fuse-half", """**Without RoPE**, cuDNN is faster than our `attention_prompt` at {lost} of {all} prompts in
float16. **With RoPE**, a library needs another pass over Q and K. Then `rope_prompt` is at least {least:.2} as fast as
the fastest library, at each of {rotated} prompts.""")
def half(e: Evidence) -> Says:
    gain, plain = over_others(e, "half_prompts", "", WARM, *HALF, kernel=PROMPT), prompts_over(e, HALF_PEERS[3])
    lost = beside(plain).lost
    counted = {name: Estimate.count(n, plain.values()) for name, n in (("lost", lost), ("all", len(plain)))}
    rotated = Estimate.count(len(gain), gain.values())
    return numbers(**counted, rotated=rotated, least=times(gain.slowest)), checks(
        gain > 1, of_values(faster(gain)), lost > 0
    )


@finding("fuse-half-flashinfer", """FlashInfer is faster at {lost} of {all} prompts without RoPE, and at
none of {rotated} with it.""")
def half_flashinfer(e: Evidence) -> Says:
    plain = prompts_over(e, FLASHINFER[1])
    rotated = e.speedup(PROMPT, FLASHINFER[0], "half_prompts", problem=e.study("half_prompts").problems("rope")).known
    if not (plain and rotated):
        raise NotMeasured(WITHOUT_FLASHINFER)
    lost = beside(plain).lost
    counted = {"lost": (lost, plain), "all": (len(plain), plain), "rotated": (len(rotated), rotated)}
    return numbers(**{name: Estimate.count(n, of.values()) for name, (n, of) in counted.items()}), checks(
        0 < lost < beside(prompts_over(e, HALF_PEERS[3])).lost, beside(rotated).lost == 0
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
