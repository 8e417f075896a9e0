"""Long sweeps: random shapes, the published shapes, and every barrier taken away in turn."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_versions import OWN, hazards, problem_for

from analysis.studies import study
from kernels import Plan, Unsupported, Version
from kernels.reference import trial
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import run
from kernels.version import Kernel

pytestmark = pytest.mark.deep


def faults(plan: Plan, kind: str = "sharp", ptx_of=compile_ptx) -> list[str]:
    """What distinguishes `plan` from what it declares."""
    case = trial(plan.problem, kind)
    report = run(plan, case.inputs, ptx_of, schedule="in step")
    verdict = case.judge(torch.from_numpy(report.out))
    lines = [] if verdict.status == plan.expected else [f"{plan.problem}: {verdict}, declared {plan.expected}"]
    found = {(finding.kind, finding.kernel, finding.place): str(finding) for finding in report.findings}
    declared = hazards(plan)
    lines += [text for key, text in found.items() if key not in declared]
    return lines + [f"{plan.problem}: declared and unseen: {key}" for key in declared - set(found)]


@pytest.mark.parametrize("chosen", OWN, ids=lambda v: v.id)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    batch=st.integers(1, 2),
    heads=st.integers(1, 3),
    seq=st.one_of(st.integers(1, 70), st.sampled_from([32, 63, 64, 65, 128, 130])),
    hdim=st.integers(2, 80).map(lambda quads: 4 * quads),
)
def test_random_shapes(chosen: Version, batch: int, heads: int, seq: int, hdim: int) -> None:
    if batch * heads * seq * hdim > 60_000:
        seq = max(1, 60_000 // (batch * heads * hdim))
    assert not faults(chosen(problem_for(chosen, batch, heads, seq, hdim)))


LOG_PAIRS = [(v, problem) for v, problem in study("log").pairs() if not v.is_peer and problem.hdim <= 4096]


@pytest.mark.parametrize(("chosen", "problem"), LOG_PAIRS, ids=lambda item: getattr(item, "id", str(item)))
def test_published_shapes(chosen: Version, problem) -> None:
    try:
        plan = chosen(problem)
    except Unsupported:
        assert chosen.id.startswith("rope_v1") and problem.rotary_dim < problem.hdim
        return
    assert not faults(plan, "uniform")


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


@pytest.mark.parametrize("chosen", OWN, ids=lambda v: v.id)
def test_a_missing_barrier_is_caught(chosen: Version) -> None:
    """Each barrier of the compiled kernels is taken out in turn; two key tiles make them matter."""
    plan = chosen(problem_for(chosen, 1, 1, 65, 128))
    known, idle = races(plan), []
    for kernel in {launch.kernel for launch in plan.launches}:
        for which in range(len(BARRIER.findall(compile_ptx(kernel)))):
            mutant = partial(without_barrier, name=kernel.name, which=which)
            if not faults(plan, ptx_of=mutant) and races(plan, mutant) <= known:
                idle.append(f"{kernel.name}: {which}")
    assert len(idle) == IDLE.get(chosen.id, SCORES), idle
