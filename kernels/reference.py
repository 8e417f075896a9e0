"""The truth for every problem in float64, the inputs it is tried on, and the error that its dtype may make.

Everything takes and returns torch tensors on whatever device they are on: q `[batch, heads, seq_q,
hdim]`, k and v `[batch, kv_heads, seq_k, hdim]`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from .log import FREQUENCY_BASE
from .version import Problem

INPUTS = ("uniform", "sharp")
ERROR_FACTOR = 4.0
SHARP_DEVIATION = 2.0  # of q and k, so that scores have a standard deviation of its square, 4


def make_inputs(problem: Problem, kind: str, seed: int = 42) -> dict[str, np.ndarray]:
    """q, k, v as float32 arrays, of values that the problem's dtype holds exactly.

    `uniform` is the source's own test, uniform in [-1, 1], where attention is nearly an average and a
    forgotten embedding hardly shows; `sharp` makes scores with a standard deviation of 4.

    Raises:
        ValueError: another kind.
    """
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        draw = {name: rng.uniform(-1.0, 1.0, shape) for name, shape in _shapes(problem).items()}
    elif kind == "sharp":
        draw = {name: rng.standard_normal(shape) for name, shape in _shapes(problem).items()}
        draw["q"] *= SHARP_DEVIATION
        draw["k"] *= SHARP_DEVIATION
    else:
        raise ValueError(f"inputs are {kind!r}; allowed: {', '.join(INPUTS)}")
    dtype = getattr(torch, problem.dtype)
    return {name: torch.from_numpy(values).to(dtype).float().numpy() for name, values in draw.items()}


def _shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    return {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape}


def angles(positions: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """`[positions, dim // 2]`: position * 10000^(-2i / dim), computed in `dtype`."""
    pair = torch.arange(0, dim, 2, dtype=dtype, device=positions.device)
    inv_freq = 1.0 / FREQUENCY_BASE ** (pair / dim)
    return positions.to(dtype)[:, None] * inv_freq


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (2i, 2i + 1) of x's first dims; cos and sin are `[seq, rotary_dim // 2]`."""
    rotary_dim = 2 * cos.shape[-1]
    even, odd = x[..., :rotary_dim:2], x[..., 1:rotary_dim:2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    return torch.cat((turned, x[..., rotary_dim:]), dim=-1)


def positions(problem: Problem, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions of the queries and of the keys."""
    query = torch.arange(problem.seq_q, device=device) + problem.q_offset
    return query, torch.arange(problem.seq_k, device=device)


def embed(problem: Problem, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k with the family's positional embedding, in their own dtype."""
    if problem.family in ("attention", "fp16"):
        return q, k
    query, key = positions(problem, q.device)
    if problem.family == "sinusoidal":

        def added(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
            angle = angles(where, problem.hdim, x.dtype)
            return x + torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)

        return added(q, query), added(k, key)
    if problem.family == "rope":
        turns = [angles(where, problem.rotary_dim, q.dtype) for where in (query, key)]
        return tuple(rotate(x, turn.cos(), turn.sin()) for x, turn in zip((q, k), turns, strict=True))
    raise NotImplementedError(f"no reference for family {problem.family}")


def block_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """q k^T as a matrix product, whose sums run in blocks."""
    return q @ k.transpose(-1, -2)


def serial_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """q k^T with each dot product summed in the order of its dims, as one thread per key sums it."""
    scores = torch.zeros((*q.shape[:-1], k.shape[-2]), dtype=q.dtype, device=q.device)
    for dim in range(q.shape[-1]):
        scores.addcmul_(q[..., :, None, dim], k[..., None, :, dim])
    return scores


def attention(
    problem: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scores_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = block_scores,
) -> torch.Tensor:
    """softmax(scale * embedded q embedded k^T) v, every step in the inputs' dtype."""
    q, k = embed(problem, q, k)
    groups = problem.heads // problem.kv_heads
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = scores_of(q, k) * problem.softmax_scale
    if problem.causal:
        query, key = positions(problem, q.device)
        scores = scores.masked_fill(key[None, :] > query[:, None], -math.inf)
    return torch.softmax(scores, dim=-1) @ v


@dataclass(frozen=True)
class Verdict:
    """How an output compares with float64: `status` is "ok" or "wrong", errors are over the finite elements."""

    status: str
    max_abs_err: float
    allowed_abs_err: float
    nan_share: float


@dataclass(frozen=True)
class Trial:
    """Inputs of one kind for a problem, their output in float64, and the error that its dtype may make on them.

    The allowance is 4 times the error of fp32 attention on the same inputs: the larger of one whose dot
    products are summed in blocks (PyTorch's) and one that sums them in order (the log's kernels do, and
    at head dim 8192 that alone costs more than the blocks' whole allowance). For half-precision inputs the
    output is rounded once, at the end, and that is nearly all of the error: so PyTorch's math SDPA does it,
    which computes in fp32 throughout.
    """

    inputs: dict[str, np.ndarray]
    truth: torch.Tensor
    allowed_abs_err: float

    def judge(self, out: torch.Tensor) -> Verdict:
        """Compare `out`, of the truth's shape, with the truth; NaN never passes."""
        error = (out.double() - self.truth.to(out.device)).abs()
        finite = torch.isfinite(error)
        nan_share = 1.0 - float(finite.double().mean())
        worst = float(error[finite].max()) if bool(finite.any()) else math.nan
        passed = nan_share == 0.0 and worst <= self.allowed_abs_err
        return Verdict("ok" if passed else "wrong", worst, self.allowed_abs_err, nan_share)


@functools.lru_cache(maxsize=64)
def trial(problem: Problem, kind: str, device: str = "cpu") -> Trial:
    """The trial of `problem` on inputs of that kind, computed on `device`. Raises: ValueError for another kind."""
    dtype = getattr(torch, problem.dtype)
    inputs = make_inputs(problem, kind)
    single = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
    truth = attention(problem, **{name: tensor.double() for name, tensor in single.items()})
    errors = [
        float((attention(problem, **single, scores_of=scores_of).to(dtype).double() - truth).abs().max())
        for scores_of in (block_scores, serial_scores)
    ]
    return Trial(inputs, truth, ERROR_FACTOR * max(errors))
