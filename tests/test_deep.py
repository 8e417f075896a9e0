"""Long sweeps: random shapes, the published shapes, and every barrier taken away in turn."""

from __future__ import annotations

import re
from functools import cache, partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.studies import study
from kernels import Plan, Problem, Version
from kernels.check import OWN, faults, problems, supports
from kernels.fast_math import SUFFIX
from kernels.reference import trial
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import run
from kernels.version import Kernel

pytestmark = pytest.mark.deep

LARGEST = 20_000  # elements of q
SEQS = [*range(1, 71), 128, 130]
HDIMS = range(8, 324, 4)


def variants(chosen: Version, batch: int, heads: int, seq: int, hdim: int) -> list[Problem]:
    """The problems of that shape that `chosen` takes: all dims rotated or half of them, with a mask or without."""
    fields: list[dict] = [{}]
    if chosen.family == "rope":
        fields = [{"rotary_dim": hdim}, {"rotary_dim": max(4, hdim // 8 * 4)}]
    elif chosen.family == "fp16":
        fields = [{"dtype": "float16", "causal": causal} for causal in (False, True)]
    candidates = [Problem(chosen.family, batch, heads, seq_q=seq, hdim=hdim, **more) for more in fields]
    return [problem for problem in candidates if supports(chosen, problem)]


@cache
def accepted(chosen: Version) -> tuple[list[int], list[int]]:
    """The sequence lengths and the head dims of the sweep that `chosen` takes."""
    first = problems(chosen)[0]
    hdims = [hdim for hdim in HDIMS if variants(chosen, 1, 1, first.seq_q, hdim)]
    return [seq for seq in SEQS if variants(chosen, 1, 1, seq, hdims[0])], hdims


@pytest.mark.parametrize("chosen", OWN, ids=lambda v: v.id)
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), batch=st.integers(1, 2), heads=st.integers(1, 3))
def test_random_shapes(chosen: Version, data: st.DataObject, batch: int, heads: int) -> None:
    seqs, hdims = accepted(chosen)
    hdim = data.draw(st.sampled_from(hdims), "hdim")
    small = [seq for seq in seqs if batch * heads * seq * hdim <= LARGEST] or seqs[:1]
    edges = [seq for seq in (32, 63, 64, 65, 128, 130) if seq in small]
    seq = data.draw(st.sampled_from(small) if not edges else st.sampled_from(small) | st.sampled_from(edges), "seq")
    problem = data.draw(st.sampled_from(variants(chosen, batch, heads, seq, hdim)), "problem")
    assert not faults(chosen, problem, "sharp")


MOST_FLOPS = 10e6  # of a published shape that is run here; data/counts.csv comes from the larger ones too
LOG_PAIRS = [
    (chosen, problem)
    for chosen, problem in study("log").pairs()
    if not chosen.is_peer and problem.flops <= MOST_FLOPS and supports(chosen, problem)
]


@pytest.mark.parametrize(("chosen", "problem"), LOG_PAIRS, ids=lambda item: getattr(item, "id", str(item)))
def test_published_shapes(chosen: Version, problem: Problem) -> None:
    assert not faults(chosen, problem, "uniform")


BARRIER = re.compile(r"^\s*bar\.sync\s+0;\s*$", re.MULTILINE)


def without_barrier(kernel: Kernel, target: str = "sm_90", *, name: str, which: int) -> str:
    text = compile_ptx(kernel, target)
    if kernel.name != name:
        return text
    barriers = list(BARRIER.finditer(text))
    return text[: barriers[which].start()] + text[barriers[which].end() :]


# Barriers that order nothing, by version. In all: between writing a tile's scores and taking their maximum, a
# thread reads only what it wrote itself. Reductions that share nothing need no barrier at the end unless another
# one follows at once; V7's threads rotate with the frequencies that they computed themselves.
SCORES, UNSHARED_SUM, FREQUENCIES = 1, 1, 1
IDLE = {
    "attention_baseline": UNSHARED_SUM,
    "attention_online": SCORES + UNSHARED_SUM,
    "rope_v1a": SCORES + UNSHARED_SUM,
    "rope_v7": SCORES + FREQUENCIES,
}


def races(plan: Plan, ptx_of=compile_ptx) -> set[frozenset[str]]:
    """The pairs of instructions that race, over several warp orders: the order decides which of the two comes later."""
    inputs = trial(plan.problem, "sharp").inputs
    reports = [run(plan, inputs, ptx_of, schedule="in step")] + [run(plan, inputs, ptx_of, seed) for seed in range(4)]
    return {frozenset((f.instruction, f.other)) for report in reports for f in report.findings if f.kind == "race"}


# Versions that go over the dims in slices need more than one of them.
SLICED = {"attention_tensor_core_v2": 136, "rope_v6a": 264, "rope_v6b": 264}
# A version with another limit, or built otherwise, has the barriers of the one that it is made of.
BARRIERS = [chosen for chosen in OWN if not chosen.id.endswith(("_227k", SUFFIX))]


def two_tiles(chosen: Version) -> Problem:
    """A problem with a key more than a tile, or two tiles."""
    sizes = [(65, SLICED.get(chosen.id, 64)), (65, 36), (128, 64)]
    return next(problem for seq, hdim in sizes for problem in variants(chosen, 1, 1, seq, hdim)[::-1])


@pytest.mark.parametrize("chosen", BARRIERS, ids=lambda v: v.id)
def test_a_missing_barrier_is_caught(chosen: Version) -> None:
    """Each barrier of the compiled kernels is taken out in turn; two key tiles make them matter."""
    problem = two_tiles(chosen)
    plan = chosen(problem)
    known, idle = races(plan), []
    for kernel in {launch.kernel for launch in plan.launches}:
        for which in range(len(BARRIER.findall(compile_ptx(kernel)))):
            mutant = partial(without_barrier, name=kernel.name, which=which)
            if not faults(chosen, problem, "sharp", mutant) and races(plan, mutant) <= known:
                idle.append(f"{kernel.name}: {which}")
    assert len(idle) == IDLE.get(chosen.id, SCORES), idle
