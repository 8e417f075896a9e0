"""Decoding from a cache of rotated keys: PyTorch compiles the rotation of the query and the newest key with the
attention.

In a problem with `cache="rotated"` all keys except the newest are already rotated. A call rotates the newest one into
the cache. The other rows are copied there once, outside the timing.
"""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.weak import WeakTensorKeyDictionary

from ..checking.reference import rotate
from ..constants import MUST_BE, require
from ..planning import attention_buffers
from ..version import Plan, Problem, register
from .one_graph import _compiled
from .pytorch import PEER_TAKES, Tables, rope_tables

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]


def _written_out(q: torch.Tensor, cache: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Heads that share keys are rows of one product, so that no key is copied."""
    scores = q.reshape(q.shape[0], cache.shape[1], -1, q.shape[3]) @ cache.transpose(-1, -2) * scale
    return (torch.softmax(scores, dim=-1) @ v).reshape(q.shape)


def _by_sdpa(q: torch.Tensor, cache: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    return scaled_dot_product_attention(q, cache, v, scale=scale, enable_gqa=q.shape[1] != cache.shape[1])


def _step(
    q: torch.Tensor,
    key: torch.Tensor,
    cache: torch.Tensor,
    v: torch.Tensor,
    tables: Tables,
    scale: float,
    attend: Attend,
) -> torch.Tensor:
    """One token: rotate its query and its key, store the key in the cache, attend to the whole cache."""
    q_cos, q_sin, k_cos, k_sin = tables
    cache[:, :, -1:] = rotate(key, k_cos[-1:], k_sin[-1:])
    return attend(rotate(q, q_cos, q_sin), cache, v, scale)


def _plan(problem: Problem, attend: Attend) -> Plan:
    require(problem.family == "rope", "family", problem.family, "rope", PEER_TAKES)
    require(problem.dtype == "float32", "dtype", problem.dtype, "float32", PEER_TAKES)
    require(problem.cache == "rotated", "cache", problem.cache, "rotated", PEER_TAKES)
    require(problem.seq_q == 1, "seq_q", problem.seq_q, 1, MUST_BE)
    require(problem.q_offset == problem.seq_k - 1, "q_offset", problem.q_offset, problem.seq_k - 1, MUST_BE)
    step, tables, caches = _compiled(_step, None), rope_tables(problem), WeakTensorKeyDictionary()

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if k not in caches:
            caches[k] = k.clone()
        return step(q, k[:, :, -1:], caches[k], v, tables(q), problem.softmax_scale, attend)

    return Plan(problem, attention_buffers(problem), call=call)


@register(
    family="rope",
    title="A cache of rotated keys: one token and attention written out, compiled as one graph",
    source="PyTorch",
    beyond=True,
    peer=True,
)
def torch_rope_cache_one_graph(problem: Problem) -> Plan:
    """Plan the attention of one token to a cache of rotated keys, without SDPA. Raises: Unsupported."""
    return _plan(problem, _written_out)


@register(
    family="rope",
    title="A cache of rotated keys: one token and PyTorch SDPA, compiled as one graph",
    source="PyTorch",
    beyond=True,
    peer=True,
)
def torch_rope_cache_sdpa(problem: Problem) -> Plan:
    """Plan the attention of one token to a cache of rotated keys, with PyTorch's SDPA. Raises: Unsupported."""
    return _plan(problem, _by_sdpa)
