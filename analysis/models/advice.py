"""Whether to fuse RoPE into attention: the chapter's rules, and the measured shapes that are nearest.

python -m analysis advise --heads 64 --seq-q 64 --seq-k 1024 --hdim 128
"""

import argparse
import math
from collections.abc import Callable, Iterable

from kernels import Problem
from kernels.constants import MUST_BE, require
from kernels.flash.cluster import require_problem
from kernels.flash.cluster.wgmma.shape import KEYS
from kernels.flash.decode.choose import MOST_QUERIES
from kernels.flash.prompts.plan import prompt_plan
from kernels.runtime.classes import Call

from ..evidence import Evidence
from ..record.files import REFERENCE, DataError, known_gpus
from .fusion import FULL, HYBRID, SEPARATE, WORDS, problems, times

MEANS = {
    FULL: "fuse it fully",
    HYBRID: "rotate K in a launch of its own and fuse the rotation of Q",
    SEPARATE: "do not fuse: rotate Q and K in launches of their own",
}
STUDIES = ("map", "beyond")  # those that time the whole family
SHOWN = 3
FAR = 4.0  # a factor in one size, beyond which a measured problem says little

SIZES: dict[str, Callable[[Problem], float]] = {
    "heads of K": lambda p: p.batch * p.kv_heads,
    "heads a head of K": lambda p: p.heads // p.kv_heads,
    "queries": lambda p: p.seq_q,
    "keys": lambda p: p.seq_k,
    "head dim": lambda p: p.hdim,
    "rotated dims": lambda p: p.rotary_dim,
}


CORE_KEYS = KEYS
MANY_HEADS = 32
FEW_QUERIES = 1024  # over the batch and all heads


def kv_heads(problem: Problem) -> int:
    """Heads of K and V, counted through the batch: each is rotated by blocks of its own."""
    return problem.batch * problem.kv_heads


def short(problem: Problem) -> bool:
    """Whether one tile holds all keys."""
    return problem.seq_k <= CORE_KEYS


def few_heads(problem: Problem) -> bool:
    """Whether many keys meet too few heads of K to fill a card, so that rotating K in a launch before can win."""
    return not short(problem) and kv_heads(problem) < MANY_HEADS


def many_heads(problem: Problem) -> bool:
    """Whether many keys meet enough heads of K to fill a card."""
    return not short(problem) and not few_heads(problem)


def decoding(problem: Problem) -> bool:
    """Whether one query a head meets many keys."""
    return problem.seq_q == 1 and not short(problem)


def starved(problem: Problem) -> bool:
    """Whether many keys meet few queries over all heads, so that few clusters of blocks read all keys."""
    return not short(problem) and problem.batch * problem.heads * problem.seq_q <= FEW_QUERIES


def described(problem: Problem) -> str:
    """A problem as it prints, with its heads of K where they are fewer, and its dtype."""
    shared = f", {problem.kv_heads} heads of K and V" if problem.kv_heads != problem.heads else ""
    return f"{problem}{shared}, {problem.dtype}"


def apart(problem: Problem, other: Problem) -> list[float]:
    """How far two problems are in the logarithm of each size; a mask counts as one doubling."""
    sizes = [abs(math.log2(size(problem) / size(other))) for size in SIZES.values()]
    return [*sizes, float(problem.causal != other.causal)]


def nearest(problem: Problem, others: Iterable[Problem]) -> list[Problem]:
    """Of some problems the nearest, in the logarithms of their sizes."""
    return sorted(others, key=lambda other: (math.hypot(*apart(problem, other)), other))[:SHOWN]


def card_with(study: str, gpu: str | None = None) -> Evidence:
    """The card of a name, by default the reference or the first other, that measured a study. Raises: DataError."""
    slugs = [gpu] if gpu else sorted(known_gpus(), key=lambda slug: slug != REFERENCE)
    found = next((e for e in map(Evidence.load, slugs) if e.study(study)), None)
    if found is None:
        raise DataError(f"the shapes were not timed on {gpu or 'any card'}: `make measure STUDY={study}` does")
    return found


def advise(problem: Problem, gpu: str | None = None) -> str:
    """Whether to fuse RoPE in float32: by the fastest at the nearest shape, and by the rules of the chapter.

    Raises: Unsupported; DataError for an unknown card, or where the three versions were not timed together.
    """
    require_problem(problem, "rope")
    require(problem.rotary_dim > 0, "rotary_dim", problem.rotary_dim, "even and above 0", MUST_BE)
    e = card_with(STUDIES[0], gpu)
    timed = {other: study for study in reversed(STUDIES) for other in problems(e, study)}
    near = {other: times(e, other, timed[other]) for other in nearest(problem, timed)}
    if not near:
        raise DataError(f"the three versions were not timed together on the {e.card}: `make measure STUDY=map` does")
    first = next(iter(near.values()))
    fastest = min(first, key=lambda version: first[version].value)
    rule = "The rules say the same." if fastest == FULL else f"The rules say otherwise: {MEANS[FULL]} ({FULL})."
    if few_heads(problem):
        rule = "With so few heads of K no rule holds: time both."
    line = f"By the nearest measured shape on the {e.card}: {MEANS[fastest]} ({fastest}). {rule}"
    if starved(problem):
        line += " At such shapes PyTorch, compiled as one graph, is often faster than these: time it first."
    factors = {other: 2 ** max(apart(problem, other)[:-1]) for other in near}
    if next(iter(factors.values())) > FAR:
        line += f" Nothing within a factor of {FAR:g} in every size was measured."
    lines = [line, "The nearest measured shapes:"]
    for other, us in near.items():
        over = {WORDS[version]: us[version] / us[FULL] for version in (HYBRID, SEPARATE)}
        others = ", ".join(f"{name} {each.value:.2f} times as long ({each.low:.2f} to {each.high:.2f})"
                           for name, each in over.items())  # fmt: skip
        lines.append(f"  {described(other)}: full fusion takes {us[FULL].value:,.1f} µs, {others}; sizes within "
                     f"{factors[other]:.2g}×")  # fmt: skip
    return "\n".join(lines + by_own_kernels(problem, gpu))


BESIDE = {
    "half_prompts": {
        "torch_rope_half_cudnn": "compiled RoPE and cuDNN",
        "torch_rope_half_flash": "compiled RoPE and flash",
    },
    "prompts": {"rope_v8": "rope_v8", "torch_rope_one_graph": "RoPE and attention as one graph"},
    "split_keys": {"torch_rope_one_graph": "RoPE and attention as one graph"},
}


def timed_beside(e: Evidence, problem: Problem, version: str, study: str) -> list[str]:
    """A line for each of the nearest problems of a study that have a version's time, with its peers there."""
    single = problem.dtype == "float32"
    alike = [other for other in e.study(study).problems("rope") if (other.dtype == "float32") is single]
    us = {other: e.time(version, study=study, problem=other)[other] for other in alike}
    lines = []
    for other in nearest(problem, filter(us.get, us)):
        found = (e.speedup(version, over=peer, study=study, problem=other)[other] for peer in BESIDE[study])
        over = zip(BESIDE[study].values(), found)
        beside = ", ".join(f"{name} {each.value:.2f} times as long" for name, each in over if each)
        lines.append(f"  {described(other)}: {us[other].value:,.1f} µs; {beside}")
    return lines


def by_own_kernels(problem: Problem, gpu: str | None) -> list[str]:
    """What the op runs in float32 where that is not V8, and its times at the nearest shapes."""
    version = Call(problem).served("sm_90")[0]
    if version == FULL:
        return []
    study = "split_keys" if version == "rope_decode" else "prompts"
    says = f"rope_attention runs none of these here but {version}"
    try:
        e = card_with(study, gpu)
    except DataError:
        return [f"{says}, which was not timed on {gpu or 'any card'}."]
    return [f"{says}. The nearest on the {e.card}:", *timed_beside(e, problem, version, study)]


def half_advice(problem: Problem, gpu: str | None = None) -> str:
    """What the op does with a problem in half precision, and how it was measured beside PyTorch at the nearest prompts.

    Raises: Unsupported; DataError where no card has measured prompts.
    """
    if problem.seq_q <= MOST_QUERIES:
        return "Fuse it: rope_attention decodes, and reads and rotates each key once for all heads that share it."
    kernel = prompt_plan(problem, "sm_90").launches[-1].kernel.name.split("_")[1]
    how = {"mma": "mma.sync", "wgmma": "wgmma"}[kernel]
    e = card_with("half_prompts", gpu)
    line = f"Use rope_attention, a hybrid: a launch in front rotates K for {how}. The nearest prompts on the {e.card}:"
    return "\n".join([line, *timed_beside(e, problem, "rope_prompt", "half_prompts")])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis advise", description="Should RoPE be fused here?")
    parser.add_argument("--gpu", help="a folder of data/measured/; by default the reference, else one that timed it")
    for name, usual in (("batch", 1), ("heads", 1), ("seq-q", 64), ("hdim", 128)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"{usual} by default")
    for name, hint in (("kv-heads", "heads"), ("seq-k", "seq-q"), ("rotary-dim", "hdim"), ("q-offset", "the last")):
        parser.add_argument(f"--{name}", type=int, help=f"{hint} by default")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    options = vars(parser.parse_args(arguments))
    gpu = options.pop("gpu")
    if options["rotary_dim"] is None:
        options["rotary_dim"] = options["hdim"]
    try:
        problem = Problem("rope", **options)
        text = (advise if problem.dtype == "float32" else half_advice)(problem, gpu)
    except ValueError as error:  # Unsupported among them
        raise DataError(str(error)) from error
    print(f"{described(problem)}\n{text}")
    return 0
