"""The reference for every problem in float64, the inputs of a check, and the error that its dtype may make.

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

from ..constants import FREQUENCY_BASE, MUST_BE, require
from ..version import TABLES, Problem

INPUTS = ("uniform", "sharp")
ERROR_FACTOR = 4.0
FLOAT32_EPS = 2.0**-23
SHARP_DEVIATION = 2.0  # of q and k, so that scores have a standard deviation of its square, 4
TABLE_DTYPES = {"float32": torch.float32, "float16": torch.float16, "float8": torch.float8_e4m3fn}
TABLES_OF = {"sinusoidal": TABLES, "learned": tuple(TABLE_DTYPES)}  # of the other families, computed
LEARNED_DEVIATION, LEARNED_SEED = 0.5, 7


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


def require_table(problem: Problem) -> None:
    """Raises: Unsupported for a table that the family has not, or that does not reach back to the first query."""
    allowed = TABLES_OF.get(problem.family, ("computed",))
    takes = f"table is {{needed}}; family {problem.family} takes {{allowed}}"
    require(problem.table in allowed, "table", problem.table, ", ".join(allowed), takes)
    reaches = problem.table == "computed" or problem.q_offset >= 0
    require(reaches, "q_offset", problem.q_offset, "0 or more, where a table begins", MUST_BE)


def exact_table(problem: Problem) -> torch.Tensor:
    """float64[positions, hdim]: what is added to a query or a key at each position, before it is rounded to be stored.

    Learned values are drawn, normal with a standard deviation of 0.5; a row is the same however many there are.
    """
    rows = max(problem.seq_k, problem.q_offset + problem.seq_q)
    if problem.family == "learned":
        drawn = np.random.default_rng(LEARNED_SEED).standard_normal((rows, problem.hdim))
        return torch.from_numpy(LEARNED_DEVIATION * drawn)
    angle = angles(torch.arange(rows), problem.hdim, torch.float64)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


def stored_table(problem: Problem) -> torch.Tensor:
    """`exact_table` in the dtype of the problem's table, float8 being e4m3. Raises: Unsupported without a table."""
    require_table(problem)
    stored = "table is {needed}; what is stored is {allowed}"
    require(problem.table != "computed", "table", problem.table, ", ".join(TABLE_DTYPES), stored)
    return exact_table(problem).to(TABLE_DTYPES[problem.table])


def table_error(problem: Problem) -> float:
    """How far a stored value is at most from the exact one; the reference has stored ones too."""
    return float((stored_table(problem).double() - exact_table(problem)).abs().max())


def alibi_slopes(heads: int) -> np.ndarray:
    """float64[heads]: 2^(-8 (h + 1) / heads) where heads is a power of two.

    Otherwise those of the next smaller power of two, and then every other one of twice that: Press, Smith and Lewis,
    Train Short, Test Long (2022).
    """
    power = 1 << (heads.bit_length() - 1)
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    return np.concatenate((slopes, alibi_slopes(2 * power)[::2][: heads - power])) if power < heads else slopes


def alibi_bias(problem: Problem, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """`[heads, seq_q, seq_k]`: -slope * |query position - key position|, which is added to the scaled scores."""
    query, key = positions(problem, device)
    slopes = torch.from_numpy(alibi_slopes(problem.heads)).to(device, dtype)
    return -slopes[:, None, None] * (query[:, None] - key[None, :]).abs().to(dtype)


def embed(problem: Problem, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k with what the family does to them, in their own dtype. Raises: Unsupported, by `require_table`."""
    require_table(problem)
    if problem.family in ("attention", "fp16", "alibi"):
        return q, k
    query, key = positions(problem, q.device)
    if problem.table != "computed":
        table = stored_table(problem).to(q.dtype).to(q.device)
        return q + table[query], k + table[key]
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
    """softmax(scale * embedded q embedded k^T + bias) v, every step in the inputs' dtype; only ALiBi has a bias."""
    q, k = embed(problem, q, k)
    groups = problem.heads // problem.kv_heads
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = scores_of(q, k) * problem.softmax_scale
    if problem.family == "alibi":
        scores = scores + alibi_bias(problem, q.device, q.dtype)
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
class Reference:
    """Inputs of one kind for a problem, the exact output in float64, and the error that its dtype may make on them.

    The allowance is 4 times the error of fp32 attention on the same inputs: the larger of one whose dot
    products are summed in blocks (PyTorch's) and one that sums them in order (the log's kernels do, and
    at head dim 8192 that alone costs more than the blocks' whole allowance). For half-precision inputs the
    output is rounded once, at the end, and that is nearly all of the error: so PyTorch's math SDPA does it,
    which computes in fp32 throughout.

    In fp32 the allowance is 2^-23 of the largest output at least, which is two roundings: of the weighted sum, and of
    its division by the sum of weights. The reference is exact where there is one key, and would allow none.
    """

    inputs: dict[str, np.ndarray]
    expected: torch.Tensor
    allowed_abs_err: float

    def compare(self, out: torch.Tensor) -> Verdict:
        """Compare `out`, of its shape, with the exact output; NaN never passes."""
        error = (out.double() - self.expected.to(out.device)).abs()
        finite = torch.isfinite(error)
        nan_share = 1.0 - float(finite.double().mean())
        worst = float(error[finite].max()) if bool(finite.any()) else math.nan
        passed = nan_share == 0.0 and worst <= self.allowed_abs_err
        return Verdict("ok" if passed else "wrong", worst, self.allowed_abs_err, nan_share)


@functools.lru_cache(maxsize=64)
def reference_of(problem: Problem, kind: str, device: str = "cpu") -> Reference:
    """The reference of `problem` on inputs of that kind, computed on `device`. Raises: ValueError for another kind."""
    dtype = getattr(torch, problem.dtype)
    inputs = make_inputs(problem, kind)
    single = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
    exact = attention(problem, **{name: tensor.double() for name, tensor in single.items()})
    errors = [
        float((attention(problem, **single, scores_of=scores_of).to(dtype).double() - exact).abs().max())
        for scores_of in (block_scores, serial_scores)
    ]
    rounding = FLOAT32_EPS * float(exact.abs().max()) if dtype == torch.float32 else 0.0
    return Reference(inputs, exact, max(ERROR_FACTOR * max(errors), rounding))
