"""Should I fuse? Full fusion beside a hybrid and separate kernels of the same core, by dtype and shape."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from kernels import Problem

from ..evidence import Estimate, Estimates, Evidence, NotMeasured
from ..evidence.interval import TIE
from ..measure.studies import FUSIONS, HALF_PEERS, NAIVE
from ..models import fusion
from ..models.advice import many_heads, short
from ..record.text import number
from . import Says, checks, faster, finding, numbers, of_values
from .common import right, times

FULL, HYBRID, SEPARATE = FUSIONS
COLD = "device_cold"  # decode: the other layers of a model have passed through L2 between two steps
DECODE, UNROTATED = "rope_decode", "attention_decode"
PYTORCH = ("torch_rope_half_cudnn", "torch_rope_half_flash")  # RoPE as one compiled kernel before each
LLAMA = Problem("rope", 1, 32, 8, 2048, 2048, 128, 128, dtype="bfloat16", causal=True)


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


def gains(e: Evidence, over: str) -> Estimates:
    """How much faster full fusion is than another version on the map, where both were timed right."""
    chosen = problems(e, lambda problem: right(e, "map", problem, over, FULL))
    return e.speedup(FULL, over=over, study="map", problem=chosen).known


class Outcomes(NamedTuple):
    """On how many problems fusing is fastest, ties with the fastest, and loses; 3 % are a tie."""

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


def beside(gain: Estimates | Iterable[Estimate]) -> Outcomes:
    """Of speedups over one rival, by their values."""
    values = [each.value for each in (gain.values() if isinstance(gain, Estimates) else gain) if each]
    won, lost = (sum(map(beyond, values)) for beyond in (lambda x: x > TIE, lambda x: x < 1 / TIE))
    return Outcomes(won, len(values) - won - lost, lost)


def unrotated(problem: Problem) -> Problem:
    """The step without RoPE, from keys that are rotated already."""
    return replace(problem, family="attention", rotary_dim=0, q_offset=0)


def rotating_costs(e: Evidence, half: bool) -> Estimates:
    """How many times as fast as without RoPE the decode kernel is, from keys that are rotated already: 1 is free."""
    found: dict[Problem, Estimate] = {}
    for step in e.study("split_keys").problems("rope"):
        if step.cache == "none" and (step.dtype != "float32") == half:
            with_rope = e.time(DECODE, "split_keys", COLD, problem=step)[step]
            without = e.time(UNROTATED, "split_keys", COLD, problem=unrotated(step))[unrotated(step)]
            if with_rope and without:
                found[step] = without / with_rope
    if not found:
        raise NotMeasured("decoding was not measured: `make measure STUDY=split_keys`")
    return Estimates(found, "×")


def half_prompts(e: Evidence, rivals: tuple[str, ...] = PYTORCH, family: str = "rope") -> Estimates:
    """How many times as fast as the fastest of the rivals that take them prompts in half precision are."""
    ours = f"{family}_prompt"
    found: dict[Problem, Estimate] = {}
    for problem in e.study("half_prompts").problems(family):
        over = (e.speedup(ours, over=rival, study="half_prompts", problem=problem)[problem] for rival in rivals)
        if known := [each for each in over if each]:
            found[problem] = min(known, key=lambda each: each.value)
    if not found:
        raise NotMeasured("prompts in half precision were not measured: `make measure STUDY=half_prompts`")
    return Estimates(found, "×")


@finding(
    "fuse-short",
    """With up to 64 keys full fusion is fastest on all {keys} shapes that we timed. Each tile rotates the keys
again, but all tiles do so at the same time, and launches are saved.""",
)
def fuse_short(e: Evidence) -> Says:
    found = outcomes(e, short)
    return numbers(keys=found.problems), checks(found.won == found.problems)


@finding(
    "fuse-how",
    """How a kernel is written matters more than whether it is fused. V8 is at least {naive:.1} as fast as the
authors' last full fusion, which rotates K again for every query.""",
)
def fuse_how(e: Evidence) -> Says:
    naive, *whether = (gains(e, each) for each in (NAIVE, HYBRID, SEPARATE))
    return numbers(naive=times(naive.slowest)), checks(
        faster(naive), *(naive.slowest > each.fastest for each in whether)
    )


@finding(
    "fuse-llama",
    """For this layer of LLaMA, with a causal prompt, our call takes {ours}. RoPE and the faster of cuDNN and
FlashAttention take {theirs}.""",
)
def fuse_llama(e: Evidence) -> Says:
    (gain,) = (one for problem, one in half_prompts(e).items() if problem == LLAMA)
    ours = e.time("rope_prompt", "half_prompts", problem=LLAMA)[LLAMA]
    taken = {name: number(us.value, "µs", 0) for name, us in (("ours", ours), ("theirs", ours * gain))}
    return numbers(**taken), checks(faster(Estimates({LLAMA: gain}, "×")))


@finding(
    "fuse-half",
    """Of the prompts in half precision cuDNN wins {lost} of {plain} if nothing is rotated. With RoPE, which costs it a
pass over Q and K, ours wins all {all}, one in bfloat16 among them. Ours overlaps the launch that rotates K.""",
)
def fuse_half(e: Evidence) -> Says:
    gain, plain = half_prompts(e), beside(half_prompts(e, HALF_PEERS[2:], "attention"))
    return numbers(lost=plain.lost, plain=plain.problems, all=len(gain)), checks(
        gain > 1, of_values(faster(gain)), plain.lost > 0
    )
