"""Calls of the op of kernels/op: what can be asked, calls drawn at random, and what their results should be."""

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import pad

from kernels import Problem, Unsupported
from kernels.checking.reference import ERROR_FACTOR
from kernels.constants import FREQUENCY_BASE, MOST_POSITIONS
from kernels.flash.chunks.plan import LEAST_RATIO
from kernels.flash.cluster.call import VERSIONS as V8
from kernels.flash.decode.plan import MOST_DIMS, MOST_QUERIES
from kernels.flash.prompts.float32_plan import LEAST_ROWS
from kernels.limits import Share
from kernels.op import warm
from kernels.op.arguments import Options
from kernels.op.arguments import Tensors as Beside
from kernels.op.fallback import attend
from kernels.runtime.gpu import PORTABLE_CLUSTER
from kernels.version import DTYPES, Kernel

from .on_gpu import Row, row_of

FUNCTIONS = {"rope": "rope_attention", "attention": "attention", "alibi": "alibi_attention"}  # by family
MODES = ("rates", "rates_positions", "tables", "tables_positions")  # where the angles of RoPE come from
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # a view of the values; the memory around it is NaN
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),  # in memory [batch, seq, heads, hdim]
    "cache": lambda x: pad(x, (0, 0, 0, 40), value=math.nan)[:, :, : x.shape[2]],  # the first rows of a longer one
    "unaligned": lambda x: pad(x, (1, 3), value=math.nan)[..., 1:-3],  # rows start 4 bytes after a multiple of 16
    "expanded": lambda x: x[:, :1].expand(x.shape),  # the values of one head for all
    "negated": lambda x: torch._neg_view(-x),
}
INPUTS = ("uniform", "sharp", "large")
HDIMS = (4, 8, 12, 16, 24, 32, 36, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 512, 576, 1024, 2048, 4096)
MODEL_HDIMS = (64, 96, 128)
SLICED_HDIMS = (*HDIMS, 8192, 12_288)  # the largest in clusters of 16 blocks, where the card takes them
SLICES = (*range(8, 129, 8), 0)  # SMs
DECODE_HDIMS = tuple(hdim for hdim in HDIMS if hdim % 8 == 0 and hdim <= MOST_DIMS)
PROMPT_HDIMS = (64, 64, 80, 96, 128, 128, 192, 256)
# What bounds a problem, so that float64 is quick and fits a small card: elements of scores, of Q and of K, of tables.
MOST_SCORES, MOST_ELEMENTS, MOST_TERMS, MOST_TABLE = 2**23, 2**24, 2**32, 2**24
ORDERS = 8  # evaluations of fp32 math: one of them may be right by luck
HALF_ULP = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # relative
FLT_MIN = 2.0**-126


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
    lengths: bool = False  # of keys, by sequence
    sms: int = 0  # of the slice of the card that it is launched to; 0: the whole card

    @property
    def places(self) -> int:
        """The number of positions in the sequence that queries or keys have."""
        return max(self.problem.seq_k, self.problem.q_offset + self.problem.seq_q)

    @property
    def softmax_scale(self) -> float:
        return self.problem.softmax_scale if self.scale is None else self.scale

    def served(self, target: str) -> tuple[str, tuple[Kernel, ...]]:
        """The version whose kernels the op takes, and these kernels; V8 and none where PyTorch computes it."""
        unmapped = self.layout == "expanded" and self.problem.kv_heads > 1 and self.problem.dtype != "float32"
        lengths = self.lengths or unmapped  # either takes the kernel on mma.sync
        given = self.interleaved, "tables" in self.mode, "positions" in self.mode, lengths
        share = Share(self.sms, PORTABLE_CLUSTER) if self.sms else Share()
        try:
            return warm.Call(self.problem, *given).served(target, share)
        except Unsupported:
            return V8[self.problem.family], ()

    def columns(self, target: str) -> Row:
        own = {name: getattr(self, name) for name in ("interleaved", "mode", "layout")}
        return row_of((self.served(target)[0], self.problem), **own)


Draw = Callable[[random.Random], Call | None]
Given = tuple[list[torch.Tensor], dict[str, Any]]  # q, k and v in their layout, and the keyword arguments


def tensors(call: Call, device: Any) -> Given:
    """The arguments of a call on a device, the same on every device of its kind.

    Values are uniform in -1 .. 1; or normal, so that scores are far apart (sharp); or have magnitudes from 1e-3 to 1e3
    in q and k (large).
    """
    dice, problem = torch.Generator(device).manual_seed(call.seed), call.problem
    dtype = getattr(torch, problem.dtype)
    qkv: list[torch.Tensor] = []
    for size in (problem.q_shape, problem.kv_shape, problem.kv_shape):
        x = torch.rand(size, generator=dice, device=device) * 2 - 1
        if call.inputs == "sharp":
            x = x.erfinv().clamp(-5, 5) * (2 if len(qkv) < 2 else 1) * math.sqrt(2)
        elif call.inputs == "large" and len(qkv) < 2:
            x = x.sign() * 10 ** (6 * x.abs() - 3)
        x = x.to(dtype)
        qkv.append(x if call.layout == "cache" and not qkv else LAYOUTS[call.layout](x))
    options: dict[str, Any] = {"causal": problem.causal, "q_offset": problem.q_offset, "scale": call.scale}
    if call.lengths:
        lengths = torch.randint(problem.seq_k + 1, (problem.batch,), generator=dice, device=device)
        options |= {"q_offset": None, "lengths": lengths.int()}
    if problem.family == "rope":
        options |= {"rotary_dim": problem.rotary_dim, "interleaved": call.interleaved, "base": call.base}
        if "tables" in call.mode:
            rows = call.reach if "positions" in call.mode else call.places
            pair = torch.arange(problem.rotary_dim // 2, dtype=torch.float64, device=device)
            rates = call.base ** (-2 * pair / max(problem.rotary_dim, 1))
            angle = torch.arange(rows, dtype=torch.float64, device=device)[:, None] * rates
            options |= {"cos": angle.cos().float(), "sin": angle.sin().float()}
        if "positions" in call.mode:
            shape = (problem.batch, call.places)[call.seed % 2 :]
            options["positions"] = torch.randint(call.reach, shape, generator=dice, device=device)
    return qkv, options


# ---------------------------------------------------------------- random calls


def _length(dice: random.Random, most: int) -> int:
    """1 to `most`, as often in every doubling."""
    return min(int(2 ** dice.uniform(0, math.log2(most) + 1)), most)


def random_call(dice: random.Random, hdims: Sequence[int] = HDIMS, most_queries: int = 2048) -> Call | None:
    """A call of the documented range, or None where it would take long."""
    family = dice.choices(tuple(FUNCTIONS), (6, 1, 1))[0]
    hdim, batch = dice.choice(hdims), dice.choice((1, 1, 1, 2, 3, 8))
    kv_heads, groups = dice.choice((1, 1, 2, 3, 4, 8)), dice.choice((1, 1, 1, 2, 4, 8))
    seq_q = 1 if dice.random() < 0.25 else _length(dice, most_queries)
    seq_k = seq_q if dice.random() < 0.25 else _length(dice, 2**15)
    behind = max(seq_k - seq_q, 0)
    q_offset = dice.choice((behind, behind, 0, dice.randrange(4096), dice.randrange(MOST_POSITIONS - seq_q)))
    turns = (hdim, hdim, hdim // 4 * 2, min(128, hdim), 2 * dice.randrange(hdim // 2 + 1))
    problem = Problem(
        family, batch, kv_heads * groups, kv_heads, seq_q, seq_k, hdim, dice.choice(turns) if family == "rope" else 0,
        causal=dice.random() < 0.4, q_offset=q_offset,
    )  # fmt: skip
    call = Call(
        problem,
        interleaved=family != "rope" or dice.random() < 0.5,
        base=dice.choice((10_000.0, 500_000.0, 10.0 ** dice.uniform(0, 7))) if family == "rope" else FREQUENCY_BASE,
        mode=dice.choices(MODES, (3, 1, 1, 1))[0] if family == "rope" else MODES[0],
        layout=dice.choices(tuple(LAYOUTS), (6, 6, 6, 2, 2, 2))[0],
        scale=None if dice.random() < 0.75 else problem.softmax_scale * 2.0 ** dice.uniform(-2, 1),
        inputs=dice.choice(INPUTS),
        reach=dice.choice((2**12, 2**16, MOST_POSITIONS)),
        seed=dice.randrange(2**31),
        called=dice.choices(("eager", "graph"), (3, 1))[0],
    )
    scores = batch * kv_heads * groups * seq_q * seq_k
    elements = max(math.prod(problem.q_shape), math.prod(problem.kv_shape))
    rows = (call.reach if "positions" in call.mode else call.places) if "tables" in call.mode else 0
    fits = scores <= MOST_SCORES and elements <= MOST_ELEMENTS and scores * hdim <= MOST_TERMS
    return call if fits and rows * problem.rotary_dim <= 2 * MOST_TABLE else None


def long_call(dice: random.Random) -> Call | None:
    """One of those of which the op takes most as prompts or chunks, or None: many queries, or few of many keys."""
    call = random_call(dice, MODEL_HDIMS)
    sizes = call and (call.problem.seq_q, call.problem.seq_k)
    return call if sizes and (min(sizes) >= LEAST_ROWS or MOST_QUERIES < sizes[0] <= sizes[1] // LEAST_RATIO) else None


def _varied(dice: random.Random, call: Call, lengths_share: float, dtypes: tuple[str, ...]) -> Call:
    """The call in one of the dtypes, with lengths or not, and of what this dtype and its kernels take."""
    problem, lengths = call.problem, dice.random() < lengths_share
    offset = max(problem.seq_k - problem.seq_q, 0) if lengths else problem.q_offset
    dtype = dice.choice(dtypes)
    inputs = call.inputs if dtype == "float32" else dice.choice(INPUTS[:2])  # large ones overflow
    called = call.called if dice.random() < 0.5 else "eager"  # a process keeps no more tables than so many evict
    interleaved = call.interleaved or problem.rotary_dim % 8 > 0
    problem = dataclasses.replace(problem, dtype=dtype, q_offset=offset)
    return dataclasses.replace(
        call, problem=problem, lengths=lengths, interleaved=interleaved, inputs=inputs, called=called
    )


def decode_call(dice: random.Random) -> Call | None:
    """A call of up to 8 queries, or None where it would take long."""
    call = random_call(dice, DECODE_HDIMS, MOST_QUERIES)
    return call and _varied(dice, call, 0.5, DTYPES)


def prompt_call(dice: random.Random) -> Call | None:
    """A prompt in half precision, or None where it would take long."""
    call = random_call(dice, PROMPT_HDIMS)
    return _varied(dice, call, 0.2, DTYPES[1:]) if call and call.problem.seq_q > MOST_QUERIES else None


def sliced_call(dice: random.Random, sms: Sequence[int] = SLICES) -> Call | None:
    """A call of any kind in a slice of the card of one of so many SMs, or None where it would take long."""
    call = dice.choice((long_call, decode_call, prompt_call, *(2 * (partial(random_call, hdims=SLICED_HDIMS),))))(dice)
    return call and dataclasses.replace(call, sms=dice.choice(sms))


def drawn(seed: int, count: int, target: str, most_kernels: int, draw: Draw = random_call) -> list[Call]:
    """Calls, the same for the same arguments, that meet at most so many kernels: each takes seconds to compile."""
    dice = random.Random(seed)
    met: set[Any] = set()
    calls: list[Call] = []
    while len(calls) < count:
        if (call := draw(dice)) and (not (new := {*call.served(target)[1]} - met) or len(met) < most_kernels):
            met |= new
            calls.append(call)
    return calls


# ---------------------------------------------------------------- what the result should be


def expected(
    call: Call, given: Given, dtype: torch.dtype, order: int = 0, between: torch.dtype | None = None
) -> torch.Tensor:
    """The result in a dtype, by PyTorch's operations; by another `order` the scale is shared otherwise by q and k.

    Rotated q and k are rounded to the dtype `between`, if one is given.
    """
    problem, (qkv, options) = call.problem, given
    rotation = problem.rotary_dim, call.base, call.interleaved
    asked = Options(problem.family, *rotation, problem.causal, problem.q_offset, scale=1.0)
    part = order / ORDERS if order else 1.0
    q, k, v = (x.resolve_neg().to(dtype) for x in qkv)
    beside = Beside(*(options.get(name) for name in ("cos", "sin", "positions", "slopes", "lengths")))
    return attend(q * call.softmax_scale**part, k * call.softmax_scale ** (1 - part), v, beside, asked, between)


def judge(call: Call, given: Given, out: torch.Tensor) -> Row:
    """`reason`, the rule that `out` breaks as the result of a call, and its errors.

    shape: q's shape and dtype. not_finite: where fp32 math is finite, so is the result. error: at most ERROR_FACTOR
    times the largest error of ORDERS evaluations of fp32 math, or of rounding the largest output; in half precision,
    where weights may be rounded too, the largest value, and with RoPE that of fp32 math on q and k that are rounded
    again behind their rotation, as tensor cores take them.
    """
    q, _, v = given[0]
    if out.shape != q.shape or out.dtype != q.dtype:
        return {"reason": "shape"}
    exact = expected(call, given, torch.float64)
    singles = [expected(call, given, torch.float32, order) for order in range(ORDERS)]
    if q.dtype != torch.float32 and call.problem.rotary_dim:
        singles += [expected(call, given, torch.float32, order, between=q.dtype) for order in range(ORDERS)]
    if bool((singles[0].isfinite() & ~out.isfinite()).any()):
        return {"reason": "not_finite"}
    fp32, worst = (max(float((x - exact).abs().max()) for x in some) for some in (singles, [out]))
    least = max(fp32, HALF_ULP[q.dtype] * float((exact if q.dtype == torch.float32 else v).abs().max()), FLT_MIN)
    found = {
        "max_abs_err": worst,
        "fp32_abs_err": fp32,
        "allowed_abs_err": ERROR_FACTOR * least,
        "ratio": worst / least,
    }
    return {"reason": None if worst <= ERROR_FACTOR * least else "error", **found}
