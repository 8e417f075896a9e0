"""Decode kernels in the emulator: values against float64, races that appear where an order is taken away, refusals."""

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from kernels.checking.reference import alibi_slopes
from kernels.flash import args
from kernels.flash.args import Tensors
from kernels.flash.choose import shape_of, splits_of
from kernels.flash.plan import decode_plan
from kernels.flash.schedule import DecodeShape
from kernels.runtime.compile import compile_ptx, resources
from kernels.runtime.emulator import run
from kernels.version import Kernel, Launch, Plan, Problem, Unsupported

EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def problem_of(dtype: str = "float32", family: str = "rope", **sizes: Any) -> Problem:
    given = {"batch": 1, "heads": 4, "kv_heads": 1, "seq_q": 1, "seq_k": 150, "hdim": 128, "rotary_dim": 128} | sizes
    return Problem("attention" if family == "rope" and not given["rotary_dim"] else family, dtype=dtype, **given)


def drawn(problem: Problem, capacity: int | None = None) -> dict[str, np.ndarray]:
    """Inputs that make scores with a standard deviation of 1; a cache is NaN behind the problem's keys."""
    rng, dtype = np.random.default_rng(1), getattr(torch, problem.dtype)
    made = {}
    for name, shape in (("q", problem.q_shape), ("k", problem.kv_shape), ("v", problem.kv_shape)):
        x = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
        if capacity and name != "q":
            x = torch.cat((x, torch.full((*shape[:2], capacity - shape[2], shape[3]), math.nan, dtype=dtype)), 2)
        made[name] = x
    return made


def raw(x: torch.Tensor) -> np.ndarray:
    """As the emulator takes it: bfloat16 as its bits."""
    return x.view(torch.int16).numpy().view(np.uint16) if x.dtype == torch.bfloat16 else x.numpy()


def output(plan: Plan, inputs: dict[str, torch.Tensor], **how: Any) -> tuple[torch.Tensor, list[Any]]:
    report = run(plan, {name: raw(x) for name, x in inputs.items()}, **how)
    dtype = getattr(torch, plan.problem.dtype)
    bits = torch.from_numpy(np.ascontiguousarray(report.out).view(np.uint8))
    return bits.view(dtype).reshape(plan.problem.q_shape).double(), report.findings


def rotate(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], half_split: bool) -> torch.Tensor:
    """Rotate the leading dims of x by (cos, sin) `[places, pairs]`."""
    cos, sin = turn
    pairs = cos.shape[-1]
    low, high = x[..., : 2 * pairs].unflatten(-1, (2, -1) if half_split else (-1, 2)).unbind(-2 if half_split else -1)
    both = (low * cos - high * sin, low * sin + high * cos)
    turned = torch.cat(both, -1) if half_split else torch.stack(both, -1).flatten(-2)
    return torch.cat((turned, x[..., 2 * pairs :]), -1)


def turn_of(problem: Problem, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    angle = positions.double()[:, None] * 10_000.0 ** (
        -torch.arange(0, problem.rotary_dim, 2).double() / max(problem.rotary_dim, 1)
    )
    return angle.cos(), angle.sin()


def exact(
    problem: Problem,
    inputs: dict[str, torch.Tensor],
    half_split: bool = False,
    turn: Any = None,
    lengths: Any = None,
    rounded: bool = False,
) -> torch.Tensor:
    """In float64; `rounded`: with rotated keys and weights rounded to the dtype, as tensor cores take them."""
    dtype, group = getattr(torch, problem.dtype), problem.heads // problem.kv_heads
    out = torch.zeros(problem.q_shape, dtype=torch.float64)
    turn = turn or [turn_of(problem, torch.arange(problem.seq_k + 8))] * problem.batch
    for b in range(problem.batch):
        keys = problem.seq_k if lengths is None else int(lengths[b])
        if not keys:
            continue
        first = keys - problem.seq_q if lengths is not None else problem.q_offset
        q, k, v = inputs["q"][b].double(), inputs["k"][b, :, :keys].double(), inputs["v"][b, :, :keys].double()
        cos, sin = turn[b]
        if problem.rotary_dim:
            k = rotate(k, (cos[:keys], sin[:keys]), half_split)
            places = slice(first, first + problem.seq_q)
            q = rotate(q, (cos[places], sin[places]), half_split)
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


def allowed(problem: Problem, inputs: dict[str, torch.Tensor], expected: torch.Tensor, **how: Any) -> float:
    """Four times what rounding the output, the rotated keys and the weights does; float32: sums of seq_k + hdim terms,
    each a rounding off at random, and a score's error is a relative one of its weight.
    """
    if problem.dtype == "float32":
        return 4 * EPS["float32"] * math.sqrt(problem.seq_k + problem.hdim) * float(expected.abs().max())
    worst = float((exact(problem, inputs, rounded=True, **how) - expected).abs().max())
    return 4 * worst + EPS[problem.dtype] * float(expected.abs().max())


def assert_right(problem: Problem, capacity: int | None = None, seed: int = 0, how: Any = None, **plan: Any) -> None:
    how, inputs = how or {}, drawn(problem, capacity)
    made, findings = output(decode_plan(problem, capacity=capacity, sms=plan.pop("sms", 4), **plan), inputs, seed=seed)
    expected = exact(problem, inputs, **how)
    assert not findings
    assert float((made - expected).abs().max()) <= allowed(problem, inputs, expected, **how)


CASES: list[tuple[dict[str, Any], bool]] = [
    ({"heads": 4}, False),
    ({"heads": 4}, True),
    ({"heads": 2, "kv_heads": 2, "rotary_dim": 64}, True),
    ({"heads": 7, "hdim": 64, "rotary_dim": 32, "seq_k": 77}, False),
    ({"heads": 3, "hdim": 96, "rotary_dim": 48, "seq_k": 70}, True),
    ({"heads": 8, "kv_heads": 4, "hdim": 96, "rotary_dim": 6, "seq_k": 70}, False),
    ({"heads": 1, "hdim": 192, "rotary_dim": 192, "seq_k": 70}, True),
    ({"heads": 4, "hdim": 256, "rotary_dim": 128, "seq_k": 70}, False),
    ({"heads": 2, "hdim": 64, "rotary_dim": 0, "seq_k": 99}, False),
    ({"batch": 2, "heads": 4, "kv_heads": 2, "seq_q": 4, "seq_k": 66, "causal": True}, False),
    ({"heads": 4, "seq_q": 5, "seq_k": 70, "hdim": 64, "rotary_dim": 64, "causal": True}, True),
    ({"heads": 6, "kv_heads": 2, "seq_q": 8, "seq_k": 8, "causal": True, "rotary_dim": 8}, False),
    ({"heads": 4, "seq_q": 2, "seq_k": 65, "q_offset": 60}, False),
    ({"heads": 2, "hdim": 24, "rotary_dim": 16, "seq_k": 40}, True),
    ({"heads": 2, "hdim": 320, "rotary_dim": 320, "seq_k": 70}, False),
    ({"heads": 1, "hdim": 512, "rotary_dim": 64, "seq_k": 70}, True),
    ({"heads": 6, "kv_heads": 2, "seq_q": 3, "seq_k": 80, "family": "alibi", "causal": True, "rotary_dim": 0}, False),
    ({"heads": 4, "seq_q": 1, "seq_k": 90, "q_offset": 70, "family": "alibi", "rotary_dim": 0}, False),
]
VALUES = [
    pytest.param(dtype, *case, id=f"{dtype}-{case}", marks=[pytest.mark.deep] * ((number + place) % 3 > 0))
    for number, case in enumerate(CASES)
    for place, dtype in enumerate(EPS)
]


@pytest.mark.parametrize(("dtype", "sizes", "half_split"), VALUES)
def test_values(dtype: str, sizes: dict[str, Any], half_split: bool) -> None:
    assert_right(problem_of(dtype, **sizes), how={"half_split": half_split}, half_split=half_split)


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("heads", [1, 4, 16])
@pytest.mark.parametrize("causal", [True, False])
def test_sequences_of_a_batch_have_lengths_of_their_own_and_none_gives_zeros(
    dtype: str, heads: int, causal: bool
) -> None:
    problem = problem_of(dtype, batch=5, heads=heads, seq_q=4, seq_k=100, causal=causal)
    lengths = np.array([100, 0, 4, 37, 3], np.int32)  # three keys are fewer than queries: the first sees none
    inputs = drawn(problem, 120)
    made, findings = output(decode_plan(problem, lengths=lengths, capacity=120, sms=20), inputs)
    problem4 = {name: x[:4] for name, x in inputs.items()}
    four = problem_of(dtype, batch=4, heads=heads, seq_q=4, seq_k=100, causal=causal)
    expected = exact(four, problem4, lengths=lengths)
    assert not findings
    assert float((made[:4] - expected).abs().max()) <= allowed(four, problem4, expected, lengths=lengths)
    assert (made[1] == 0).all() and (made[4, :, 0] == 0).all() and (made[4, :, 1:] != 0).any()


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cache_may_be_the_start_of_a_longer_one(dtype: str, heads: int) -> None:
    assert_right(problem_of(dtype, heads=heads, batch=2, seq_k=90), capacity=130)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("half_split", [False, True])
def test_positions_and_tables(dtype: str, heads: int, tables: bool, half_split: bool) -> None:
    problem = problem_of(dtype, batch=2, heads=heads, seq_k=70, rotary_dim=64)
    positions = np.random.default_rng(2).integers(0, 500 if tables else 2**20, (2, 70)).astype(np.int32)
    turn = [turn_of(problem, torch.from_numpy(each)) for each in positions]
    rows = turn_of(problem, torch.arange(500))
    made = tuple(table.float().numpy() for table in rows) if tables else None
    how = {"half_split": half_split, "turn": turn}
    assert_right(problem, how=how, half_split=half_split, positions=positions, tables=made)


def test_a_position_outside_of_the_tables_makes_nan_and_never_a_wrong_number() -> None:
    problem = problem_of(seq_k=40)
    tables = tuple(table.float().numpy() for table in turn_of(problem, torch.arange(39)))
    made, _ = output(decode_plan(problem, tables=tables), drawn(problem))
    assert made.isnan().all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_error_does_not_grow_with_the_position(dtype: str) -> None:
    """The kernel with tables of exact values bounds what else is off; 2^20 is where positions end."""
    problem = problem_of(dtype, heads=1 if dtype == "float32" else 4, seq_k=64)
    for first in (0, 2**20 - 64):
        positions = np.arange(first, first + 64, dtype=np.int32)[None]
        turn = [turn_of(problem, torch.from_numpy(positions[0]))]
        assert_right(problem, how={"turn": turn}, positions=positions)


@pytest.mark.parametrize("heads", [1, 4, 8])
def test_growing_scores_and_any_order_of_warps_change_nothing(heads: int) -> None:
    """Scores that grow along the keys make every batch rescale what came before."""
    problem = problem_of(heads=heads, seq_k=300)
    inputs = drawn(problem)
    inputs["k"] = inputs["k"] * torch.linspace(0, 8, 300)[None, None, :, None].to(inputs["k"].dtype)
    plan = decode_plan(problem, sms=4)
    expected = exact(problem, inputs)
    for seed in range(3):
        made, findings = output(plan, inputs, seed=seed)
        assert not findings
        # a score of 32, as the largest here, is off by its own rounding
        assert float((made - expected).abs().max()) <= 32 * allowed(problem, inputs, expected)


ORDERS = {
    "barrier": r"\s*bar(?:rier)?\.(?:cta\.)?sync\b[^;]*;",
    "warp": r"\s*bar\.warp\.sync\b[^;]*;",
}


def without(which: str, kind: str, number: int) -> Any:
    """`ptx_of` with the `number`-th of an instruction taken away."""

    def ptx_of(kernel: Kernel) -> str:
        ptx = compile_ptx(kernel)
        found = list(re.finditer(ORDERS[kind], ptx))
        if not kernel.name.startswith(which) or number >= len(found):
            return ptx
        return ptx[: found[number].start()] + ptx[found[number].end() :]

    return ptx_of


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_barrier_or_a_warp_barrier_taken_away_is_found(dtype: str) -> None:
    """Two splits of 150 keys, so that each warp takes several batches; the combine's threads share them."""
    problem = problem_of(dtype, heads=4, seq_k=300)
    plan, inputs = decode_plan(problem, sms=1), drawn(problem)
    assert plan.launches[0].grid[0] == 2 and not output(plan, inputs)[1]
    found = set()
    for which, launch in zip(("decode", "combine"), plan.launches, strict=True):
        ptx = compile_ptx(launch.kernel)
        for kind, number in [(order, n) for order in ORDERS for n in range(len(re.findall(ORDERS[order], ptx)))]:
            found.add((which, kind))
            runs = [output(plan, inputs, ptx_of=without(which, kind, number), seed=seed)[1] for seed in range(2)]
            assert any(runs), (which, kind, number)
    assert found == {("decode", "barrier"), ("decode", "warp"), ("combine", "barrier")}


def test_a_combine_that_does_not_see_all_splits_is_wrong() -> None:
    problem = problem_of(seq_k=300)
    plan, inputs = decode_plan(problem, sms=4), drawn(problem)
    expected, place = exact(problem, inputs), len(Tensors._fields) + args.Sizes._fields.index("splits")

    def fewer(launch: Launch) -> Launch:
        assert launch.args[place] == plan.launches[0].grid[0]
        fewer_splits = (*launch.args[:place], launch.args[place] - 1, *launch.args[place + 1 :])
        return replace(launch, args=fewer_splits) if launch.kernel.name.startswith("combine") else launch

    made, _ = output(plan.with_launches(fewer), inputs)
    assert float((made - expected).abs().max()) > allowed(problem, inputs, expected)


@pytest.mark.parametrize(
    ("sizes", "plan", "message"),
    [
        ({"hdim": 84, "rotary_dim": 80}, {}, "hdim is 84; it must be a multiple of 8 up to 512 in decode"),
        ({"hdim": 520}, {}, "hdim is 520; it must be a multiple of 8 up to 512 in decode"),
        ({"seq_q": 9}, {}, "seq_q is 9; it must be at most 8 in decode"),
        ({"rotary_dim": 6}, {"half_split": True}, "rotary_dim is 6; it must be a multiple of 4 where half-split"),
        ({"dtype": "float16"}, {"target": "sm_75"}, "half precision needs compute capability 8.0, this GPU has sm_75"),
        ({"dtype": "float16", "rotary_dim": 12}, {"half_split": True}, "rotary_dim is 12; it must be a multiple of 8"),
        ({"q_offset": -1}, {}, "q_offset is -1; it must be 0 or more"),
    ],
)
def test_what_no_decode_kernel_takes_is_refused(sizes: dict[str, Any], plan: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(message)):
        decode_plan(problem_of(**sizes), **plan)


MODEL = [
    shape_of(dtype, hdim, rows, "rates", half_split, "sm_90")
    for dtype, hdim, rows, half_split in (
        ("float32", 128, 1, False),
        ("float32", 128, 4, True),
        ("float16", 128, 1, True),
        ("float16", 128, 4, True),
        ("float16", 128, 16, True),
        ("bfloat16", 128, 4, False),
    )
]


@pytest.mark.parametrize("shape", MODEL, ids=lambda shape: shape.name)
def test_kernels_do_not_spill_and_as_many_blocks_fit_as_the_splits_count_on(shape: DecodeShape) -> None:
    from kernels.flash.decode import decode_kernel

    used = resources(decode_kernel(shape), "sm_90")
    assert used.spill_bytes == 0 and used.stack_bytes == 0
    assert used.registers * shape.threads * shape.blocks <= 65_536
    assert (shape.layout.nbytes + 1024) * shape.blocks <= 233_472


@pytest.mark.parametrize("heads", [1, 8, 16, 64, 264, 1000])
@pytest.mark.parametrize("seq_k", [1, 63, 1500, 4096, 131_072])
def test_splits_hold_all_keys_and_stay_within_one_wave(heads: int, seq_k: int) -> None:
    for shape in MODEL:
        splits, keys = splits_of(shape, heads, seq_k, 132)
        assert (splits - 1) * keys < seq_k <= splits * keys
        assert splits == 1 or splits * heads <= 132 * shape.blocks


def test_a_model_needs_two_kernels_to_decode_however_long_its_cache_is() -> None:
    names = {
        launch.kernel.name
        for seq_k in (1, 100, 4096, 131_072)
        for batch in (1, 16)
        for launch in decode_plan(problem_of("float16", batch=batch, heads=32, kv_heads=8, seq_k=seq_k)).launches
    }
    assert len(names) == 2
