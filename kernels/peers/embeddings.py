"""Peers for ALiBi and for learned embeddings: PyTorch's attention.

Biases and tables do not change between calls, so they are made once, outside the timing.
"""

import functools
import math
from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..checking.reference import alibi_bias, positions, require_table, stored_table
from ..constants import require
from ..version import Buffer, Plan, Problem, register
from .pytorch import PEER_TAKES, Attention, Tables, _compiled, _embedded, _sdpa


def _alibi_sdpa(problem: Problem) -> Attention:
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
    return _embedded(_sdpa(problem, ""), functools.partial(_stored_rows, problem), _compiled(_add_stored))


def _plan(problem: Problem, family: str, make: Callable[[Problem], Attention]) -> Plan:
    require(problem.family == family, "family", problem.family, family, PEER_TAKES)
    require_table(problem)
    shapes = {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape, "out": problem.q_shape}
    buffers = {which: Buffer(shape, problem.dtype) for which, shape in shapes.items()}
    return Plan(problem, buffers, call=make(problem))


@register(family="alibi", title="PyTorch SDPA with ALiBi's bias as a mask", source="PyTorch", beyond=True, peer=True)
def torch_alibi_sdpa(problem: Problem) -> Plan:
    """Plan ALiBi attention with PyTorch, on torch tensors. Raises: Unsupported."""
    return _plan(problem, "alibi", _alibi_sdpa)


@register(
    family="learned",
    title="Compiled addition of a table's rows, then PyTorch SDPA",
    source="PyTorch",
    beyond=True,
    peer=True,
    compiled_embedding=True,
)
def torch_learned_compiled_sdpa(problem: Problem) -> Plan:
    """Plan attention with learned embeddings with PyTorch, on torch tensors. Raises: Unsupported."""
    return _plan(problem, "learned", _learned_sdpa)
