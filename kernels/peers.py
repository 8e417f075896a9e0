"""What a user would pick instead: PyTorch's attention, after an embedding by eager or by compiled PyTorch.

Positions do not change between calls, so an embedding's tables are made once, outside the timing, as the log's
separate paths have them too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .log import require
from .reference import angles, positions, rotate
from .version import Buffer, Plan, Problem, register

# Of SDPBackend; "" lets PyTorch choose. On a GPU the last two take half precision only.
BACKENDS = {
    "": "",
    "_efficient": "EFFICIENT_ATTENTION",
    "_math": "MATH",
    "_flash": "FLASH_ATTENTION",
    "_cudnn": "CUDNN_ATTENTION",
}
FP32_BACKENDS = ("", "_efficient", "_math")
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Tables = tuple[torch.Tensor, ...]


def _sdpa(problem: Problem, backend: str) -> Attention:
    require(problem.q_offset == 0, f"q_offset is {problem.q_offset}; it must be 0")

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        options = {"is_causal": problem.causal, "enable_gqa": problem.heads != problem.kv_heads}
        if not backend:
            return scaled_dot_product_attention(q, k, v, **options)
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, **options)

    return call


def _matmul_softmax(problem: Problem) -> Attention:
    require(not problem.causal, "causal is 1; this peer has no mask")
    require(problem.kv_heads == problem.heads, f"kv_heads is {problem.kv_heads}; it must equal heads, {problem.heads}")

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * problem.softmax_scale, dim=-1) @ v

    return call


def _rope_tables(problem: Problem, q: torch.Tensor) -> Tables:
    turns = [angles(where, problem.rotary_dim, q.dtype) for where in positions(problem, q.device)]
    return tuple(f(turn) for turn in turns for f in (torch.cos, torch.sin))


def _rotate_both(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    q_cos, q_sin, k_cos, k_sin = tables
    return rotate(q, q_cos, q_sin), rotate(k, k_cos, k_sin)


def _sinusoidal_tables(problem: Problem, q: torch.Tensor) -> Tables:
    turns = [angles(where, problem.hdim, q.dtype) for where in positions(problem, q.device)]
    return tuple(torch.stack((turn.sin(), turn.cos()), dim=-1).flatten(-2) for turn in turns)


def _add_both(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    return q + tables[0], k + tables[1]


@functools.cache
def _compiled(embed: Callable) -> Callable:
    """An embedding compiled once a shape; giving up on a shape would silently time the eager one."""
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(embed, dynamic=False)


def _embedded(attend: Attention, make_tables: Callable[[torch.Tensor], Tables], embed: Callable) -> Attention:
    tables: dict[torch.device, Tables] = {}

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if q.device not in tables:
            tables[q.device] = make_tables(q)
        q, k = embed(q, k, tables[q.device])
        return attend(q, k, v)

    return call


def _rope_sdpa(problem: Problem, backend: str, compiled: bool) -> Attention:
    embed = _compiled(_rotate_both) if compiled else _rotate_both
    return _embedded(_sdpa(problem, backend), functools.partial(_rope_tables, problem), embed)


def _sinusoidal_sdpa(problem: Problem, backend: str, compiled: bool) -> Attention:
    embed = _compiled(_add_both) if compiled else _add_both
    return _embedded(_sdpa(problem, backend), functools.partial(_sinusoidal_tables, problem), embed)


def _register(name: str, family: str, title: str, make: Callable[[Problem], Attention]) -> None:
    def plan(problem: Problem) -> Plan:
        require(problem.family == family, f"family is {problem.family}; this peer takes {family}")
        if family == "fp16":
            require(problem.dtype == "float16", f"dtype is {problem.dtype}; this peer takes float16")
        shapes = {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape, "out": problem.q_shape}
        buffers = {which: Buffer(shape, problem.dtype) for which, shape in shapes.items()}
        return Plan(problem, buffers, call=make(problem))

    plan.__name__ = plan.__qualname__ = name
    plan.__doc__ = f"{title}, on torch tensors."
    register(family=family, title=title, source="PyTorch")(plan)


_register("torch_matmul_softmax", "attention", "PyTorch matmul, softmax, matmul", _matmul_softmax)
for _suffix, _backend in BACKENDS.items():
    _label = f"PyTorch SDPA{_suffix.replace('_', ', ')}"
    _plain = functools.partial(_sdpa, backend=_backend)
    _register(f"torch_sdpa_fp16{_suffix}", "fp16", f"{_label}, half precision", _plain)
    if _suffix in FP32_BACKENDS:
        _register(f"torch_sdpa{_suffix}", "attention", _label, _plain)
        for _compile in (False, True):
            _how, _eager = ("_compiled", "Compiled") if _compile else ("", "Eager")
            _register(
                f"torch_rope{_how}_sdpa{_suffix}",
                "rope",
                f"{_eager} RoPE, then {_label}",
                functools.partial(_rope_sdpa, backend=_backend, compiled=_compile),
            )
            _register(
                f"torch_sinusoidal{_how}_sdpa{_suffix}",
                "sinusoidal",
                f"{_eager} sinusoidal embedding, then {_label}",
                functools.partial(_sinusoidal_sdpa, backend=_backend, compiled=_compile),
            )
