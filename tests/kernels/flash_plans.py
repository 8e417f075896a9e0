"""What the tests of kernels/flash share: problems and plans of each kernel, its output, and float64 beside it."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch

from kernels.checking.reference import alibi_slopes
from kernels.flash.chunk_plan import chunk_plan
from kernels.flash.plan import decode_plan
from kernels.flash.prompt32_plan import prompt32_plan
from kernels.flash.prompt_plan import prompt_plan
from kernels.runtime.emulator import run
from kernels.version import Plan, Problem

EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
PLANS = {
    "decode": decode_plan, "chunk": chunk_plan, "mma": prompt_plan, "wgmma": partial(prompt_plan, wgmma=True),
    "parts": prompt32_plan,
}  # fmt: skip
USUAL: dict[str, dict[str, Any]] = {
    "decode": {"heads": 4, "kv_heads": 1, "seq_q": 1, "seq_k": 150, "hdim": 128, "rotary_dim": 128},
    "chunk": {"heads": 2, "kv_heads": 1, "seq_q": 12, "seq_k": 150, "hdim": 64, "rotary_dim": 64},
    "mma": {"heads": 2, "kv_heads": 1, "seq_q": 40, "seq_k": 70, "hdim": 64, "rotary_dim": 64, "dtype": "float16"},
    "parts": {"heads": 2, "kv_heads": 1, "seq_q": 20, "seq_k": 70, "hdim": 64, "rotary_dim": 64},
}
USUAL["wgmma"] = USUAL["mma"]
Inputs = dict[str, torch.Tensor]


def problem_of(kernel: str, family: str = "rope", **sizes: Any) -> Problem:
    given = USUAL[kernel] | sizes
    return Problem("attention" if family == "rope" and not given["rotary_dim"] else family, **given)


def drawn(problem: Problem, capacity: int | None = None, sharp: float = 0.0) -> Inputs:
    """Scores with a standard deviation of 1, or one that grows to `sharp`; a cache is NaN behind the problem's keys."""
    rng, dtype = np.random.default_rng(1), getattr(torch, problem.dtype)
    made = {}
    for name, shape in (("q", problem.q_shape), ("k", problem.kv_shape), ("v", problem.kv_shape)):
        x = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
        if capacity and name != "q":
            x = torch.cat((x, torch.full((*shape[:2], capacity - shape[2], shape[3]), math.nan, dtype=dtype)), 2)
        made[name] = x
    if sharp:
        made["k"] = made["k"] * torch.linspace(0, sharp, problem.seq_k)[:, None].to(dtype)
    return made


def raw(x: torch.Tensor) -> np.ndarray:
    """As the emulator takes it: bfloat16 as its bits."""
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()


def output(plan: Plan, inputs: Inputs, **how: Any) -> tuple[torch.Tensor, list[Any]]:
    report = run(plan, {name: raw(x) for name, x in inputs.items()}, **how)
    bits = torch.from_numpy(np.ascontiguousarray(report.out).view(np.uint8))
    return bits.view(getattr(torch, plan.problem.dtype)).reshape(plan.problem.q_shape).double(), report.findings


def rotate(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], half_split: bool) -> torch.Tensor:
    """Rotate the leading dims of x by (cos, sin) `[places, pairs]`."""
    cos, sin = turn
    pairs = cos.shape[-1]
    low, high = x[..., : 2 * pairs].unflatten(-1, (2, -1) if half_split else (-1, 2)).unbind(-2 if half_split else -1)
    both = (low * cos - high * sin, low * sin + high * cos)
    turned = torch.cat(both, -1) if half_split else torch.stack(both, -1).flatten(-2)
    return torch.cat((turned, x[..., 2 * pairs :]), -1)


def turn_of(problem: Problem, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rates = 10_000.0 ** (-torch.arange(0, problem.rotary_dim, 2).double() / max(problem.rotary_dim, 1))
    angle = positions.double()[:, None] * rates
    return angle.cos(), angle.sin()


def exact(
    problem: Problem, inputs: Inputs, half_split: bool = False, turn: Any = None, lengths: Any = None,
    rounded: bool = False,
) -> torch.Tensor:  # fmt: skip
    """In float64; `rounded`: with rotated keys and weights rounded to the dtype, as tensor cores take them."""
    dtype, group = getattr(torch, problem.dtype), problem.heads // problem.kv_heads
    out = torch.zeros(problem.q_shape, dtype=torch.float64)
    places = torch.arange(max(problem.seq_k, problem.q_offset + problem.seq_q))
    turn = turn or [turn_of(problem, places)] * problem.batch
    for b in range(problem.batch):
        keys = problem.seq_k if lengths is None else int(lengths[b])
        if not keys:
            continue
        first = keys - problem.seq_q if lengths is not None else problem.q_offset
        q, k, v = inputs["q"][b].double(), inputs["k"][b, :, :keys].double(), inputs["v"][b, :, :keys].double()
        cos, sin = turn[b]
        if problem.rotary_dim:
            k = rotate(k, (cos[:keys], sin[:keys]), half_split)
            stands = slice(first, first + problem.seq_q)
            q = rotate(q, (cos[stands], sin[stands]), half_split)
        if rounded:
            k = k.to(dtype).double()
        scores = q @ k.repeat_interleave(group, 0).transpose(-1, -2) * problem.softmax_scale
        if problem.family == "alibi":
            distance = (first + torch.arange(problem.seq_q)[:, None] - torch.arange(keys)[None]).abs()
            scores = scores - torch.from_numpy(alibi_slopes(problem.heads))[:, None, None] * distance
        if problem.causal:
            seen = torch.arange(keys)[None] <= first + torch.arange(problem.seq_q)[:, None]
            scores = scores.masked_fill(~seen, -math.inf)
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        total = weights.sum(-1, keepdim=True)
        weights = weights.to(dtype).double() if rounded else weights
        out[b] = weights @ v.repeat_interleave(group, 0) / total
    return out


def allowed(problem: Problem, inputs: Inputs, expected: torch.Tensor, **how: Any) -> float:
    """Four times what rounding the output, the rotated keys and the weights does; float32: sums of seq_k + hdim terms,
    each a rounding off at random, and a score's error is a relative one of its weight.
    """
    if problem.dtype == "float32":
        return 4 * EPS["float32"] * math.sqrt(problem.seq_k + problem.hdim) * float(expected.abs().max())
    worst = float((exact(problem, inputs, rounded=True, **how) - expected).abs().max())
    return 4 * worst + EPS[problem.dtype] * float(expected.abs().max())


def assert_right(
    kernel: str, problem: Problem, capacity: int | None = None, how: Any = None, sharp: float = 0.0, seed: int = 0,
    **options: Any,
) -> None:  # fmt: skip
    """Nothing found, and near float64; `how` are the options of `exact`, the others those of the plan."""
    how, inputs = how or {}, drawn(problem, capacity, sharp)
    if "half_split" in how:
        options["half_split"] = how["half_split"]
    if kernel in ("decode", "chunk"):
        options = {"sms": 4} | options
    if capacity:
        options["capacity"] = capacity
    made, findings = output(PLANS[kernel](problem, **options), inputs, seed=seed)
    expected = exact(problem, inputs, **how)
    # in float32 a score as large as 4 times `sharp` is off by its own rounding; three products of TF32 are by 4
    slack = (4 * (sharp or 1.0) if sharp or kernel != "decode" else 1) if problem.dtype == "float32" else 1
    assert not findings
    assert float((made - expected).abs().max()) <= slack * allowed(problem, inputs, expected, **how)
