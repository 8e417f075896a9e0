"""What a user would pick instead: PyTorch's attention, after RoPE by eager or by compiled PyTorch.

Positions do not change between calls, so the cos and sin tables are made once, outside the timing, as
the log's separate path has them too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .log import require
from .reference import angles, positions, rotate
from .version import Plan, Problem, register

BACKENDS = {"": "", "_efficient": "EFFICIENT_ATTENTION", "_math": "MATH"}  # of SDPBackend; "" lets PyTorch choose
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _sdpa(problem: Problem, backend: str) -> Attention:
    require(problem.q_offset == 0, f"q_offset is {problem.q_offset}; it must be 0")

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        options = {"is_causal": problem.causal, "enable_gqa": problem.heads != problem.kv_heads}
        if not backend:
            return scaled_dot_product_attention(q, k, v, **options)
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, **options)

    return call


def _rotate_both(
    q: torch.Tensor, k: torch.Tensor, tables: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    q_cos, q_sin, k_cos, k_sin = tables
    return rotate(q, q_cos, q_sin), rotate(k, k_cos, k_sin)


@functools.cache
def _compiled() -> Callable:
    """The rotation compiled once a shape; giving up on a shape would silently time the eager one."""
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(_rotate_both, dynamic=False)


def _rope_sdpa(problem: Problem, backend: str, compiled: bool) -> Attention:
    attend = _sdpa(problem, backend)
    tables: dict[torch.device, tuple[torch.Tensor, ...]] = {}

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if q.device not in tables:
            turns = [angles(where, problem.rotary_dim, q.dtype) for where in positions(problem, q.device)]
            tables[q.device] = tuple(f(turn) for turn in turns for f in (torch.cos, torch.sin))
        turn = _compiled() if compiled else _rotate_both
        q, k = turn(q, k, tables[q.device])
        return attend(q, k, v)

    return call


def _register(name: str, family: str, title: str, make: Callable[[Problem], Attention]) -> None:
    def plan(problem: Problem) -> Plan:
        require(problem.family == family, f"family is {problem.family}; this peer takes {family}")
        return Plan(problem, call=make(problem))

    plan.__name__ = plan.__qualname__ = name
    plan.__doc__ = f"{title}, on torch tensors."
    register(family=family, title=title, source="PyTorch")(plan)


for _suffix, _backend in BACKENDS.items():
    _label = f"PyTorch SDPA{_suffix.replace('_', ', ')}"
    _register(f"torch_sdpa{_suffix}", "attention", _label, functools.partial(_sdpa, backend=_backend))
    for _how in ("", "_compiled"):
        _register(
            f"torch_rope{_how}_sdpa{_suffix}",
            "rope",
            f"{'Compiled' if _how else 'Eager'} RoPE, then {_label}",
            functools.partial(_rope_sdpa, backend=_backend, compiled=bool(_how)),
        )
