"""Prompts in half precision: RoPE in float32, which PyTorch compiles to one kernel, then SDPA's flash or cuDNN."""

import torch

from ..constants import require
from ..version import Problem
from .pytorch import CUDNN, FLASH, PEER_TAKES, Attention, Tables, _compiled, _rotate_both, _sdpa, peer, rope_tables


def _rotate_halves(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    rotated_q, rotated_k = _rotate_both(q.float(), k.float(), tables)
    return rotated_q.to(q.dtype), rotated_k.to(k.dtype)


def _rope_then_sdpa(problem: Problem, backend: str) -> Attention:
    require(problem.dtype != "float32", "dtype", problem.dtype, "half precision", PEER_TAKES)
    attend, embed, tables = _sdpa(problem, backend), _compiled(_rotate_halves), rope_tables(problem)

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
