"""RoPE and attention as one function that PyTorch compiles: what its compiler fuses without help.

Scores, softmax and the product with V are written out, or left to SDPA. Each shape is compiled once. Tables of cos and
sin are made outside.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..version import Problem
from .pytorch import Attention, Tables, compiled, peer, require_positions, rope_tables, rotate_both

AUTOTUNED = "max-autotune-no-cudagraphs"  # tries kernels and tiles for each product; calls are in a CUDA graph already


def sees(seq_q: int, seq_k: int, offset: int, device: torch.device) -> torch.Tensor:
    """The causal mask, bool `[seq_q, seq_k]`: true where a query attends to a key."""
    return torch.ones(seq_q, seq_k, dtype=torch.bool, device=device).tril(offset)


def _written_out(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tables: Tables, scale: float, causal: bool, offset: int
) -> torch.Tensor:
    """Heads that share keys are rows of one product, so that no key is copied."""
    shape, seq_q = q.shape, q.shape[2]
    q, k = rotate_both(q, k, tables)
    scores = q.reshape(shape[0], k.shape[1], -1, shape[3]) @ k.transpose(-1, -2) * scale
    if causal:
        rows = scores.unflatten(2, (-1, seq_q))
        scores = rows.masked_fill(~sees(seq_q, k.shape[2], offset, q.device), -math.inf).flatten(2, 3)
    return (torch.softmax(scores, dim=-1) @ v).reshape(shape)


def _by_sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tables: Tables, causal: bool, offset: int
) -> torch.Tensor:
    """SDPA's `is_causal` puts query 0 at key 0, so queries that start later get a mask."""
    gqa = q.shape[1] != k.shape[1]
    q, k = rotate_both(q, k, tables)
    mask = sees(q.shape[2], k.shape[2], offset, q.device) if causal and offset else None
    return scaled_dot_product_attention(q, k, v, mask, is_causal=causal and not offset, enable_gqa=gqa)


def one_graph(
    problem: Problem, function: Callable, mode: str | None, dtype: torch.dtype | None, *arguments: Any
) -> Attention:
    """Attention by one compiled `function` of q, k, v, RoPE's tables in `dtype` or that of q, and `arguments`."""
    require_positions(problem)
    attend, tables = compiled(function, mode), rope_tables(problem, dtype)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, k, v, tables(q), *arguments)

    return call


def _rope_attention(problem: Problem, mode: str | None = None) -> Attention:
    return one_graph(problem, _written_out, mode, None, problem.softmax_scale, problem.causal, problem.q_offset)


def _rope_sdpa(problem: Problem, mode: str | None = None) -> Attention:
    return one_graph(problem, _by_sdpa, mode, None, problem.causal, problem.q_offset)


_GRAPH = "compiled as one graph"
_written = functools.partial(peer, family="rope", make=_rope_attention, beyond=True)
_sdpa = functools.partial(peer, family="rope", make=_rope_sdpa, beyond=True)
_written("torch_rope_one_graph", title=f"RoPE and attention written out, {_GRAPH}")
_written("torch_rope_one_graph_autotuned", title=f"RoPE and attention written out, {_GRAPH}, autotuned", mode=AUTOTUNED)
_sdpa("torch_rope_sdpa_one_graph", title=f"RoPE and PyTorch SDPA, {_GRAPH}")
_sdpa("torch_rope_sdpa_one_graph_autotuned", title=f"RoPE and PyTorch SDPA, {_GRAPH}, autotuned", mode=AUTOTUNED)
