"""Arguments of a call of the attention ops: its arguments checked, and its defaults filled in.

q is `[batch, heads, seq_q, hdim]`, k and v `[batch, kv_heads, seq_k, hdim]`. Query i has index `q_offset + i`,
key j index j; what has index p rotates by position `positions[p]`, or p.
"""

import math
import numbers
import operator
from typing import Any, NamedTuple

import numpy as np
import torch

from ..runtime import kept
from ..version import DTYPES

HALF = (torch.float16, torch.bfloat16)
KERNEL_DTYPES = {getattr(torch, name): name for name in DTYPES}
TENSOR_DTYPES = (torch.float32, torch.float64, *HALF)
POSITION_DTYPES = (torch.int32, torch.int64)
MOST_SIGNATURES = 4096  # that are remembered
MOST_INDICES = 2**30  # of queries and keys, so that kernels count them in 32 bits, whatever they add


class Tensors(NamedTuple):
    """Tensors of a call beside q, k and v; `tensors_of` makes them."""

    cos: Any = None
    sin: Any = None
    positions: Any = None
    slopes: Any = None
    lengths: Any = None


NO_TENSORS = Tensors()


def tensors_of(
    cos: Any = None, sin: Any = None, positions: Any = None, slopes: Any = None, lengths: Any = None
) -> Tensors:
    """NO_TENSORS itself where none is given: calls without any are told by it."""
    if cos is sin is positions is slopes is lengths is None:
        return NO_TENSORS
    return Tensors(cos, sin, positions, slopes, lengths)


class Options(NamedTuple):
    """The arguments of a call but its tensors. `family` is "attention", "rope" or "alibi".

    Of a call as it is made, None stands for a default; `Settled.at` fills all in.
    """

    family: str
    rotary_dim: Any = 0
    base: Any = 1.0
    interleaved: bool = True
    causal: bool = False
    q_offset: Any = None
    scale: Any = None


class Settled(NamedTuple):
    """The settings that all calls of a signature share, checked once; seq_k and q_offset may grow.

    `options` are without q_offset. `by_index`: whether it matters where queries stand. `launches` is for whoever
    launches to remember their plans in, as `streams.plans` has them.
    """

    options: Options
    by_index: bool
    seq_q: int
    launches: dict[Any, dict[int, Any]]

    def at(self, q_offset: int) -> Options:
        return self.options._replace(q_offset=q_offset)


_settled: dict[Any, Settled] = kept({})


def ask(
    q: Any, k: Any, v: Any, tensors: Tensors, options: Options, compiles: bool = False
) -> tuple[Settled, int]:
    """Check the arguments of a call; return what its signature shares, and its q_offset.

    compiles: whether torch.compile runs it, so that there are no signatures

    Raises:
        TypeError: an argument of a wrong type or dtype.
        ValueError: shapes or devices that do not fit, or a number out of its range; with what was given and is allowed.
    """
    family, rotary_dim, base, interleaved, causal, q_offset, scale = options
    if rotary_dim is not None and type(rotary_dim) is not int:
        rotary_dim = integer("rotary_dim", rotary_dim)
    if type(base) is not float:
        base = real("base", base)
    if scale is not None and type(scale) is not float:
        scale = real("scale", scale)
    if interleaved is not True and interleaved is not False:
        interleaved = flag("interleaved", interleaved)
    if causal is not True and causal is not False:
        causal = flag("causal", causal)
    signature: Any = None
    settled: Settled | None = None
    if not compiles:
        try:
            k_shape = k.shape
            k_batch, kv_heads, seq_k, k_hdim = k_shape
            signature = (
                *(family, q.shape, k_batch, kv_heads, k_hdim, v.shape == k_shape),
                *(rotary_dim, base, interleaved, causal, scale),
                *(q.dtype, k.dtype, v.dtype, q.device, k.device, v.device),
            )
            if tensors is not NO_TENSORS:
                signature += _kinds(*tensors)
            settled = _settled.get(signature)
        except (AttributeError, TypeError, ValueError, RuntimeError):  # `_settle` says what is wrong
            signature = None
    if settled is None:
        settled = _settle(q, k, v, tensors, Options(family, rotary_dim, base, interleaved, causal, None, scale))
        seq_k = k.shape[2]
        if signature:
            if len(_settled) >= MOST_SIGNATURES:
                _settled.clear()
            _settled[signature] = settled
    seq_q = settled.seq_q
    if q_offset is None and tensors is NO_TENSORS and seq_q <= seq_k:
        return settled, seq_k - seq_q
    return settled, first_index(settled, seq_k, q_offset, tensors)


def _kinds(cos: Any, sin: Any, positions: Any, slopes: Any, lengths: Any) -> tuple[Any, ...]:
    """The parts of the tensors that a signature shares: all but the rows of tables and the number of positions."""
    settled = (
        cos is not None and (cos.shape[1:], cos.shape == sin.shape),
        positions is not None and positions.shape[:-1],
        slopes is not None and slopes.shape,
        lengths is not None and lengths.shape,
        torch.is_grad_enabled(),
    )
    return settled + tuple(
        tensor is not None and (tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad)
        for tensor in (cos, sin, positions, slopes, lengths)
    )


def first_index(settled: Settled, seq_k: int, q_offset: Any, tensors: Tensors) -> int:
    """The index of the first query, or one that weighs the keys alike. Raises: ValueError or TypeError."""
    seq_q = settled.seq_q
    given = q_offset is not None
    if tensors.lengths is not None:
        q_offset = max(seq_k - seq_q, 0)  # of the longest; each sequence has its own
    elif not given:
        q_offset = seq_k - seq_q
        if q_offset < 0 and not settled.by_index:
            return 0
    elif type(q_offset) is not int:
        q_offset = integer("q_offset", q_offset)
    if q_offset < 0:
        shown = "" if given else f", which is seq_k - seq_q = {seq_k} - {seq_q}"
        raise ValueError(f"q_offset is {q_offset}{shown}; it must be 0 or more")
    if type(q_offset) is int and type(seq_q) is int and q_offset + seq_q > MOST_INDICES:  # else asked as it is computed
        raise ValueError(f"q_offset is {q_offset:,}; with {seq_q} queries it must be {MOST_INDICES - seq_q:,} at most")
    if tensors.positions is not None:
        _require_rows("positions", "has {rows} positions", tensors.positions.shape[-1], seq_q, seq_k, q_offset)
    elif tensors.cos is not None:
        _require_rows("cos", "has {rows} rows", tensors.cos.shape[0], seq_q, seq_k, q_offset)
    if settled.options.family == "alibi" and type(q_offset) is int and q_offset > seq_k:
        return seq_k  # behind all keys a further step adds the same to all scores of a row, and costs their last bits
    return q_offset


def _require_rows(name: str, has: str, rows: int, seq_q: int, seq_k: int, q_offset: int) -> None:
    needed = max(seq_k, q_offset + seq_q)
    if rows < needed:
        where = f"keys stand at indices 0 to {seq_k - 1}, queries at {q_offset} to {q_offset + seq_q - 1}"
        raise ValueError(f"{name} {has.format(rows=rows)}; it must have {needed} at least: {where}")


def _settle(q: Any, k: Any, v: Any, tensors: Tensors, options: Options) -> Settled:
    base, scale = options.base, options.scale
    _require_tensors(q, k, v)
    batch, heads, _, hdim = q.shape
    for name, table in zip(("cos", "sin", "slopes"), (tensors.cos, tensors.sin, tensors.slopes), strict=True):
        if table is not None:
            _require_tensor(name, table, (torch.float32, q.dtype) if q.dtype in HALF else (q.dtype,), q.device)
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
    if tensors.lengths is not None:
        _require_tensor("lengths", tensors.lengths, (torch.int32,), q.device)
        if tuple(tensors.lengths.shape) != (batch,):
            raise ValueError(
                f"lengths has shape {tuple(tensors.lengths.shape)}; it must be [batch], with batch {batch}"
            )
    rotary_dim = _rotary_dim(options.rotary_dim, batch, hdim, tensors)
    for name, number in (("base", base), ("scale", scale)):
        if number is not None and not -math.inf < number < math.inf:  # as torch.compile takes it
            raise ValueError(f"{name} is {number}; it must be finite")
    if base < 1:
        raise ValueError(f"base is {base}; it must be 1 or more")
    scale = 1.0 / math.sqrt(hdim) if scale is None else scale
    arithmetic = torch.float32 if q.dtype in HALF else q.dtype
    if abs(scale) > torch.finfo(arithmetic).max:
        raise ValueError(f"scale is {scale}; it must be finite in {arithmetic}")
    by_index = options.family != "attention" or options.causal
    return Settled(options._replace(rotary_dim=rotary_dim, scale=scale), by_index, q.shape[2], {})


def _require_tensors(q: Any, k: Any, v: Any) -> None:
    for name, tensor, heads, seq in (("q", q, "heads", "seq_q"), ("k", k, "kv_heads", "seq_k")):
        _require_tensor(name, tensor, TENSOR_DTYPES if name == "q" else (q.dtype,), q.device if name == "k" else None)
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
    require_strided(name, tensor)
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} is {tensor.dtype}; it must be {allowed}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}; it must be on the device of q, {device}")


def require_strided(name: str, tensor: Any) -> None:
    """Raise TypeError for another layout. A signature omits it: it is checked where a call finds no launch, or no
    memory.
    """
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else tensor.layout
        raise TypeError(f"{name} has layout {kind}; it must be torch.strided")


def _rotary_dim(rotary_dim: Any, batch: int, hdim: int, tensors: Tensors) -> int:
    """The number of rotated dims: those asked for, or all. Raises: ValueError."""
    cos, sin = tensors.cos, tensors.sin
    if (cos is None) != (sin is None):
        given, missing = ("sin", "cos") if cos is None else ("cos", "sin")
        raise ValueError(f"{given} is given and {missing} is not; give both or none")
    asked = rotary_dim
    if rotary_dim is None:
        if hdim % 2:
            raise ValueError(f"hdim is {hdim}; it must be even, or rotary_dim given")
        rotary_dim = hdim
    if rotary_dim % 2 or not 0 <= rotary_dim <= hdim:
        raise ValueError(f"rotary_dim is {rotary_dim}; it must be even and between 0 and hdim, which is {hdim}")
    if cos is not None:
        if cos.dim() != 2 or cos.shape[1] != rotary_dim // 2:
            allowed = f"[n, rotary_dim / 2], a row for each position, with rotary_dim {rotary_dim}"
            allowed += _advice(tensors, batch, hdim, asked)
            raise ValueError(f"cos has shape {tuple(cos.shape)}; it must be {allowed}")
        if tuple(sin.shape) != tuple(cos.shape):
            raise ValueError(f"sin has shape {tuple(sin.shape)}; it must have that of cos, {tuple(cos.shape)}")
    return rotary_dim


def _advice(tensors: Tensors, batch: int, hdim: int, asked: int | None) -> str:
    """How to pass tables as models hold them: with a batch in front, or each angle twice. Their values tell which.

    Nothing where these cannot be read, or fit no such layout.
    """
    cos, sin = tensors.cos, tensors.sin
    if type(cos) is not torch.Tensor or cos.is_meta or cos.dim() < 2 or sin.shape != cos.shape:
        return ""
    if torch.compiler.is_compiling() or (cos.is_cuda and torch.cuda.is_current_stream_capturing()):
        return ""
    *front, rows, width = cos.shape
    both = torch.stack((cos, sin)).view(2, -1, rows, width)
    more, taken = "", "[" + ", ".join("0" * len(front)) + "]" if front else ""
    if not torch.equal(both, both[:, :1].expand_as(both)):
        if math.prod(front) != batch or tensors.positions is not None:
            return ""
        taken = ".flatten(0, -2)"
        more = f", positions=torch.arange({batch * rows}, device=q.device).view({batch}, {rows})"
    halves = f"[:, :{width // 2}]", both[..., : width // 2], both[..., width // 2 :]
    for half, first, second in (halves, ("[:, ::2]", both[..., ::2], both[..., 1::2]), ("", both, both)):
        dims = width if half else 2 * width
        if torch.equal(first, second) and (0 < dims <= hdim if asked is None else dims == asked):
            more = (f", rotary_dim={dims}" if asked is None and dims < hdim else "") + more
            return f"; pass cos=cos{taken}{half}, sin=sin{taken}{half}{more}"
    return ""


def flag(name: str, value: Any) -> bool:
    """A boolean, Python's or NumPy's. Raises: TypeError."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} is {value!r}; it must be True or False")


def integer(name: str, value: Any) -> Any:
    """An integer of any library, but no tensor, which a launch would have to wait for. Raises: TypeError."""
    if isinstance(value, torch.SymInt):
        return value
    if not isinstance(value, (bool, torch.Tensor)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} is {value!r}; it must be an integer")


def real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, torch.SymFloat, torch.SymInt, numbers.Real)):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def require_no_rotation(op: str, **given: Any) -> None:
    """Raise ValueError for what only calls of RoPE have; None, 0 and False stand for what is not given."""
    for name, value in given.items():
        if value:
            raise ValueError(f"{name} is given; {op} rotates nothing: it is for RoPE alone")


def require_out(out: Any, q: Any, differentiated: bool) -> None:
    """Raises: TypeError or ValueError for an `out` unlike q, RuntimeError where a gradient would flow through it.

    differentiated: whether gradients are recorded, and q, k or v requires one
    """
    _require_tensor("out", out, (q.dtype,), q.device)
    if out.shape != q.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; it must have that of q, {tuple(q.shape)}")
    if differentiated:
        raise RuntimeError("out is given and an argument requires grad; there is no gradient through out")
    if out.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("out requires grad; no gradient flows through it: pass out.detach()")
