"""Whether to fuse RoPE into attention: what `rope_attention` runs for a shape, and its times at the nearest measured.

python -m analysis advise --heads 64 --seq-q 64 --seq-k 1024 --hdim 128
"""

import argparse
import math
from collections.abc import Iterable

from kernels import Problem
from kernels.__main__ import add_sizes, problem_of
from kernels.constants import MUST_BE, require
from kernels.op.warm import Call

from ..evidence import Evidence
from ..record.files import REFERENCE, DataError, known_gpus
from ..studies import FLASH3, HALF_PEERS
from .rivals import FULL, HYBRID, SEPARATE, WORDS, label

SHOWN = 3
ONE_GRAPH = {"torch_rope_one_graph": "RoPE and attention as one graph"}
FLASH3_ROPE = {FLASH3[0]: "compiled RoPE and FlashAttention 3"}
PROMPTS, PROMPT_PEERS = ("long", "few", "half_prompts"), {
    "torch_rope_half_cudnn": "compiled RoPE and cuDNN",
    "torch_rope_half_flash": "compiled RoPE and PyTorch's FlashAttention",
    **FLASH3_ROPE,
}  # fmt: skip
BESIDE = {  # of what the op runs: the studies that timed it, what is told beside it, and what it is
    FULL: (("map", "beyond"), {HYBRID: WORDS[HYBRID], SEPARATE: WORDS[SEPARATE]}, "full fusion"),
    HYBRID: (("map", "beyond"), {FULL: WORDS[FULL], SEPARATE: WORDS[SEPARATE]}, "which rotates K in a launch in front"),
    "rope_decode": (
        ("split_keys", "few"),
        {**ONE_GRAPH, HALF_PEERS[0]: "RoPE and attention as one graph", **FLASH3_ROPE},
        "each key is read and rotated once for all heads that share it",
    ),
    "rope_prompt_split": (("few",), FLASH3_ROPE, "which splits the keys, and rotates them once for all rows of a tile"),
    "rope_wide_decode": (("wide_decode",), {FULL: FULL, **ONE_GRAPH}, "which spreads a head dim over warps and blocks"),
    "rope_prompt32": (("prompts",), {FULL: FULL, **ONE_GRAPH}, "not fused: a launch in front rotates Q and K"),
    "rope_chunk": (("prompts",), {FULL: FULL, **ONE_GRAPH}, "which splits the keys of a chunk of a prompt"),
    "rope_prompt_persistent": (PROMPTS, PROMPT_PEERS, "a hybrid: a launch in front rotates K"),
    "rope_prompt": (PROMPTS, PROMPT_PEERS, "a hybrid: a launch in front rotates K"),
}


def sizes(problem: Problem) -> tuple[int, ...]:
    """Heads of K, heads that share one, queries, keys, head dim and rotated dims."""
    return (
        problem.batch * problem.kv_heads, problem.heads // problem.kv_heads, problem.seq_q, problem.seq_k, problem.hdim,
        problem.rotary_dim,
    )  # fmt: skip


def apart(problem: Problem, other: Problem) -> list[float]:
    """The distance of two problems in the logarithm of each size; a mask counts as one doubling."""
    both = zip(sizes(problem), sizes(other))
    return [*(abs(math.log2(one / two)) for one, two in both), float(problem.causal != other.causal)]


def nearest(problem: Problem, others: Iterable[Problem]) -> list[Problem]:
    """The nearest of some problems, in the logarithms of their sizes."""
    return sorted(others, key=lambda other: (math.hypot(*apart(problem, other)), other))[:SHOWN]


def timed(e: Evidence, version: str, single: bool) -> dict[Problem, str]:
    """The problems, with a study of each, on which a version was timed in float32, or in half precision."""
    found: dict[Problem, str] = {}
    for study in reversed(BESIDE[version][0]):
        alike = [other for other in e.study(study).problems("rope") if (other.dtype == "float32") is single]
        found |= {other: study for other in alike if e.time(version, study=study, problem=other)}
    return found


def nearest_times(e: Evidence, problem: Problem, version: str) -> list[str]:
    """A line for each of the nearest problems of a version, with its time, and how much longer others take."""
    known, lines = timed(e, version, problem.dtype == "float32"), []
    for other in nearest(problem, known):
        us = e.time(version, study=known[other], problem=other)[other]
        told = [f"{us.value:,.1f} µs"]
        for rival, name in BESIDE[version][1].items():
            if one := e.speedup(version, over=rival, study=known[other], problem=other)[other]:
                told.append(f"{name} {one.value:.2f} times as long ({one.low:.2f} to {one.high:.2f})")
        within = f"sizes within {2 ** max(apart(problem, other)[:-1]):.2g}×"
        lines.append(f"  {label(other)}, {other.dtype}: {', '.join(told)}; {within}")
    return lines


def advise(problem: Problem, gpu: str = "") -> str:
    """The kernel that the op runs for a problem of RoPE, and the nearest shapes measured on a card: by default the
    reference, or where it has no time of the kernel, the first that has. Raises: Unsupported."""
    require(problem.rotary_dim > 0, "rotary_dim", problem.rotary_dim, "even and above 0", MUST_BE)
    version, where = Call(problem).served("sm_90")[0], []
    for card in [gpu] if gpu else [REFERENCE, *(each for each in known_gpus() if each != REFERENCE)]:
        e = Evidence.load(card)
        if near := nearest_times(e, problem, version):
            where += [f"The nearest on the {e.card}:", *near]
            break
        where.append(f"It was not timed on the {e.card}.")
    return "\n".join([f"rope_attention runs {version} here, {BESIDE[version][2]}.", *where])


def told(arguments: list[str] | None = None) -> str:
    """The output of the command for some arguments."""
    parser = argparse.ArgumentParser(prog="python -m analysis advise", description="Should RoPE be fused here?")
    parser.add_argument("--gpu", default="", help="a folder of data/measured/; by default the reference")
    add_sizes(parser, heads=1, hdim=128)
    options = vars(parser.parse_args(arguments))
    gpu = options.pop("gpu")
    try:
        problem = problem_of("rope", options)
        return f"{label(problem)}, {problem.dtype}\n{advise(problem, gpu)}"
    except ValueError as error:  # Unsupported among them
        raise DataError(str(error)) from error


def main(arguments: list[str] | None = None) -> int:
    print(told(arguments))
    return 0
