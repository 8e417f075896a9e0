"""Attention in PyTorch's own operations: what the ops compute where no kernel does, and their gradients.

Every step is in the dtype of q, and so are the scores, `[batch, heads, seq_q, seq_k]`: memory that the kernels do not
take. `Asked` and `Tensors` are those of `arguments`.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch

from ..v8.embedding import MOST_POSITIONS
from .arguments import Asked, Tensors


def turns(
    asked: Asked, tensors: Tensors, place: int, count: int, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of what stands at `count` places from `place` on: `[count, pairs]`, or `[batch, 1, count, pairs]`.

    Computed angles are float64 until their sine is taken: in float32 they drift with the position.
    """
    cos, sin, positions, _ = tensors
    if positions is None:
        where = torch.arange(place, place + count, device=like.device)
    else:
        where = positions[..., place : place + count].long()
    if cos is None:
        pair = torch.arange(0, asked.rotary_dim, 2, dtype=torch.float64, device=like.device)
        angle = where[..., None].double() * asked.base ** (-pair / asked.rotary_dim)
        tables = angle.cos().to(like.dtype), angle.sin().to(like.dtype)
        rows = MOST_POSITIONS
    else:
        rows = cos.shape[0]
        row = where.clamp(0, rows - 1)
        tables = cos[row], sin[row]
    if positions is not None:
        known = ((where >= 0) & (where < rows))[..., None]
        tables = tables[0].where(known, math.nan), tables[1].where(known, math.nan)
        if positions.dim() == 2:
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

    def __init__(self, q: torch.Tensor, k: torch.Tensor, tensors: Tensors, asked: Asked) -> None:
        (batch, heads, seq_q, hdim), (_, kv_heads, seq_k, _) = q.shape, k.shape
        self.turns = None
        if asked.rotary_dim:
            self.turns = turns(asked, tensors, asked.q_offset, seq_q, q), turns(asked, tensors, 0, seq_k, k)
            q, k = (rotate(x, *by, asked.interleaved) for x, by in zip((q, k), self.turns, strict=True))
        self.shape = (batch, kv_heads, heads // kv_heads * seq_q, hdim)
        self.q, self.k = q.reshape(self.shape), k
        scores = ((self.q * asked.scale) @ k.transpose(-1, -2)).view(batch, heads, seq_q, seq_k)
        query = torch.arange(asked.q_offset, asked.q_offset + seq_q, device=q.device)[:, None]
        key = torch.arange(seq_k, device=q.device)
        if asked.family == "alibi":
            slopes = tensors.slopes
            if slopes is None:
                slopes = slopes_of(int(heads), q)
            scores = scores - slopes[..., None, None] * (query - key).abs().to(q.dtype)
        if asked.causal:
            scores = scores.masked_fill(key > query, -math.inf)
        nothing = (scores == -math.inf).all(-1, keepdim=True)  # weighs anything in the row: it is 0, as PyTorch's is
        self.weights = scores.softmax(-1).masked_fill(nothing, 0.0).view(batch, kv_heads, -1, seq_k)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Tensors, asked: Asked) -> torch.Tensor:
    """softmax(scale * turned q turned k^T + bias) v, like q: float32 or float64 on any device."""
    with _without_autocast(q):
        return (_Recomputed(q, k, tensors, asked).weights @ v).view(q.shape)


def gradients(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Tensors, asked: Asked
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of q, k and v, from that of the output; the weights are computed anew. It can be differentiated again."""
    with _without_autocast(q):
        made = _Recomputed(q, k, tensors, asked)
        weights, grad = made.weights, grad.reshape(made.shape)
        grad_v = weights.transpose(-1, -2) @ grad
        grad_weights = grad @ v.transpose(-1, -2)
        grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True)) * asked.scale
        grad_q, grad_k = (grad_scores @ made.k).view(q.shape), grad_scores.transpose(-1, -2) @ made.q
        if made.turns is not None:
            (cos_q, sin_q), (cos_k, sin_k) = made.turns
            grad_q = rotate(grad_q, cos_q, -sin_q, asked.interleaved)
            grad_k = rotate(grad_k, cos_k, -sin_k, asked.interleaved)
        return grad_q, grad_k, grad_v
