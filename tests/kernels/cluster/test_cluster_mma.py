"""The V8 core of warps: what its threads share out, over clusters and warps of every shape."""

import pytest

from kernels import Problem
from kernels.flash.cluster.mma import core as mma
from kernels.flash.cluster.mma.core import Shape
from tests.kernels.cluster.plans import plan_of, tried

CASES = [  # sets of threads that take turns at a row: 2, 2, 4, 1, 1
    (Problem("rope", seq_q=16, hdim=512, rotary_dim=512), Shape(4, 16, 16, 128, 2, 4)),
    (Problem("rope", seq_q=20, seq_k=21, hdim=256, rotary_dim=70), Shape(2, 16, 16, 128, 2, 4)),
    (Problem("rope", seq_q=9, seq_k=11, hdim=260, rotary_dim=200, causal=True), Shape(2, 16, 16, 256, 2, 8)),
    (Problem("rope", heads=2, kv_heads=1, seq_q=37, seq_k=70, hdim=128, rotary_dim=70), Shape(2, 32, 32, 64, 4, 1)),
    (Problem("sinusoidal", seq_q=20, seq_k=50, hdim=96, q_offset=0), Shape(1, 32, 64, 96, 4, 1)),
    # panels of a warp: 5, 11, 3; blocks that own no row of the scores; warps that have no dim
    (Problem("attention", seq_q=3, seq_k=19, hdim=316), Shape(2, 16, 16, 160, 1, 1)),
    (Problem("attention", seq_q=5, seq_k=7, hdim=352, q_offset=1, causal=True), Shape(1, 16, 16, 352, 1, 1)),
    (Problem("rope", seq_q=40, seq_k=70, hdim=120, rotary_dim=30), Shape(3, 48, 64, 64, 4, 2)),
]


@pytest.mark.deep  # a quick case of its version, rope_v8_mma, is in test_versions
@pytest.mark.parametrize("problem, shape", CASES, ids=str)
def test_attention(problem: Problem, shape: Shape) -> None:
    """As near to the reference as float32 attention, with nothing found, whatever the order of the warps."""
    for verdict, findings in tried(plan_of(mma, problem, shape)):
        assert verdict.status == "ok", verdict
        assert not findings, [str(finding) for finding in findings]
