"""What a call of an op should give: float64, the error that fp32 math makes on it, and the rules that a result keeps.

A result is compared with two others. `exact` is float64 throughout, angles included. `fp32` is SDPA's math backend in
float32 on q and k turned by exact tables that are rounded to float32. The result has q's shape and dtype (rule
shape). Rules of values that are not finite:

- not_finite: where fp32 math is finite, so is the result.
- infinity: where both others have the same infinity, the result has it (+inf in v under a weight that is not 0).
- nan_spread: a row of the result holds a NaN only if that row of one of the others does.
- nan_lost: a row that is NaN throughout in both others is NaN throughout in the result.

Rule of errors, over what is finite in all three, the largest difference from `exact` as in kernels.checking.reference:

- error: at most 4 times that of fp32 math. One evaluation of fp32 math may be right by luck, above all where one near
  tie of two scores decides: its error is the largest of ORDERS evaluations, which sum the same terms in other orders
  and round them at other places. It is at least half a unit in the last place of the largest output, which rounding
  the output alone costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels.checking.reference import ERROR_FACTOR, alibi_slopes

from .calls import Call, Tensors

ORDERS = 8
HALF_ULP = 2.0**-24  # of a float32, relative
SUBNORMAL = 2.0**-138  # a quarter of the least TF32: what is below it is lost where products are of TF32


@dataclass(frozen=True)
class Judgement:
    """How a result compares; `broken` are the rules that it breaks, errors are None where nothing is finite."""

    broken: tuple[str, ...]
    max_abs_err: float | None = None
    fp32_abs_err: float | None = None
    allowed_abs_err: float | None = None
    ratio: float | None = None


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x `[batch, heads, seq, hdim]` with its first dims turned by cos and sin `[batch or 1, 1, seq, pairs]`."""
    pairs = cos.shape[-1]
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    )
    a, b = x[..., first], x[..., second]
    out = x.clone()
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def _angles(call: Call, given: Tensors, places: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin in float64, `[batch or 1, 1, places, pairs]`: those given, or of exact angles."""
    options, pairs = given.options, call.problem.rotary_dim // 2
    at = options.get("positions")
    at = torch.arange(call.places, device=given.q.device) if at is None else at.long()
    at = at.view(-1, 1, call.places)[..., places]
    if "cos" in options:
        return options["cos"].double()[at], options["sin"].double()[at]
    rate = call.base ** (-torch.arange(pairs, dtype=torch.float64, device=at.device) / max(pairs, 1))
    angle = at.double()[..., None] * rate
    return angle.cos(), angle.sin()


@dataclass
class Folded:
    """A call whose heads that share keys are folded into its queries: `q: [batch, kv_heads, groups * seq_q, hdim]`.

    q and k are turned. `bias` is added to scaled scores, broadcast; None for none. `hidden` are the keys not seen.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    bias: torch.Tensor | None
    hidden: torch.Tensor | None


def folded(call: Call, given: Tensors, dtype: torch.dtype) -> Folded:
    """The call in that dtype; angles are exact, and rounded to it."""
    problem, device = call.problem, given.q.device
    groups = problem.heads // problem.kv_heads
    q, k, v = (x.to(dtype) for x in (given.q, given.k, given.v))
    if problem.family == "rope":
        queries = slice(problem.q_offset, problem.q_offset + problem.seq_q)
        turns = [_angles(call, given, places) for places in (queries, slice(problem.seq_k))]
        q, k = (turned(x, cos.to(dtype), sin.to(dtype), call.interleaved) for x, (cos, sin) in zip((q, k), turns))
    place = torch.arange(problem.seq_q, device=device)[:, None] + problem.q_offset
    key = torch.arange(problem.seq_k, device=device)
    bias = hidden = None
    if problem.causal:
        hidden = (key > place).repeat(groups, 1)
    if problem.family == "alibi":
        slopes = torch.from_numpy(alibi_slopes(problem.heads)).to(device, dtype)
        bias = -slopes.view(problem.kv_heads, groups, 1, 1) * (place - key).abs().to(dtype)
        bias = bias.flatten(1, 2)
    return Folded(q.reshape(problem.batch, problem.kv_heads, -1, problem.hdim), k, v, bias, hidden)


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    """0 in a row of which every score is -inf, as in SDPA's math backend."""
    return torch.softmax(scores, dim=-1).masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)


def _attended(at: Folded, q: torch.Tensor, k: torch.Tensor, keys: torch.Tensor | None = None) -> torch.Tensor:
    """Attention of q and k that hold the scale; `keys` is the order that theirs is in."""
    scores, bias, hidden, v = q @ k.transpose(-1, -2), at.bias, at.hidden, at.v
    if keys is not None:
        v = v[..., keys, :]
        bias = bias if bias is None else bias[..., keys]
        hidden = hidden if hidden is None else hidden[..., keys]
    if bias is not None:
        scores = scores + bias
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return _softmax(scores) @ v


def exact(call: Call, given: Tensors) -> torch.Tensor:
    """float64, of q's shape."""
    at = folded(call, given, torch.float64)
    return _attended(at, at.q * call.softmax_scale, at.k).view(call.problem.q_shape)


def fp32_math(call: Call, at: Folded) -> torch.Tensor:
    """SDPA's math backend in float32, of q's shape."""
    mask = at.bias
    if at.hidden is not None:
        mask = (0.0 if mask is None else mask) + torch.zeros_like(at.hidden, dtype=torch.float32).masked_fill_(
            at.hidden, -math.inf
        )
    with sdpa_kernel(SDPBackend.MATH):
        out = scaled_dot_product_attention(at.q, at.k, at.v, attn_mask=mask, scale=call.softmax_scale)
    return out.view(call.problem.q_shape)


def _reordered(call: Call, at: Folded) -> Iterator[torch.Tensor]:
    """fp32 math with dims and keys summed in other orders, and other parts of the scale in q and in k."""
    dice = torch.Generator(at.q.device).manual_seed(call.seed)
    for order in range(1, ORDERS):
        dims = torch.randperm(at.q.shape[-1], generator=dice, device=at.q.device)
        keys = torch.randperm(at.k.shape[-2], generator=dice, device=at.q.device)
        part = order / ORDERS
        q = at.q[..., dims] * call.softmax_scale**part
        k = at.k[..., keys, :][..., dims] * call.softmax_scale ** (1 - part)
        yield _attended(at, q, k, keys).view(call.problem.q_shape)


def judge(call: Call, given: Tensors, out: torch.Tensor) -> Judgement:
    """Which rules `out` breaks as the result of a call."""
    if out.shape != given.q.shape or out.dtype != given.q.dtype:
        return Judgement(("shape",))
    expected = exact(call, given)
    at = folded(call, given, torch.float32)
    single = fp32_math(call, at)
    nan, nan_expected, nan_single = (x.isnan() for x in (out, expected, single))

    rules = {
        "not_finite": single.isfinite() & ~out.isfinite(),
        "infinity": expected.isinf() & (single == expected) & (out != expected),
        "nan_spread": nan.any(-1) & ~(nan_expected | nan_single).any(-1),
        "nan_lost": (nan_expected & nan_single).all(-1) & ~nan.all(-1),
    }
    broken = [name for name, places in rules.items() if bool(places.any())]

    finite = expected.isfinite() & single.isfinite() & out.isfinite()
    if not bool(finite.any()):
        return Judgement(tuple(broken))

    def error(x: torch.Tensor) -> float:
        return float((x.double() - expected).abs().where(finite & x.isfinite(), 0.0).max())

    fp32 = max(error(x) for x in (single, *_reordered(call, at)))
    rounding = max(HALF_ULP * float(expected.abs().where(finite, 0.0).max()), SUBNORMAL)
    worst, floored = error(out), max(fp32, rounding)
    if worst > ERROR_FACTOR * floored:
        broken.append("error")
    return Judgement(tuple(broken), worst, fp32, ERROR_FACTOR * floored, worst / floored)
