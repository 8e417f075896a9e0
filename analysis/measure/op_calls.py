"""Random calls of the functions of kernels/ops.py: what a call is, its tensors, and the rules for its result."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kernels import Problem
from kernels.checking.reference import ERROR_FACTOR, alibi_slopes
from kernels.constants import FREQUENCY_BASE

FUNCTIONS = {"rope": "rope_attention", "attention": "attention", "alibi": "alibi_attention"}  # by family
MODES = ("rates", "rates_positions", "tables", "tables_positions")  # where the angles of RoPE come from
LAYOUTS = ("contiguous", "transposed", "cache", "unaligned", "strided", "expanded", "negated")
CALLED = ("eager", "graph")
INPUTS = ("uniform", "sharp", "large", "minus_inf_key", "inf_value", "near_max", "subnormal", "nan_query")
BASES = (10_000.0, 10_000.0, 500_000.0, 1_000_000.0, 100.0)
MOST_POSITIONS = 2**20
FLT_MAX, FLT_MIN = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny

HDIMS = (4, 8, 12, 16, 24, 32, 36, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 512, 576, 1024, 2048, 4096)
# What bounds a problem, so that float64 is quick and fits a small card: elements of scores, of Q and of K, of tables.
MOST_SCORES, MOST_ELEMENTS, MOST_TERMS, MOST_TABLE = 2**23, 2**24, 2**32, 2**24

ORDERS = 8  # evaluations of fp32 math: one of them may be right by luck
HALF_ULP = 2.0**-24  # of a float32, relative
SUBNORMAL = 2.0**-138  # a quarter of the least TF32: what is below it is lost where products are of TF32


@dataclass(frozen=True)
class Call:
    """One call: its function by the problem's family, the values and layout of its tensors, and how it is called.

    All positions are below `reach`; `seed` is that of the values. A captured graph is replayed after other calls have
    evicted what the op caches.
    """

    problem: Problem
    interleaved: bool = True
    base: float = FREQUENCY_BASE
    mode: str = "rates"
    layout: str = "contiguous"
    scale: float | None = None
    inputs: str = "uniform"
    reach: int = 2**12
    seed: int = 0
    called: str = "eager"

    @property
    def function(self) -> str:
        return FUNCTIONS[self.problem.family]

    @property
    def softmax_scale(self) -> float:
        return self.problem.softmax_scale if self.scale is None else self.scale

    @property
    def places(self) -> int:
        """The number of positions in the sequence that queries or keys have."""
        return max(self.problem.seq_k, self.problem.q_offset + self.problem.seq_q)


class Tensors(NamedTuple):
    """The arguments of a call: q, k and v in their layout, and the keyword arguments."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    options: dict[str, Any]


# ---------------------------------------------------------------- tensors


def values(call: Call, dice: torch.Generator) -> dict[str, torch.Tensor]:
    """q, k and v, contiguous, of the call's kind of inputs.

    sharp: scores far apart. large: magnitudes of q and k from 1e-3 to 1e3. The others are uniform but for:
    minus_inf_key: a key of -inf in the dims that are not rotated, where queries are positive: its scores are -inf.
    inf_value: an element of v is +inf. near_max: v up to 0.99 FLT_MAX. subnormal: v below FLT_MIN, and every third of q
    and k. nan_query: one query is NaN.
    """
    problem, device = call.problem, dice.device
    shapes = {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape}
    x = {name: torch.rand(shape, generator=dice, device=device) * 2 - 1 for name, shape in shapes.items()}
    b, h, key = (
        int(torch.randint(n, (1,), generator=dice, device=device)) for n in (*problem.kv_shape[:2], problem.seq_k)
    )
    rotated = min(problem.rotary_dim, problem.hdim - 1)
    if call.inputs == "sharp":
        x = {
            name: torch.randn(shape, generator=dice, device=device) * (1 if name == "v" else 2)
            for name, shape in shapes.items()
        }
    elif call.inputs == "large":
        for name in "qk":
            x[name] = x[name].sign() * 10 ** (torch.rand(shapes[name], generator=dice, device=device) * 6 - 3)
    elif call.inputs == "minus_inf_key":
        x["q"][..., rotated:] = x["q"][..., rotated:].abs() + 0.1
        x["k"][..., key, rotated:] = -math.inf
    elif call.inputs == "inf_value":
        x["v"][b, h, key, 0] = math.inf
    elif call.inputs == "near_max":
        x["v"] *= 0.99 * FLT_MAX
    elif call.inputs == "subnormal":
        x["v"] *= FLT_MIN
        for name in "qk":
            x[name][..., ::3] *= FLT_MIN
    elif call.inputs == "nan_query":
        x["q"][b, h, 0] = math.nan
    return x


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A view of shape `[batch, heads, seq, hdim]` with the values of x; the memory around it is NaN.

    transposed: of storage `[batch, seq, heads, hdim]`; cache: the first rows of a longer one; unaligned: rows start 4
    bytes after a multiple of 16; strided: every other element of a row; expanded: the values of one head for all;
    negated: with the lazy negative bit.
    """
    batch, heads, seq, hdim = x.shape

    def around(*shape: int) -> torch.Tensor:
        return torch.full(shape, math.nan, dtype=x.dtype, device=x.device)

    match layout:
        case "contiguous":
            return x
        case "expanded":
            return x[:, :1].expand(x.shape)
        case "negated":
            return torch._neg_view(-x)
        case "transposed":
            view = around(batch, seq, heads, hdim).transpose(1, 2)
        case "cache":
            view = around(batch, heads, seq + 40, hdim)[:, :, :seq]
        case "unaligned":
            view = around(batch, heads, seq, hdim + 4)[..., 1 : hdim + 1]
        case "strided":
            view = around(batch, heads, seq, 2 * hdim)[..., ::2]
    return view.copy_(x)


def tensors(call: Call, device: Any) -> Tensors:
    """The tensors of a call on a device; the same on every device of its kind."""
    dice = torch.Generator(device).manual_seed(call.seed)
    problem = call.problem
    lying = {
        name: laid_out(x, "contiguous" if call.layout == "cache" and name == "q" else call.layout)
        for name, x in values(call, dice).items()
    }
    default = problem.q_offset == problem.seq_k - problem.seq_q
    options: dict[str, Any] = {
        "causal": problem.causal, "q_offset": None if default else problem.q_offset, "scale": call.scale
    }  # fmt: skip
    if problem.family == "rope":
        options |= {"rotary_dim": problem.rotary_dim, "interleaved": call.interleaved}
        if "tables" in call.mode:
            rows = call.reach if "positions" in call.mode else call.places
            angle = torch.arange(rows, dtype=torch.float64, device=device)[:, None] * rates(call, device)
            options |= {"cos": angle.cos().float(), "sin": angle.sin().float()}
        else:
            options["base"] = call.base
        if "positions" in call.mode:
            of_batch, wide = (int(x) for x in torch.randint(2, (2,), generator=dice, device=device))
            shape = (problem.batch, call.places) if of_batch else (call.places,)
            at = torch.randint(call.reach, shape, generator=dice, device=device)
            options["positions"] = at.to(torch.int64 if wide else torch.int32)
    return Tensors(**lying, options=options)


def rates(call: Call, device: Any) -> torch.Tensor:
    """float64[pairs]: radians a position."""
    pairs = call.problem.rotary_dim // 2
    return call.base ** (-torch.arange(pairs, dtype=torch.float64, device=device) / max(pairs, 1))


# ---------------------------------------------------------------- calls at random


def _length(dice: random.Random, most: int) -> int:
    """1 to `most`, as often in every doubling."""
    return min(int(2 ** dice.uniform(0, math.log2(most) + 1)), most)


def _call(dice: random.Random) -> Call | None:
    """A call of the documented range, or None where it would take long."""
    family = dice.choices(tuple(FUNCTIONS), (6, 1, 1))[0]
    hdim, batch = dice.choice(HDIMS), dice.choice((1, 1, 1, 2, 3, 8))
    kv_heads, groups = dice.choice((1, 1, 2, 3, 4, 8)), dice.choice((1, 1, 1, 2, 4, 8))
    seq_q = 1 if dice.random() < 0.25 else _length(dice, 2048)
    seq_k = seq_q if dice.random() < 0.25 else _length(dice, 2**15)
    behind = max(seq_k - seq_q, 0)
    q_offset = dice.choice((behind, behind, 0, dice.randrange(4096), dice.randrange(MOST_POSITIONS - seq_q)))
    rows, places = batch * kv_heads * groups * seq_q, max(seq_k, q_offset + seq_q)
    elements = max(rows, batch * kv_heads * seq_k) * hdim
    if rows * seq_k > MOST_SCORES or elements > MOST_ELEMENTS or rows * seq_k * hdim > MOST_TERMS:
        return None
    turns = (hdim, hdim, hdim // 4 * 2, min(128, hdim), 2 * dice.randrange(hdim // 2 + 1))
    rotary_dim = dice.choice(turns) if family == "rope" else 0
    mode = dice.choices(MODES, (3, 1, 1, 1))[0] if family == "rope" else "rates"
    reach = dice.choice((2**12, 2**16, MOST_POSITIONS))
    if "tables" in mode and (reach if "positions" in mode else places) * max(rotary_dim // 2, 1) > MOST_TABLE:
        return None
    new_base = 10.0 ** dice.uniform(0, 7)
    problem = Problem(
        family, batch, kv_heads * groups, kv_heads, seq_q, seq_k, hdim, rotary_dim, causal=dice.random() < 0.4,
        q_offset=q_offset,
    )  # fmt: skip
    return Call(
        problem,
        interleaved=family != "rope" or dice.random() < 0.5,
        base=dice.choice((*BASES, new_base, new_base)) if family == "rope" else FREQUENCY_BASE,
        mode=mode,
        layout=dice.choices(LAYOUTS, (6, 6, 6, 2, 2, 2, 2))[0],
        scale=None if dice.random() < 0.75 else problem.softmax_scale * 2.0 ** dice.uniform(-2, 1),
        inputs=dice.choices(INPUTS, (5, 5, 5, 1, 1, 1, 1, 1))[0],
        reach=reach,
        seed=dice.randrange(2**31),
        called=dice.choices(CALLED, (3, 1))[0],
    )


def drawn(seed: int, kernel_of: Callable[[Call], Any], most_kernels: int) -> Iterator[Call]:
    """Calls without end, the same for the same arguments, that meet at most so many kernels.

    `kernel_of` names the kernel of a call, or None where it needs none. Once as many kernels are met, a call that
    would need another is drawn again: a kernel takes seconds to compile.
    """
    dice = random.Random(seed)
    met: set[Any] = set()
    while True:
        call = _call(dice)
        kernel = kernel_of(call) if call else None
        if call is None or (kernel is not None and kernel not in met and len(met) == most_kernels):
            continue
        met |= {kernel} - {None}
        yield call


# ---------------------------------------------------------------- what the result should be


def turned(x: torch.Tensor, angle: tuple[torch.Tensor, torch.Tensor], interleaved: bool) -> torch.Tensor:
    """x `[batch, heads, seq, hdim]` with its first dims rotated by cos and sin `[batch or 1, 1, seq, pairs]`."""
    cos, sin = (each.to(x.dtype) for each in angle)
    pairs = cos.shape[-1]
    halves = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    first, second = halves if interleaved else (slice(pairs), slice(pairs, 2 * pairs))
    a, b, out = x[..., first], x[..., second], x.clone()
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def attended(call: Call, given: Tensors, dtype: torch.dtype, order: int = 0) -> torch.Tensor:
    """The result in a dtype, written out; angles are exact, then rounded. `order`: another rounding of the scale."""
    problem, device = call.problem, given.q.device
    q, k, v = (x.resolve_neg().to(dtype) for x in (given.q, given.k, given.v))
    place = torch.arange(problem.seq_q, device=device) + problem.q_offset
    key = torch.arange(problem.seq_k, device=device)
    if problem.family == "rope":
        at = given.options.get("positions", torch.arange(call.places, device=device)).long().view(-1, 1, call.places)

        def angles(places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mine = at[..., places]
            if "cos" in given.options:
                return given.options["cos"].double()[mine], given.options["sin"].double()[mine]
            angle = mine.double()[..., None] * rates(call, device)
            return angle.cos(), angle.sin()

        q, k = (turned(x, angles(places), call.interleaved) for x, places in ((q, place), (k, key)))
    k, v = (x.repeat_interleave(problem.heads // problem.kv_heads, 1) for x in (k, v))
    part = order / ORDERS if order else 1.0
    scores = (q * call.softmax_scale**part) @ (k * call.softmax_scale ** (1 - part)).transpose(-1, -2)
    away = place[:, None] - key
    if problem.family == "alibi":
        slopes = torch.from_numpy(alibi_slopes(problem.heads)).to(device, dtype)
        scores = scores - slopes.view(-1, 1, 1) * away.abs().to(dtype)
    if problem.causal:
        scores = scores.masked_fill(away < 0, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)  # 0, as in SDPA's math backend
    return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0) @ v


def judge(call: Call, given: Tensors, out: torch.Tensor) -> dict[str, Any]:
    """`broken`, the rules that `out` breaks as the result of a call, and where anything is finite its errors.

    shape: q's shape and dtype. not_finite: where fp32 math is finite, so is the result. infinity: where float64 and
    fp32 math have the same infinity, the result has it. nan_spread: a row holds a NaN only if one of the others does.
    nan_lost: a row that is NaN throughout in both is NaN throughout. error: over what is finite in all three, at most
    ERROR_FACTOR times the largest error of ORDERS evaluations of fp32 math, or of rounding the largest output.
    """
    if out.shape != given.q.shape or out.dtype != given.q.dtype:
        return {"broken": ["shape"]}
    expected = attended(call, given, torch.float64)
    singles = [attended(call, given, torch.float32, order) for order in range(ORDERS)]
    single = singles[0]
    nan, nan_expected, nan_single = (x.isnan() for x in (out, expected, single))
    rules = {
        "not_finite": single.isfinite() & ~out.isfinite(),
        "infinity": expected.isinf() & (single == expected) & (out != expected),
        "nan_spread": nan.any(-1) & ~(nan_expected | nan_single).any(-1),
        "nan_lost": (nan_expected & nan_single).all(-1) & ~nan.all(-1),
    }
    broken = [name for name, places in rules.items() if bool(places.any())]
    finite = expected.isfinite() & single.isfinite() & out.isfinite()
    if not bool(finite.any()):
        return {"broken": broken}

    def error(x: torch.Tensor) -> float:
        return float((x.double() - expected).abs().where(finite & x.isfinite(), 0.0).max())

    fp32, worst = max(map(error, singles)), error(out)
    least = max(fp32, HALF_ULP * float(expected.abs().where(finite, 0.0).max()), SUBNORMAL)
    broken += ["error"] * (worst > ERROR_FACTOR * least)
    return {
        "broken": broken, "max_abs_err": worst, "fp32_abs_err": fp32, "allowed_abs_err": ERROR_FACTOR * least,
        "ratio": worst / least,
    }  # fmt: skip
