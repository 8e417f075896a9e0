"""Whether a version does what it declares, in the emulator: its status, its hazards and, where it is wrong, how.

    for problem in problems(version):
        for kind in INPUTS:
            assert not faults(version, problem, kind)

The tests ask this of every version, and `analysis.mutations` asks it of broken ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any

import numpy as np
import torch

from . import VERSIONS
from .defects import model_of, total_weight
from .fast_math import SUFFIX
from .reference import TABLES_OF, Trial, trial
from .runtime.emulator import Finding, run
from .version import Kernel, Plan, Problem, Unsupported, Version

OWN = [version for version in VERSIONS.values() if not version.is_peer]

# (batch, heads, seq, hdim): one key; several batches or heads; one warp of keys or two, one tile or up to three;
# fewer dims than a warp has lanes, more than a block has threads, more than 8 times as many.
SHAPES = [
    (1, 2, 1, 64),
    (2, 1, 7, 36),
    (1, 1, 33, 96),
    (1, 2, 64, 80),
    (1, 1, 65, 332),
    (1, 1, 16, 32),
    (1, 1, 64, 16),
    (1, 1, 130, 24),
    (1, 1, 2, 2052),
]
# More keys than a block has threads, where a block has them all at once.
ALL_KEYS_SHAPES = [(1, 1, 257, 12)]
ALL_KEYS = {
    "attention_atomics",
    "attention_baseline",
    "attention_atomics_float4",
    "attention_two_pass_float4",
    "attention_tensor_core_v2",
}
TWINS = ("_227k", SUFFIX)  # how the names of versions end that have another one's kernels
FP16_SHAPES = [(1, 2, 64, 64), (1, 1, 128, 64)]
# One key; two tiles of keys; heads that share keys, masked; queries that stand behind the first key, and beyond the
# last; three tiles; the most blocks a cluster.
BEYOND_SHAPES: list[dict[str, Any]] = [
    {"heads": 2, "seq_q": 1, "hdim": 64},
    {"seq_q": 65, "hdim": 332},
    {"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 5, "seq_k": 70, "hdim": 80, "causal": True},
    {"heads": 3, "seq_q": 17, "seq_k": 65, "hdim": 80, "q_offset": 60, "causal": True},
    {"seq_q": 130, "hdim": 24},
    {"seq_q": 2, "hdim": 2052},
]
CORES = {"rope_v8", "rope_v8_mma", "rope_v8_portable"}  # what else is beyond the documents has the core of one of these


def problems(version: Version) -> list[Problem]:
    """The small, odd problems that `version` takes, on which it is tried; fewer of a twin or an ablation."""
    if version.beyond:
        return _beyond(version) if version.id in CORES else _beyond(version)[::2]
    if version.family == "fp16":
        candidates = [
            Problem("fp16", batch, heads, seq_q=seq, hdim=hdim, dtype="float16", causal=causal)
            for causal, (batch, heads, seq, hdim) in product((False, True), FP16_SHAPES)
        ]
    else:
        shapes = SHAPES + (ALL_KEYS_SHAPES if version.id in ALL_KEYS else [])
        candidates = [
            Problem(version.family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=rotary_dim)
            for batch, heads, seq, hdim in shapes
            for rotary_dim in ((hdim, hdim // 8 * 4) if version.family == "rope" else (0,))
        ]
    taken = [problem for problem in candidates if supports(version, problem)]
    if version.family == "fp16":
        return taken
    return taken[::3] if version.ablation else taken[::2] if version.id.endswith(TWINS) else taken


def _beyond(version: Version) -> list[Problem]:
    """All of the family: every table in turn, and half of the dims rotated in two of three."""
    tables = cycle(TABLES_OF.get(version.family, ("computed",)))
    parts = cycle((1, 2, 2))
    return [
        Problem(
            version.family,
            **shape,
            rotary_dim=shape["hdim"] // 4 // part * 4 if version.family == "rope" else 0,
            table=table,
        )
        for shape, part, table in zip(BEYOND_SHAPES, parts, tables)
    ]


def supports(version: Version, problem: Problem) -> bool:
    try:
        version(problem)
    except Unsupported:
        return False
    return True


@dataclass(frozen=True)
class Fault:
    """A difference from what a plan declares. `by` is what showed it: status, hazard, value or endless_loop."""

    by: str
    text: str

    def __str__(self) -> str:
        return f"{self.by}: {self.text}"


def declared(plan: Plan) -> set[tuple[str, str, str]]:
    return {(hazard.kind, hazard.kernel, hazard.place) for hazard in plan.hazards}


def kind_of(finding: Finding) -> str:
    """The kind of hazard; in a reduction, a race that is not the known one is of a kind of its own.

    The one that versions declare there is thread 0's store of the next reduction after another warp's load of the
    last one's result. A barrier missing inside a reduction would hide behind it: then a load comes after a store
    that it does not wait for, or another warp stores its part.
    """
    known = finding.instruction.startswith("st") and finding.thread == 0
    if (finding.kind, finding.place) == ("race", "reduction") and not known:
        return "race inside a reduction"
    return finding.kind


def faults(version: Version, problem: Problem, kind: str, ptx_of: Callable[[Kernel], str] | None = None) -> list[Fault]:
    """How the result and the findings of `version` on inputs of that kind differ from what its plan declares."""
    plan, case = version(problem), trial(problem, kind)
    report = run(plan, case.inputs, ptx_of, schedule="in step")
    assert report.out is not None
    verdict = case.judge(torch.from_numpy(report.out))
    found = []
    if verdict.status != plan.expected:
        found.append(Fault("status", f"{problem}: {verdict}, declared {plan.expected}"))
    seen = {(kind_of(finding), finding.kernel, finding.place): str(finding) for finding in report.findings}
    for key in seen.keys() - declared(plan):
        found.append(Fault("endless_loop" if key[0] == "endless_loop" else "hazard", f"{problem}: {seen[key]}"))
    for key in declared(plan) - seen.keys():
        found.append(Fault("hazard", f"{problem}: declared and unseen: {key}"))
    if plan.expected == "wrong":
        found += differences(version, problem, case, report.out)
    return found


def allowance(version: Version, problem: Problem, case: Trial) -> float | np.ndarray:
    """The error that fp32 may make in the outputs of `version`, also where they are wrong.

    It is that of a right result, times the sum of an output's weights where that is above 1: an error in the scores
    is a relative error of the weights, and an output is a sum of so much weight.
    """
    if version(problem).expected == "ok":
        return case.allowed_abs_err
    return case.allowed_abs_err * np.maximum(total_weight(version.id, problem, **case.inputs), 1.0)


def differences(version: Version, problem: Problem, case: Trial, out: np.ndarray) -> list[Fault]:
    """How `out` differs from the model of `version`'s wrong result: other places of NaN, or more than fp32 may."""
    model = model_of(version.id)(problem, *(case.inputs[name] for name in "qkv"))
    if not np.array_equal(np.isnan(out), np.isnan(model)):
        shares = np.isnan(out).mean(), np.isnan(model).mean()
        return [Fault("value", f"{problem}: NaN in {shares[0]:.2%} of the outputs, the model has {shares[1]:.2%}")]
    excess = float(np.max(np.nan_to_num(np.abs(out - model) - allowance(version, problem, case), nan=-math.inf)))
    return [Fault("value", f"{problem}: {excess:.2g} further from the model than fp32 may be")] if excess > 0 else []
