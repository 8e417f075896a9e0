"""Launches on a user's own tensors: on their device, on torch's current stream, where they lie."""

import functools
import math
import sys
import warnings
from typing import Any

import torch

from ..constants import MOST_POSITIONS, require
from ..flash.args import Rotation
from ..flash.call import Request, request_of
from ..flash.choose import chosen
from ..flash.cluster.launch import MOST_ROW_STRIDE, MOST_STRIDE, require_stride
from ..flash.cluster.shape import power_of_two
from ..limits import Share
from ..rates import rates_of, rates_of_turning, slopes_of
from ..runtime import gpu, kept, streams
from ..version import Problem, Unsupported
from . import resident
from .arguments import KERNEL_DTYPES, MOST_INDICES, NO_TENSORS, Options, Settled, Tensors
from .launcher import Addresses, Launcher, Strides

PACKAGE = __name__.split(".")[0]
ANY_KEYS = 0  # of the launches that a signature has: takes any; others are by the keys that they are planned for
ROW_BYTES = 16  # that a row starts on
ALIGNED = ((ROW_BYTES,) * 4,) * 4  # strides of tensors that kernels take where they lie
MOST_ROWS = 2**31 - 1  # of tables, which kernels count in an int32
MOST_SCALE = torch.finfo(torch.float32).max / math.log2(math.e)  # kernels get log2(e) times it
KEYS = 64  # of a tile

_copied: set[str] = kept(set())


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
    driver = gpu.DRIVER
    device = driver.card_of(q)
    if device < 0:
        template = "the tensors are on {needed}; the kernels take those on {allowed}"
        raise Unsupported("capability", q.device.type, "cuda", template)
    if driver.current_device() != device:
        with driver.on(device):
            return launch_on_card(q, k, v, out, tensors, settled, q_offset, share)
    launcher = launcher_of(q, k, v, out, tensors, settled, device, share)
    require_positions(tensors, settled, k.size(2), q_offset)
    if launcher.interleaved and settled.options.rotary_dim and not settled.options.interleaved:
        q, k = _paired("q", q, settled.options.rotary_dim), _paired("k", k, settled.options.rotary_dim)
    (q, k, v, written), addresses, strides = operands_of(q, k, v, out)
    rotation, _alive = launcher.kept or rotation_of(q, tensors, settled.options, launcher.turns)  # until it is launched
    lengths = tensors.lengths if tensors.lengths is None else tensors.lengths.resolve_neg().contiguous()
    launcher.launch(addresses, strides, k.size(2), q_offset, 0 if lengths is None else lengths.data_ptr(), rotation)
    return out if written is out else out.copy_(written)


def launcher_of(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    tensors: Tensors,
    settled: Settled,
    device: int,
    share: Share | None,
) -> Launcher:
    """The launcher of calls alike on what the current stream launches to, planned at first. Raises: Unsupported."""
    if share is None:
        stream = gpu.DRIVER.current_stream(device)
        launchers = settled.launches.get(stream) or streams.plans(settled.launches, device)
    else:
        launchers = settled.launches.get(share, {})
    launcher = launchers.get(ANY_KEYS) or launchers.get(planned_keys(k.size(2)))
    if launcher is None:
        strides = addresses_and_strides(q, k, v, out)[1]
        strides = strides if _fit(strides, q.element_size()) else ALIGNED  # of copies, otherwise
        launcher = prepare(q, k, tensors, settled, device, share, strides)
    if isinstance(launcher, Unsupported):
        raise type(launcher)(*launcher.args)  # a new one, without the tracebacks of those before
    return launcher


def require_positions(tensors: Tensors, settled: Settled, seq_k: int, q_offset: int) -> None:
    """Raises: Unsupported where kernels would compute an angle of a position from MOST_POSITIONS on."""
    last = max(seq_k, q_offset + settled.seq_q) - 1
    if last >= MOST_POSITIONS and settled.options.rotary_dim and tensors.cos is tensors.positions is None:
        template = "positions go up to {needed:,}; the kernels turn by those below {allowed:,}"
        raise Unsupported("q_offset", last, MOST_POSITIONS, template)


def operands_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], Addresses, Strides]:
    """The four tensors where kernels take them, themselves or copies, of `out` an empty one; and where they lie."""
    addresses, strides = addresses_and_strides(q, k, v, out)
    if q.is_neg() or k.is_neg() or v.is_neg() or not _in_place(addresses, strides, q.element_size()):
        q, k, v = _placed("q", q), _placed("k", k), _placed("v", v)
        if not _lies_right(out):
            out = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        addresses, strides = addresses_and_strides(q, k, v, out)
    return (q, k, v, out), addresses, strides


def rotation_of(
    q: torch.Tensor, tensors: Tensors, options: Options, turns: tuple[int, int] | None
) -> tuple[Rotation, tuple[Any, ...]]:
    """The arguments of a launch from `rotary_dim` on, and the tensors that their addresses are of.

    `turns` are as of `Call`.
    """
    cos, sin, positions, slopes, _ = tensors if options.rotary_dim or options.family == "alibi" else NO_TENSORS
    rates = None
    if cos is not None:
        cos, sin = _tables(_resolved("cos", cos).float(), _resolved("sin", sin).float())
    elif options.rotary_dim:
        rates = _rates(options.rotary_dim, options.base, q.device, turns)
    if positions is not None:
        positions = _positions(positions)
    if options.family == "alibi":
        batch, heads = q.shape[:2]
        if slopes is None:
            slopes = _default_slopes(heads, batch, q.device)
        else:
            slopes = _resolved("slopes", slopes).float().expand(batch, heads).contiguous()
    made = (rates, cos, sin, positions, slopes)
    at_rates, at_cos, at_sin, at_positions, at_slopes = (0 if each is None else each.data_ptr() for each in made)
    rows, pitch = (0, 0) if cos is None else (min(cos.shape[0], MOST_ROWS), cos.stride(0))
    between = 0 if positions is None or positions.dim() == 1 else positions.stride(0)
    tables = at_rates, at_cos, at_sin, pitch, rows
    return Rotation(options.rotary_dim, *tables, at_positions, between, at_slopes), made


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


def prepare(
    q: torch.Tensor,
    k: torch.Tensor,
    tensors: Tensors,
    settled: Settled,
    device: int,
    share: Share | None = None,
    strides: Strides = ALIGNED,
) -> Launcher | Unsupported:
    """Plan, compile and load what a call launches, and remember it, or that no kernel takes it.

    `device` is the current one, and `share` by default what the current stream launches to.
    """
    launcher: Launcher | Unsupported
    seq_k, share = k.shape[2], share or streams.share_of(device)
    keys = planned_keys(seq_k)
    try:
        call = chosen(_request(q, k, tensors, settled.options, share))
        launcher = Launcher(call, q.device, device)
        launcher.plan(seq_k, strides)
        launcher.kept = _kept_rotation(q, tensors, settled.options, launcher.turns)
        keys = ANY_KEYS if call.any_keys else keys
    except Unsupported as refusal:
        launcher = Unsupported(*refusal.args)  # without its traceback, which holds the tensors
    settled.launches.setdefault(share, {})[keys] = launcher
    return launcher


def _request(q: torch.Tensor, k: torch.Tensor, tensors: Tensors, options: Options, share: Share) -> Request:
    template = "the tensors are {needed}; the kernels take {allowed}"
    require(q.dtype in KERNEL_DTYPES, "dtype", str(q.dtype), "torch.float32", template)
    template = "k and v have {needed:,} keys; the kernels take {allowed:,}"
    require(planned_keys(k.shape[2]) <= MOST_INDICES, "seq_k", k.shape[2], MOST_INDICES, template)
    template = "scale is {needed}; the kernels take up to {allowed:.3g}"
    require(abs(options.scale) <= MOST_SCALE, "scale", options.scale, MOST_SCALE, template)
    (batch, heads, seq_q, hdim), seq_k = q.shape, planned_keys(k.shape[2])
    problem = Problem(
        options.family, batch, heads, k.shape[1], seq_q, seq_k, hdim, options.rotary_dim, KERNEL_DTYPES[q.dtype],
        options.causal, max(seq_k - seq_q, 0),
    )  # fmt: skip
    given = tensors.cos is not None, tensors.positions is not None, tensors.lengths is not None
    return request_of(problem, gpu.device_target(), not options.interleaved, given, options.scale, share)


def _kept_rotation(q: torch.Tensor, tensors: Tensors, options: Options, turns: tuple[int, int] | None) -> Any:
    """`rotation_of` all calls alike, where it is of tables that stay; None where calls have their own."""
    if not (tensors.cos is tensors.positions is tensors.slopes is None):
        return None
    rotation, made = rotation_of(q, tensors, options, turns)
    return (rotation, made) if all(each is None or resident.stays(each) for each in made) else None


def addresses_and_strides(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
) -> tuple[Addresses, Strides]:
    addresses = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
    return addresses, (q.stride(), k.stride(), v.stride(), out.stride())


def _in_place(addresses: Addresses, strides: Strides, size: int) -> bool:
    """Whether kernels take four tensors where they lie, of elements of `size` bytes."""
    q, k, v, out = addresses
    return not (q | k | v | out) & ROW_BYTES - 1 and _fit(strides, size)


def _lies_right(x: torch.Tensor) -> bool:
    """Whether kernels take a tensor where it lies."""
    return _in_place(*addresses_and_strides(x, x, x, x), x.element_size())


@functools.lru_cache(maxsize=4096)
def _fit(strides: Strides, size: int) -> bool:
    """Whether kernels take tensors of these strides, of elements of `size` bytes."""
    apart = [stride for each in strides for stride in each[:3]]
    contiguous = all(each[3] == 1 for each in strides)
    aligned = all(size * stride % ROW_BYTES == 0 for stride in apart)
    return contiguous and aligned and max(apart) <= MOST_STRIDE and max(each[2] for each in strides) <= MOST_ROW_STRIDE


def _placed(name: str, x: torch.Tensor) -> torch.Tensor:
    """x where a kernel can read it: x itself, another view of it, or a copy, with a warning."""
    x = _resolved(name, x)
    strides = [stride if size > 1 else 0 for size, stride in zip(x.shape, x.stride(), strict=True)]
    x = x.as_strided(x.shape, (*strides[:3], x.stride(3)))  # to a second row, head or batch that is not there: nowhere
    if not _lies_right(x):
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
        warn_caller(f"{PACKAGE} copies {name} on each call: {why}")


def warn_caller(message: str) -> None:
    """Warn at the line that calls the op: the innermost that is neither of this package nor of torch."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in (PACKAGE, "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


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
