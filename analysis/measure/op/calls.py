"""Calls of the functions of kernels/ops.py: what a call is, its tensors, and thousands of them drawn at random."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernels import Problem
from kernels.constants import FREQUENCY_BASE

FUNCTIONS = {"rope": "rope_attention", "attention": "attention", "alibi": "alibi_attention"}  # by family
MODES = ("rates", "rates_positions", "tables", "tables_positions")  # where the angles of RoPE come from
LAYOUTS = ("contiguous", "transposed", "cache", "unaligned")
SPECIAL = ("minus_inf_key", "overflow", "inf_value", "near_max", "subnormal", "nan_query")
INPUTS = ("uniform", "sharp", "large", *SPECIAL)
MOST_POSITIONS = 2**20
FLT_MAX = torch.finfo(torch.float32).max
FLT_MIN = torch.finfo(torch.float32).tiny

HDIMS = (4, 8, 12, 16, 24, 32, 36, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 512, 576, 1024, 1536, 2048, 3072, 4096)
# What bounds a problem, so that float64 is quick and fits a small card: elements of scores, of Q and of K, terms.
MOST_SCORES, MOST_ELEMENTS, MOST_TERMS = 2**24, 2**25, 2**33
MOST_TABLE = 2**24  # elements of a table of cosines


@dataclass(frozen=True)
class Call:
    """One call: its function by the problem's family, and what its tensors hold and how they lie.

    `reach` is what every position is below; `seed` is that of the values.
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

    @property
    def function(self) -> str:
        return FUNCTIONS[self.problem.family]

    @property
    def softmax_scale(self) -> float:
        return self.problem.softmax_scale if self.scale is None else self.scale

    @property
    def places(self) -> int:
        """How many places queries and keys stand at."""
        return max(self.problem.seq_k, self.problem.q_offset + self.problem.seq_q)


@dataclass(frozen=True)
class Tensors:
    """What a call is made with: q, k, v as they lie, and the keyword arguments."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    options: dict[str, Any]


# ---------------------------------------------------------------- values


def _log_uniform(shape: Any, low: float, high: float, dice: torch.Generator) -> torch.Tensor:
    """Of either sign, with magnitudes of 10^low to 10^high."""
    exponent = low + (high - low) * torch.rand(shape, generator=dice, device=dice.device)
    sign = torch.randint(0, 2, shape, generator=dice, device=dice.device) * 2 - 1
    return sign * 10.0**exponent


def values(call: Call, dice: torch.Generator) -> dict[str, torch.Tensor]:
    """q, k and v, contiguous, of the call's kind of inputs.

    uniform, sharp: as kernels.checking.reference makes them. large: magnitudes of q and k from 1e-3 to 1e3, so that
    one key takes all of a row; v of one scale between 1e-6 and 1e6. The others are uniform but for:
    minus_inf_key: keys of -inf in the dims that do not turn, where queries are positive: their scores are -inf.
    overflow: keys whose scores are below -FLT_MAX, by a dim that does not turn: of turned ones, where infinities of
    both signs meet, float32 has no one sum. inf_value: an element of v is +inf. near_max: v up to 0.99 FLT_MAX.
    subnormal: v below FLT_MIN, and every third of q and k. nan_query: one query is NaN.
    """
    problem = call.problem
    shapes = {"q": problem.q_shape, "k": problem.kv_shape, "v": problem.kv_shape}

    def uniform(shape: Any) -> torch.Tensor:
        return torch.rand(shape, generator=dice, device=dice.device) * 2 - 1

    def number(limit: int) -> int:
        return int(torch.randint(limit, (1,), generator=dice, device=dice.device))

    if call.inputs == "sharp":
        x = {name: torch.randn(shape, generator=dice, device=dice.device) for name, shape in shapes.items()}
        return {"q": 2 * x["q"], "k": 2 * x["k"], "v": x["v"]}
    if call.inputs == "large":
        q, k = (_log_uniform(shapes[name], -3, 3, dice) for name in "qk")
        return {"q": q, "k": k, "v": uniform(shapes["v"]) * 10.0 ** (number(13) - 6)}
    x = {name: uniform(shape) for name, shape in shapes.items()}
    key = number(problem.seq_k)
    turned = min(problem.rotary_dim, problem.hdim - 1)  # without a dim that stays, the last one of a pair
    if call.inputs == "minus_inf_key":
        x["q"][..., turned:] = x["q"][..., turned:].abs() + 0.1
        x["k"][..., key, turned:] = -math.inf
    elif call.inputs == "overflow":
        x["q"][..., -1] = 1e20
        x["k"][..., -1] *= 1e-20
        x["k"][..., key, -1] = -2e38
    elif call.inputs == "inf_value":
        x["v"][number(problem.batch), number(problem.kv_heads), key, number(problem.hdim)] = math.inf
    elif call.inputs == "near_max":
        x["v"] *= 0.99 * FLT_MAX
    elif call.inputs == "subnormal":
        x["v"] *= FLT_MIN
        for name in "qk":
            x[name][..., ::3] *= FLT_MIN
    elif call.inputs == "nan_query":
        x["q"][number(problem.batch), number(problem.heads), number(problem.seq_q)] = math.nan
    return x


# ---------------------------------------------------------------- how tensors lie


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A view with the values of x `[batch, heads, seq, hdim]`: what lies around it is NaN.

    transposed: of storage `[batch, seq, heads, hdim]`; cache: the first rows of a longer one; unaligned: rows start 4
    bytes behind a multiple of 16.

    Raises: ValueError for another layout.
    """
    batch, heads, seq, hdim = x.shape

    def around(*shape: int) -> torch.Tensor:
        return torch.full(shape, math.nan, dtype=x.dtype, device=x.device)

    if layout == "contiguous":
        return x
    if layout == "transposed":
        view = around(batch, seq, heads, hdim).transpose(1, 2)
    elif layout == "cache":
        view = around(batch, heads, seq + 40, hdim)[:, :, :seq]
    elif layout == "unaligned":
        view = around(batch, heads, seq, hdim + 4)[..., 1 : hdim + 1]
    else:
        raise ValueError(f"layout is {layout!r}; allowed: {', '.join(LAYOUTS)}")
    return view.copy_(x)


def _positions(call: Call, dice: torch.Generator) -> torch.Tensor:
    """int32 or int64, `[places]` or `[batch, places]`, below `reach`: counted on from somewhere, or at random."""
    two, wide, counted = (int(x) for x in torch.randint(2, (3,), generator=dice, device=dice.device))
    rows, places = call.problem.batch if two else 1, call.places
    at = torch.randint(call.reach, (rows, places), generator=dice, device=dice.device)
    if counted and places <= call.reach:
        start = torch.randint(call.reach - places + 1, (rows, 1), generator=dice, device=dice.device)
        at = start + torch.arange(places, device=dice.device)
    at = at.to(torch.int64 if wide else torch.int32)
    return at if two else at[0]


def table(call: Call, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, `float32[rows, rotary_dim / 2]`, for every position of the call."""
    pairs = call.problem.rotary_dim // 2
    rows = call.reach if "positions" in call.mode else call.places
    rate = call.base ** (-torch.arange(pairs, dtype=torch.float64, device=device) / max(pairs, 1))
    angle = torch.arange(rows, dtype=torch.float64, device=device)[:, None] * rate
    return angle.cos().float(), angle.sin().float()


def tensors(call: Call, device: Any) -> Tensors:
    """The tensors of a call on a device; the same on every device of its kind."""
    dice = torch.Generator(device).manual_seed(call.seed)
    problem = call.problem
    lying = {
        name: laid_out(x, "contiguous" if call.layout == "cache" and name == "q" else call.layout)
        for name, x in values(call, dice).items()
    }
    default = problem.q_offset == problem.seq_k - problem.seq_q
    q_offset = None if default else problem.q_offset
    options: dict[str, Any] = {"causal": problem.causal, "q_offset": q_offset, "scale": call.scale}
    if problem.family == "rope":
        options |= {"rotary_dim": problem.rotary_dim, "interleaved": call.interleaved}
        if "tables" in call.mode:
            options["cos"], options["sin"] = table(call, device)
        else:
            options["base"] = call.base
        if "positions" in call.mode:
            options["positions"] = _positions(call, dice)
    if call.layout == "transposed":
        options["out"] = torch.full_like(lying["q"], math.nan)
    return Tensors(**lying, options=options)


# ---------------------------------------------------------------- calls at random


def _length(dice: random.Random, most: int) -> int:
    """1 to `most`, as often in every doubling."""
    return min(int(2 ** dice.uniform(0, math.log2(most) + 1)), most)


def _problem(dice: random.Random) -> Problem | None:
    """A problem of the documented range, or None where it would take long."""
    family = dice.choices(("rope", "attention", "alibi"), (6, 1, 1))[0]
    hdim = dice.choice(HDIMS)
    batch = dice.choice((1, 1, 1, 2, 3, 8))
    kv_heads, groups = dice.choice((1, 1, 2, 3, 4, 8)), dice.choice((1, 1, 1, 2, 4, 8))
    seq_q = 1 if dice.random() < 0.25 else _length(dice, 2048)
    seq_k = seq_q if dice.random() < 0.25 else _length(dice, 2**15 if dice.random() < 0.97 else MOST_POSITIONS)
    behind = max(seq_k - seq_q, 0)
    q_offset = dice.choice((behind, behind, 0, dice.randrange(4096), dice.randrange(MOST_POSITIONS - seq_q)))
    rotary_dim = 0
    if family == "rope":
        quarter = hdim // 4 * 2
        rotary_dim = dice.choice((hdim, hdim, quarter, min(128, hdim), 2 * dice.randrange(hdim // 2 + 1)))
    if seq_k > MOST_POSITIONS or max(seq_k, q_offset + seq_q) > MOST_POSITIONS:
        return None
    rows = batch * kv_heads * groups * seq_q
    elements = max(rows, batch * kv_heads * seq_k) * hdim
    if rows * seq_k > MOST_SCORES or elements > MOST_ELEMENTS or rows * seq_k * hdim > MOST_TERMS:
        return None
    heads = kv_heads * groups
    return Problem(
        family, batch, heads, kv_heads, seq_q, seq_k, hdim, rotary_dim, causal=dice.random() < 0.4, q_offset=q_offset
    )


def _call(dice: random.Random) -> Call | None:
    problem = _problem(dice)
    if problem is None:
        return None
    kind = dice.choice(("uniform", "sharp", "large", "special"))
    inputs = dice.choice(SPECIAL) if kind == "special" else kind
    if inputs == "overflow" and problem.rotary_dim == problem.hdim:  # the dim that overflows must not turn
        problem = dataclasses.replace(problem, rotary_dim=problem.hdim // 4 * 2)
    call = Call(
        problem,
        layout=dice.choices(LAYOUTS, (6, 6, 6, 1))[0],
        scale=None if dice.random() < 0.75 else problem.softmax_scale * 2.0 ** dice.uniform(-2, 1),
        inputs=inputs,
        seed=dice.randrange(2**31),
    )
    if problem.family != "rope":
        return call
    mode = dice.choices(MODES, (3, 1, 1, 1))[0]
    reach = dice.choice((2**12, 2**16, MOST_POSITIONS))
    if "tables" in mode:
        rows = reach if "positions" in mode else call.places
        if rows * max(problem.rotary_dim // 2, 1) > MOST_TABLE:
            return None
    return dataclasses.replace(
        call,
        mode=mode,
        interleaved=dice.random() < 0.5,
        base=dice.choice((10_000.0, 10_000.0, 500_000.0, 1_000_000.0, 100.0)),
        reach=reach,
    )


def drawn(count: int, seed: int, kernel_of: Callable[[Call], Any], most_kernels: int) -> list[Call]:
    """`count` calls, the same for the same arguments, that meet at most so many kernels.

    `kernel_of` names the kernel of a call, or None where it needs none. Once as many kernels are met, a call that
    would need another is drawn again: a kernel takes seconds to compile.
    """
    return [call for _, call in zip(range(count), _draws(seed, kernel_of, most_kernels), strict=False)]


def _draws(seed: int, kernel_of: Callable[[Call], Any], most_kernels: int) -> Iterator[Call]:
    dice = random.Random(seed)
    met: set[Any] = set()
    while True:
        call = _call(dice)
        if call is None:
            continue
        kernel = kernel_of(call)
        if kernel is not None and kernel not in met:
            if len(met) == most_kernels:
                continue
            met.add(kernel)
        yield call
