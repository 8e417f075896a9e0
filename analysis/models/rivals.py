"""Peers timed with the kernels of this project, PyTorch among them, and the floor of any kernel."""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kernels import VERSIONS, Problem, Unsupported
from kernels.limits import Share
from kernels.op.warm import Call

from ..evidence import Estimate, Evidence
from ..studies import FUSIONS, STUDIES

V8 = "rope_v8"
PROMPT, STAYING = "rope_prompt", "rope_prompt_persistent"
FULL, HYBRID, SEPARATE = FUSIONS
WORDS = {FULL: "full fusion", HYBRID: "hybrid", SEPARATE: "separate"}
MEASURED_IN = ("beyond", "peers", "autotuned", "prompts", "split_keys", "heldout")  # have peers of RoPE in float32

BEYOND = STUDIES["beyond"].problems
COMPARED = tuple(dict.fromkeys(p for name in MEASURED_IN for p in STUDIES[name].problems if p.family == "rope"))


def label(problem: Problem) -> str:
    """A problem in words, without its family, and with its KV heads where query heads share them."""
    shared = f" kv_heads {problem.kv_heads}" if problem.kv_heads < problem.heads else ""
    return str(problem).partition(" ")[2] + shared


def bounds(problem: Problem, gpu: Mapping[str, Any], cold: bool = False) -> dict[str, float]:
    """Microseconds that a GPU of gpu.json needs at least, by what: the bytes of a call from L2 or DRAM, its products.

    Bytes are those of Q, K, V and the output, once each, at the rate of L2 where all fit it and it is not cold, of DRAM
    otherwise. Operations are both products at the rate of bfloat16, those of float32 as three of float16; of a mask
    only the pairs that it leaves. NaN where the card's rate is not known.
    """
    size, parts = (4, 3) if problem.dtype == "float32" else (2, 1)
    moved = 2 * size * (math.prod(problem.q_shape) + math.prod(problem.kv_shape))
    at, rate = ("DRAM", "read_gb_s") if cold or moved > gpu["l2_bytes"] else ("L2", "l2_read_gb_s")
    rates = {name: gpu["ceilings"].get(name, math.nan) for name in (rate, "tensor_tflops")}
    products = parts * flops_left(problem) / rates["tensor_tflops"] / 1e6
    return {at: moved / rates[rate] / 1e3, "products": products}


def floor(problem: Problem, gpu: Mapping[str, Any], cold: bool = False) -> float:
    """The least microseconds of a call on a GPU of gpu.json: an empty launch, and its bytes or its operations."""
    return gpu["ceilings"].get("empty_kernel_us", math.nan) + max(bounds(problem, gpu, cold).values())


def flops_left(problem: Problem) -> float:
    """Multiply-adds of both products, counted as two, for the pairs of query and key that a mask leaves."""
    if not problem.causal:
        return problem.flops
    seen = sum(min(max(problem.q_offset + i + 1, 0), problem.seq_k) for i in range(problem.seq_q))
    return problem.flops * seen / (problem.seq_q * problem.seq_k)


def served(e: Evidence, problem: Problem) -> str:
    """Whose kernels the op runs for a call of this shape on the card; V8 where it leaves it to PyTorch."""
    try:
        return Call(problem).served(e.target, Share(e.gpu["sms"]))[0]
    except Unsupported:
        return V8


class Rival(NamedTuple):
    """Another version or peer, our time and its own, of the processes that took both, and how many times ours it is."""

    version: str
    ours: Estimate
    us: Estimate
    over: Estimate


def alike(problem: Problem) -> list[Problem]:
    """A problem, and of the report's the same as one of attention, by which other studies' libraries call it."""
    return [problem, *([replace(problem, family="attention")] if problem.family == "fp16" else [])]


def rivals(
    e: Evidence, problem: Problem, ours: str = V8, studies: Iterable[str] = MEASURED_IN, timer: str = "device_warm"
) -> list[Rival]:
    """The peers that are right and were timed beside a right version of ours in these studies, the fastest first."""
    found = []
    for study in studies:
        if not right(e, study, problem, ours):
            continue
        mine = e.time(ours, study, timer, problem=problem)[problem]
        for same in alike(problem):
            for name in e.study(study).versions(same.family, peers=True):
                theirs = e.time(name, study, timer, problem=same)[same]
                if right(e, study, same, name) and (over := theirs / mine):
                    found.append(Rival(name, theirs / over, mine * over, over))
    return sorted(found, key=lambda rival: rival.over.value)


WORDS_OF = {  # parts of the titles of peers, and how a page calls them
    "(, autotuned)?, half precision": r"\1", " in float32": "", "PyTorch SDPA, flash": "PyTorch's FlashAttention",
    "PyTorch SDPA, cudnn": "cuDNN", "PyTorch matmul.*": "PyTorch, written out", ", compiled as one": ", one",
    "RoPE and attention written": "Written", "RoPE and PyTorch": "PyTorch",
    "Triton fused.*": "Triton (our kernel), RoPE inside", "FlashInfer, RoPE.*": "FlashInfer, RoPE inside",
}  # fmt: skip


def library(peer: str) -> str:
    """The name of a peer in words: one name for all that call the same library in the same way."""
    title = VERSIONS[peer].title
    for part, words in WORDS_OF.items():
        title = re.sub(part, words, title, flags=re.IGNORECASE)
    return title


@functools.lru_cache(maxsize=4)
def beside_op(e: Evidence) -> dict[Problem, Rival]:
    """The fastest right peer beside the kernels that the op runs, wherever both were timed in float32."""
    single = [problem for problem in COMPARED if problem.dtype == "float32"]
    found = {problem: rivals(e, problem, ours=served(e, problem)) for problem in single}
    return {problem: peers[0] for problem, peers in found.items() if peers}


def right(e: Evidence, study: str, problem: Problem, *versions: str) -> bool:
    """Whether the results of all these versions are right on a problem of a study."""
    checks = (e.study(study).check(version, problem) for version in versions)
    return all(check and check.status == "ok" for check in checks)


def winners(e: Evidence, problem: Problem, study: str = "map") -> set[str]:
    """Of the family the fastest, and what ties with it; nothing where not all of it was timed, or is right."""
    taken = {version: e.time(version, study=study, problem=problem)[problem] for version in FUSIONS}
    if not (all(taken.values()) and right(e, study, problem, *FUSIONS)):
        return set()
    least = min(taken, key=lambda version: taken[version].value)
    over = {version: us / taken[least] for version, us in taken.items() if version != least}
    return {least, *(version for version, ratio in over.items() if not ratio.side)}
