"""Half precision: PyTorch compiles RoPE with its attention, or before it, or attends to keys that are rotated already.

Angles are float32 in all: in half precision they would be wrong from some hundred positions on.
"""

import functools

import torch
from torch.nn.functional import scaled_dot_product_attention

from ..constants import require
from ..version import Problem
from .one_graph import AUTOTUNED, one_graph, sees
from .pytorch import CUDNN, FLASH, PEER_TAKES, Attention, Tables, embedded, peer, rope_tables, rotate_both, sdpa


def _require_half(problem: Problem) -> None:
    require(problem.dtype != "float32", "dtype", problem.dtype, "half precision", PEER_TAKES)


def _rotate_halves(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    rotated_q, rotated_k = rotate_both(q.float(), k.float(), tables)
    return rotated_q.to(q.dtype), rotated_k.to(k.dtype)


def _step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tables: Tables, causal: bool, offset: int) -> torch.Tensor:
    mask = sees(q.shape[2], k.shape[2], offset, q.device) if causal else None
    return scaled_dot_product_attention(*_rotate_halves(q, k, tables), v, mask, enable_gqa=q.shape[1] != k.shape[1])


def _rope_half(problem: Problem, mode: str | None = None) -> Attention:
    _require_half(problem)
    return one_graph(problem, _step, mode, torch.float32, problem.causal, problem.q_offset)


def _sdpa_half(problem: Problem, backend: str) -> Attention:
    _require_half(problem)
    return sdpa(problem, backend)


def _rope_then_sdpa(problem: Problem, backend: str) -> Attention:
    _require_half(problem)
    return embedded(sdpa(problem, backend), rope_tables(problem, torch.float32), _rotate_halves)


_graph = functools.partial(peer, family="rope", make=_rope_half, beyond=True)
_GRAPH = "RoPE in float32 and PyTorch SDPA, compiled as one graph"
_graph("torch_rope_half_one_graph", title=f"{_GRAPH}, half precision")
_graph("torch_rope_half_one_graph_autotuned", title=f"{_GRAPH}, autotuned, half precision", mode=AUTOTUNED)
for _title, _backend in (("flash", FLASH), ("cuDNN", CUDNN)):
    _name = f"torch_sdpa_half_{_title.lower()}"
    peer(_name, "attention", f"PyTorch SDPA, {_title}, half precision", _sdpa_half, backend=_backend, beyond=True)
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
