"""Attention with RoPE or ALiBi by the definition, in float64 NumPy, a head at a time; and random calls of the ops."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import kernels

UNIT = 2.0**-24  # of rounding, in float32
EPS = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def expected(q, k, v, *, family="rope", rotary_dim=None, base=10_000.0, cos=None, sin=None, positions=None,
             interleaved=True, causal=False, q_offset=None, scale=None, slopes=None, lengths=None,
             rounded=lambda x: x) -> np.ndarray:  # fmt: skip
    """float64 like q, by complex numbers: a pair turns as their real and imaginary part.

    `rounded` is what happens to turned keys and to weights.
    """
    q, k, v = (np.asarray(x.detach().cpu().double()) for x in (q, k, v))
    (batch, heads, seq_q, hdim), (_, kv_heads, seq_k, _) = q.shape, k.shape
    offset = seq_k - seq_q if q_offset is None else q_offset
    places = np.arange(max(seq_k, offset + seq_q)) if positions is None else np.asarray(positions.cpu())
    places = np.broadcast_to(places, (batch, places.shape[-1]))
    if family != "rope":
        rotary_dim = 0
    elif rotary_dim is None:
        rotary_dim = hdim if cos is None else 2 * cos.shape[1]
    pairs = np.arange(rotary_dim // 2)
    first, second = (2 * pairs, 2 * pairs + 1) if interleaved else (pairs, pairs + rotary_dim // 2)

    def turned(x, at):
        if cos is None:
            unit = np.exp(1j * at[:, None] * base ** (-2.0 * pairs / max(rotary_dim, 1)))
        else:
            unit = np.asarray(cos.cpu().double())[at] + 1j * np.asarray(sin.cpu().double())[at]
        z = (x[:, first] + 1j * x[:, second]) * unit
        x = x.copy()
        x[:, first], x[:, second] = z.real, z.imag
        return x

    out = np.zeros_like(q)
    for b in range(batch):
        keys = seq_k if lengths is None else int(lengths[b])
        query_at, key_at = np.arange(seq_q) + (offset if lengths is None else keys - seq_q), np.arange(keys)
        if not keys:
            continue
        for h in range(heads):
            shared = h // (heads // kv_heads)
            turned_keys = rounded(turned(k[b, shared, :keys], places[b, key_at]))
            scores = turned(q[b, h], places[b, query_at.clip(0)]) @ turned_keys.T
            scores *= hdim**-0.5 if scale is None else scale
            if family == "alibi":
                slope = slope_of(h, heads) if slopes is None else float(slopes.expand(batch, heads)[b, h])
                scores -= slope * np.abs(query_at[:, None] - key_at)
            if causal:
                scores[(key_at[None] > query_at[:, None]) & (query_at[:, None] >= 0)] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[b, h] = rounded(weights) @ v[b, shared, :keys] / weights.sum(-1, keepdims=True)
            if lengths is not None:
                out[b, h, query_at < 0] = 0.0  # in front of the first key
    return out


def slope_of(head: int, heads: int) -> float:
    """As the paper of ALiBi gives it; heads that a power of two leaves over take every other slope of its double."""
    power = 2 ** int(np.log2(heads))
    return 2.0 ** (-8.0 * (head + 1) / power) if head < power else 2.0 ** (-4.0 * (2 * (head - power) + 1) / power)


def rounding(q, k, v, scale: float | None = None, bias: float = 0.0) -> float:
    """How far float32 arithmetic may be from `expected`, to the first order in its unit of rounding.

    A score sums hdim products of numbers that were rounded up to 8 times each as they turned, and adds a bias of at
    most that, rounded twice; its error moves the output by at most twice as much times the largest value; the weighted
    sum rounds once a key, and 4 times more.
    """
    q, k, v = (x.detach().cpu().double() for x in (q, k, v))
    hdim, seq_k = k.shape[3], k.shape[2]
    size = float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) * (hdim**-0.5 if scale is None else abs(scale))
    score = UNIT * ((hdim + 16) * size + 2 * bias)
    return float(v.abs().max()) * (2 * score + (seq_k + 4) * UNIT)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)


def layouts(shape: tuple[int, ...], rng: np.random.Generator, **options: Any) -> torch.Tensor:
    """Normal values in one of the layouts that models have: contiguous, [b, s, h, d], a slice of a cache, packed."""
    batch, heads, seq, hdim = shape
    kind = rng.integers(4)
    if kind == 0:
        base = torch.empty(shape, **options)
    elif kind == 1:
        base = torch.empty(batch, seq, heads, hdim, **options).transpose(1, 2)
    elif kind == 2:
        base = torch.empty(batch, heads, seq + 5, hdim, **options)[:, :, 2 : seq + 2]
    else:
        base = torch.empty(batch, seq, heads, 3 * hdim, **options)[..., hdim : 2 * hdim].transpose(1, 2)
    return base.copy_(torch.from_numpy(rng.standard_normal(shape)))


def random_call(
    seed: int, lengths: bool = False, **options: Any
) -> tuple[str, tuple[torch.Tensor, ...], dict[str, Any]]:
    """A name of `ops`, q, k, v and keyword arguments, over what the ops document; `options` are of the tensors."""
    rng = np.random.default_rng(seed)
    pick = lambda *choices: choices[rng.integers(len(choices))]  # noqa: E731
    name = pick("rope_attention", "rope_attention", "rope_attention", "attention", "alibi_attention")
    batch, kv_heads, groups, hdim = pick(1, 2, 3), pick(1, 2), pick(1, 2, 3), pick(4, 8, 12, 64, 132, 200)
    heads, seq_q, seq_k = kv_heads * groups, pick(1, 1, 2, 7, 33), pick(1, 2, 31, 64, 65, 130)
    q = layouts((batch, heads, seq_q, hdim), rng, **options)
    k, v = (layouts((batch, kv_heads, seq_k, hdim), rng, **options) for _ in range(2))
    offset = pick(None, 0, 3, 70)
    offset = max(seq_k - seq_q, 0) if offset is None else offset
    arguments: dict[str, Any] = {"causal": pick(True, False), "q_offset": offset, "scale": pick(None, 0.3)}
    if offset == seq_k - seq_q and pick(True, False):
        del arguments["q_offset"]
    device = options.get("device", "cpu")
    if lengths:
        arguments.pop("q_offset", None)
        offset = max(seq_k - seq_q, 0)
        arguments["lengths"] = torch.from_numpy(rng.integers(0, seq_k + 1, batch)).int().to(device)
    if name == "alibi_attention" and pick(True, False):
        slopes = torch.from_numpy(rng.uniform(0, 1, pick((heads,), (batch, heads))))
        arguments["slopes"] = slopes.to(q)
    if name == "rope_attention":
        rotary_dim = pick(*(dim for dim in (0, 2, 6, 8, 64, 130, hdim) if dim <= hdim))
        arguments |= {"rotary_dim": rotary_dim, "interleaved": pick(True, False), "base": pick(10_000.0, 500_000.0)}
        places = max(seq_k, offset + seq_q) + pick(0, 3)
        if pick(True, False):
            shape, dtype = pick((places,), (batch, places)), pick(torch.int32, torch.int64)
            arguments["positions"] = torch.from_numpy(rng.integers(0, 1000, shape)).to(dtype).to(device)
        if pick(True, False):
            rows = 1000 if "positions" in arguments else places
            angle = torch.from_numpy(rng.uniform(-3, 3, (rows, rotary_dim // 2)))
            arguments |= {"cos": angle.cos().to(q), "sin": angle.sin().to(q)}
    return name, (q, k, v), arguments


def expected_of(name: str, tensors: tuple[torch.Tensor, ...], arguments: dict[str, Any]) -> np.ndarray:
    """`expected` of a call of the op of that name."""
    return expected(*tensors, family=name.removesuffix("_attention"), **arguments)


def allowed_of(tensors: tuple[torch.Tensor, ...], arguments: dict[str, Any]) -> float:
    """`rounding` of a random call, whose biases are slopes up to 1 times distances up to 300."""
    return rounding(*tensors, arguments.get("scale"), bias=300.0)


def right_calls(
    seeds: Iterable[int], takes: Callable[..., bool] = lambda name, q, arguments: True, lengths: int = 0,
    dtype: torch.dtype = torch.float32,
) -> int:  # fmt: skip
    """How many random calls a kernel `takes`, which is right on each; one in `lengths` has lengths."""
    taken = 0
    for seed in seeds:
        name, tensors, arguments = random_call(seed, bool(lengths) and seed % lengths == 0, dtype=dtype)
        if takes(name, tensors[0], arguments):
            out = getattr(kernels, name)(*tensors, **arguments, fallback=False)
            error = np.abs(out.double().numpy() - expected_of(name, tensors, arguments)).max()
            allowed = allowed_of(tensors, arguments) + EPS.get(dtype, 0.0) * float(tensors[2].abs().max())
            assert error <= allowed, (seed, name, arguments, error)
            taken += 1
    return taken
