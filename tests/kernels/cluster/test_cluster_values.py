"""Infinities, NaN, the largest and the smallest floats in the three V8 cores, as PyTorch's math treats them."""


import numpy as np
import pytest
import torch
from ops_reference import UNIT
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels import Problem
from kernels.flash.cluster import plan
from kernels.flash.cluster.mma import core as mma
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.runtime.emulator import run
from tests.kernels.cluster.plans import CORES, inputs_of
from tests.kernels.odd_values import KINDS, PROBLEM, allowed, difference, inputs

ONE_TILE = wgmma.Shape(1, 8, 64, 1)  # few queries, whose tiles of keys have accumulators of their own
SHAPES = {"wgmma": wgmma.Shape(2, 16, 64, 1), "mma": mma.Shape(2, 16, 32, 64, 2, 4), "portable": None}


OTHERS = [pytest.param(core, marks=pytest.mark.deep) for core in ("wgmma", "portable")]


@pytest.mark.parametrize("core", ["mma", *OTHERS])
def test_values_are_those_of_pytorchs_math(core: str) -> None:
    launch = CORES[core].attend(PROBLEM, shape=SHAPES[core])
    with np.errstate(all="ignore"):
        report = run(plan(PROBLEM, launch), inputs())
    assert not report.findings, [str(finding) for finding in report.findings]
    out = torch.from_numpy(report.out).view(PROBLEM.q_shape)
    q, k, v = (torch.from_numpy(inputs()[name]) for name in "qkv")
    with sdpa_kernel(SDPBackend.MATH):
        exact = scaled_dot_product_attention(q, k, v)
    wrong = {
        kind: difference(out[0, i], exact[0, i], allowed(*(x[0, i] for x in (q, k, v)))) for i, kind in enumerate(KINDS)
    }
    assert not any(wrong.values()), {kind: fault for kind, fault in wrong.items() if fault}


def with_one_key_that_dominates(keys: int, others: float) -> tuple[Problem, dict[str, np.ndarray], float]:
    """The first of the keys has weight 1 and value 1, the others a weight and value 0; and what comes out."""
    problem = Problem("attention", 1, 1, seq_q=8, seq_k=keys, hdim=16)
    inputs = inputs_of(problem)
    inputs["q"][:], inputs["k"][:], inputs["v"][:] = 1.0, 0.0, 0.0
    inputs["k"][..., 0, :] = -np.log(others) / np.sqrt(problem.hdim)
    inputs["v"][..., 0, :] = 1.0
    return problem, inputs, 1.0 / (1.0 + (keys - 1) * others)


@pytest.mark.deep
@pytest.mark.parametrize(("core", "added"), [("wgmma", 2), ("mma", 64)])
def test_weights_that_rounding_would_take_one_by_one_are_summed(core: str, added: int) -> None:
    """The other keys weigh so little that `added` of them do not change a sum of weights."""
    problem, inputs, whole = with_one_key_that_dominates(2048, 2.0**-26 / added)
    assert 1.0 - whole > 7 * UNIT  # what would be lost
    launch = CORES[core].attend(problem, shape=ONE_TILE if core == "wgmma" else None)
    np.testing.assert_allclose(run(plan(problem, launch), inputs).out, whole, rtol=4 * UNIT, atol=0)
