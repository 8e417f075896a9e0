"""Infinities, NaN, the largest and the smallest floats in float32 kernels, as PyTorch's math treats them."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from flash_plans import prompt32_plan
from ops_reference import UNIT, rounding
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels import Problem
from kernels.flash.cluster import plan
from kernels.flash.cluster.mma import core as mma
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.runtime.emulator import run
from tests.kernels.cluster.plans import CORES, inputs_of

LARGEST, INFINITY, NAN = 3.4028234663852886e38, np.inf, np.nan
# A subnormal V loses what lies below 2^-136: its high part has that grid, and tensor cores ignore the bits that are
# left, half of it at most. Sums of weights times values are below the result by the greatest weight, 2^-7 for 70 keys;
# they are added up in less than 64 steps, each rounded to 2^-149.
LOST = 2.0**-137 + 64 * 2.0**-149 * 2.0**7

ONE_TILE = wgmma.Shape(1, 8, 64, 1)  # few queries, whose tiles of keys have accumulators of their own
Change = Callable[..., None]  # of q, k and v, in place


def set_to(value: float, which: int, *index: int | slice) -> Change:
    """Elements of q, k or v become a value."""

    def change(*tensors: np.ndarray) -> None:
        tensors[which][index] = value

    return change


def times(*factors: float) -> Change:
    def change(*tensors: np.ndarray) -> None:
        for x, factor in zip(tensors, factors, strict=True):
            x *= np.float32(factor)

    return change


def positive(*which: int) -> Change:
    def change(*tensors: np.ndarray) -> None:
        for i in which:
            np.abs(tensors[i], out=tensors[i])

    return change


Q, K, V = range(3)
EVERY = slice(None)
KINDS: dict[str, tuple[Change, ...]] = {
    "as they are": (),
    "a key of -inf": (positive(Q), set_to(-INFINITY, K, 3)),
    "a tile of keys of -inf": (positive(Q), set_to(-INFINITY, K, slice(64))),
    "a key of -inf, large queries": (positive(Q), times(1e5, 1, 1), set_to(-INFINITY, K, 3)),
    "scores that overflow to -inf": (positive(Q), times(1e20, 1, 1), set_to(-1e30, K, 5)),
    "a key of the lowest": (set_to(1e3, Q, EVERY), set_to(-LARGEST, K, 5)),
    "keys of -inf alone": (positive(Q), set_to(-INFINITY, K, EVERY)),
    "keys of -inf, a query below 0": (positive(Q), set_to(-1.0, Q, 3), set_to(-INFINITY, K, EVERY)),
    "a key of +inf": (positive(Q), set_to(INFINITY, K, 3)),
    "large scores": (set_to(1e17, Q, EVERY), positive(K), times(1, 1e17, 1)),
    "scores near the largest": (set_to(1e19, Q, EVERY), set_to(1e18, K, EVERY), set_to(2.2e18, K, 0)),
    "queries of the largest": (set_to(LARGEST, Q, 2), times(1, 1e-38, 1)),
    "+inf in v": (set_to(INFINITY, V, 7, 2),),
    "-inf in v": (set_to(-INFINITY, V, 69, 2),),
    "both in v": (set_to(INFINITY, V, 7, 2), set_to(-INFINITY, V, 66, 2)),
    "+inf in v that weighs nothing": (positive(Q), set_to(-INFINITY, K, 3), set_to(INFINITY, V, 3, 2)),
    "a row of v of the largest": (set_to(LARGEST, V, 5), set_to(-LARGEST, V, 66)),
    "v near the largest": (set_to(3.4e38, V, EVERY),),  # by more than weights, whose sum is 1, are rounded
    "v near the largest of both signs": (set_to(3e38, V, EVERY, slice(64)), set_to(-3e38, V, EVERY, slice(64, 128))),
    "subnormal v": (times(1, 1, 2.0**-129),),
    "subnormal queries": (times(1e-40, 1e-3, 1),),
    "subnormal products": (times(1e-20, 1e-20, 1),),
    "NaN in a query": (set_to(NAN, Q, 3, 5),),
    "NaN in v": (set_to(NAN, V, 3, 5),),
    "NaN in a key": (set_to(NAN, K, 66, 100),),
}
PROBLEM = Problem("attention", heads=len(KINDS), seq_q=8, seq_k=70, hdim=128)


@cache
def inputs() -> dict[str, np.ndarray]:
    """A kind of values in each head: what one has must not reach another."""
    made = inputs_of(PROBLEM)
    for head, changes in enumerate(KINDS.values()):
        for change in changes:
            change(*(made[name][0, head] for name in "qkv"))
    return made


def allowed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> float:
    """How far two results of float32 arithmetic may be apart, of the keys and values that are finite.

    Where the greatest score is beyond all others by more than e^-x loses, scores may have any error.
    """
    keys = torch.where(k.isfinite().all(-1, keepdim=True), k, 0.0)
    queries, values = (torch.where(x.isfinite(), x, 0.0) for x in (q, v))
    first, second = (queries.double() @ keys.double().mT * PROBLEM.softmax_scale).topk(2).values.unbind(-1)
    if (first - second).min() > 200:
        return 2 * (PROBLEM.seq_k + 4) * UNIT * float(values.abs().max()) + LOST
    return 2 * rounding(queries[None, None], keys[None, None], values) + LOST


def difference(out: torch.Tensor, exact: torch.Tensor, bound: float) -> str:
    """How a result differs; empty where it does not."""
    for name in ("isnan", "isposinf", "isneginf"):
        if not torch.equal(getattr(out, name)(), getattr(exact, name)()):
            return f"{name} differs"
    error = torch.where(exact.isfinite(), out.double() - exact.double(), 0.0).abs().max().item()
    return "" if error <= bound else f"off by {error}; allowed {bound}"


SHAPES = {"wgmma": wgmma.Shape(2, 16, 64, 1), "mma": mma.Shape(2, 16, 32, 64, 2, 4), "portable": None}
OTHERS = [pytest.param(core, marks=pytest.mark.deep) for core in ("wgmma", "portable")]


@pytest.mark.parametrize("kernel", ["mma", "prompt32", *OTHERS])
def test_values_are_those_of_pytorchs_math(kernel: str) -> None:
    """Of the three V8 cores, and where no parts of float32 hold them."""
    if kernel == "prompt32":
        made = prompt32_plan(PROBLEM)
    else:
        made = plan(PROBLEM, CORES[kernel].attend(PROBLEM, shape=SHAPES[kernel]))
    with np.errstate(all="ignore"):
        report = run(made, inputs())
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
