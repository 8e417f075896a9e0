"""Prompts in half precision in the emulator: values against float64, races where an order is taken away, refusals."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from test_decode import allowed, drawn, exact, output, turn_of

from kernels.flash.prompt_mma import prompt_kernel
from kernels.flash.prompt_plan import prompt_plan, shape_of, wgmma_shape
from kernels.flash.prompt_wgmma import wgmma_kernel
from kernels.runtime.compile import assemble, compile_ptx, resources
from kernels.version import Kernel, Plan, Problem, Unsupported


def problem_of(dtype: str = "float16", family: str = "rope", **sizes: Any) -> Problem:
    given = {"heads": 2, "kv_heads": 1, "seq_q": 40, "seq_k": 70, "hdim": 64, "rotary_dim": 64} | sizes
    return Problem("attention" if family == "rope" and not given["rotary_dim"] else family, dtype=dtype, **given)


def right(problem: Problem, inputs: dict[str, torch.Tensor], made: torch.Tensor, turn: Any = None, **how: Any) -> bool:
    """Whether an output is as near to float64 as roundings of rotated keys, weights and outputs let it be."""
    places = torch.arange(max(problem.seq_k, problem.q_offset + problem.seq_q))
    how["turn"] = turn or [turn_of(problem, places)] * problem.batch
    expected = exact(problem, inputs, **how)
    return float((made - expected).abs().max()) <= allowed(problem, inputs, expected, **how)


def assert_right(problem: Problem, how: Any = None, capacity: int | None = None, seed: int = 0, **plan: Any) -> None:
    inputs = drawn(problem, capacity)
    made, findings = output(prompt_plan(problem, capacity=capacity, **plan), inputs, seed=seed)
    assert not findings
    assert right(problem, inputs, made, **(how or {}))


CASES: list[tuple[dict[str, Any], bool]] = [
    ({"causal": True, "seq_q": 70}, True),  # heads share tiles of rows, the last row of tiles is not whole
    ({"hdim": 128, "rotary_dim": 128, "seq_q": 33, "seq_k": 300, "causal": True, "q_offset": 260}, False),
    ({"rotary_dim": 0, "heads": 1, "seq_q": 17, "seq_k": 257}, False),
    ({"batch": 2, "heads": 3, "kv_heads": 3, "seq_q": 64, "seq_k": 64, "causal": True, "rotary_dim": 32}, True),
    ({"heads": 1, "seq_q": 9, "seq_k": 1100}, False),  # five tiles of keys in three buffers
    ({"hdim": 96, "rotary_dim": 96, "seq_k": 130}, True),
    ({"hdim": 96, "rotary_dim": 8, "seq_q": 32, "causal": True, "seq_k": 32}, False),
    ({"hdim": 80, "rotary_dim": 40}, True),
    ({"hdim": 192, "rotary_dim": 192, "seq_k": 200, "heads": 1}, False),
    ({"hdim": 256, "rotary_dim": 128, "seq_k": 200, "heads": 1}, True),
    ({"hdim": 16, "rotary_dim": 16}, False),
    ({"hdim": 128, "rotary_dim": 0, "seq_q": 1, "heads": 5, "seq_k": 1}, False),
    ({"family": "alibi", "rotary_dim": 0, "heads": 4, "seq_q": 20, "causal": True}, False),
]
QUICK = [(False, 0, "float16"), (True, 1, "bfloat16")]
VALUES = [
    pytest.param(
        wgmma, dtype, *case, id=f"{'wgmma' if wgmma else 'mma'}-{dtype}-{case}",
        marks=[pytest.mark.deep] * ((wgmma, number, dtype) not in QUICK),
    )
    for number, case in enumerate(CASES)
    for dtype in ("float16", "bfloat16")
    for wgmma in (False, True)
]  # fmt: skip


@pytest.mark.parametrize(("wgmma", "dtype", "sizes", "half_split"), VALUES)
def test_values(wgmma: bool, dtype: str, sizes: dict[str, Any], half_split: bool) -> None:
    assert_right(problem_of(dtype, **sizes), how={"half_split": half_split}, half_split=half_split, wgmma=wgmma)


@pytest.mark.deep
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_120"])
@pytest.mark.parametrize("hdim", [64, 128, 256])
def test_smaller_cards_have_less_in_shared_memory(target: str, hdim: int) -> None:
    problem = problem_of(hdim=hdim, rotary_dim=hdim, seq_k=600, seq_q=20, causal=True, q_offset=580)
    shape = shape_of("float16", hdim, 600, "rates", False, target)
    assert shape.layout.nbytes <= {"sm_80": 163, "sm_89": 99, "sm_120": 99}[target] << 10
    assert_right(problem, target=target)


@pytest.mark.deep
@pytest.mark.parametrize("half_split", [False, True])
@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize(("hdim", "wgmma"), [(64, False), (192, False), (128, True), (256, True)])
def test_positions_and_tables(hdim: int, wgmma: bool, tables: bool, half_split: bool) -> None:
    problem = problem_of(batch=2, hdim=hdim, rotary_dim=48)
    positions = np.random.default_rng(2).integers(0, 500 if tables else 2**20, (2, 70)).astype(np.int32)
    turn = [turn_of(problem, torch.from_numpy(each)) for each in positions]
    made = tuple(x.float().numpy() for x in turn_of(problem, torch.arange(500))) if tables else None
    how = {"half_split": half_split, "turn": turn}
    assert_right(problem, how=how, half_split=half_split, positions=positions, tables=made, wgmma=wgmma)


@pytest.mark.deep
def test_sequences_of_a_batch_have_lengths_of_their_own_in_a_longer_cache() -> None:
    """Three keys are fewer than the four queries of a causal call: the first query sees none of them."""
    problem = problem_of("bfloat16", batch=4, heads=4, kv_heads=2, seq_q=4, seq_k=100, causal=True)
    lengths = np.array([100, 37, 3, 0], np.int32)
    inputs = drawn(problem, 120)
    made, findings = output(prompt_plan(problem, lengths=lengths, capacity=120), inputs)
    assert not findings and (made[3] == 0).all() and (made[2, :, 0] == 0).all()
    two = problem_of("bfloat16", batch=2, heads=4, kv_heads=2, seq_q=4, seq_k=100, causal=True)
    assert right(two, {name: x[:2] for name, x in inputs.items()}, made[:2], lengths=lengths)


@pytest.mark.deep
@pytest.mark.parametrize("wgmma", [False, True])
def test_growing_scores_and_any_order_of_warps_change_nothing(wgmma: bool) -> None:
    """Scores that grow along the keys make every tile rescale what came before."""
    problem = problem_of(seq_k=800, heads=1, seq_q=20)
    inputs = drawn(problem)
    inputs["k"] = inputs["k"] * torch.linspace(0, 8, 800)[None, None, :, None].to(inputs["k"].dtype)
    for seed in range(3):
        made, findings = output(prompt_plan(problem, wgmma=wgmma), inputs, seed=seed)
        assert not findings and right(problem, inputs, made)


BARRIER, COPIES = r"\s*bar(?:rier)?\.(?:cta\.)?sync\b[^;]*;", r"\s*cp\.async\.wait_group \d+;"
ARRIVAL, PRODUCTS = r"mbarrier\.arrive\.[^;]*;", r"wgmma\.wait_group[^;]*;"
PROXY = r"fence\.proxy\.(?:tensormap|async(?=[^@]*?mbarrier\.arrive\.shared))[^;]*;"
PHASE = r"\{ \.reg \.pred done; [^}]*?\[(%r\d+)\][^}]*\}"
PHASES = ("keys full", "keys empty", "values full", "values empty", "queries full")


def orders(plan: Plan) -> dict[str, list[tuple[int, int]]]:
    """Where in the PTX of the last launch each thing that orders others is; waits for a kind of mbarrier are one."""
    (*_, launch) = plan.launches
    ptx = compile_ptx(launch.kernel)
    found: dict[str, list[tuple[int, int]]] = {}
    for pattern in (BARRIER, COPIES, ARRIVAL, PRODUCTS, PROXY):
        found |= {f"{pattern} {i}": [match.span()] for i, match in enumerate(re.finditer(pattern, ptx))}
    for match in re.finditer(PHASE, ptx):
        *_, offset = re.findall(rf"add\.s32\s+{match[1]}, [^;]*?(\d+);", ptx)
        kind = PHASES[(int(offset) // 4 - launch.shared["barriers"]) // 4]  # two stages of two floats
        found.setdefault(kind, []).append(match.span())
    return found


def without(spans: list[tuple[int, int]]) -> Any:
    """`ptx_of` of the kernels, without some of the text of the last."""

    def ptx_of(kernel: Kernel) -> str:
        ptx = compile_ptx(kernel)
        for start, end in [] if kernel.name.startswith(("rotate", "split")) else sorted(spans, reverse=True):
            ptx = ptx[:start] + ptx[end:]
        return ptx

    return ptx_of


@pytest.mark.parametrize(
    "shape",
    [
        {"stages": 2, "ahead": 1, "key_warps": 2},
        {"stages": 1, "ahead": 0, "key_warps": 2, "weigh": "fma", "rotary_dim": 0},  # as in Phase 7a
        pytest.param({"stages": 3, "ahead": 2, "key_warps": 2}, marks=pytest.mark.deep),
        pytest.param({"stages": 2, "ahead": 1, "hdim": 128}, marks=pytest.mark.deep),  # accumulators meet the values
    ],
)
def test_a_barrier_or_a_wait_taken_away_is_found(shape: dict[str, Any]) -> None:
    """Buffers are used again, where there are more tiles than stages."""
    shape = dict(shape)
    sizes = {name: shape.pop(name, 64) for name in ("hdim", "rotary_dim")}
    problem = problem_of(heads=1, seq_q=16, seq_k=128 * shape["stages"] + 44, **sizes)
    plan, inputs = prompt_plan(problem, **shape), drawn(problem)
    assert not output(plan, inputs)[1]
    for what, spans in orders(plan).items():
        assert any(output(plan, inputs, ptx_of=without(spans), seed=seed)[1] for seed in range(2)), what


@pytest.mark.deep
def test_what_orders_copies_and_products_taken_away_is_found() -> None:
    """Five tiles in two stages. A product that nobody waited for leaves NaN, in the emulator."""
    problem = problem_of(heads=1, seq_q=70, seq_k=600, rotary_dim=0)
    plan, inputs = prompt_plan(problem, wgmma=True), drawn(problem)
    made, findings = output(plan, inputs)
    assert not findings and right(problem, inputs, made)
    found = orders(plan)
    assert set(PHASES) <= set(found) and len(found) >= 20
    for what, spans in found.items():
        made, findings = output(plan, inputs, ptx_of=without(spans))
        assert findings or made.isnan().any(), what


@pytest.mark.parametrize(
    ("sizes", "plan", "message"),
    [
        ({"hdim": 72, "rotary_dim": 72}, {}, "hdim is 72; it must be a multiple of 16 up to 256"),
        ({"dtype": "float32"}, {}, "dtype is float32"),
        ({"rotary_dim": 12}, {"half_split": True}, "rotary_dim is 12; it must be a multiple of 8 where half-split"),
        ({}, {"target": "sm_75"}, "half precision needs compute capability 8.0, this GPU has sm_75"),
    ],
)
def test_what_no_kernel_takes_is_refused(sizes: dict[str, Any], plan: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(message)):
        prompt_plan(problem_of(**sizes), **plan)


@pytest.mark.deep
@pytest.mark.parametrize("hdim", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("embedding", ["none", "rates", "positions", "tables", "placed_tables"])
@pytest.mark.parametrize("wgmma", [False, True])
def test_kernels_do_not_spill(hdim: int, embedding: str, wgmma: bool) -> None:
    halves, kernel = embedding not in ("none", "positions"), None
    if wgmma:
        kernel = wgmma_kernel(wgmma_shape("float16", hdim, embedding, halves))
        assert "serialized" not in assemble(compile_ptx(kernel, "sm_90"), "sm_90")[1]
    else:
        kernel = prompt_kernel(shape_of("float16", hdim, 4096, embedding, halves, "sm_90"))
    used = resources(kernel, "sm_90")
    assert used.spill_bytes == used.stack_bytes == 0 and used.registers * (kernel.max_threads or 0) <= 65_536
