"""Chunks of queries in float32 in the emulator: values against float64, races without an order, refusals."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from test_decode import ORDERS, allowed, drawn, exact, output, turn_of

from kernels.flash.chunk import chunk_kernel
from kernels.flash.chunk_plan import chunk_plan, pays, shape_of
from kernels.runtime.compile import compile_ptx, resources
from kernels.version import Kernel, Problem, Unsupported


def problem_of(family: str = "rope", **sizes: Any) -> Problem:
    given = {"heads": 2, "kv_heads": 1, "seq_q": 12, "seq_k": 150, "hdim": 64, "rotary_dim": 64} | sizes
    return Problem("attention" if family == "rope" and not given["rotary_dim"] else family, **given)


def assert_right(
    problem: Problem, capacity: int | None = None, how: Any = None, sharp: float = 1.0, seed: int = 0, **plan: Any
) -> None:
    how, inputs = how or {}, drawn(problem, capacity)
    inputs["k"] = inputs["k"] * torch.linspace(1, sharp, inputs["k"].shape[2], dtype=torch.float32)[:, None]
    plan = {"sms": 4, "half_split": how.get("half_split", False)} | plan
    made, findings = output(chunk_plan(problem, capacity=capacity, **plan), inputs, seed=seed)
    expected = exact(problem, inputs, **how)
    assert not findings
    # a score as large as `sharp` is off by its own rounding
    assert float((made - expected).abs().max()) <= 4 * sharp * allowed(problem, inputs, expected)


CASES: list[tuple[dict[str, Any], bool]] = [
    ({"batch": 2, "heads": 6, "kv_heads": 2, "seq_q": 20, "seq_k": 100, "causal": True}, False),
    ({"seq_q": 9, "seq_k": 333, "hdim": 96, "rotary_dim": 36}, True),
    ({"heads": 1, "seq_q": 64, "seq_k": 70, "hdim": 128, "rotary_dim": 128, "causal": True}, True),
    ({"heads": 1, "seq_q": 33, "hdim": 192, "rotary_dim": 64, "q_offset": 100, "causal": True}, False),
    ({"heads": 1, "hdim": 256, "rotary_dim": 256}, True),
    ({"heads": 5, "seq_q": 17, "seq_k": 90, "hdim": 320, "rotary_dim": 320}, False),
    ({"hdim": 32, "rotary_dim": 0, "seq_k": 9, "q_offset": 2}, False),
    ({"family": "alibi", "rotary_dim": 0, "heads": 4, "causal": True}, False),
]


@pytest.mark.parametrize(
    ("sizes", "half_split"),
    [pytest.param(*case, marks=[pytest.mark.deep] * (number not in (0, 1, 5))) for number, case in enumerate(CASES)],
)
def test_values(sizes: dict[str, Any], half_split: bool) -> None:
    assert_right(problem_of(**sizes), how={"half_split": half_split})


def test_growing_scores_and_any_order_of_warps_change_nothing() -> None:
    """Scores that grow along the keys make every tile rescale what came before."""
    for seed in range(2):
        assert_right(problem_of(seq_k=300), sharp=8, seed=seed)


def test_sequences_of_a_batch_have_lengths_of_their_own_in_a_longer_cache() -> None:
    problem = problem_of(batch=3, seq_k=100, causal=True)
    lengths, inputs = np.array([100, 0, 5], np.int32), drawn(problem, 120)  # five keys: the first queries see none
    made, findings = output(chunk_plan(problem, lengths=lengths, capacity=120, sms=9), inputs)
    assert not findings and not made[1].any() and not made[2, :, :7].any() and made[2, :, 7:].any()
    first, one = {name: x[:1] for name, x in inputs.items()}, problem_of(seq_k=100, causal=True)
    expected = exact(one, first)
    assert float((made[:1] - expected).abs().max()) <= allowed(one, first, expected)


@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("half_split", [False, True])
def test_positions_and_tables(tables: bool, half_split: bool) -> None:
    problem = problem_of(batch=2, seq_k=70, rotary_dim=32)
    positions = np.random.default_rng(2).integers(0, 500 if tables else 2**20, (2, 70)).astype(np.int32)
    turn, rows = [turn_of(problem, torch.from_numpy(each)) for each in positions], turn_of(problem, torch.arange(500))
    made = tuple(table.float().numpy() for table in rows) if tables else None
    assert_right(problem, how={"half_split": half_split, "turn": turn}, positions=positions, tables=made)


def test_an_infinity_stays_where_it_is() -> None:
    """A value of +inf reaches its dim alone, and a key of -inf has no weight, although neither has a remainder."""
    problem = problem_of(rotary_dim=0)
    inputs = drawn(problem)
    inputs["q"] = inputs["q"].abs()
    inputs["k"][0, 0, 3], inputs["v"][0, 0, 7, 2] = -torch.inf, torch.inf
    made, _ = output(chunk_plan(problem, sms=4), inputs)
    assert (made[..., 2] == torch.inf).all()
    kept = [dim for dim in range(64) if dim != 2]
    inputs["v"][0, 0, 7, 2] = 0.0
    expected = exact(problem, inputs)
    assert float((made - expected)[..., kept].abs().max()) <= allowed(problem, inputs, expected)


def test_a_barrier_or_a_wait_taken_away_is_found() -> None:
    problem = problem_of(seq_k=300)
    plan, inputs = chunk_plan(problem, sms=4), drawn(problem)
    assert plan.launches[0].grid[0] > 1 and not output(plan, inputs)[1]
    orders = ORDERS["barrier"] + r"|\s*cp\.async\.wait_all;"
    ptx = compile_ptx(plan.launches[0].kernel)
    for number, order in enumerate(re.finditer(orders, ptx)):

        def without(kernel: Kernel, order: Any = order) -> str:
            whole = compile_ptx(kernel)
            return whole[: order.start()] + whole[order.end() :] if kernel.name.startswith("chunk") else whole

        assert any(output(plan, inputs, ptx_of=without, seed=seed)[1] for seed in range(2)), (number, order[0])


@pytest.mark.parametrize(
    ("sizes", "plan", "message"),
    [
        ({"hdim": 80}, {}, "hdim is 80; it must be a multiple of 32 up to 320 in chunks"),
        ({"hdim": 352}, {}, "hdim is 352; it must be a multiple of 32 up to 320 in chunks"),
        ({"dtype": "float16"}, {}, "dtype is float16; this version takes float32"),
        ({"rotary_dim": 6}, {"half_split": True}, "rotary_dim is 6; it must be a multiple of 4 where half-split"),
        ({}, {"target": "sm_80"}, "chunks need compute capability 8.6, this GPU has sm_80"),
        ({"q_offset": -1}, {}, "q_offset is -1; it must be 0 or more"),
    ],
)
def test_what_no_kernel_takes_is_refused(sizes: dict[str, Any], plan: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(message)):
        chunk_plan(problem_of(**sizes), **plan)


@pytest.mark.parametrize("hdim", [64, 128, 320])
@pytest.mark.parametrize("rows", [16, 32, 64])
def test_kernels_do_not_spill_and_as_many_blocks_fit_as_the_splits_count_on(hdim: int, rows: int) -> None:
    shape = shape_of(hdim, rows, "rates", False, "sm_90", 8, 8192, 132)
    used = resources(chunk_kernel(shape), "sm_90")
    assert used.spill_bytes == 0 and used.stack_bytes == 0
    assert used.registers * shape.threads * shape.blocks <= 65_536
    assert (shape.layout.nbytes + 1024) * shape.blocks <= 233_472


@pytest.mark.parametrize(
    ("heads", "rows", "seq_q", "seq_k", "split"),
    [(3, 85, 17, 700, True), (8, 256, 64, 2048, True), (128, 64, 64, 2048, False), (8, 16, 16, 64, False),
     (8, 2048, 2048, 2048, False)],
)  # fmt: skip
def test_chunks_are_for_few_tiles_of_rows_and_many_keys(
    heads: int, rows: int, seq_q: int, seq_k: int, split: bool
) -> None:
    shape = shape_of(128, rows, "rates", False, "sm_90", heads, seq_k, 132)
    assert pays(shape, heads, rows, seq_q, seq_k, 132) is split
