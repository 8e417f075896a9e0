"""What a call of the attention ops asks: its arguments checked, and its defaults filled in.

q is `[batch, heads, seq_q, hdim]`, k and v `[batch, kv_heads, seq_k, hdim]`. Query i stands at place `q_offset + i`,
key j at place j; what stands at place p has position `positions[p]`, or p.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch.compiler import is_compiling

DTYPES = (torch.float32, torch.float64)
POSITION_DTYPES = (torch.int32, torch.int64)
MOST_SIGNATURES = 4096  # that are remembered


class Tensors(NamedTuple):
    """Tensors of a call beside q, k and v. `ask` takes a call that has none of them for that by `NO_TENSORS` itself."""

    cos: Any = None
    sin: Any = None
    positions: Any = None
    slopes: Any = None


NO_TENSORS = Tensors()


class Asked(NamedTuple):
    """What a call asks beside its tensors. `family` is "attention", "rope" or "alibi"."""

    family: str
    rotary_dim: int
    base: float
    interleaved: bool
    causal: bool
    q_offset: int
    scale: float


class Settled(NamedTuple):
    """What is checked once for all calls of a signature: what they ask but for seq_k and q_offset, which may grow.

    `by_place`: whether it matters where queries stand. `launches` is for whoever launches to remember their plans in.
    """

    family: str
    rotary_dim: int
    base: float
    interleaved: bool
    causal: bool
    scale: float
    by_place: bool
    launches: dict[int, Any]

    def at(self, q_offset: int) -> Asked:
        return Asked(*self[:5], q_offset, self.scale)


_settled: dict[Any, Settled] = {}


def ask(
    family: str,
    q: Any,
    k: Any,
    v: Any,
    tensors: Tensors,
    rotary_dim: Any = 0,
    base: Any = 10_000.0,
    interleaved: bool = True,
    causal: bool = False,
    q_offset: Any = None,
    scale: Any = None,
) -> tuple[Settled, int]:
    """What a call asks, with its defaults: what is settled once for each signature, and its q_offset.

    Raises:
        TypeError: an argument of a wrong type or dtype.
        ValueError: shapes or devices that do not fit, or a number out of its range; with what was given and is allowed.
    """
    signature: Any = None
    settled: Settled | None = None
    if not is_compiling():
        try:
            batch, heads, seq_q, hdim = q.shape
            k_batch, k_heads, seq_k, k_hdim = k.shape
            v_batch, v_heads, v_seq, v_hdim = v.shape
            sizes = (batch, heads, seq_q, hdim, k_batch, k_heads, k_hdim, v_batch, v_heads, v_hdim, seq_k == v_seq)
            tensor_kinds = (q.dtype, k.dtype, v.dtype, q.device, k.device, v.device)
            signature = (family, sizes, rotary_dim, base, interleaved, causal, scale, tensor_kinds)
            if tensors is not NO_TENSORS:
                signature += _kinds(*tensors)
            settled = _settled.get(signature)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # `_settle` says what is wrong
            signature = None
    if settled is None:
        settled = _settle(family, q, k, v, tensors, rotary_dim, base, interleaved, causal, scale)
        seq_q, seq_k = q.shape[2], k.shape[2]
        if signature:
            if len(_settled) >= MOST_SIGNATURES:
                _settled.clear()
            _settled[signature] = settled
    if q_offset is None and tensors is NO_TENSORS and seq_q <= seq_k:
        return settled, seq_k - seq_q
    return settled, _place(settled.by_place, seq_q, seq_k, q_offset, tensors)


def _kinds(cos: Any, sin: Any, positions: Any, slopes: Any) -> tuple[Any, ...]:
    """What of the tensors is settled: all but the rows of the tables and how many positions there are."""
    settled = (
        cos is not None and (cos.shape[1:], cos.shape == sin.shape),
        positions is not None and positions.shape[:-1],
        slopes is not None and slopes.shape,
        torch.is_grad_enabled(),
    )
    return settled + tuple(
        tensor is not None and (tensor.dtype, tensor.device, tensor.requires_grad)
        for tensor in (cos, sin, positions, slopes)
    )


def _place(by_place: bool, seq_q: int, seq_k: int, q_offset: Any, tensors: Tensors) -> int:
    """The place of the first query. Raises: ValueError or TypeError."""
    given = q_offset is not None
    if not given:
        q_offset = seq_k - seq_q
        if q_offset < 0 and not by_place:
            return 0
    elif isinstance(q_offset, bool) or not isinstance(q_offset, (int, torch.SymInt)):
        raise TypeError(f"q_offset is {q_offset!r}; it must be an integer")
    if q_offset < 0:
        shown = "" if given else f", which is seq_k - seq_q = {seq_k} - {seq_q}"
        raise ValueError(f"q_offset is {q_offset}{shown}; it must be 0 or more")
    if tensors.positions is not None:
        _require_rows("positions", "has {rows} positions", tensors.positions.shape[-1], seq_q, seq_k, q_offset)
    elif tensors.cos is not None:
        _require_rows("cos", "has {rows} rows", tensors.cos.shape[0], seq_q, seq_k, q_offset)
    return q_offset


def _require_rows(name: str, has: str, rows: int, seq_q: int, seq_k: int, q_offset: int) -> None:
    needed = max(seq_k, q_offset + seq_q)
    if rows < needed:
        where = f"keys stand at places 0 to {seq_k - 1}, queries at {q_offset} to {q_offset + seq_q - 1}"
        raise ValueError(f"{name} {has.format(rows=rows)}; it must have {needed} at least: {where}")


def _settle(
    family: str,
    q: Any,
    k: Any,
    v: Any,
    tensors: Tensors,
    rotary_dim: Any,
    base: Any,
    interleaved: bool,
    causal: bool,
    scale: Any,
) -> Settled:
    _require_tensors(q, k, v)
    batch, heads, _, hdim = q.shape
    for name, table in zip(("cos", "sin", "slopes"), (tensors.cos, tensors.sin, tensors.slopes), strict=True):
        if table is not None:
            _require_tensor(name, table, (q.dtype,), q.device)
            if table.requires_grad and torch.is_grad_enabled():
                raise ValueError(f"{name} requires grad; no gradient flows to it: pass {name}.detach()")
    if tensors.positions is not None:
        _require_tensor("positions", tensors.positions, POSITION_DTYPES, q.device)
        shape = tuple(tensors.positions.shape)
        if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != batch):
            raise ValueError(f"positions has shape {shape}; it must be [n] or [batch, n], with batch {batch}")
    if tensors.slopes is not None and tuple(tensors.slopes.shape) not in ((heads,), (batch, heads)):
        allowed = f"[heads] or [batch, heads], with batch {batch} and heads {heads}"
        raise ValueError(f"slopes has shape {tuple(tensors.slopes.shape)}; it must be {allowed}")
    rotary_dim = _rotary_dim(rotary_dim, hdim, tensors.cos, tensors.sin)
    base = _number("base", base)
    if base <= 0:
        raise ValueError(f"base is {base}; it must be above 0")
    scale = 1.0 / math.sqrt(hdim) if scale is None else _number("scale", scale)
    by_place = family != "attention" or bool(causal)
    return Settled(family, rotary_dim, base, bool(interleaved), bool(causal), scale, by_place, {})


def _require_tensors(q: Any, k: Any, v: Any) -> None:
    for name, tensor, heads, seq in (("q", q, "heads", "seq_q"), ("k", k, "kv_heads", "seq_k")):
        _require_tensor(name, tensor, DTYPES if name == "q" else (q.dtype,), q.device if name == "k" else None)
        shape = tuple(tensor.shape)
        if len(shape) != 4 or min(shape) < 1:
            raise ValueError(f"{name} has shape {shape}; it must be [batch, {heads}, {seq}, hdim], each 1 or more")
    _require_tensor("v", v, (q.dtype,), q.device)
    (batch, heads, _, hdim), kv_heads = q.shape, k.shape[1]
    if (k.shape[0], k.shape[3]) != (batch, hdim):
        given = f"batch {k.shape[0]} and hdim {k.shape[3]}"
        raise ValueError(f"k has {given}; it must have those of q, batch {batch} and hdim {hdim}")
    if tuple(v.shape) != tuple(k.shape):
        raise ValueError(f"v has shape {tuple(v.shape)}; it must have that of k, {tuple(k.shape)}")
    if heads % kv_heads:
        raise ValueError(f"q has {heads} heads; it must have a multiple of those of k, {kv_heads}")


def _require_tensor(name: str, tensor: Any, dtypes: tuple[Any, ...], device: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} has layout {tensor.layout}; it must be torch.strided")
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} is {tensor.dtype}; it must be {allowed}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}; it must be on the device of q, {device}")


def _rotary_dim(rotary_dim: Any, hdim: int, cos: Any, sin: Any) -> int:
    """Dims that turn: those asked for, twice the width of the tables, or all. Raises: TypeError, ValueError."""
    if (cos is None) != (sin is None):
        given, missing = ("sin", "cos") if cos is None else ("cos", "sin")
        raise ValueError(f"{given} is given and {missing} is not; give both or none")
    if rotary_dim is None:
        if cos is None:
            if hdim % 2:
                raise ValueError(f"hdim is {hdim}; it must be even, or rotary_dim given")
            return hdim
        rotary_dim = 2 * cos.shape[-1]
    if isinstance(rotary_dim, bool) or not isinstance(rotary_dim, (int, torch.SymInt)):
        raise TypeError(f"rotary_dim is {rotary_dim!r}; it must be an integer")
    width = rotary_dim // 2
    if cos is not None:
        repeated = cos.shape[-1] in (rotary_dim, hdim) and cos.shape[-1] > hdim // 2
        halves = cos.shape[-1] // 2
        advice = f"; tables that hold both halves alike are sliced first: cos[:, :{halves}]" if repeated else ""
        if cos.dim() != 2 or cos.shape[1] != width or rotary_dim > hdim:
            allowed = f"[n, rotary_dim / 2], a row for each position, with rotary_dim up to {hdim}"
            raise ValueError(f"cos has shape {tuple(cos.shape)}; it must be {allowed}{advice}")
        if tuple(sin.shape) != tuple(cos.shape):
            raise ValueError(f"sin has shape {tuple(sin.shape)}; it must have that of cos, {tuple(cos.shape)}")
    if rotary_dim % 2 or not 0 <= rotary_dim <= hdim:
        raise ValueError(f"rotary_dim is {rotary_dim}; it must be even and between 0 and hdim, which is {hdim}")
    return rotary_dim


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, torch.SymFloat, torch.SymInt)):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    if not -math.inf < value < math.inf:  # as torch.compile takes it
        raise ValueError(f"{name} is {value}; it must be finite")
    return float(value)


def require_out(out: Any, q: Any, differentiated: bool) -> None:
    """Raises: TypeError or ValueError for an `out` unlike q, RuntimeError where a gradient would flow through it."""
    _require_tensor("out", out, (q.dtype,), q.device)
    if out.shape != q.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; it must have that of q, {tuple(q.shape)}")
    if differentiated:
        raise RuntimeError("out is given and an argument requires grad; there is no gradient through out")
