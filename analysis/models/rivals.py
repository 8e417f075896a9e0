"""What was timed beside V8, PyTorch among it, and the floor of any kernel."""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kernels import Problem
from kernels.checking.reference import ERROR_FACTOR

from ..evidence import Estimate, Evidence
from ..evidence.known import NOT_MEASURED, WORDS, Known
from ..measure.studies import AUTOTUNED, MAIN, ONE_GRAPH, STUDIES
from .fusion import right

V8 = "rope_v8"
MEASURED_IN = ("beyond", "peers", "autotuned")  # studies with peers of RoPE

BEYOND = STUDIES["beyond"].problems
COMPARED = tuple(dict.fromkeys((*BEYOND, *STUDIES["peers"].problems)))


def label(problem: Problem) -> str:
    """A problem of RoPE in words, without its family."""
    shared = f" kv_heads {problem.kv_heads}" if problem.kv_heads < problem.heads else ""
    return str(problem).removeprefix("rope ") + shared


def floor(problem: Problem, gpu: Mapping[str, Any]) -> float:
    """The least microseconds of a call on a GPU of gpu.json: an empty launch, and its bytes or its operations.

    Bytes are those of Q, K, V and the output, once each, at the rate of L2 where all fit it, of DRAM otherwise.
    Operations are both products as three float16 products each, at the rate of bfloat16; of a mask only the pairs that
    it leaves.
    """
    ceilings = gpu["ceilings"]
    moved = 8 * (math.prod(problem.q_shape) + math.prod(problem.kv_shape))
    rate = ceilings["l2_read_gb_s" if moved <= gpu["l2_bytes"] else "read_gb_s"]
    seen = problem.seq_q * problem.seq_k
    if problem.causal:
        seen = sum(min(max(problem.q_offset + i + 1, 0), problem.seq_k) for i in range(problem.seq_q))
    flops = problem.flops * seen / (problem.seq_q * problem.seq_k)
    products = 3 * flops / ceilings["tensor_tflops"] / 1e6
    return ceilings["empty_kernel_us"] + max(moved / rate / 1e3, products)


class Rival(NamedTuple):
    """Another version or peer, what it takes, and how many times as long that is as V8 takes in the same study."""

    version: str
    study: str
    us: Estimate
    over: Estimate


def home(e: Evidence, problem: Problem) -> str:
    """The first study in which a right V8 was timed on a problem; empty where none was."""
    timed = (name for name in MEASURED_IN if right(e, name, problem, V8) and _us(e, V8, name, problem))
    return next(timed, "")


def _us(e: Evidence, version: str, study: str, problem: Problem) -> Estimate:
    return e.time(version, study=study, problem=problem)[problem]


def v8_time(e: Evidence, problem: Problem = MAIN, study: str = "") -> Estimate:
    """Microseconds of a right V8 in a study, by default the first that has it, or why there are none."""
    study = study or home(e, problem)
    return _us(e, V8, study, problem) if study else Estimate.none(known(e, problem))


def known(e: Evidence, problem: Problem) -> Known:
    """The most that is known of V8 on a problem in any of the studies."""
    found = [study.known(V8, problem) for study in map(e.study, MEASURED_IN) if study]
    return min(found, key=lambda each: WORDS.index(each.word), default=Known(NOT_MEASURED))


def beside(e: Evidence, study: str, problem: Problem, versions: Iterable[str]) -> list[Rival]:
    """Which of some versions are right and were timed beside a right V8 in one study."""
    found = []
    for name in versions:
        if name != V8 and right(e, study, problem, V8, name):
            us = _us(e, name, study, problem)
            if over := us / _us(e, V8, study, problem):
                found.append(Rival(name, study, us, over))
    return found


def rivals(e: Evidence, problem: Problem, versions: Iterable[str] = ()) -> list[Rival]:
    """What is right and was timed beside a right V8 in any of the studies, the fastest first: peers, or `versions`."""
    found = []
    for study in MEASURED_IN:
        found += beside(e, study, problem, versions or e.study(study).versions("rope", peers=True))
    return sorted(found, key=lambda rival: rival.over.value)


@functools.lru_cache(maxsize=4)
def beside_one_graph(e: Evidence) -> dict[Problem, Rival]:
    """The fastest peer wherever PyTorch, which then is nearly always it, compiled RoPE and attention as one graph."""
    found = {problem: rivals(e, problem) for problem in COMPARED}
    whole = {*ONE_GRAPH, *AUTOTUNED}
    return {problem: peers[0] for problem, peers in found.items() if whole & {each.version for each in peers}}


def relative_error(e: Evidence, problem: Problem, study: str = "") -> float:
    """V8's largest error in units of that of fp32 math SDPA on the same inputs, of which the allowance is four."""
    study = study or home(e, problem)
    check = e.study(study).check(V8, problem) if study else None
    return ERROR_FACTOR * check.excess if check and check.status == "ok" and check.allowed_abs_err > 0 else math.nan
