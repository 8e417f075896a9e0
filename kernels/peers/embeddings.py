"""Peers for ALiBi and for learned embeddings: PyTorch's attention.

Biases and tables do not change between calls, so they are made once, outside the timing.
"""

import functools
import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..checking.reference import alibi_bias, positions
from ..rates import require_table, stored_table
from ..version import Problem
from .pytorch import Attention, Tables, embedded, once_per_device, peer, sdpa


def _alibi_sdpa(problem: Problem) -> Attention:
    require_table(problem)

    @functools.cache
    def mask(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
        bias = alibi_bias(problem, device, dtype)
        if problem.causal:
            query, key = positions(problem, device)
            bias = bias.masked_fill(key[None, :] > query[:, None], -math.inf)
        return bias[None]

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        gqa = problem.heads != problem.kv_heads
        return scaled_dot_product_attention(q, k, v, attn_mask=mask(q.device, q.dtype), enable_gqa=gqa)

    return call


def _stored_rows(problem: Problem, q: torch.Tensor) -> Tables:
    """The rows of the table for the queries and for the keys, in the table's dtype."""
    table = stored_table(problem).to(q.device)
    return table[problem.q_offset :][: problem.seq_q], table[: problem.seq_k]


def _add_stored(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    return q + tables[0].to(q.dtype), k + tables[1].to(k.dtype)


def _learned_sdpa(problem: Problem) -> Attention:
    require_table(problem)
    tables = once_per_device(functools.partial(_stored_rows, problem))
    return embedded(sdpa(problem, ""), tables, _add_stored)


peer("torch_alibi_sdpa", "alibi", "PyTorch SDPA with ALiBi's bias as a mask", _alibi_sdpa, beyond=True)
peer(
    "torch_learned_compiled_sdpa",
    "learned",
    "Compiled addition of a table's rows, then PyTorch SDPA",
    _learned_sdpa,
    beyond=True,
    compiled_embedding=True,
)
