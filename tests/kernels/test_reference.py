"""The reference is computed in pieces that fit a small memory, and drawn as numpy draws it; both change no value."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels import Problem
from kernels.checking import reference
from kernels.checking.reference import (
    Reference,
    attention,
    attention_pieces,
    block_scores,
    compute_reference,
    make_inputs,
    serial_scores,
)

SMALL = (
    Problem("attention", 2, 4, 2, seq_q=5, seq_k=9, hdim=12, causal=True),
    Problem("alibi", 2, 6, 3, seq_q=9, seq_k=10, hdim=16, causal=True),
    Problem("rope", 1, 4, seq_q=7, hdim=8, rotary_dim=4),
    Problem("sinusoidal", 3, 2, seq_q=6, hdim=8, table="float8"),
    Problem("learned", 1, 2, seq_q=3, seq_k=5, hdim=8, table="float16"),
)


def drawn(problem: Problem, kind: str = "sharp") -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values) for name, values in make_inputs(problem, kind).items()}


@pytest.mark.parametrize("most", [1, 40, 100, 700])
@pytest.mark.parametrize("problem", SMALL, ids=str)
def test_pieces_of_any_size_make_one_output(problem: Problem, most: int) -> None:
    """Whole: embedded, multiplied and summed at once, as the definition says."""
    given = drawn(problem)
    whole = attention(problem, **given, dtype=torch.float64)
    for scores_of in (block_scores, serial_scores):
        pieces = list(attention_pieces(problem, **given, dtype=torch.float64, scores_of=scores_of, most=most))
        assert most > 40 or len(pieces) > 1
        out = torch.full(problem.q_shape, math.nan, dtype=torch.float64)
        seen = out.view(-1, problem.heads // problem.kv_heads, problem.seq_q, problem.hdim)
        for place, piece in pieces:
            assert bool(seen[place].isnan().all()), "a piece is computed twice"
            assert piece[..., 0].numel() * problem.seq_k <= max(most, problem.heads // problem.kv_heads * problem.seq_k)
            seen[place] = piece
        torch.testing.assert_close(out, whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_uniform_inputs_are_those_that_numpy_draws_in_one_go(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "DRAWN_AT_ONCE", 7)
    problem = replace(Problem("attention", 2, 2, 1, seq_q=3, seq_k=5, hdim=8), dtype=dtype)
    rng = np.random.default_rng(42)
    for values, shape in zip(make_inputs(problem, "uniform").values(), (problem.q_shape, *[problem.kv_shape] * 2)):
        whole = torch.from_numpy(rng.uniform(-1.0, 1.0, shape)).to(getattr(torch, dtype)).float().numpy()
        np.testing.assert_array_equal(values, whole)


@pytest.mark.parametrize("most", [3, 100])
def test_output_is_compared_in_pieces(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "PIECE_ELEMENTS", most)
    exact = torch.arange(12.0, dtype=torch.float64).view(1, 1, 3, 4)
    case = Reference({}, exact, 0.5, {})
    out = exact.float()
    assert case.compare(out) == reference.Verdict("ok", 0.0, 0.5, 0.0)
    out[0, 0, 2, 1] += 0.75
    assert case.compare(out) == reference.Verdict("wrong", 0.75, 0.5, 0.0)
    out[0, 0, 0] = math.nan
    found = case.compare(out)
    assert (found.status, found.max_abs_err, found.nan_share) == ("wrong", 0.75, pytest.approx(1 / 3))
    for value in (math.nan, math.inf):
        assert math.isnan(case.compare(torch.full_like(out, value)).max_abs_err)
        out = exact.float()
        out[0, 0, 0, 0] = value
        assert case.compare(out).status == "wrong"


def test_rope_in_half_precision_may_round_what_it_rotated() -> None:
    """A fp16 attention of rotated queries and keys passes; one of queries that are half as large again does not."""
    problem = Problem("rope", heads=2, seq_q=64, hdim=64, rotary_dim=64, dtype="float16")
    whole = compute_reference(problem, make_inputs(problem, "uniform"), "cpu")

    def made(factor: float) -> torch.Tensor:
        given = whole.given | {"q": whole.given["q"].float() * factor}
        out = torch.empty(problem.q_shape, dtype=torch.float16)
        pieces = attention_pieces(problem, **given, dtype=torch.float32, scores_of=block_scores, between=torch.float16)
        for place, piece in pieces:
            out.view(-1, 1, problem.seq_q, problem.hdim)[place] = piece.half()
        return out

    assert whole.compare(made(1.0)).status == "ok"
    assert whole.compare(made(1.5)).status == "wrong"
