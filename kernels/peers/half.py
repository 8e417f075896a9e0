"""Half precision: PyTorch compiles RoPE with its attention, or before it, or attends to keys that are rotated already.

Angles are float32 in all: in half precision they would be wrong from some hundred positions on.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..constants import require
from ..version import Problem
from .one_graph import AUTOTUNED, _compiled, _sees
from .pytorch import (
    CUDNN,
    FLASH,
    PEER_TAKES,
    Attention,
    Tables,
    _rotate_both,
    _sdpa,
    peer,
    require_positions,
    rope_tables,
)
from .pytorch import _compiled as _compiled_embedding


def _step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tables: Tables, causal: bool, offset: int) -> torch.Tensor:
    mask = _sees(q.shape[2], k.shape[2], offset, q.device) if causal else None
    rotated = (x.to(q.dtype) for x in _rotate_both(q.float(), k.float(), tables))
    return scaled_dot_product_attention(*rotated, v, mask, enable_gqa=q.shape[1] != k.shape[1])


def _rope_half(problem: Problem, mode: str | None = None) -> Attention:
    require(problem.dtype != "float32", "dtype", problem.dtype, "half precision", PEER_TAKES)
    require_positions(problem)
    attend, tables = _compiled(_step, mode), rope_tables(problem)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, k, v, tables(q.float()), problem.causal, problem.q_offset)

    return call


def _sdpa_half(problem: Problem, backend: str) -> Attention:
    require(problem.dtype != "float32", "dtype", problem.dtype, "half precision", PEER_TAKES)
    return _sdpa(problem, backend)


peer(
    "torch_rope_half_one_graph",
    "rope",
    "RoPE in float32 and PyTorch SDPA, compiled as one graph, half precision",
    _rope_half,
    beyond=True,
)
peer(
    "torch_rope_half_one_graph_autotuned",
    "rope",
    "RoPE in float32 and PyTorch SDPA, compiled as one graph, autotuned, half precision",
    _rope_half,
    mode=AUTOTUNED,
    beyond=True,
)
peer(
    "torch_sdpa_half_flash", "attention", "PyTorch SDPA, flash, half precision", _sdpa_half, backend=FLASH, beyond=True
)
peer(
    "torch_sdpa_half_cudnn", "attention", "PyTorch SDPA, cuDNN, half precision", _sdpa_half, backend=CUDNN, beyond=True
)


def _rotate_halves(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    rotated_q, rotated_k = _rotate_both(q.float(), k.float(), tables)
    return rotated_q.to(q.dtype), rotated_k.to(k.dtype)


def _rope_then_sdpa(problem: Problem, backend: str) -> Attention:
    require(problem.dtype != "float32", "dtype", problem.dtype, "half precision", PEER_TAKES)
    attend, embed, tables = _sdpa(problem, backend), _compiled_embedding(_rotate_halves), rope_tables(problem)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rotated_q, rotated_k = embed(q, k, tables(q.float()))
        return attend(rotated_q, rotated_k, v)

    return call


for _name, _backend in (("flash", FLASH), ("cudnn", CUDNN)):
    peer(
        f"torch_rope_half_{_name}",
        "rope",
        f"Compiled RoPE in float32, then PyTorch SDPA, {_name}, half precision",
        _rope_then_sdpa,
        backend=_backend,
        beyond=True,
        compiled_embedding=True,
    )
