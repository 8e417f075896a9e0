"""Float32 prompts on wgmma in the emulator: values, tiles that are not split, and what is refused."""

import re
from typing import Any

import numpy as np
import pytest
import test_v8_values as values
import torch
from test_decode import drawn, exact, output, problem_of, turn_of
from test_prompt import PHASES, orders, without
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels.checking.reference import reference_of
from kernels.flash.prompt32 import prompt32_kernel
from kernels.flash.prompt32_plan import prompt32_plan
from kernels.flash.split import Prompt32Shape, split_kernel
from kernels.runtime.compile import assemble, compile_ptx, resources
from kernels.runtime.emulator import run
from kernels.version import Problem, Unsupported

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"heads": 4, "kv_heads": 2, "seq_q": 40, "seq_k": 300, "hdim": 64, "rotary_dim": 64}, {}),
    ({"seq_q": 70, "seq_k": 200, "hdim": 128, "rotary_dim": 64, "causal": True}, {"groups": 2}),
    ({"heads": 2, "seq_q": 130, "hdim": 96, "rotary_dim": 8, "causal": True, "q_offset": 3}, {"groups": 2}),
    ({"batch": 2, "seq_q": 9, "seq_k": 65, "hdim": 80, "rotary_dim": 80}, {}),
    ({"seq_q": 20, "seq_k": 1, "hdim": 16, "rotary_dim": 0, "q_offset": 0}, {"groups": 2}),
]
PARAMS = [pytest.param(*case, marks=[pytest.mark.deep] * (i > 1)) for i, case in enumerate(CASES)]


@pytest.mark.parametrize(("sizes", "fields"), PARAMS)
def test_values(sizes: dict[str, Any], fields: dict[str, Any]) -> None:
    """Within the error of float32, with half of what the checks allow, and nothing found."""
    problem = Problem("rope" if sizes["rotary_dim"] else "attention", **sizes)
    for kind in ("uniform", "sharp"):
        case = reference_of(problem, kind)
        report = run(prompt32_plan(problem, **fields), case.inputs)
        verdict = case.compare(torch.from_numpy(report.out))
        least = 2.0**-23 * float(case.expected.abs().max())
        assert not report.findings and verdict.max_abs_err <= max(verdict.allowed_abs_err / 2, least)


@pytest.mark.deep
@pytest.mark.parametrize("half_split", [False, True])
@pytest.mark.parametrize("tables", [False, True])
def test_positions_and_tables(tables: bool, half_split: bool) -> None:
    problem = problem_of(batch=2, heads=2, seq_q=20, seq_k=70, hdim=64, rotary_dim=48)
    positions = np.random.default_rng(2).integers(0, 500 if tables else 2**20, (2, 70)).astype(np.int32)
    turn = [turn_of(problem, torch.from_numpy(each)) for each in positions]
    made = tuple(x.float().numpy() for x in turn_of(problem, torch.arange(500))) if tables else None
    inputs = drawn(problem)
    inputs = {name: x.float() for name, x in inputs.items()}
    out, findings = output(prompt32_plan(problem, half_split=half_split, tables=made, positions=positions), inputs)
    assert not findings
    assert float((out - exact(problem, inputs, half_split, turn)).abs().max()) < 4e-6


def test_values_that_no_parts_hold_are_those_of_pytorchs_math() -> None:
    with np.errstate(all="ignore"):
        report = run(prompt32_plan(values.PROBLEM), values.inputs())
    assert not report.findings, [str(finding) for finding in report.findings]
    out = torch.from_numpy(report.out).view(values.PROBLEM.q_shape)
    q, k, v = (torch.from_numpy(values.inputs()[name]) for name in "qkv")
    with sdpa_kernel(SDPBackend.MATH):
        expected = scaled_dot_product_attention(q, k, v)
    for i, kind in enumerate(values.KINDS):
        bound = values.allowed(*(x[0, i] for x in (q, k, v)))
        assert not values.difference(out[0, i], expected[0, i], bound), kind


FAR: dict[str, tuple[str, Any]] = {
    "a small key": ("k", (slice(None), slice(None), 3, slice(None), 2.0**-20)),
    "small values": ("v", (slice(None), slice(None), slice(3), slice(None), 2.0**-22)),
    "a small dim of values": ("v", (slice(None), slice(None), slice(None), 5, 2.0**-22)),
    "small queries": ("q", (slice(None), slice(None), slice(8), slice(16), 2.0**-30)),
    "tiles of small values": ("v", (slice(None), slice(None), slice(64, 128), slice(None), 2.0**-50)),
}


@pytest.mark.parametrize("kind", list(FAR))
def test_values_far_apart_keep_their_digits(kind: str) -> None:
    """Each output is as near to float64 as the sum of its own weights times values lets float32 be."""
    problem = Problem("attention", seq_q=64, seq_k=150, hdim=128, causal=True, q_offset=0)
    inputs = {name: x.numpy() for name, x in drawn(problem).items()}
    inputs = {name: x.astype(np.float32) for name, x in inputs.items()}
    name, (*index, factor) = FAR[kind]
    inputs[name][tuple(index)] *= np.float32(factor)
    report = run(prompt32_plan(problem), inputs)
    given = {name: torch.from_numpy(x) for name, x in inputs.items()}
    expected, size = exact(problem, given), exact(problem, {**given, "v": given["v"].abs()})
    error = (torch.from_numpy(report.out).view(problem.q_shape).double() - expected).abs()
    assert not report.findings and bool((error <= 4e-6 * size).all()), float((error / size).max())


@pytest.mark.deep
def test_what_orders_copies_and_products_taken_away_is_found() -> None:
    """Five tiles in two stages, and where no parts hold them. A product that nobody waited for leaves NaN."""
    problem = Problem("attention", seq_q=100, seq_k=600, hdim=64)
    plan, case = prompt32_plan(problem, groups=2), reference_of(problem, "uniform")
    found, far = orders(plan), {name: x.copy() for name, x in case.inputs.items()}
    far["k"][..., 3, :] *= 2.0**-20
    assert set(PHASES) <= set(found) and len(found) >= 22 and not run(plan, far).findings
    for what, spans in found.items():
        reports = (run(plan, inputs, ptx_of=without(spans)) for inputs in (case.inputs, far))
        assert any(report.findings or np.isnan(report.out).any() for report in reports), what


@pytest.mark.parametrize(
    ("sizes", "plan", "message"),
    [
        ({"hdim": 144, "rotary_dim": 0}, {}, "hdim is 144; it must be a multiple of 16 up to 128"),
        ({"dtype": "float16"}, {}, "dtype is float16"),
        ({"rotary_dim": 6}, {"half_split": True}, "rotary_dim is 6; it must be a multiple of 4 where half-split"),
        ({}, {"target": "sm_89"}, "kernels on wgmma need compute capability 9.0, this GPU has sm_89"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused(sizes: dict[str, Any], plan: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(message)):
        prompt32_plan(problem_of(**{"seq_q": 20, **sizes}), **plan)


@pytest.mark.deep
@pytest.mark.parametrize("hdim", [64, 96, 128])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("embedding", ["none", "rates", "placed_tables"])
def test_kernels_do_not_spill(hdim: int, groups: int, embedding: str) -> None:
    shape = Prompt32Shape(hdim, groups, embedding=embedding)
    assert "serialized" not in assemble(compile_ptx(prompt32_kernel(shape), "sm_90"), "sm_90")[1]
    for kernel in (split_kernel(shape), prompt32_kernel(shape)):
        used = resources(kernel, "sm_90")
        assert used.spill_bytes == used.stack_bytes == 0 and used.registers * (kernel.max_threads or 0) <= 65_536
