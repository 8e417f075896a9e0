"""The ops as one `torch.library` op, `attention` of this package's namespace: what torch.compile and autograd see.

It computes by the kernel where this takes the call, else in PyTorch; its backward computes in PyTorch.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from ..limits import Share
from ..runtime import gpu, kept
from ..runtime.streams import NO_SUCH_CLUSTER, green_share
from ..version import Unsupported
from .arguments import Options, Settled, Tensors, ask, require_strided, tensors_of
from .dispatch import launch_on_card, warn_caller
from .fallback import attend, gradients

NAMESPACE = __name__.split(".")[0]
SCHEMA = """attention(Tensor q, Tensor k, Tensor v, Tensor? cos, Tensor? sin, Tensor? positions,
Tensor? slopes, Tensor? lengths, str family, SymInt rotary_dim, float base, bool interleaved, bool causal,
SymInt q_offset, float scale, bool fallback) -> Tensor"""
TENSORS = 8  # of the schema's arguments

_warned: set[str] = kept(set())


def compute(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tensors: Tensors,
    settled: Settled,
    q_offset: int,
    fallback: bool,
    out: torch.Tensor | None = None,
    share: Share | None = None,
) -> torch.Tensor:
    """`out`, or a new output in the layout of q, by the kernel, or in PyTorch with a warning. Raises: Unsupported.

    `share` of the card is by default that of the current stream.
    """
    out = torch.empty_like(q) if out is None else out
    try:
        return launch_on_card(q, k, v, out, tensors, settled, q_offset, share)
    except (Unsupported, RuntimeError) as refusal:
        if share is None and getattr(refusal, "code", "") == NO_SUCH_CLUSTER:  # a green context is current
            device = gpu.DRIVER.card_of(q)
            with gpu.DRIVER.on(device):
                share = green_share(device)
            return compute(q, k, v, tensors, settled, q_offset, fallback, out, share)
        for name, x in (("q", q), ("k", k), ("v", v)):
            require_strided(name, x)
        if not isinstance(refusal, Unsupported):
            raise
        if q.is_meta:
            return out
        fall_back(refusal, fallback)
    return out.copy_(attend(q, k, v, tensors, settled.at(q_offset)))


def fall_back(refusal: Unsupported, allowed: bool) -> None:
    """Warn, once for each kind of refusal, that PyTorch computes. Raises: the refusal where that is not allowed."""
    if not allowed:
        raise refusal
    if refusal.kind not in _warned:
        _warned.add(refusal.kind)
        warn_caller(f"{NAMESPACE} computes this attention in PyTorch: {refusal}")


def _compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any) -> torch.Tensor:
    tensors, options, fallback = tensors_of(*rest[:5]), Options(*rest[5:-1]), rest[-1]
    return compute(q, k, v, tensors, *ask(q, k, v, tensors, options), fallback)


def refuse_package(q: torch.Tensor) -> None:
    """Raise RuntimeError where AOTInductor packages the op for a card: the package ends its process when it runs."""
    inductor = sys.modules.get("torch._inductor.virtualized")
    if q.is_cuda and inductor and getattr(inductor.V.graph, "aot_mode", False):
        raise RuntimeError(
            f"AOTInductor cannot package {NAMESPACE}'s attention for CUDA: with torch 2.11 the package ended its "
            "process with signal 11 when it ran; torch.export and torch.compile take it, and packages for the CPU"
        )


def _shape_only(q: torch.Tensor, *_: Any) -> torch.Tensor:
    refuse_package(q)
    return torch.empty_like(q)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:TENSORS])
    ctx.options = Options(*inputs[TENSORS:-1])


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    q, k, v, *tensors = ctx.saved_tensors
    made = gradients(grad, q, k, v, Tensors(*tensors), ctx.options, ctx.needs_input_grad[:3])
    return (*made, *(None,) * (TENSORS - 3 + len(Options._fields) + 1))


_library = torch.library.Library(NAMESPACE, "DEF")
_library.define(SCHEMA)
_library.impl("attention", _compute, "CompositeExplicitAutograd")
torch.library.register_fake(f"{NAMESPACE}::attention", _shape_only, lib=_library)
torch.library.register_autograd(f"{NAMESPACE}::attention", _backward, setup_context=_save, lib=_library)
attention = getattr(torch.ops, NAMESPACE).attention.default


@register_flop_formula(attention.overloadpacket)
def _flops(q: Sequence[int], k: Sequence[int], *_: Any, **__: Any) -> int:
    """Those of both products with all keys, as PyTorch counts its own attention: a mask takes none away."""
    return int(4 * math.prod(q) * k[2])
