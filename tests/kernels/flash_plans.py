"""Helpers of the tests of kernels/flash: problems and plans of each kernel, its output, and float64."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from ops_reference import expected

from kernels.flash.call import flash_plan
from kernels.flash.chunks.plan import chunk_call
from kernels.flash.decode.plan import decode_call
from kernels.flash.prompts.float32_plan import prompt32_call
from kernels.flash.prompts.plan import persistent_call, prompt_plan
from kernels.flash.wide.plan import wide_call
from kernels.runtime.emulator import run
from kernels.version import Plan, Problem

EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
prompt32_plan = partial(flash_plan, prompt32_call)
PLANS = {
    "decode": partial(flash_plan, decode_call), "chunk": partial(flash_plan, chunk_call), "parts": prompt32_plan,
    "mma": prompt_plan, "wgmma": partial(prompt_plan, wgmma=True), "wide": partial(flash_plan, wide_call),
    "split": partial(prompt_plan, split=True, wgmma=False),
    "split_wgmma": partial(prompt_plan, split=True, wgmma=True), "persistent": partial(flash_plan, persistent_call),
}  # fmt: skip
FLOAT32_DECODE = ("decode", "wide")
SPLIT = (*FLOAT32_DECODE, "chunk", "split", "split_wgmma")  # kernels that split keys
BY_SMS = (*SPLIT, "persistent")  # kernels with as many blocks as SMs
USUAL: dict[str, dict[str, Any]] = {
    "decode": {"heads": 4, "kv_heads": 1, "seq_q": 1, "seq_k": 150, "hdim": 128, "rotary_dim": 128},
    "chunk": {"heads": 2, "kv_heads": 1, "seq_q": 12, "seq_k": 150, "hdim": 64, "rotary_dim": 64},
    "mma": {"heads": 2, "kv_heads": 1, "seq_q": 40, "seq_k": 70, "hdim": 64, "rotary_dim": 64, "dtype": "float16"},
    "split": {"heads": 4, "kv_heads": 1, "seq_q": 9, "seq_k": 300, "hdim": 64, "rotary_dim": 64, "dtype": "float16"},
    "parts": {"heads": 2, "kv_heads": 1, "seq_q": 20, "seq_k": 70, "hdim": 64, "rotary_dim": 64},
    "wide": {"heads": 1, "kv_heads": 1, "seq_q": 1, "seq_k": 50, "hdim": 1024, "rotary_dim": 1024},
}
USUAL |= {"wgmma": USUAL["mma"], "split_wgmma": USUAL["split"]}
USUAL |= {"persistent": USUAL["mma"] | {"seq_q": 200, "seq_k": 200}}
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


def exact(problem: Problem, inputs: Inputs, rounded: bool = False, **how: Any) -> torch.Tensor:
    """In float64; `rounded`: with rotated keys and weights rounded to the dtype, as tensor cores take them."""
    q, k, v = (inputs[name][:, :, : problem.q_shape[2] if name == "q" else problem.seq_k] for name in "qkv")
    if rounded:
        how["rounded"] = lambda x: torch.from_numpy(x).to(q.dtype).double().numpy()
    how |= {"family": problem.family, "rotary_dim": problem.rotary_dim, "causal": problem.causal}
    return torch.from_numpy(expected(q, k, v, **how, q_offset=problem.q_offset, scale=problem.softmax_scale))


def allowed(problem: Problem, inputs: Inputs, right: torch.Tensor, **how: Any) -> float:
    """Four times what rounding the output, the rotated keys and the weights does; float32: sums of seq_k + hdim terms,
    each a rounding off at random, and a score's error is a relative one of its weight.
    """
    if problem.dtype == "float32":
        return 4 * EPS["float32"] * math.sqrt(problem.seq_k + problem.hdim) * float(right.abs().max())
    worst = float((exact(problem, inputs, rounded=True, **how) - right).abs().max())
    return 4 * worst + EPS[problem.dtype] * float(right.abs().max())


def assert_right(
    kernel: str, problem: Problem, capacity: int | None = None, how: Any = None, sharp: float = 0.0, seed: int = 0,
    **options: Any,
) -> None:  # fmt: skip
    """Nothing found, and near float64; `how` are the options of `exact`, the others those of the plan."""
    how, inputs = how or {}, drawn(problem, capacity, sharp)
    options["half_split"] = not how.get("interleaved", True)
    if kernel in BY_SMS:
        options = {"sms": 4} | options
    if capacity:
        options["capacity"] = capacity
    made, findings = output(PLANS[kernel](problem, **options), inputs, seed=seed)
    right = exact(problem, inputs, **how)
    # in float32 a score as large as 4 times `sharp` is off by its own rounding; three products of TF32 are by 4
    slack = (4 * (sharp or 1.0) if sharp or kernel not in FLOAT32_DECODE else 1) if problem.dtype == "float32" else 1
    assert not findings
    assert float((made - right).abs().max()) <= slack * allowed(problem, inputs, right, **how)
