"""Peers for every family: PyTorch's attention after a compiled embedding.

Positions do not change between calls, so tables and masks are made once, outside the timing, as in the log's separate
paths. No peer here asks for TF32: float32 products are as exact as PyTorch's defaults.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ..checking.reference import positions, rotate
from ..constants import MUST_BE, MUST_EQUAL_HEADS, require
from ..rates import angles
from ..version import Buffer, Plan, Problem, register

# Names of SDPBackend; "" lets PyTorch choose. On a GPU the last two take half precision only.
EFFICIENT, MATH, FLASH, CUDNN = "EFFICIENT_ATTENTION", "MATH", "FLASH_ATTENTION", "CUDNN_ATTENTION"
PEER_TAKES = "{kind} is {needed}; this peer takes {allowed}"
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Tables = tuple[torch.Tensor, ...]
T = TypeVar("T")


def require_positions(problem: Problem) -> None:
    require(problem.q_offset >= 0, "q_offset", problem.q_offset, "0 or more", MUST_BE)


def sdpa(problem: Problem, backend: str) -> Attention:
    """SDPA's `is_causal` puts query 0 at key 0."""
    require(problem.q_offset == 0 or not problem.causal, "q_offset", problem.q_offset, 0, MUST_BE)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        options = {"is_causal": problem.causal, "enable_gqa": problem.heads != problem.kv_heads}
        if not backend:
            return scaled_dot_product_attention(q, k, v, **options)
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return scaled_dot_product_attention(q, k, v, **options)

    return call


def _matmul_softmax(problem: Problem) -> Attention:
    require(not problem.causal, "causal", True, False, "causal is 1; this peer has no mask")
    require(problem.kv_heads == problem.heads, "kv_heads", problem.kv_heads, problem.heads, MUST_EQUAL_HEADS)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * problem.softmax_scale, dim=-1) @ v

    return call


def rotate_both(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    q_cos, q_sin, k_cos, k_sin = tables
    return rotate(q, q_cos, q_sin), rotate(k, k_cos, k_sin)


def halves(x: torch.Tensor) -> torch.Tensor:
    """A copy whose dims are reordered from pairs (2i, 2i + 1) to pairs (i, i + hdim / 2)."""
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2).contiguous()


def _sinusoidal_tables(problem: Problem, q: torch.Tensor) -> Tables:
    turns = [angles(where, problem.hdim, q.dtype) for where in positions(problem, q.device)]
    return tuple(torch.stack((turn.sin(), turn.cos()), dim=-1).flatten(-2) for turn in turns)


def _add_both(q: torch.Tensor, k: torch.Tensor, tables: Tables) -> tuple[torch.Tensor, torch.Tensor]:
    return q + tables[0], k + tables[1]


@functools.cache
def compiled(function: Callable, mode: str | None = None) -> Callable:
    """`function` compiled once per shape; it fails instead of falling back, as eager code would be timed silently."""
    torch._dynamo.config.recompile_limit = 1024
    torch._dynamo.config.accumulated_recompile_limit = 4096
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(function, dynamic=False, fullgraph=True, mode=mode)


def once_per_device(make: Callable[[torch.Tensor], T]) -> Callable[[torch.Tensor], T]:
    """`make(q)`, called with the first q on a device and cached for later ones."""
    made: dict[torch.device, T] = {}

    def remembered(q: torch.Tensor) -> T:
        if q.device not in made:
            made[q.device] = make(q)
        return made[q.device]

    return remembered


def rope_tables(problem: Problem, dtype: torch.dtype | None = None) -> Callable[[torch.Tensor], Tables]:
    """Cosines and sines for the queries and for the keys, each `[seq, rotary_dim / 2]`, in `dtype` or that of q."""

    def make(q: torch.Tensor) -> Tables:
        turns = [angles(where, problem.rotary_dim, dtype or q.dtype) for where in positions(problem, q.device)]
        return tuple(f(turn) for turn in turns for f in (torch.cos, torch.sin))

    return once_per_device(make)


def embedded(attend: Attention, tables: Callable[[torch.Tensor], Tables], embed: Callable) -> Attention:
    """`attend` after `embed`, which is compiled, of q, k and their tables."""
    embed = compiled(embed)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = embed(q, k, tables(q))
        return attend(q, k, v)

    return call


def _rope_sdpa(problem: Problem, backend: str) -> Attention:
    return embedded(sdpa(problem, backend), rope_tables(problem), rotate_both)


def _sinusoidal_sdpa(problem: Problem) -> Attention:
    tables = once_per_device(functools.partial(_sinusoidal_tables, problem))
    return embedded(sdpa(problem, ""), tables, _add_both)


def peer(
    name: str,
    family: str,
    title: str,
    make: Callable[..., Attention],
    *,
    source: str = "PyTorch",
    beyond: bool = False,
    compiled_embedding: bool = False,
    **options: str | bool,
) -> None:
    """Register a peer whose attention is `make(problem, **options)`."""

    def plan(problem: Problem) -> Plan:
        if family == "fp16":
            require(problem.dtype == "float16", "dtype", problem.dtype, "float16", PEER_TAKES)
        shapes = {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape, "out": problem.q_shape}
        buffers = {which: Buffer(shape, problem.dtype) for which, shape in shapes.items()}
        return Plan(problem, buffers, call=make(problem, **options))

    plan.__name__ = plan.__qualname__ = name
    plan.__doc__ = f"{title}, on torch tensors."
    register(
        family=family, title=title, source=source, beyond=beyond, peer=True, compiled_embedding=compiled_embedding
    )(plan)


THEN = "then PyTorch SDPA"
peer("torch_matmul_softmax", "attention", "PyTorch matmul, softmax, matmul", _matmul_softmax)
peer("torch_sdpa_fp16", "fp16", "PyTorch SDPA, half precision", sdpa, backend="")
peer("torch_sdpa", "attention", "PyTorch SDPA", sdpa, backend="")
_rope = functools.partial(peer, family="rope", make=_rope_sdpa, compiled_embedding=True)
_rope("torch_rope_compiled_sdpa", title=f"Compiled RoPE, {THEN}", backend="")
peer(
    "torch_sinusoidal_compiled_sdpa",
    "sinusoidal",
    f"Compiled sinusoidal embedding, {THEN}",
    _sinusoidal_sdpa,
    compiled_embedding=True,
)
_rope("torch_rope_compiled_sdpa_efficient", title=f"Compiled RoPE, {THEN}, efficient", backend=EFFICIENT)
_rope("torch_rope_compiled_sdpa_math", title=f"Compiled RoPE, {THEN}, math", backend=MATH)
peer("torch_sdpa_fp16_flash", "fp16", "PyTorch SDPA, flash, half precision", sdpa, backend=FLASH)
peer("torch_sdpa_fp16_cudnn", "fp16", "PyTorch SDPA, cudnn, half precision", sdpa, backend=CUDNN)
