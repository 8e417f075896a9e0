"""Launches on a user's own tensors: on their device, on torch's current stream, where they lie."""

import functools
import itertools
import math
import operator
import sys
import warnings
from typing import Any, NamedTuple

import torch

from ..constants import FLOATS, require
from ..flash import cluster
from ..flash.call import Request, request_of
from ..flash.choose import chosen
from ..flash.cluster import PLAIN, require_problem, serve
from ..flash.cluster.alibi import ALIBI
from ..flash.cluster.launch import MOST_ROW_STRIDE, MOST_STRIDE, NUMBERS, require_stride
from ..flash.cluster.rope import mode
from ..flash.cluster.shape import power_of_two
from ..flash.decode.choose import MOST_QUERIES
from ..limits import Share
from ..rates import rates_of, rates_of_turning, slopes_of
from ..runtime import gpu, streams
from ..runtime.gpu import C_FORMATS
from ..version import Launch, Problem, Unsupported
from . import resident
from .arguments import MOST_PLACES, NO_TENSORS, Settled, Tensors
from .fallback import MOST_POSITIONS
from .launcher import DTYPES, Caller, Decoder, workspace
from .prepared import TENSORS, Prepared, prepared
from .prompt import Prompter, Prompter32

_C = torch._C
PACKAGE = __name__.split(".")[0]
ANY_KEYS = 0  # of the launches that a signature has: takes any; others are by the keys that they are planned for
ROW_BYTES = 16  # that a row starts on
MOST_ROWS = 2**31 - 1  # of tables, which kernels count in an int32

KEYS = 64  # of a tile
CALLERS = {"decode": Decoder, "chunk": Decoder, "prompt": Prompter, "prompt32": Prompter32}

# What a kernel may ask for: the addresses of tensors and their strides in elements; numbers; the addresses of what else
# the call has, 0 where it has none; the rows of cos and sin, and from one to the next; the stride of positions, 0 where
# all share; the addresses of what a launch leaves to the next. Tables have an even number of pairs, and a row starts on
# 8 bytes; rates are float32[pairs, 2], pairs even.
VALUES = (
    *TENSORS,
    *(f"{tensor}{axis}" for tensor in TENSORS for axis in (".batch", ".head", ".row", ".dim")),
    *NUMBERS,
    *("cos", "sin", "rates", "positions", "slopes", "rows", "pitch", "positions.batch"),
    *("k_embedded", "part", "totals"),
)

WORKSPACE = VALUES[-3:]

_copied: set[str] = set()

# torch.cuda.current_device without the question whether CUDA has begun: here it has. Builds without CUDA lack it.
_current_device = getattr(torch._C, "_cuda_getDevice", lambda: torch.cuda.current_device())


class Planned(NamedTuple):
    """How a problem is launched.

    launches: kernel, grid, block, shared memory and cluster of each, what it says of arguments is not read; and (name
        or number, Numba type) of each scalar parameter, in their order; the names are of VALUES
    workspace: float32 elements of each of WORKSPACE
    interleaved: whether it takes pairs (2j, 2j + 1); the caller permutes what is half-split where it must
    """

    launches: tuple[tuple[Launch, tuple[tuple[str | int | float, str], ...]], ...]
    workspace: tuple[int, ...] = (0, 0, 0)
    interleaved: bool = True


def plan_launch(
    problem: Problem, target: str, share: Share, interleaved: bool, tables: bool, positions: bool
) -> Planned:
    """The launches of `problem` on a share of a card of `target`, such as "sm_90".

    Raises: Unsupported where no core takes it.
    """
    require_problem(problem, problem.family)
    half_split = not interleaved and problem.rotary_dim % 8 == 0 and problem.hdim % 8 == 0
    table: tuple[str, ...] = ("q",)
    embedding, table_type = PLAIN, FLOATS
    if problem.family == "alibi":
        embedding, table = ALIBI, ("slopes",)
    elif problem.rotary_dim:
        embedding, table_type = mode(tables, positions, half_split, problem.rotary_dim)
        table = ("cos", "sin", "pitch", "rows") if tables else ("rates",)
        table += ("positions", "positions.batch") if positions else ()
    launches = serve(problem, embedding, table, problem.rotary_dim, target, share, table_type=table_type)
    shapes = cluster.workspace(problem, launches)
    floats = tuple(math.prod(shapes.get(name, (0,))) for name in WORKSPACE)
    return Planned(tuple((launch, _arguments(launch)) for launch in launches), floats, interleaved=not half_split)


def _arguments(launch: Launch) -> tuple[tuple[str | int | float, str], ...]:
    """Of a launch on tensors of any strides: those behind the first mention of each of TENSORS, and its numbers."""
    names: list[str | int | float] = list(launch.args)
    for name in TENSORS:
        if name in names and not isinstance(names[(at := names.index(name)) + 1], str):
            names[at + 1 : at + 4] = [f"{name}{axis}" for axis in (".batch", ".head", ".row")]
    first = len(names) - len(launch.numbers)
    names[first:] = [name or value for name, value in zip(launch.numbers, names[first:], strict=True)]
    types = (str(kind) if str(kind) in C_FORMATS else "uint64" for kind in launch.kernel.parameters)
    return tuple(zip(names, types, strict=True))


class _Ready(NamedTuple):
    """A call that has been planned and compiled.

    Of each launch: the kernel, its grid, what takes that which it asks for from the values and the `constants` behind
    them. `others` are those of `_others` where no call has its own.
    """

    launches: list[tuple[Prepared, tuple[int, ...], Any]]
    constants: tuple[int | float, ...]
    workspace: tuple[int, ...]
    interleaved: bool
    others: Any


def launch_on_card(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    tensors: Tensors,
    settled: Settled,
    q_offset: int,
    share: Share | None = None,
) -> torch.Tensor:
    """Attend by a kernel into `out`, no negated view, which shares no memory with others nor itself, and return it.

    What the call allocates it leaves to torch's allocator, in the order of the current stream. Tensors that the kernel
    cannot take where they lie are copied, with one warning for each name. `share` is what the current stream launches
    to, which is asked by default.

    Raises: Unsupported where no kernel takes the call; nothing has been launched then.
    """
    device = card_of(q)
    if device < 0:
        template = "the tensors are on {needed}; the kernels take those on {allowed}"
        raise Unsupported("capability", q.device.type, "cuda", template)
    if _current_device() != device:
        with torch.cuda.device(device):
            return launch_on_card(q, k, v, out, tensors, settled, q_offset, share)
    seq_q, seq_k, rotary_dim = settled.seq_q, k.size(2), settled.rotary_dim
    if share is None:
        found = settled.launches.get(_C._cuda_getCurrentRawStream(device)) or streams.plans(settled.launches, device)
    else:
        found = settled.launches.get(share, {})
    ready = found.get(ANY_KEYS) or found.get(planned_keys(seq_k)) or _prepare(q, k, tensors, settled, device, share)
    if isinstance(ready, Unsupported):
        raise Unsupported(*ready.args)
    if seq_k + seq_q + q_offset > MOST_POSITIONS and rotary_dim and tensors is NO_TENSORS:
        last = max(seq_k, q_offset + seq_q) - 1
        template = "positions go up to {needed:,}; the kernels turn by those below {allowed:,}"
        require(last < MOST_POSITIONS, "q_offset", last, MOST_POSITIONS, template)
    if ready.interleaved and rotary_dim and not settled.interleaved:
        q, k = _paired("q", q, rotary_dim), _paired("k", k, rotary_dim)
    written = out
    addresses, strides = _places(q, k, v, out)
    if q.is_neg() or k.is_neg() or v.is_neg() or not _in_place(addresses, strides, q.element_size()):
        q, k, v = _placed("q", q), _placed("k", k), _placed("v", v)
        if not _in_place(*_places(out, out, out, out), out.element_size()):
            written = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        addresses, strides = _places(q, k, v, written)
    if isinstance(ready, Caller):
        others, _held = ready.kept or _others(q, tensors, settled, ready.turns)
        lengths = tensors.lengths if tensors.lengths is None else tensors.lengths.resolve_neg().contiguous()
        ready.launch(addresses, strides, seq_k, q_offset, 0 if lengths is None else lengths.data_ptr(), others)
        return out if written is out else out.copy_(written)
    made_of = (ready, seq_k, q_offset, strides) if ready.others else None
    if made_of and ready.launches[0][0].launch_again(addresses, made_of):
        return out if written is out else out.copy_(written)
    others, _held = ready.others or _others(q, tensors, settled)  # held until it is launched
    _memory, places = workspace(ready.workspace, q.device)
    numbers = (seq_q, seq_k, q.shape[3], rotary_dim, q_offset, settled.causal, settled.scale)
    values = (*addresses, *strides, *numbers, *others, *places, *ready.constants)
    for made, grid, pick in ready.launches:
        made.launch(grid, pick(values), made_of)
    return out if written is out else out.copy_(written)


def _others(
    q: torch.Tensor, tensors: Tensors, settled: Settled, turns: Any = None
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The values from "cos" on, and what their addresses are of.

    `turns` are the pairs and step of the rates where they are those of `flash`.
    """
    cos, sin, positions, slopes, _ = tensors if settled.rotary_dim or settled.family == "alibi" else NO_TENSORS
    rates = None
    if cos is not None:
        cos, sin = _tables(_resolved("cos", cos).float(), _resolved("sin", sin).float())
    elif settled.rotary_dim:
        rates = _rates(settled.rotary_dim, settled.base, q.device, turns)
    if positions is not None:
        positions = _positions(positions)
    if settled.family == "alibi":
        batch, heads = q.shape[:2]
        if slopes is None:
            slopes = _default_slopes(heads, batch, q.device)
        else:
            slopes = _resolved("slopes", slopes).float().expand(batch, heads).contiguous()
    held = (cos, sin, rates, positions, slopes)
    rows, pitch = (0, 0) if cos is None else (min(cos.shape[0], MOST_ROWS), cos.stride(0))
    apart = 0 if positions is None or positions.dim() == 1 else positions.stride(0)
    return (*[0 if each is None else each.data_ptr() for each in held], rows, pitch, apart), held


def card_of(x: torch.Tensor) -> int:
    """The index of the CUDA device that a tensor is on; -1 elsewhere."""
    return x.get_device() if x.is_cuda else -1


@functools.lru_cache(maxsize=4096)
def planned_keys(seq_k: int) -> int:
    """The seq_k that a call is planned for: not below, and one of few, so that a growing cache is planned seldom.

    Whole tiles of keys up to 16, then steps of an eighth to a sixteenth; or half a tile.
    """
    if seq_k <= KEYS // 2:
        return KEYS // 2
    tiles = -(-seq_k // KEYS)
    step = 1 << max(tiles.bit_length() - 4, 0)
    return KEYS * step * -(-tiles // step)


def prepare(q: torch.Tensor, k: torch.Tensor, tensors: Tensors, settled: Settled, device: int) -> None:
    """Plan, compile and load what a call launches; `device` is the current one. Raises: Unsupported."""
    ready = _prepare(q, k, tensors, settled, device)
    if isinstance(ready, Unsupported):
        raise ready
    if isinstance(ready, Prompter):
        ready.planned(k.shape[2], (1, 1, 1))


def _prepare(
    q: torch.Tensor, k: torch.Tensor, tensors: Tensors, settled: Settled, device: int, share: Share | None = None
) -> Caller | _Ready | Unsupported:
    """Plan and compile, and remember both, or that no kernel takes it."""
    ready: Caller | _Ready | Unsupported
    keys, share = planned_keys(k.shape[2]), share or streams.share_of(device)
    try:
        request = _request(q, k, tensors, settled, share)
        if call := chosen(request):
            ready = CALLERS[call.name](call, q.device, device)
            ready.kept = _kept_others(q, tensors, settled, ready.turns)
            keys = ANY_KEYS if call.any_keys else keys
        else:
            ready = _compile(request, q, tensors, settled, device)
    except Unsupported as refusal:
        ready = Unsupported(*refusal.args)  # without its traceback, which holds the tensors
    settled.launches.setdefault(share, {})[keys] = ready
    return ready


def _request(q: torch.Tensor, k: torch.Tensor, tensors: Tensors, settled: Settled, share: Share) -> Request:
    template = "the tensors are {needed}; the kernels take {allowed}"
    require(q.dtype in DTYPES, "dtype", str(q.dtype), "torch.float32", template)
    template = "k and v have {needed:,} keys; the kernels take {allowed:,}"
    require(planned_keys(k.shape[2]) <= MOST_PLACES, "seq_k", k.shape[2], MOST_PLACES, template)
    (batch, heads, seq_q, hdim), seq_k = q.shape, planned_keys(k.shape[2])
    problem = Problem(
        settled.family, batch, heads, k.shape[1], seq_q, seq_k, hdim, settled.rotary_dim, DTYPES[q.dtype],
        settled.causal, max(seq_k - seq_q, 0),
    )  # fmt: skip
    given = tensors.cos is not None, tensors.positions is not None, tensors.lengths is not None
    return request_of(problem, gpu.device_target(), not settled.interleaved, given, settled.scale, share)


def require_one_length(request: Request) -> None:
    """Raises: Unsupported for sequences with lengths of their own, which V8 does not take."""
    template = "lengths are taken with up to {allowed} queries, or where keys are split; this call has {needed} queries"
    require(not request.by_length, "seq_q", request.problem.seq_q, MOST_QUERIES, template)


def _compile(request: Request, q: torch.Tensor, tensors: Tensors, settled: Settled, device: int) -> _Ready:
    problem, target = request.problem, request.target
    require_one_length(request)
    tabled, placed = (bool(settled.rotary_dim) and each is not None for each in (tensors.cos, tensors.positions))
    planned = plan_launch(problem, target, request.share, settled.interleaved, tabled, placed)
    behind, constants, launches = itertools.count(len(VALUES)), [], []
    for launch, arguments in planned.launches:
        gpu.require_target(launch, target)
        names = [name for name, _ in arguments]
        made = prepared(launch, arguments, target, q.device, device)
        constants += [name for name in names if not isinstance(name, str)]
        places = [VALUES.index(name) if isinstance(name, str) else next(behind) for name in names]
        launches.append((made, launch.grid, operator.itemgetter(*places)))
    # What has a workspace is never launched again as it was.
    others = None if any(planned.workspace) else _kept_others(q, tensors, settled)
    return _Ready(launches, tuple(constants), planned.workspace, planned.interleaved, others)


def _kept_others(q: torch.Tensor, tensors: Tensors, settled: Settled, turns: Any = None) -> Any:
    """`_others` of all calls alike, where they are tables that stay; None where calls have their own."""
    given = not (tensors.cos is tensors.positions is tensors.slopes is None)
    others = None if given else _others(q, tensors, settled, turns)
    return others if others and all(each is None or resident.stays(each) for each in others[1]) else None


def _places(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
) -> tuple[tuple[int, int, int, int], tuple[int, ...]]:
    """The address of each tensor, and the strides of all tensors one after the other, in elements."""
    addresses = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
    return addresses, q.stride() + k.stride() + v.stride() + out.stride()


def _in_place(addresses: tuple[int, int, int, int], strides: tuple[int, ...], size: int) -> bool:
    """Whether kernels take four tensors where they lie, by `_places` of them."""
    q, k, v, out = addresses
    return not (q | k | v | out) & ROW_BYTES - 1 and _fit(strides, size)


@functools.lru_cache(maxsize=4096)
def _fit(strides: tuple[int, ...], size: int) -> bool:
    """Whether kernels take these strides, four per tensor, of elements of `size` bytes."""
    dims, rows = strides[3::4], strides[2::4]
    apart = (*strides[::4], *strides[1::4], *rows)
    aligned = all(size * stride % ROW_BYTES == 0 for stride in apart)
    return aligned and set(dims) == {1} and max(apart) <= MOST_STRIDE and max(rows) <= MOST_ROW_STRIDE


def _placed(name: str, x: torch.Tensor) -> torch.Tensor:
    """x where a kernel can read it: x itself, another view of it, or a copy, with a warning."""
    x = _resolved(name, x)
    strides = [stride if size > 1 else 0 for size, stride in zip(x.shape, x.stride(), strict=True)]
    x = x.as_strided(x.shape, (*strides[:3], x.stride(3)))  # to a second row, head or batch that is not there: nowhere
    if not _in_place(*_places(x, x, x, x), x.element_size()):
        _say_copy(name, "its last dim is not contiguous, or its rows do not start on 16 bytes or lie too far apart")
        x = x.clone(memory_format=torch.contiguous_format)
        require_stride(max(x.stride()))
    return x


def _resolved(name: str, x: torch.Tensor) -> torch.Tensor:
    """x with its values in memory: a view such as z.conj().imag is only marked as negated."""
    if x.is_neg():
        _say_copy(name, "it is a lazily negated view")
    return x.resolve_neg()


def _paired(name: str, x: torch.Tensor, rotary_dim: int) -> torch.Tensor:
    """x with dims reordered so that the pairs (j, j + rotary_dim / 2) are adjacent; q k^T stays the same."""
    _say_copy(name, f"its {rotary_dim} rotary dims are half-split, which kernels take in multiples of 8")
    pairs = x[..., :rotary_dim].unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    return torch.cat((pairs, x[..., rotary_dim:]), -1)


def _tables(cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin for kernels that rotate two pairs at a time: an odd number of pairs gets one with cos 1 and sin 0."""
    if cos.shape[1] % 2:
        _say_copy("cos", "it has an odd number of pairs")
        pad = torch.nn.functional.pad
        return pad(cos, (0, 1), value=1.0), pad(sin, (0, 1))
    starts = cos.data_ptr() | sin.data_ptr() | 4 * cos.stride(0)
    if cos.stride() != sin.stride() or cos.stride(1) != 1 or starts & 7 or cos.stride(0) > MOST_STRIDE:
        _say_copy("cos", "its rows are not contiguous, not like those of sin, or do not start on 8 bytes")
        return cos.clone(memory_format=torch.contiguous_format), sin.clone(memory_format=torch.contiguous_format)
    return cos, sin


def _positions(positions: torch.Tensor) -> torch.Tensor:
    """Contiguous int32; a position that does not fit int32 stays out of range."""
    if positions.dtype != torch.int32:
        positions = positions.clamp(-1, MOST_ROWS).to(torch.int32)
    return positions.contiguous()


def _say_copy(name: str, why: str) -> None:
    if name not in _copied:
        _copied.add(name)
        level, frame = 1, sys._getframe()
        while frame.f_back and frame.f_globals["__name__"].startswith(f"{PACKAGE}."):
            level, frame = level + 1, frame.f_back
        warnings.warn(f"{PACKAGE} copies {name} on each call: {why}", stacklevel=level)  # the line that calls the op


def _rates(rotary_dim: int, base: float, device: torch.device, turns: tuple[int, int] | None) -> torch.Tensor:
    if turns:
        make = functools.partial(rates_of, rotary_dim, *turns, base)
    else:
        make = functools.partial(rates_of_turning, rotary_dim, base)
    return resident.table(("rates", rotary_dim, base, turns), device, make)


def _default_slopes(heads: int, batch: int, device: torch.device) -> torch.Tensor:
    """float32[batch, heads], and more of the same behind: a power of two of sequences."""
    rows = power_of_two(batch)
    return resident.table(("slopes", heads, rows), device, lambda: slopes_of(rows, heads))
