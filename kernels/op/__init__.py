"""Attention with positions on a user's own tensors: RoPE, ALiBi or none, by a fused kernel where one takes it.

q is `[batch, heads, seq_q, hdim]`, k and v `[batch, kv_heads, seq_k, hdim]`, of any strides; heads is a multiple of
kv_heads, and the result is like q. Query i has index `q_offset + i`, by default `seq_k - seq_q + i`, and key j index
j: a decode step hands in one query and all keys so far. The causal mask and ALiBi go by indices. Scores are
multiplied by `scale`, 1 / sqrt(hdim) by default. Gradients are PyTorch's, with all scores in memory, as `fallback` is.

    dtype                queries a head    computed by
    float16, bfloat16    1 to 8            decode: keys are split over the card, and each is rotated once
                         9 or more         prompts: tensor cores, behind a launch that rotates the keys
    float32              1 to 8            decode
                         9 or more         V8; chunks where keys are many; parts in float16 from 256 on, on Hopper
    what none takes      any               PyTorch, to the same result; a warning for each reason says so once

The README of this folder tells of limits, NaN, CUDA graphs and equal bits; `python -m kernels which` of one call.
"""

import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from ..flash.decode.plan import MOST_QUERIES
from ..version import Problem, Unsupported
from . import warm
from .arguments import (
    KERNEL_DTYPES,
    NO_TENSORS,
    Options,
    Tensors,
    ask,
    flag,
    integer,
    real,
    require_no_rotation,
    require_out,
    tensors_of,
)
from .fallback import attend
from .library import attention as _op
from .library import compute, fall_back

_C, _FUNCTORCH = torch._C, torch._C._functorch
_PLAIN = (torch.Tensor, type(None))

__all__ = ["Unsupported", "alibi_attention", "attention", "rope_attention", "warm_up"]


def rope_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    rotary_dim: int | None = None,
    base: float = 10_000.0,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    interleaved: bool = True,
    causal: bool = False,
    q_offset: int | None = None,
    scale: float | None = None,
    lengths: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    fallback: bool = True,
) -> torch.Tensor:
    """softmax(scale * rope(q) rope(k)^T) v: the first `rotary_dim` dims of q and k turn with their position.

    rotary_dim: even, 0 to hdim, which is the default
    base: 1 or more; pair j turns by position * base^(-2j / rotary_dim) radians; not read where tables are given
    cos, sin: [n, rotary_dim / 2] in float32 or the dtype of q, a row for each position, in place of base. Tables with a
        row for each token, [batch, n, pairs], as of mrope, are rows one behind the other:
        cos=cos.flatten(0, 1), sin=sin.flatten(0, 1), positions=torch.arange(batch * n).view(batch, n)
    positions: int32 or int64, [n] or [batch, n]: what each index of queries and keys rotates by, by default the index
        itself. One outside of the tables, or without them of 0 .. 2^20 - 1, makes its scores NaN.
    lengths: int32[batch], of the keys of each sequence, in place of q_offset. Queries are the last of their sequence:
        one in front of its first key gives 0, without a causal mask too. With padding on the left move keys and values
        of sequence b to the front, k[b].roll(lengths[b].item(), -2); queries stay where they are.
    interleaved: whether pairs are dims (2j, 2j + 1), or (j, j + rotary_dim / 2) as LLaMA stores them
    out: where to write, like q; not while gradients of it, q, k or v are recorded

    A row whose scores are all below -6e29 gives 0, as if masked, by all kernels but V8's; with the default scale no
    finite float16 reaches that.

    Raises: TypeError, ValueError, Unsupported.
    """
    options = Options("rope", rotary_dim, base, interleaved, causal, q_offset, scale)
    return _attend(q, k, v, tensors_of(cos, sin, positions, lengths=lengths), options, out, fallback)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    q_offset: int | None = None,
    scale: float | None = None,
    lengths: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    fallback: bool = True,
) -> torch.Tensor:
    """softmax(scale * q k^T) v; arguments as in `rope_attention`. Raises: TypeError, ValueError, Unsupported."""
    options = Options("attention", causal=causal, q_offset=q_offset, scale=scale)
    return _attend(q, k, v, tensors_of(lengths=lengths), options, out, fallback)


def alibi_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    slopes: torch.Tensor | None = None,
    causal: bool = False,
    q_offset: int | None = None,
    scale: float | None = None,
    lengths: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    fallback: bool = True,
) -> torch.Tensor:
    """softmax(scale * q k^T - slope * |index of the query - index of the key|) v.

    slopes: [heads] or [batch, heads], in float32 or the dtype of q; by default those of the paper,
        2^(-8 (h + 1) / heads) for a power of two
    lengths: as in `rope_attention`

    Raises: TypeError, ValueError, Unsupported.
    """
    options = Options("alibi", causal=causal, q_offset=q_offset, scale=scale)
    return _attend(q, k, v, tensors_of(slopes=slopes, lengths=lengths), options, out, fallback)


def warm_up(
    heads: int,
    kv_heads: int,
    hdim: int,
    *,
    rotary_dim: int | None = None,
    dtype: torch.dtype = torch.float16,
    seq_q: Iterable[int] | int = (1,),
    seq_k: Iterable[int] | int = (),
    batch: Iterable[int] | int = (1,),
    op: Callable[..., torch.Tensor] = rope_attention,
    base: float = 10_000.0,
    interleaved: bool = True,
    causal: bool = False,
    tables: bool = False,
    positions: bool = False,
    lengths: bool = False,
    device: torch.device | str | int | None = None,
    target: str | None = None,
) -> int:
    """Compile, in processes side by side, and load the kernels of a model's calls, so that none of these waits.

    Returns how many kernels they are, on the slice of the card of the current stream. A CUDA graph then captures calls
    whose `base`, and batch with ALiBi, are these.

    dtype: float32, float16 or bfloat16
    seq_q: the numbers of queries a head. Up to 8 have any number of keys in any batch: one kernel for 1, 2, 4, .. rows
        (queries times heads / kv_heads) up to 16, in half precision 64, and one that they share. More are a prompt:
        `range(9, 8193)` warms prompts up to 8192 queries.
    seq_k, batch: the numbers of keys, for each number of queries, and the batches of prompts; by default as many keys
        as queries, and 1. In half precision prompts of all lengths have at most 4 kernels, 9 with other numbers of
        keys; in float32 about 12.
    op: `rope_attention`, `attention` or `alibi_attention`
    rotary_dim, base, interleaved, causal: as in the calls
    tables, positions, lengths: whether the calls have `cos` and `sin`, `positions`, `lengths`
    device: by default "cuda"
    target: such as "sm_90", in place of a device: compile only, into the folder of kernels. It needs no GPU.

    Raises: TypeError or ValueError as a call, Unsupported for one that no kernel takes.
    """
    if op not in FAMILIES:
        raise TypeError(f"op is {op!r}; it must be rope_attention, attention or alibi_attention itself")
    family, base = FAMILIES[op], real("base", base)
    if not 1 <= base < math.inf:
        raise ValueError(f"base is {base}; it must be 1 or more, and finite")
    if target is not None and device is not None:
        raise ValueError(f"device is {device} and target is {target}; give one of both")
    if family != "rope":
        require_no_rotation(op.__name__, rotary_dim=rotary_dim, tables=tables, positions=positions)
    heads, kv_heads, hdim = integer("heads", heads), integer("kv_heads", kv_heads), integer("hdim", hdim)
    seq_q, seq_k, batch = _sizes("seq_q", seq_q), _sizes("seq_k", seq_k), _sizes("batch", batch)
    rotary_dim = 0 if family != "rope" else hdim if rotary_dim is None else integer("rotary_dim", rotary_dim)
    tables, positions = flag("tables", tables) and rotary_dim > 0, flag("positions", positions) and rotary_dim > 0
    given = flag("interleaved", interleaved), tables, positions, flag("lengths", lengths)
    of_model = hdim, rotary_dim, KERNEL_DTYPES.get(dtype, str(dtype)), flag("causal", causal)
    calls = (
        warm.Call(Problem(family, each, heads, kv_heads, queries, keys, *of_model), *given)
        for queries in seq_q
        for keys in (seq_k if queries > MOST_QUERIES and seq_k else (queries,))
        for each in batch
    )
    if target is not None:
        return warm.compile_classes(calls, target)[1]
    return warm.load_classes(calls, base, "cuda" if device is None else device)


FAMILIES = {rope_attention: "rope", attention: "attention", alibi_attention: "alibi"}


def _sizes(name: str, given: Any) -> tuple[int, ...]:
    """One size or many, as integers. Raises: TypeError."""
    return tuple(integer(name, each) for each in (given if isinstance(given, Iterable) else (given,)))


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tensors: Tensors,
    options: Options,
    out: torch.Tensor | None,
    fallback: bool,
) -> torch.Tensor:
    """Past the dispatcher, which costs more than a launch, where nobody would see the op."""
    if tensors.lengths is not None and options.q_offset is not None:
        raise ValueError("lengths and q_offset are given; with lengths the queries of a sequence are its last ones")
    compiles = is_compiling()
    settled, q_offset = ask(q, k, v, tensors, options, compiles)
    if fallback is not True and fallback is not False:
        fallback = flag("fallback", fallback)
    differentiated = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if out is not None:
        require_out(out, q, differentiated)
    if not compiles and (_FUNCTORCH.peek_interpreter_stack() is not None or forward_ad._current_level >= 0):
        template = "a call {needed} has no launch; the kernels take {allowed}"
        fall_back(Unsupported("library", "inside a transform of torch.func", "plain tensors", template), fallback)
        result = attend(q, k, v, tensors, settled.at(q_offset))
    elif compiles or _watched(q, k, v, tensors, out) or differentiated:
        result = _op(q, k, v, *tensors, *settled.at(q_offset), fallback)
    elif out is None or _apart(out, q, k, v, tensors):
        result = compute(q, k, v, tensors, settled, q_offset, fallback, out)
        if out is not None:
            increment_version(out)  # autograd sees no launch
        return result
    else:
        result = compute(q, k, v, tensors, settled, q_offset, fallback)
    return result if out is None else out.copy_(result)


def _watched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Tensors, out: torch.Tensor | None) -> bool:
    """Whether anything fakes or overrides what is done to the tensors. Raises: RuntimeError under torch.jit.trace."""
    if _C._get_tracing_state():
        raise RuntimeError(
            "torch.jit.trace keeps the sizes and indices of its example, which are wrong for others; "
            "torch.export and torch.compile do not"
        )
    plain = type(q) is type(k) is type(v) is torch.Tensor and type(out) in _PLAIN
    if not plain or (tensors is not NO_TENSORS and any(type(each) not in _PLAIN for each in tensors)):
        _refuse_distributed(q=q, k=k, v=v, out=out, **tensors._asdict())
        return True
    return bool(_C._len_torch_function_stack() or _C._len_torch_dispatch_stack())


def _refuse_distributed(**tensors: torch.Tensor | None) -> None:
    """Raise TypeError for a DTensor. It is a subclass that is there only once its module is."""
    module = sys.modules.get("torch.distributed.tensor")
    for name, tensor in tensors.items():
        if module and isinstance(tensor, module.DTensor):
            raise TypeError(
                f"{name} is a DTensor, for which the op has no sharding rule; it must be a torch.Tensor: where batch "
                f"or heads are sharded, call it on {name}.to_local(), for ALiBi with the slopes of the heads there"
            )


def _apart(out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Tensors) -> bool:
    """Whether `out` holds its values as they are, and shares no memory with what is read, nor with itself."""
    storage = out.untyped_storage().data_ptr()
    read = (q.untyped_storage().data_ptr(), k.untyped_storage().data_ptr(), v.untyped_storage().data_ptr())
    if 0 in out.stride() or out.is_neg():
        return False
    if storage not in read and tensors is NO_TENSORS:
        return True
    return not any(_overlap(out, each) for each in (q, k, v, *tensors))


def _overlap(out: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether two tensors may share memory: the ranges that they span do."""
    if other is None or out.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    (begin, end), (other_begin, other_end) = _span(out), _span(other)
    return begin < other_end and other_begin < end


def _span(x: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()
