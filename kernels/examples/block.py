"""A LLaMA-style decoder in plain PyTorch, whose attention function can be replaced.

It has RMSNorm, RoPE on half-split pairs, grouped-query attention, SwiGLU, and a cache of keys and values for decoding.
`Decoder(config, attend=fused)` differs from `Decoder(config, attend=plain)` in one function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..op import rope_attention

BASE = 500_000.0  # the RoPE base of LLaMA 3

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder; `dim` is the width of the residual stream, a multiple of `heads`."""

    vocabulary: int = 101
    dim: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 256

    @property
    def hdim(self) -> int:
        return self.dim // self.heads


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of the last queries to all keys, in PyTorch: rotate Q, rotate K, mask, attend.

    q: `[batch, heads, seq_q, hdim]`, the last of the sequence; k, v: `[batch, kv_heads, seq_k, hdim]`
    """
    seq_q, seq_k, hdim = q.shape[2], k.shape[2], q.shape[3]
    rates = BASE ** (-torch.arange(0, hdim, 2, device=q.device, dtype=q.dtype) / hdim)
    positions = torch.arange(seq_k, device=q.device)
    angle = torch.cat([positions[:, None] * rates] * 2, dim=-1)
    cos, sin = angle.cos(), angle.sin()

    def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    q, k = rotate(q, cos[-seq_q:], sin[-seq_q:]), rotate(k, cos, sin)
    mask = positions <= positions[-seq_q:, None]
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same as `plain`, with RoPE left to the attention."""
    return rope_attention(q, k, v, base=BASE, interleaved=False, causal=True)


class Cache:
    """Keys (not rotated) and values of one layer, allocated for `capacity` positions; `options` are torch tensor
    options.
    """

    def __init__(self, config: Config, batch: int, capacity: int, **options: Any) -> None:
        self.keys = torch.empty(batch, config.kv_heads, capacity, config.hdim, **options)
        self.values = torch.empty_like(self.keys)
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v; return views of all keys and values so far."""
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Block(nn.Module):
    """One layer: x + attention(norm(x)), then x + swiglu(norm(x))."""

    def __init__(self, config: Config, attend: Attend) -> None:
        super().__init__()
        self.config, self.attend = config, attend
        kv_dim = config.kv_heads * config.hdim
        self.attention_norm = nn.RMSNorm(config.dim)
        self.wq = nn.Linear(config.dim, config.dim, bias=False)
        self.wk = nn.Linear(config.dim, kv_dim, bias=False)
        self.wv = nn.Linear(config.dim, kv_dim, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)
        self.mlp_norm = nn.RMSNorm(config.dim)
        self.gate = nn.Linear(config.dim, config.hidden, bias=False)
        self.up = nn.Linear(config.dim, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        normed = self.attention_norm(x)
        q, k, v = (
            linear(normed).unflatten(-1, (-1, self.config.hdim)).transpose(1, 2)
            for linear in (self.wq, self.wk, self.wv)
        )
        if cache is not None:
            k, v = cache.append(k, v)
        x = x + self.wo(self.attend(q, k, v).transpose(1, 2).flatten(-2))
        normed = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """Tokens `[batch, seq]` to logits `[batch, seq, vocabulary]`; with caches, one per layer, tokens continue the
    cached ones.
    """

    def __init__(self, config: Config, attend: Attend = fused) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.dim)
        self.blocks = nn.ModuleList(Block(config, attend) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim)

    def forward(self, tokens: Tensor, caches: list[Cache] | None = None) -> Tensor:
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches else None)
        return functional.linear(self.norm(x), self.embedding.weight)
