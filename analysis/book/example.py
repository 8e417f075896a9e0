"""A small transformer in plain PyTorch, as LLaMA is built: rotary positions in half-split pairs, heads that share keys.

Its attention is an argument, so that a fused one can take its place: `partial(rope_attention, interleaved=False,
causal=True)`. The weights are drawn and not trained.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def rotated(x: torch.Tensor, base: float = 10000.0) -> torch.Tensor:
    """x `[..., seq, hdim]` with its pairs (j, j + hdim / 2) turned by position * base^(-2j / hdim)."""
    half = x.shape[-1] // 2
    rate = base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64, device=x.device), rate)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rope_then_sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)


class Block(nn.Module):
    """Attention with `heads` query heads that share `kv_heads` heads of keys and values, then two layers."""

    def __init__(self, width: int, heads: int, kv_heads: int, attend: Attention) -> None:
        super().__init__()
        self.hdim, self.attend = width // heads, attend
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, kv_heads * self.hdim, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x and what is returned: `[batch, seq, width]`."""
        normed = self.norms[0](x)
        q, k, v = (  # [batch, seq, heads, hdim] as [batch, heads, seq, hdim]: a view, no copy
            project(normed).unflatten(-1, (-1, self.hdim)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.layers(self.norms[1](x))


class Transformer(nn.Module):
    """Tokens `[batch, seq]` to logits `[batch, seq, vocabulary]`."""

    def __init__(
        self, attend: Attention = rope_then_sdpa, *, width: int = 256, depth: int = 2, vocabulary: int = 64
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, 4, 2, attend) for _ in range(depth)))
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits(self.blocks(self.embedding(tokens)))
