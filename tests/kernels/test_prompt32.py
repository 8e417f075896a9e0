"""Float32 prompts on wgmma in the emulator: values, tiles that are not split, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flash_plans import drawn, exact, prompt32_plan

from kernels.checking.reference import reference_of
from kernels.runtime.emulator import run
from kernels.version import Plan, Problem

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"heads": 4, "kv_heads": 2, "seq_q": 40, "seq_k": 300, "hdim": 64, "rotary_dim": 64}, {}),
    ({"seq_q": 70, "seq_k": 200, "hdim": 128, "rotary_dim": 64, "causal": True}, {"groups": 2}),
    ({"heads": 2, "seq_q": 130, "hdim": 96, "rotary_dim": 8, "causal": True, "q_offset": 3}, {"groups": 2}),
    ({"batch": 2, "seq_q": 9, "seq_k": 65, "hdim": 80, "rotary_dim": 80}, {}),
    ({"heads": 2, "kv_heads": 1, "seq_q": 40, "seq_k": 100, "hdim": 256, "rotary_dim": 64, "causal": True}, {}),
    ({"seq_q": 20, "seq_k": 90, "hdim": 192, "rotary_dim": 192}, {}),
    ({"seq_q": 20, "seq_k": 1, "hdim": 16, "rotary_dim": 0, "q_offset": 0}, {"groups": 2}),
]
QUICK = (1,)
PARAMS = [pytest.param(*case, marks=[pytest.mark.deep] * (i not in QUICK)) for i, case in enumerate(CASES)]


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


FAR: dict[str, tuple[str, Any]] = {
    "a small key": ("k", (slice(None), slice(None), 3, slice(None), 2.0**-20)),
    "small values": ("v", (slice(None), slice(None), slice(3), slice(None), 2.0**-22)),
    "a small dim of values": ("v", (slice(None), slice(None), slice(None), 5, 2.0**-22)),
    "small queries": ("q", (slice(None), slice(None), slice(8), slice(16), 2.0**-30)),
    "tiles of small values": ("v", (slice(None), slice(None), slice(64, 128), slice(None), 2.0**-50)),
}


@pytest.mark.parametrize(
    ("kind", "hdim"),
    [
        ("a small key", 128),
        *(pytest.param(kind, 128, marks=pytest.mark.deep) for kind in [*FAR][1:]),
        pytest.param("a small key", 256, marks=pytest.mark.deep),
    ],
)
def test_values_far_apart_keep_their_digits(kind: str, hdim: int) -> None:
    """Each output is as near to float64 as the sum of its own weights times values lets float32 be."""
    problem = Problem("attention", seq_q=64, seq_k=150, hdim=hdim, causal=True, q_offset=0)
    inputs = {name: x.numpy() for name, x in drawn(problem).items()}
    inputs = {name: x.astype(np.float32) for name, x in inputs.items()}
    name, (*index, factor) = FAR[kind]
    inputs[name][tuple(index)] *= np.float32(factor)
    report = run(prompt32_plan(problem), inputs)
    given = {name: torch.from_numpy(x) for name, x in inputs.items()}
    expected, size = exact(problem, given), exact(problem, {**given, "v": given["v"].abs()})
    error = (torch.from_numpy(report.out).view(problem.q_shape).double() - expected).abs()
    assert not report.findings and bool((error <= 4e-6 * size).all()), float((error / size).max())


def test_prompt32_fallback_uses_exact_angles() -> None:
    """Scores of 10^6 show an error of 10^-6: cosines and sines are within 2^-23, and two roundings follow."""
    problem = Problem("rope", heads=1, seq_q=150, seq_k=150, hdim=64, rotary_dim=64, q_offset=0)
    plan = prompt32_plan(problem)
    split = plan.launches[0]  # writes rotated keys in place of the output
    names = {"k_parts": "out", "q_parts": "k_parts", "v_parts": "k_parts"}
    launch = replace(split, args=tuple(names.get(arg, arg) for arg in split.args))
    inputs = {name: 1000 * x.float().numpy() for name, x in drawn(problem).items()}
    out = run(Plan(problem, plan.buffers, (launch,)), inputs).out.reshape(150, 32, 2).astype(np.float64)
    pairs = inputs["k"].reshape(150, 32, 2).astype(np.float64)
    angles = np.arange(150)[:, None] * 10_000.0 ** (-np.arange(32) / 32)
    exact_keys = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    error = np.maximum(abs(out[..., 0] - exact_keys.real), abs(out[..., 1] - exact_keys.imag))
    assert (error <= 3 * 2.0**-23 * abs(exact_keys)).all()
