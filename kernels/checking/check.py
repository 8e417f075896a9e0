"""Checks in the emulator that a version does what it declares: its status, its hazards and, where it is wrong, how.

    for case in quick_cases(version):
        assert not faults(version, *case)

`make test` checks every version on its largest quick case and on a sample of the others. `make test-deep` also checks
ablations, and a sample of all `problems(version)`; with WHOLE=1 it checks all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, product
from typing import Any, NamedTuple

import numpy as np
import torch

from ..rates import TABLES_OF
from ..runtime.emulator import Finding, PlanReport, run
from ..version import Kernel, Model, Plan, Problem, Unsupported, Version
from .reference import Reference, Verdict, reference_of

# (batch, heads, seq, hdim): one key; several batches or heads; one or two warps of keys; one to three tiles;
# fewer dims than a warp has lanes; more than a block has threads, or more than 8 times as many.
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
# More keys than threads, for a block that holds whole rows of scores.
WHOLE_ROWS_SHAPES = [(1, 1, 257, 12)]
# Tiles of 16, 8 and 4 keys: all sizes that exist.
MULTI_QUERY_SHAPES = [(2, 1, 7, 348), (1, 2, 9, 640), (1, 1, 3, 1128)]
FP16_SHAPES = [(1, 2, 64, 64), (1, 1, 128, 64)]
# One key; two tiles of keys; grouped heads with a mask; queries that start after the first key and end after the
# last; three tiles; the largest cluster.
BEYOND_SHAPES: list[dict[str, Any]] = [
    {"heads": 2, "seq_q": 1, "hdim": 64},
    {"seq_q": 65, "hdim": 332},
    {"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 5, "seq_k": 70, "hdim": 80, "causal": True},
    {"heads": 3, "seq_q": 17, "seq_k": 65, "hdim": 80, "q_offset": 60, "causal": True},
    {"seq_q": 130, "hdim": 24},
    {"seq_q": 2, "hdim": 2052},
]
# Of decode: one key; two splits; heads that share keys, masked; two splits alike; a group of five; queries beyond keys.
DECODE_SHAPES: list[dict[str, Any]] = [
    {"heads": 2, "seq_q": 1, "hdim": 64},
    {"seq_q": 1, "seq_k": 130, "hdim": 128},
    {"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 5, "seq_k": 70, "hdim": 96, "causal": True},
    {"seq_q": 2, "seq_k": 128, "hdim": 256},
    {"heads": 5, "kv_heads": 1, "seq_q": 1, "seq_k": 65, "hdim": 64},
    {"heads": 3, "seq_q": 8, "seq_k": 65, "hdim": 192, "q_offset": 60, "causal": True},
]
WIDE_SHAPES: list[dict[str, Any]] = [  # of a block, and of clusters
    {"heads": 2, "seq_q": 1, "seq_k": 65, "hdim": 520},
    {"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 5, "seq_k": 40, "hdim": 1024, "causal": True},
    {"heads": 3, "seq_q": 3, "seq_k": 20, "hdim": 4096, "q_offset": 15, "causal": True},
    {"seq_q": 8, "seq_k": 9, "hdim": 16384},
]
# Of prompts: heads that share keys and tiles of rows; keys from the middle on; two tiles, or wgmma.
PROMPT_SHAPES: list[dict[str, Any]] = [
    {"heads": 2, "seq_q": 33, "hdim": 64},
    {"heads": 3, "seq_q": 17, "seq_k": 65, "hdim": 80, "q_offset": 60, "causal": True},
    {"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 9, "seq_k": 70, "hdim": 96, "causal": True},
    {"seq_q": 20, "seq_k": 600, "hdim": 128},
]
QUICK_BEYOND = 2  # alone, as every shape is compiled, in seconds; the cores have tests of their own
FIRST_BLOCKS = 2  # that run, of a launch with many
LARGE = 1024  # dims of a problem that takes seconds


def problems(version: Version) -> list[Problem]:
    """The small, odd problems that the checks of `version` use, fewer for a variant or an ablation."""
    if version.beyond and version.family != "fp16":
        return _beyond(version)[::2] if version.variant_of else _beyond(version)
    if version.family == "fp16":
        candidates = [
            Problem("fp16", batch, heads, seq_q=seq, hdim=hdim, dtype="float16", causal=causal)
            for causal, (batch, heads, seq, hdim) in product((False, True), FP16_SHAPES)
        ]
    else:
        shapes = SHAPES + (WHOLE_ROWS_SHAPES if version.whole_rows else [])
        if version.id == "attention_multi_query":
            shapes = shapes + MULTI_QUERY_SHAPES
        candidates = [
            Problem(version.family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=rotary_dim)
            for batch, heads, seq, hdim in shapes
            for rotary_dim in ((hdim, hdim // 8 * 4) if version.family == "rope" else (0,))
        ]
    taken = [problem for problem in candidates if supports(version, problem)]
    if version.family == "fp16":
        return taken
    return taken[::3] if version.ablation else taken[::2] if version.variant_of else taken


def _beyond(version: Version) -> list[Problem]:
    """All of the family: the tables alternate, and two in three problems rotate half of the dims."""
    tables = cycle(TABLES_OF.get(version.family, ("computed",)))
    parts = cycle((1, 2, 2))
    prompt = "_prompt" in version.id
    decodes = WIDE_SHAPES if "_wide_" in version.id else DECODE_SHAPES
    shapes = decodes if version.id.endswith(("_decode", "_chunk")) else PROMPT_SHAPES if prompt else BEYOND_SHAPES
    return [
        Problem(
            version.family,
            **shape,
            dtype="float16" if prompt and "32" not in version.id else "float32",
            rotary_dim=shape["hdim"] // 4 // part * 4 if version.family == "rope" else 0,
            table=table,
        )
        for shape, part, table in zip(shapes, parts, tables)
    ]


def supports(version: Version, problem: Problem) -> bool:
    try:
        version(problem)
    except Unsupported:
        return False
    return True


class CheckCase(NamedTuple):
    """A problem, the kind of its inputs, and how many of its first blocks run; None runs all of them."""

    problem: Problem
    kind: str
    blocks: int | None = None

    def __str__(self) -> str:
        return f"{self.problem} {self.kind}"


def quick_cases(version: Version) -> list[CheckCase]:
    """The cases of `make test`, on sharp inputs.

    A variant, an ablation or a version beyond the documents has one problem; other versions one of each shape.
    """
    if version.ablation or version.variant_of:
        return [case_of(version, max(problems(version), key=lambda problem: _demand(version, problem)))]
    if version.beyond:
        return [case_of(version, problems(version)[QUICK_BEYOND])]
    shapes: dict[tuple[int, ...], list[Problem]] = {}
    for problem in problems(version):
        shapes.setdefault(problem.q_shape, []).append(problem)
    alike = [same[index % len(same) if same[0].hdim < LARGE else -1] for index, same in enumerate(shapes.values())]
    small = [problem for problem in alike if problem.hdim < LARGE or len(version(problem).launches) > 1]
    seen = {version(problem).defect for problem in small}
    return [case_of(version, problem) for problem in alike if problem in small or version(problem).defect not in seen]


def _demand(version: Version, problem: Problem) -> tuple[int, ...]:
    """A sort key: the largest problem exercises the most of a version.

    In this order: whether the result is wrong, hazards, a mask, a second tile of keys (ignored in half precision, where
    a tile takes seconds), dims.
    """
    plan = version(problem)
    keys = 0 if version.family == "fp16" else min(problem.seq_k, 65)
    return plan.expected == "wrong", len(plan.hazards), problem.causal, keys, problem.hdim


def case_of(version: Version, problem: Problem) -> CheckCase:
    """The case on sharp inputs. It runs only the first blocks where no block depends on another: in a plan of one
    launch.
    """
    launches = version(problem).launches
    alone = len(launches) == 1 and launches[0].cluster == 1 and not version.beyond
    return CheckCase(
        problem, "sharp", FIRST_BLOCKS if alone and math.prod(launches[0].grid) > 8 * FIRST_BLOCKS else None
    )


def rows_written(plan: Plan, blocks: int | None) -> int:
    """The number of output rows that the first `blocks` of the last launch write; None means all blocks."""
    problem, grid = plan.problem, math.prod(plan.launches[-1].grid)
    heads = problem.batch * problem.heads
    if blocks is None:
        return heads * problem.seq_q
    return min(blocks * -(-problem.seq_q // (grid // heads)), problem.seq_q)


@dataclass(frozen=True)
class Fault:
    """A difference from what a plan declares. `by` says what found it: status, hazard, value or endless_loop."""

    by: str
    text: str

    def __str__(self) -> str:
        return f"{self.by}: {self.text}"


def declared_hazards(plan: Plan) -> set[tuple[str, str, str]]:
    return {(hazard.kind, hazard.kernel, hazard.place) for hazard in plan.hazards}


def kind_of(finding: Finding) -> str:
    """The kind of hazard. A race in a reduction that is not the declared one is a kind of its own.

    The declared one is a store by thread 0 for the next reduction after another warp's load of the last result. A
    missing barrier inside a reduction must not pass as that race. It shows as a load after an unordered store, or as a
    store by another warp.
    """
    known = finding.instruction.startswith("st") and finding.thread == 0
    if (finding.kind, finding.place) == ("race", "reduction") and not known:
        return "race inside a reduction"
    return finding.kind


def emulated(
    plan: Plan, kind: str, blocks: int | None = None, ptx_of: Callable[[Kernel], str] | None = None
) -> tuple[PlanReport, Reference, np.ndarray, Verdict]:
    """Run the first `blocks` of a plan's launches on inputs of that kind: the report, the reference, the rows of the
    output that these write, and how they compare.
    """
    case, as_bits = reference_of(plan.problem, kind), plan.problem.dtype == "bfloat16"  # which NumPy has not
    inputs = {name: bits_of(x) for name, x in case.inputs.items()} if as_bits else case.inputs
    report, rows = run(plan, inputs, ptx_of, schedule="in step", blocks=blocks), rows_written(plan, blocks)
    assert report.out is not None
    out = first(rows, of_bits(report.out) if as_bits else report.out)
    return report, case, out, replace(case, expected=first(rows, case.expected)).compare(torch.from_numpy(out))


def bits_of(x: np.ndarray) -> np.ndarray:
    """float32 as the bits of bfloat16, as the emulator stores it."""
    return torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)


def of_bits(bits: np.ndarray) -> np.ndarray:
    """The float32 of `bits_of`."""
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()


def faults(
    version: Version,
    problem: Problem,
    kind: str,
    blocks: int | None = None,
    ptx_of: Callable[[Kernel], str] | None = None,
) -> list[Fault]:
    """Differences between the result and the findings of `version`, on inputs of that kind, and its plan's declaration.

    With `blocks`, only the first blocks of each launch run, and only the rows that they write are compared.
    """
    plan, found = version(problem), []
    report, case, out, verdict = emulated(plan, kind, blocks, ptx_of)
    if verdict.status != plan.expected:
        found.append(Fault("status", f"{problem}: {verdict}, declared {plan.expected}"))
    seen = {(kind_of(finding), finding.kernel, finding.place): str(finding) for finding in report.findings}
    for key in seen.keys() - declared_hazards(plan):
        found.append(Fault("endless_loop" if key[0] == "endless_loop" else "hazard", f"{problem}: {seen[key]}"))
    for key in declared_hazards(plan) - seen.keys():
        found.append(Fault("hazard", f"{problem}: declared and unseen: {key}"))
    if plan.expected == "wrong":
        found += differences(version, problem, case, out)
    return found


def first(rows: int, values: Any) -> Any:
    """The first `rows` rows of an output `[batch, heads, seq_q, hdim]`, or of an array of its shape."""
    return values.reshape(-1, values.shape[-1])[:rows]


def model_of(version: Version) -> Model:
    """The float64 model of what a wrong `version` computes. Raises: LookupError for one that is never wrong."""
    if version.wrong_output is None:
        raise LookupError(f"{version.id} has no model of a wrong result")
    return version.wrong_output


def allowance(version: Version, problem: Problem, case: Reference) -> float | np.ndarray:
    """The error allowed in the outputs of `version`, whether they are right or wrong by design.

    It is that of a right result, times the sum of the weights of an output where that is above 1: an error in the
    scores is a relative error of the weights, so the error of an output is proportional to their sum.
    """
    if version(problem).expected == "ok":
        return case.allowed_abs_err
    q, k, v = (case.inputs[name] for name in "qkv")
    return case.allowed_abs_err * np.maximum(model_of(version)(problem, q, k, np.ones_like(v)), 1.0)


def differences(version: Version, problem: Problem, case: Reference, out: np.ndarray) -> list[Fault]:
    """Differences of `out`, or its first rows, from the model of the wrong result of `version`.

    NaN must be in the same elements, and the others within `allowance`.
    """
    rows = out.size // problem.hdim
    out = first(rows, out)
    model = first(rows, model_of(version)(problem, *(case.inputs[name] for name in "qkv")))
    if not np.array_equal(np.isnan(out), np.isnan(model)):
        shares = np.isnan(out).mean(), np.isnan(model).mean()
        return [Fault("value", f"{problem}: NaN in {shares[0]:.2%} of the outputs, the model has {shares[1]:.2%}")]
    allowed = first(rows, np.broadcast_to(allowance(version, problem, case), problem.q_shape))
    excess = float(np.max(np.nan_to_num(np.abs(out - model) - allowed, nan=-math.inf)))
    return [Fault("value", f"{problem}: {excess:.2g} further from the model than fp32 may be")] if excess > 0 else []
