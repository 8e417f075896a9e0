"""Half precision: its reference and allowance, its kernels in the emulator, and the peers that came with it."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kernels import Problem, Unsupported, version
from kernels.checking.reference import INPUTS, reference_of
from kernels.runtime.emulator import run
from kernels.runtime.emulator.memory.contents import SharedMemory

NAMES = ("fp16_minimal", "fp16_phase4", "fp16_phase6_iter1", "fp16_phase6_iter2")


def problem_for(name: str, seq: int = 64) -> Problem:
    return Problem("fp16", seq_q=seq, hdim=64, dtype="float16", causal="phase6" in name)


def halves(inputs: dict[str, np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(inputs[name]).half() for name in "qkv"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", INPUTS)
def test_fp16_reference_has_rounded_inputs_and_allows_one_rounding(kind: str, causal: bool) -> None:
    problem = Problem("fp16", 1, 2, seq_q=96, hdim=64, dtype="float16", causal=causal)
    case = reference_of(problem, kind)
    q, k, v = halves(case.inputs)
    for name, half in zip("qkv", (q, k, v)):
        assert np.array_equal(half.float().numpy(), case.inputs[name]) and case.inputs[name].dtype == np.float32
    exact = scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    torch.testing.assert_close(case.expected, exact, rtol=0, atol=1e-12)
    assert case.compare(scaled_dot_product_attention(q, k, v, is_causal=causal)).status == "ok"
    half_a_step = float(torch.finfo(torch.float16).eps) / 2 * float(case.expected.abs().max())
    assert half_a_step < case.allowed_abs_err < 5 * half_a_step
    for forgotten in ({"is_causal": not causal}, {"is_causal": causal, "scale": 1.0}):
        assert case.compare(scaled_dot_product_attention(q, k, v, **forgotten)).status == "wrong"


@pytest.mark.parametrize("start, share", [(60.0, 0.0), (500.0, 3 / 32)])
def test_phase4_is_right_where_shared_memory_starts_near_the_scores(monkeypatch, start: float, share: float) -> None:
    class Started(SharedMemory):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            self.data.view(np.float32)[:] = start

    monkeypatch.setattr(sys.modules["kernels.runtime.emulator.batch"], "SharedMemory", Started)
    plan = version("fp16_phase4")(problem_for("fp16_phase4"))
    case = reference_of(plan.problem, "sharp")
    out = run(plan, case.inputs, schedule="in step", blocks=1).out[:, :, :32]
    verdict = replace(case, expected=case.expected[:, :, :32]).compare(torch.from_numpy(out))
    assert verdict.nan_share == share and verdict.max_abs_err <= case.allowed_abs_err
    rows = np.flatnonzero(np.isnan(out[0, 0]).any(axis=1))
    assert set(rows) == ({1, 2, 3} if share else set())


@pytest.mark.parametrize("name", NAMES)
def test_other_problems_are_refused(name: str) -> None:
    causal = "phase6" in name
    usual = {"seq_q": 64, "hdim": 64, "dtype": "float16", "causal": causal}
    for other, message in [
        ({"dtype": "bfloat16"}, "dtype is bfloat16; this version takes float16"),
        ({"dtype": "float32"}, "dtype is float32; this version takes float16"),
        ({"hdim": 128}, "hdim is 128; this version takes 64"),
        ({"seq_q": 96}, "seq_k is 96; it must be a multiple of 64"),
        ({"seq_k": 128}, "seq_q is 64 and seq_k 128"),
        ({"heads": 4, "kv_heads": 2}, "kv_heads is 2; it must equal heads, 4"),
        ({"causal": not causal}, f"causal is {int(not causal)}; this version {'always' if causal else 'has no mask'}"),
    ]:
        with pytest.raises(Unsupported, match=message):
            version(name)(Problem("fp16", **{**usual, **other}))


@pytest.mark.parametrize("causal", [False, True])
def test_peer_computes_in_half_precision(causal: bool) -> None:
    problem = Problem("fp16", 2, 2, seq_q=40, hdim=32, dtype="float16", causal=causal)
    case = reference_of(problem, "sharp")
    plan = version("torch_sdpa_fp16")(problem)
    out = plan.call(*halves(case.inputs))
    assert out.dtype == torch.float16 and case.compare(out).status == "ok"
    assert {buffer.dtype for buffer in plan.buffers.values()} == {"float16"}
