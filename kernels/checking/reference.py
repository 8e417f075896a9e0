"""The float64 reference of every problem, the inputs of a check, and the error allowed for its dtype.

All functions take and return torch tensors on any device: q `[batch, heads, seq_q, hdim]`, k and v `[batch, kv_heads,
seq_k, hdim]`.
"""

import functools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..rates import alibi_slopes, angles, require_table, stored_table
from ..version import Problem

INPUTS = ("uniform", "sharp")
ERROR_FACTOR = 4.0
ROUNDING = 100  # times the allowed error: more than rounding can explain
FLOAT32_EPS = 2.0**-23
SHARP_DEVIATION = 2.0  # of q and k; the scores then have a standard deviation of its square, 4
PIECE_ELEMENTS = 2**23  # of scores, and of embedded queries and keys; 64 MiB each in float64
DRAWN_AT_ONCE = 2**20


def make_inputs(problem: Problem, kind: str, seed: int = 42) -> dict[str, np.ndarray]:
    """q, k, v as float32 arrays, with values that the dtype of the problem represents exactly.

    `uniform` is the source's own test, uniform in [-1, 1]. There attention is nearly an average and a missing embedding
    hardly shows. `sharp` gives scores with a standard deviation of 4.

    Raises:
        ValueError: another kind.
    """
    dtype, start = getattr(torch, problem.dtype), 0
    shapes = {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape}
    drawn: dict[str, np.ndarray] = {}
    if kind == "uniform":
        for name, shape in shapes.items():
            drawn[name] = _uniform(seed, start, math.prod(shape), dtype).reshape(shape)
            start += drawn[name].size
    elif kind == "sharp":
        rng = np.random.default_rng(seed)
        for name, shape in shapes.items():
            values = rng.standard_normal(shape)
            if name != "v":
                values *= SHARP_DEVIATION
            drawn[name] = _rounded(values, dtype)
    else:
        raise ValueError(f"inputs are {kind!r}; allowed: {', '.join(INPUTS)}")
    return drawn


def _rounded(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    return torch.from_numpy(values).to(dtype).float().numpy()


def _uniform(seed: int, start: int, count: int, dtype: torch.dtype) -> np.ndarray:
    """`count` of the values that `default_rng(seed).uniform(-1, 1)` draws, from number `start` on.

    Each value takes one step of the generator, which can skip steps: so parts are drawn in parallel.
    """
    out = np.empty(count, np.float32)

    def draw(first: int) -> None:
        bits = np.random.PCG64(seed)
        bits.advance(start + first)
        part = out[first : first + DRAWN_AT_ONCE]
        part[:] = _rounded(np.random.Generator(bits).uniform(-1.0, 1.0, part.size), dtype)

    with ThreadPoolExecutor() as pool:
        list(pool.map(draw, range(0, count, DRAWN_AT_ONCE)))
    return out


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


def alibi_bias(problem: Problem, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """`[heads, seq_q, seq_k]`: -slope * |query position - key position|, the bias of the scaled scores."""
    query, key = positions(problem, device)
    slopes = torch.from_numpy(alibi_slopes(problem.heads)).to(device, dtype)
    return -slopes[:, None, None] * (query[:, None] - key[None, :]).abs().to(dtype)


def embed(problem: Problem, x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Queries or keys `[..., positions, hdim]` with the embedding of the family at the positions `where`, in their
    dtype.

    Raises: Unsupported, by `require_table`.
    """
    require_table(problem)
    if problem.family in ("attention", "fp16", "alibi"):
        return x
    if problem.table != "computed":
        return x + stored_table(problem).to(x.device)[where].to(x.dtype)
    if problem.family == "sinusoidal":
        angle = angles(where, problem.hdim, x.dtype)
        return x + torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)
    if problem.family == "rope":
        turn = angles(where, problem.rotary_dim, x.dtype)
        return rotate(x, turn.cos(), turn.sin())
    raise NotImplementedError(f"no reference for family {problem.family}")


def block_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """q k^T as a matrix product, which sums in blocks."""
    return q @ k.transpose(-1, -2)


def serial_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """q k^T with each dot product summed dim by dim, as by a kernel with one thread per key."""
    scores = torch.zeros((*q.shape[:-1], k.shape[-2]), dtype=q.dtype, device=q.device)
    for dim in range(q.shape[-1]):
        scores.addcmul_(q[..., :, None, dim], k[..., None, :, dim])
    return scores


def _lengths(problem: Problem, most: int) -> tuple[int, int]:
    """The size of a piece: heads of keys (with all queries that share one), and rows of queries."""
    sharers = problem.heads // problem.kv_heads
    of_row = sharers * max(problem.seq_k, problem.hdim)
    heads = most // max(problem.seq_q * of_row, sharers * problem.seq_k * problem.hdim)
    return max(1, heads), problem.seq_q if heads else max(1, most // of_row)


def attention_pieces(
    problem: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dtype: torch.dtype,
    scores_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    most: int = PIECE_ELEMENTS,
    between: torch.dtype | None = None,
) -> Iterator[tuple[tuple[slice, slice, slice], torch.Tensor]]:
    """Attention piece by piece, every step in `dtype`: the index of each piece, and its outputs.

    Embedded queries and keys are rounded to the dtype `between`, if one is given.

    The index is one of an output viewed as `[batch * kv_heads, heads / kv_heads, seq_q, hdim]`. A piece has at most
    `most` scores, elements of queries and elements of keys, but at least one row of queries and one head of keys.
    """
    sharers = problem.heads // problem.kv_heads
    q = q.reshape(-1, sharers, problem.seq_q, problem.hdim)
    k, v = (x.reshape(-1, 1, problem.seq_k, problem.hdim) for x in (k, v))
    at_query, at_key = positions(problem, q.device)
    slopes = torch.from_numpy(alibi_slopes(problem.heads)).to(q.device, dtype).repeat(problem.batch)
    slopes = slopes.view(-1, sharers, 1, 1)
    heads, rows = _lengths(problem, most)
    for head in range(0, len(q), heads):
        some = slice(head, head + heads)
        keys, values = embed(problem, k[some].to(dtype), at_key), v[some].to(dtype)
        keys = keys.to(between or dtype).to(dtype)
        keys, values = keys.expand(-1, sharers, -1, -1), values.expand(-1, sharers, -1, -1)
        for row in range(0, problem.seq_q, rows):
            where = at_query[row : row + rows]
            queries = embed(problem, q[some, :, row : row + rows].to(dtype), where).to(between or dtype).to(dtype)
            scores = scores_of(queries, keys).mul_(problem.softmax_scale)
            if problem.family == "alibi":
                scores.sub_(slopes[some] * (where[:, None] - at_key[None, :]).abs().to(dtype))
            if problem.causal:
                scores.masked_fill_(at_key[None, :] > where[:, None], -math.inf)
            yield (some, slice(None), slice(row, row + rows)), torch.softmax(scores, dim=-1) @ values


def attention(
    problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """softmax(scale * embedded q embedded k^T + bias) v in `dtype`, or that of the inputs; ALiBi has the bias."""
    out = torch.empty(problem.q_shape, dtype=dtype or q.dtype, device=q.device)
    seen = out.view(-1, problem.heads // problem.kv_heads, problem.seq_q, problem.hdim)
    for place, piece in attention_pieces(problem, q, k, v, out.dtype, block_scores):
        seen[place] = piece
    return out


@dataclass(frozen=True)
class Verdict:
    """Comparison of an output with float64: `status` is "ok" or "wrong", errors are those of the finite elements.

    `relative_err` is the norm of the difference over that of the exact output.
    """

    status: str
    max_abs_err: float
    allowed_abs_err: float
    nan_share: float
    relative_err: float = field(default=math.nan, compare=False)

    @property
    def beyond_rounding(self) -> bool:
        """Whether the error is too large for any order of the same sums."""
        return self.nan_share > 0 or self.max_abs_err > ROUNDING * self.allowed_abs_err


@dataclass(frozen=True)
class Reference:
    """Inputs of one kind for a problem, the exact output in float64, and the error allowed for its dtype.

    The allowance is 4 times the error of fp32 attention on the same inputs. That error is the larger of two: one
    implementation sums its dot products in blocks (PyTorch's), one in order (as the log's kernels do; at head dim 8192
    this alone exceeds the allowance of the blocks). Half-precision inputs round their output once at the end, which
    dominates the error: PyTorch's math SDPA does so and computes in fp32 throughout. With RoPE, half precision has a
    third: that of fp32 attention on queries and keys that are rounded again after their rotation, as tensor cores and
    PyTorch's attention take them.

    In fp32 the allowance is at least 2^-23 of the largest output, two roundings: of the weighted sum, and of its
    division by the sum of weights. With one key the reference itself is exact and would allow no error.
    """

    inputs: dict[str, np.ndarray]
    expected: torch.Tensor
    allowed_abs_err: float
    given: dict[str, torch.Tensor]  # the inputs, on the device that computed the reference

    def compare(self, out: torch.Tensor) -> Verdict:
        """Compare `out`, of the same shape, with the exact output; NaN never passes."""
        finite, worst, squares = 0, math.nan, 0.0
        expected = self.expected.flatten()
        for first in range(0, out.numel(), PIECE_ELEMENTS):
            some = slice(first, first + PIECE_ELEMENTS)
            error = (out.flatten()[some].double() - expected[some].to(out.device)).abs()
            error = error[torch.isfinite(error)]
            if error.numel():
                finite += error.numel()
                worst = max(float(error.max()), worst)  # in this order, so that a NaN does not win
                squares += float(error.square().sum())
        nan_share = 1.0 - finite / out.numel()
        passed = nan_share == 0.0 and worst <= self.allowed_abs_err
        relative = math.sqrt(squares) / max(float(expected.norm()), math.ulp(0.0))
        return Verdict("ok" if passed else "wrong", worst, self.allowed_abs_err, nan_share, relative)


def compute_reference(problem: Problem, inputs: dict[str, np.ndarray], device: str) -> Reference:
    """The reference of `problem` on given inputs (float32 arrays), computed on `device` piece by piece."""
    dtype = getattr(torch, problem.dtype)
    given = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
    exact = attention(problem, **given, dtype=torch.float64)
    seen = exact.view(-1, problem.heads // problem.kv_heads, problem.seq_q, problem.hdim)
    worst = 0.0
    ways: list[tuple[Any, torch.dtype | None]] = [(block_scores, None), (serial_scores, None)]
    ways += [(block_scores, dtype)] * (dtype != torch.float32 and problem.family == "rope")
    for scores_of, between in ways:
        for place, piece in attention_pieces(
            problem, **given, dtype=torch.float32, scores_of=scores_of, between=between
        ):
            worst = max(worst, float((piece.to(dtype).double() - seen[place]).abs().max()))
    rounding = FLOAT32_EPS * float(exact.abs().max()) if dtype == torch.float32 else 0.0
    return Reference(inputs, exact, max(ERROR_FACTOR * worst, rounding), given)


@functools.lru_cache(maxsize=64)
def reference_of(problem: Problem, kind: str, device: str = "cpu") -> Reference:
    """The reference of `problem` on inputs of that kind, computed on `device`. Raises: ValueError for another kind."""
    return compute_reference(problem, make_inputs(problem, kind), device)
