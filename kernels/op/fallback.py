"""Attention in PyTorch's own operations: what the ops compute where no kernel does, and their gradients.

Every step is in the dtype of q, or in float32 for half precision. So are the scores, `[batch, heads, seq_q, seq_k]`:
memory that the kernels do not take. `Options` and `Tensors` are those of `arguments`.
"""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..constants import MOST_POSITIONS
from .arguments import HALF, Options, Tensors


def turns(
    options: Options, tensors: Tensors, where: torch.Tensor, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of what has the indices `where`, `[count]` or `[batch, count]`; `[batch, 1, count, pairs]` of these.

    Computed angles are float64 until their sine is taken: in float32 they drift with the position.
    """
    cos, sin, positions, _, _ = tensors
    if positions is not None and where.dim() == 2:
        where = positions.expand(len(where), -1).gather(1, where.clamp(min=0)).long()
    elif positions is not None:
        where = positions[..., where].long()
    if cos is None:
        pair = torch.arange(0, options.rotary_dim, 2, dtype=torch.float64, device=like.device)
        angle = where[..., None].double() * options.base ** (-pair / options.rotary_dim)
        tables = angle.cos().to(like.dtype), angle.sin().to(like.dtype)
        rows = MOST_POSITIONS
    else:
        rows = cos.shape[0]
        row = where.clamp(0, rows - 1)
        tables = cos[row].to(like.dtype), sin[row].to(like.dtype)
    if positions is not None:
        known = ((where >= 0) & (where < rows))[..., None]
        tables = tables[0].where(known, math.nan), tables[1].where(known, math.nan)
    if where.dim() == 2:
        return tables[0][:, None], tables[1][:, None]
    return tables


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x with its first dims rotated, as pairs (2j, 2j + 1) or (j, j + rotary_dim / 2)."""
    pairs = cos.shape[-1]
    rotary, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    first, second = rotary.unflatten(-1, (pairs, 2) if interleaved else (2, pairs)).unbind(-1 if interleaved else -2)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat((torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1), rest), -1)


def slopes_of(heads: int, like: torch.Tensor) -> torch.Tensor:
    """`[heads]`: `checking.reference.alibi_slopes`, made on the device of `like`: a capture can copy nothing there."""
    power = 1 << (heads.bit_length() - 1)
    first = torch.arange(1, power + 1, dtype=torch.float64, device=like.device) * (-8 / power)
    others = (2 * torch.arange(heads - power, dtype=torch.float64, device=like.device) + 1) * (-4 / power)
    return torch.cat((first, others)).exp2().to(like.dtype)


def _without_autocast(x: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    if not torch.amp.is_autocast_available(x.device.type):  # as on the meta device
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, enabled=False)


class _Recomputed:
    """The weights of a call, and what they are made of; queries that share a head of K follow one another."""

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        tensors: Tensors,
        options: Options,
        between: torch.dtype | None = None,
    ) -> None:
        q, k, v = (x.float() if x.dtype in HALF else x for x in (q, k, v))
        (batch, heads, seq_q, hdim), (_, kv_heads, seq_k, _) = q.shape, k.shape
        query, key = torch.arange(seq_q, device=q.device), torch.arange(seq_k, device=q.device)
        if tensors.lengths is None:
            query = query + options.q_offset
            at, unseen = query[:, None], None
        else:
            length = tensors.lengths.long().clamp(0, seq_k)[:, None]
            query = query + (length - seq_q)
            at = query[:, None, :, None]
            behind = (key >= length)[:, None, :, None]
            k, v = k.masked_fill(behind, 0.0), v.masked_fill(behind, 0.0)  # nothing may come of what lies there
            unseen = behind.transpose(-1, -2) | (at < 0)
        self.turns = None
        if options.rotary_dim:
            self.turns = turns(options, tensors, query, q), turns(options, tensors, key, k)
            q, k = (rotate(x, *by, options.interleaved) for x, by in zip((q, k), self.turns, strict=True))
            q, k = (x.to(between or x.dtype).to(x.dtype) for x in (q, k))
        self.shape = (batch, kv_heads, heads // kv_heads * seq_q, hdim)
        self.q, self.k, self.v = q.reshape(self.shape), k, v
        scores = ((self.q * options.scale) @ k.transpose(-1, -2)).view(batch, heads, seq_q, seq_k)
        if options.family == "alibi":
            slopes = slopes_of(int(heads), q) if tensors.slopes is None else tensors.slopes.to(q.dtype)
            scores = scores - slopes[..., None, None] * (at - key).abs().to(q.dtype)
        if options.causal:
            scores = scores.masked_fill(key > at, -math.inf)
        if unseen is not None:
            scores = scores.masked_fill(unseen, -math.inf)
        nothing = (scores == -math.inf).all(-1, keepdim=True)  # weighs anything in the row: it is 0, as PyTorch's is
        self.interleaved = options.interleaved
        self.weights = scores.softmax(-1).masked_fill(nothing, 0.0).view(batch, kv_heads, -1, seq_k)

    def turned_back(self, grad: torch.Tensor, of: int) -> torch.Tensor:
        """The gradient of q (of: 0) or k (1) from that of its rotation."""
        if self.turns is None:
            return grad
        cos, sin = self.turns[of]
        return rotate(grad, cos, -sin, self.interleaved)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tensors: Tensors,
    options: Options,
    between: torch.dtype | None = None,
) -> torch.Tensor:
    """softmax(scale * rotated q rotated k^T + bias) v, like q; for any dtype, on any device.

    Rotated q and k are rounded to the dtype `between`, if one is given.
    """
    with _without_autocast(q):
        made = _Recomputed(q, k, v, tensors, options, between)
        return (made.weights @ made.v).view(q.shape).to(q.dtype)


def gradients(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tensors: Tensors,
    options: Options,
    needed: Sequence[bool] = (True, True, True),
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of q, k and v from that of the output, None where one is not needed. Differentiable again.

    The weights are recomputed.
    """
    needs_q, needs_k, needs_v = needed
    grad_q = grad_k = grad_v = None
    with _without_autocast(q):
        made = _Recomputed(q, k, v, tensors, options)
        weights, grad = made.weights, grad.reshape(made.shape).to(made.q.dtype)
        if needs_v:
            grad_v = (weights.transpose(-1, -2) @ grad).to(q.dtype)
        if needs_q or needs_k:
            grad_weights = grad @ made.v.transpose(-1, -2)
            grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True)) * options.scale
        if needs_q:
            grad_q = made.turned_back((grad_scores @ made.k).view(q.shape), 0).to(q.dtype)
        if needs_k:
            grad_k = made.turned_back(grad_scores.transpose(-1, -2) @ made.q, 1).to(q.dtype)
        return grad_q, grad_k, grad_v
