"""Kernels of kernels/flash in the emulator: values against float64, races where an order is taken away, refusals."""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from flash_plans import BY_SMS, EPS, PLANS, SPLIT, allowed, assert_right, drawn, exact, output, problem_of

from kernels.flash.call import request_of
from kernels.flash.choose import chosen
from kernels.flash.chunks.kernel import chunk_kernel
from kernels.flash.chunks.plan import chunk_call
from kernels.flash.decode.kernel import decode_kernel
from kernels.flash.decode.plan import shape_of, splits_of
from kernels.flash.prompts import plan as prompt_plan
from kernels.flash.prompts.float32 import prompt32_kernel
from kernels.flash.prompts.mma import prompt_kernel
from kernels.flash.prompts.persistent import persistent_kernel
from kernels.flash.prompts.plan import persistent_call
from kernels.flash.prompts.split import split_kernel
from kernels.flash.prompts.wgmma import wgmma_kernel
from kernels.flash.shapes import Prompt32Shape
from kernels.runtime.compile import assemble, compile_ptx, resources
from kernels.version import Kernel, Launch, Plan, Unsupported
from tests.kernels.cluster.plans import tables_of

Sizes = dict[str, Any]
DEEP = pytest.mark.deep
Case = tuple[str, Sizes, bool]  # kernel, sizes, and whether pairs are split in halves
VALUES: list[Case] = [
    ("decode", {"heads": 4}, False),
    ("decode", {"dtype": "bfloat16", "heads": 2, "kv_heads": 2, "rotary_dim": 64}, True),
    ("decode", {"dtype": "float16", "heads": 3, "hdim": 96, "rotary_dim": 48, "seq_k": 70}, True),
    ("decode", {"heads": 1, "hdim": 192, "rotary_dim": 192, "seq_k": 70}, True),
    ("decode", {"dtype": "bfloat16", "heads": 2, "hdim": 64, "rotary_dim": 0, "seq_k": 99}, False),
    ("decode", {"dtype": "float16", "heads": 4, "seq_q": 5, "seq_k": 70, "hdim": 64, "rotary_dim": 64, "causal": True},
     True),
    ("decode", {"heads": 4, "seq_q": 2, "seq_k": 65, "q_offset": 60}, False),
    ("decode", {"dtype": "bfloat16", "heads": 2, "hdim": 320, "rotary_dim": 320, "seq_k": 70}, False),
    ("decode", {"dtype": "float16", "heads": 6, "kv_heads": 2, "seq_q": 3, "seq_k": 80, "family": "alibi",
                "causal": True, "rotary_dim": 0}, False),
    ("chunk", {"batch": 2, "heads": 6, "kv_heads": 2, "seq_q": 20, "seq_k": 100, "causal": True}, False),
    ("chunk", {"seq_q": 9, "seq_k": 333, "hdim": 96, "rotary_dim": 36}, True),
    ("wide", {"heads": 6, "kv_heads": 2, "seq_q": 2, "hdim": 2048, "rotary_dim": 512, "causal": True}, True),
    ("wide", {"heads": 9, "hdim": 1000, "rotary_dim": 96}, False),  # two tiles of rows, dims behind the last
    ("wide", {"hdim": 512, "rotary_dim": 512, "seq_q": 4, "causal": True}, True),
    ("mma", {"causal": True, "seq_q": 70}, True),  # heads share tiles of rows, the last row of tiles is not whole
    ("wgmma", {"dtype": "bfloat16", "hdim": 128, "rotary_dim": 128, "seq_q": 33, "seq_k": 300, "causal": True,
               "q_offset": 260}, False),
    # splits without keys, uneven ones
    ("split", {"dtype": "bfloat16", "hdim": 96, "rotary_dim": 96, "seq_k": 530, "causal": True}, True),
    ("split", {"heads": 1, "seq_q": 5, "seq_k": 290, "hdim": 256, "rotary_dim": 256, "causal": True, "q_offset": 285},
     False),
    ("split_wgmma", {"heads": 8, "seq_q": 5, "seq_k": 300, "hdim": 256, "rotary_dim": 128}, False),
    ("persistent", {"heads": 6, "kv_heads": 3, "causal": True}, True),  # on four SMs: three tiles a block
    ("persistent", {"dtype": "bfloat16", "batch": 2, "seq_k": 330, "causal": True, "q_offset": 130, "hdim": 128,
                    "rotary_dim": 128}, False),
]  # fmt: skip
DEEP_VALUES: list[Case] = [
    ("chunk", {"heads": 5, "seq_q": 17, "seq_k": 90, "hdim": 320, "rotary_dim": 320}, False),
    ("decode", {"heads": 1, "hdim": 512, "rotary_dim": 64, "seq_k": 70}, True),
    ("wide", {"hdim": 16384, "rotary_dim": 16384, "seq_k": 13}, True),
    ("wide", {"hdim": 2048, "rotary_dim": 2048, "seq_q": 2, "seq_k": 1, "q_offset": 0}, False),
    ("mma", {"heads": 1, "seq_q": 9, "seq_k": 1100}, False),  # five tiles of keys in three buffers
    ("wgmma", {"heads": 1, "seq_q": 9, "seq_k": 1100}, False),
    ("mma", {"hdim": 128, "rotary_dim": 0, "seq_q": 1, "heads": 5, "seq_k": 1}, False),
    ("split", {"hdim": 16, "rotary_dim": 16, "seq_k": 1100}, False),
    ("split_wgmma", {"heads": 1, "seq_q": 3, "seq_k": 20}, True),  # one split
    ("persistent", {"heads": 5, "seq_q": 300, "seq_k": 40, "q_offset": 0, "rotary_dim": 32}, True),  # one tile of keys
    ("persistent", {"heads": 1, "seq_q": 100, "hdim": 96, "rotary_dim": 96}, True),  # fewer tiles than SMs
    *((kernel, {"family": "alibi", "rotary_dim": 0, "seq_q": 20, "causal": True}, False)
      for kernel in ("chunk", "mma", "wgmma", "split", "split_wgmma", "persistent")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "sizes", "half_split"),
    [*VALUES, *(pytest.param(*case, marks=DEEP) for case in DEEP_VALUES)],
    ids=str,
)
def test_values(kernel: str, sizes: Sizes, half_split: bool) -> None:
    assert_right(kernel, problem_of(kernel, **sizes), how={"interleaved": not half_split})


@pytest.mark.deep
@pytest.mark.parametrize(("target", "kilobytes"), [("sm_80", 163), ("sm_89", 99), ("sm_120", 99)])
@pytest.mark.parametrize("hdim", [64, 128, 256])
def test_prompts_on_smaller_cards_have_less_in_shared_memory(target: str, kilobytes: int, hdim: int) -> None:
    problem = problem_of("mma", hdim=hdim, rotary_dim=hdim, seq_k=600, seq_q=20, causal=True, q_offset=580)
    shape = prompt_plan.shape_of("float16", hdim, 600, "rates", False, target)
    splits = [prompt_plan.split_shape("float16", hdim, rows, "rates", False, target) for rows in (16, 32, 64)]
    assert max(each.layout.nbytes for each in (shape, *splits)) <= kilobytes << 10
    assert_right("mma", problem, target=target)
    assert_right("mma", problem, target=target, split=True, sms=4)


HALF = ("float16", "bfloat16")
RANGES: dict[str, tuple[tuple[str, ...], int, int, int]] = {  # dtypes, a step of head dims, most dims and queries
    "decode": (tuple(EPS), 8, 512, 8), "chunk": (("float32",), 32, 320, 64), "wide": (("float32",), 8, 6000, 8),
    "mma": (HALF, 16, 256, 70), "wgmma": (HALF, 16, 256, 70), "split": (HALF, 16, 256, 39),
    "split_wgmma": (HALF, 16, 256, 39), "persistent": (HALF, 16, 192, 300),
}  # fmt: skip
RANDOM = [pytest.param(kernel, seed, marks=DEEP) for kernel in RANGES for seed in range(8)]


@pytest.mark.parametrize(("kernel", "seed"), [("split_wgmma", 99), *RANDOM])
def test_random_calls_are_right(kernel: str, seed: int) -> None:
    dice, (dtypes, step, most_dims, most_queries) = random.Random(f"{kernel} {seed}"), RANGES[kernel]
    hdim, seq_q = step * dice.randrange(1, most_dims // step + 1), dice.randrange(1, most_queries + 1)
    kv_heads, group, batch = dice.choice((1, 1, 2)), dice.choice((1, 2, 3, 8)), dice.choice((1, 1, 2))
    seq_k = seq_q + int(2 ** dice.uniform(0, 9.5 if kernel in SPLIT else 8))
    sizes = {
        "heads": kv_heads * group, "kv_heads": kv_heads, "batch": batch, "seq_q": seq_q, "seq_k": seq_k, "hdim": hdim,
        "rotary_dim": dice.choice((hdim // 8 * 8, 8 * dice.randrange(hdim // 8 + 1))), "dtype": dice.choice(dtypes),
        "causal": dice.random() < 0.5, "q_offset": dice.choice((seq_k - seq_q, 0, dice.randrange(300))),
    }  # fmt: skip
    options: dict[str, Any] = {"sms": dice.randrange(1, 12)} if kernel in BY_SMS else {}
    how: dict[str, Any] = {"interleaved": dice.random() < 0.5}
    if kernel not in ("wgmma", "split_wgmma", "persistent") and dice.random() < 0.4:
        sizes["q_offset"] = seq_k - seq_q
        how["lengths"] = options["lengths"] = np.array([dice.randrange(seq_k + 1) for _ in range(batch)], np.int32)
    assert_right(kernel, problem_of(kernel, **sizes), how=how, **options)


QUICK_LENGTHS = ("float32", 1, True), ("float32", 16, False), ("float16", 16, True), ("bfloat16", 4, True)


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        *(pytest.param("decode", {"dtype": dtype, "heads": heads, "seq_q": 4, "causal": causal},
                       marks=[DEEP] * ((dtype, heads, causal) not in QUICK_LENGTHS))
          for dtype, heads, causal in product(EPS, (1, 4, 16), (True, False))),
        ("chunk", {"causal": True}),
        ("split", {"dtype": "bfloat16", "heads": 4, "kv_heads": 2, "seq_q": 4, "causal": True}),
        ("wide", {"seq_q": 4, "causal": True}),
        pytest.param("mma", {"dtype": "bfloat16", "heads": 4, "kv_heads": 2, "seq_q": 4, "causal": True}, marks=DEEP),
    ],
    ids=str,
)  # fmt: skip
def test_sequences_of_a_batch_have_lengths_of_their_own_and_none_gives_zeros(kernel: str, sizes: Sizes) -> None:
    """In a longer cache. The last sequence has a key fewer than queries: the first query sees none."""
    problem = problem_of(kernel, batch=5, seq_k=100, **sizes)
    lengths = np.array([100, 0, problem.seq_q, 37, problem.seq_q - 1], np.int32)
    inputs, options = drawn(problem, 120), {} if kernel == "mma" else {"sms": 20}
    made, findings = output(PLANS[kernel](problem, lengths=lengths, capacity=120, **options), inputs)
    expected, slack = exact(problem, inputs, lengths=lengths), 4 if kernel == "chunk" else 1
    assert not findings
    assert float((made - expected).abs().max()) <= slack * allowed(problem, inputs, expected, lengths=lengths)
    assert (made[1] == 0).all() and (made[4, :, 0] == 0).all() and (made[4, :, 1:] != 0).any()


@pytest.mark.parametrize(("dtype", "heads"), [("float32", 4), ("float16", 1)])
def test_a_cache_may_be_the_start_of_a_longer_one(dtype: str, heads: int) -> None:
    assert_right("decode", problem_of("decode", dtype=dtype, heads=heads, batch=2, seq_k=90), capacity=130)


@pytest.mark.parametrize(
    ("tables", "half_split"),
    [(False, True), (True, False), *(pytest.param(both, both, marks=DEEP) for both in (False, True))],
)
@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        *(("decode", {"dtype": dtype, "heads": heads, "rotary_dim": 64})
          for dtype, heads in (("float32", 1), ("float16", 4))),
        ("chunk", {"rotary_dim": 32}),
        ("wide", {"seq_q": 2, "hdim": 2048, "rotary_dim": 64}),
        *(pytest.param(kernel, {"hdim": hdim, "rotary_dim": 48}, marks=DEEP) for kernel, hdim in
          (("mma", 64), ("mma", 192), ("wgmma", 128), ("wgmma", 256), ("parts", 64), ("split", 64), ("split", 256),
           ("split_wgmma", 128))),
        pytest.param("persistent", {"seq_q": 60, "hdim": 128, "rotary_dim": 48}, marks=DEEP),
    ],
    ids=str,
)  # fmt: skip
def test_positions_and_tables(kernel: str, sizes: Sizes, tables: bool, half_split: bool) -> None:
    problem = problem_of(kernel, batch=2, seq_k=70, **sizes)
    positions = np.random.default_rng(2).integers(0, 500 if tables else 2**20, (2, 70)).astype(np.int32)
    how = {"interleaved": not half_split, "positions": torch.from_numpy(positions)}
    assert_right(kernel, problem, how=how, positions=positions, tables=tables_of(problem) if tables else None)


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        *(("decode", {"heads": heads, "seq_k": 300}) for heads in (1, 4, 8)),
        ("chunk", {"seq_k": 300}),
        ("wide", {"seq_k": 100, "hdim": 4096}),
        ("split", {"seq_k": 800}),
        *(pytest.param(kernel, {"heads": 1, "seq_q": 20, "seq_k": 800}, marks=DEEP)
          for kernel in ("mma", "wgmma", "split_wgmma")),
        pytest.param("persistent", {"seq_k": 800}, marks=DEEP),
    ],
    ids=str,
)
def test_growing_scores_and_any_order_of_warps_change_nothing(kernel: str, sizes: Sizes) -> None:
    """Scores that grow along the keys make every tile rescale what came before."""
    for seed in range(2):
        assert_right(kernel, problem_of(kernel, **sizes), sharp=8, seed=seed)


LAST_KEYS: list[tuple[str, Sizes, bool]] = [  # and whether the sequence has a length of its own
    ("decode", {"heads": 4}, True), ("decode", {"heads": 4, "dtype": "bfloat16"}, True), ("chunk", {}, False),
    ("wide", {"seq_q": 2}, True), ("mma", {}, False), ("wgmma", {}, False), ("split", {}, True),
]  # fmt: skip
OTHER_LAST_KEYS: list[tuple[str, Sizes, bool]] = [
    *(("decode", {"dtype": dtype, "heads": heads, "hdim": hdim, "rotary_dim": 32}, own)
      for dtype, heads, hdim, own in (("float32", 1, 64, False), ("float16", 2, 96, False), ("float16", 2, 256, True),
                                      ("bfloat16", 4, 64, True), ("float16", 8, 128, False))),
    ("chunk", {"hdim": 128, "rotary_dim": 0, "heads": 4}, True), ("mma", {"hdim": 128}, True),
    ("parts", {}, False), ("parts", {"hdim": 256}, False), ("split_wgmma", {}, False),
    ("persistent", {"seq_q": 40}, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "sizes", "own"), [*LAST_KEYS, *(pytest.param(*case, marks=DEEP) for case in OTHER_LAST_KEYS)], ids=str
)
def test_infinity_and_nan_in_the_last_value_reach_their_own_dims_alone(kernel: str, sizes: Sizes, own: bool) -> None:
    """The last tile of keys is not whole, and NaN lies behind its last key."""
    problem = problem_of(kernel, **{"seq_k": 77} | sizes)
    inputs = drawn(problem, None if kernel == "parts" else 100)
    last, options, how = problem.seq_k - 1, {"sms": 20} if kernel in SPLIT else {}, {}
    if kernel != "parts":
        options["capacity"] = 100
    if own:
        how["lengths"] = options["lengths"] = np.array([74], np.int32)
        last = 73
        inputs["k"][..., 74:, :] = inputs["v"][..., 74:, :] = math.nan
    expected = exact(problem, inputs, **how)
    bound = (4 if kernel == "chunk" else 1) * allowed(problem, inputs, expected, **how)
    inputs["v"][..., last, :2] = torch.tensor([math.inf, math.nan])
    plan = PLANS[kernel](problem, **options)
    made, findings = output(plan, inputs)
    assert not findings and made[..., 1].isnan().all() and float((made - expected)[..., 2:].abs().max()) <= bound
    if "decode_mma" in plan.launches[0].kernel.name:  # what rounding a weight lost may be negative, or 0
        assert not made[..., 0].isfinite().any()
    else:
        assert made[..., 0].isposinf().all()


def test_a_position_outside_of_the_tables_makes_nan_and_never_a_wrong_number() -> None:
    problem = problem_of("decode", seq_k=40)
    made, _ = output(PLANS["decode"](problem, tables=tables_of(problem, 39)), drawn(problem))
    assert made.isnan().all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_error_does_not_grow_with_the_position(dtype: str) -> None:
    """The kernel with tables of exact values bounds what else is off; 2^20 is where positions end."""
    problem = problem_of("decode", dtype=dtype, heads=1 if dtype == "float32" else 4, seq_k=64)
    for first in (0, 2**20 - 64):
        positions = np.arange(first, first + 64, dtype=np.int32)[None]
        assert_right("decode", problem, how={"positions": torch.from_numpy(positions)}, positions=positions)


def test_an_infinity_stays_where_it_is() -> None:
    """A value of +inf reaches its dim alone, and a key of -inf has no weight, although neither has a remainder."""
    problem = problem_of("chunk", rotary_dim=0)
    inputs = drawn(problem)
    inputs["q"] = inputs["q"].abs()
    inputs["k"][0, 0, 3], inputs["v"][0, 0, 7, 2] = -torch.inf, torch.inf
    made, _ = output(PLANS["chunk"](problem, sms=4), inputs)
    assert (made[..., 2] == torch.inf).all()
    kept = [dim for dim in range(64) if dim != 2]
    inputs["v"][0, 0, 7, 2] = 0.0
    expected = exact(problem, inputs)
    assert float((made - expected)[..., kept].abs().max()) <= allowed(problem, inputs, expected)


@pytest.mark.parametrize("kernel", PLANS)
def test_bits_do_not_depend_on_the_order_in_which_warps_run(kernel: str) -> None:
    problem = problem_of(kernel)
    inputs = drawn(problem)
    plan = PLANS[kernel](problem, **({"sms": 4} if kernel in SPLIT else {}))
    first, other = (output(plan, inputs, seed=seed)[0] for seed in (0, 1))
    assert torch.equal(first, other)


def test_batch_changes_the_splits_and_the_last_bits_alone() -> None:
    alone, together = (problem_of("decode", batch=batch, kv_heads=4, seq_k=500) for batch in (1, 4))
    inputs = drawn(together)
    one = {name: x[:1] for name, x in inputs.items()}
    plans = [PLANS["decode"](problem, sms=20) for problem in (alone, together)]
    made, batched = output(plans[0], one)[0], output(plans[1], inputs)[0][:1]
    assert plans[0].launches[0].grid[0] > plans[1].launches[0].grid[0]
    right = exact(alone, one)
    assert all(float((x - right).abs().max()) <= allowed(alone, one, right) for x in (made, batched))


# --- what orders ------------------------------------------------------------------------------------

BARRIER, WARP = r"\s*bar(?:rier)?\.(?:cta\.)?sync\b[^;]*;", r"\s*bar\.warp\.sync\b[^;]*;"
CLUSTER = r"\{ \.reg \.pred complete; [^}]*\}|barrier\.cluster\.wait[^;]*;"  # waits for other blocks
COPIES = r"\s*cp\.async\.wait_(?:group \d+|all);"
ARRIVAL, PRODUCTS = r"mbarrier\.arrive\.[^;]*;", r"wgmma\.wait_group[^;]*;"
PROXY = r"fence\.proxy\.(?:tensormap|async(?=[^@]*?mbarrier\.arrive\.shared))[^;]*;"
PHASE = r"\{ \.reg \.pred done; [^}]*?\[(%r\d+)\][^}]*\}"
PHASES = ("keys full", "keys empty", "values full", "values empty", "queries full")
MORE_PHASES = ("queries empty", "first queries")  # of blocks that stay
Place = tuple[str, str]


def orders(plan: Plan, patterns: tuple[str, ...]) -> dict[Place, list[tuple[int, int]]]:
    """Where in the PTX of each kernel what orders others is; all waits for a kind of mbarrier are one."""
    found: dict[Place, list[tuple[int, int]]] = {}
    for launch in plan.launches:
        name, ptx = launch.kernel.name.partition("_")[0], compile_ptx(launch.kernel)
        if name in ("rotate", "split"):
            continue
        for pattern in patterns:
            for number, match in enumerate(re.finditer(pattern, ptx)):
                found[name, f"{pattern} {number}"] = [match.span()]
        for match in re.finditer(PHASE, ptx):
            kind = "of an address in registers"
            for offset in re.findall(rf"add\.s32\s+{match[1]}, [^;]*?\b(\d+);", ptx):
                number = (int(offset) // 4 - launch.shared["barriers"]) // 4  # two stages of two floats
                kind = (*PHASES, *MORE_PHASES)[number]
            found.setdefault((name, kind), []).append(match.span())
    return found


def without(which: str, spans: list[tuple[int, int]]) -> Any:
    """`ptx_of` with some of the text of one kernel taken away."""

    def ptx_of(kernel: Kernel) -> str:
        ptx = compile_ptx(kernel)
        for start, end in sorted(spans, reverse=True) if kernel.name.startswith(which) else ():
            ptx = ptx[:start] + ptx[end:]
        return ptx

    return ptx_of


TILED = {"heads": 1, "seq_q": 16}
WAITS = (BARRIER, COPIES)
PRODUCING = (BARRIER, ARRIVAL, PRODUCTS, PROXY)
ORDERED = [  # buffers are used again, where there are more tiles than stages
    *(("decode", {"dtype": dtype, "seq_k": 300}, {"sms": 1}, (BARRIER, WARP)) for dtype in ("float32", "float16")),
    ("chunk", {"seq_k": 300}, {"sms": 4}, WAITS),
    ("wide", {"seq_k": 60}, {"sms": 1}, (BARRIER, WARP, COPIES)),
    ("wide", {"seq_k": 30, "hdim": 4096}, {"sms": 8}, (BARRIER, WARP, COPIES, CLUSTER)),
    ("mma", {**TILED, "seq_k": 300}, {"stages": 2, "ahead": 1, "key_warps": 2}, WAITS),
    pytest.param("mma", {**TILED, "seq_k": 172, "rotary_dim": 0},
                 {"stages": 1, "ahead": 0, "key_warps": 2, "weigh": "fma"}, WAITS, marks=DEEP),  # as in Phase 7a
    pytest.param("mma", {**TILED, "seq_k": 428}, {"stages": 3, "ahead": 2, "key_warps": 2}, WAITS, marks=DEEP),
    pytest.param("mma", {**TILED, "seq_k": 300, "hdim": 128}, {"stages": 2, "ahead": 1}, WAITS, marks=DEEP),
    pytest.param("split", {"heads": 1, "seq_q": 5, "seq_k": 560}, {"sms": 1, "rows": 16, "stages": 2, "ahead": 1},
                 WAITS, marks=DEEP),
    pytest.param("split", {"heads": 1, "seq_q": 16, "seq_k": 1000}, {"sms": 1}, WAITS, marks=DEEP),
    pytest.param("wgmma", {"heads": 1, "seq_q": 70, "seq_k": 600, "rotary_dim": 0}, {}, PRODUCING, marks=DEEP),
    pytest.param("split_wgmma", {"heads": 1, "seq_q": 70, "seq_k": 1100}, {"sms": 2}, PRODUCING, marks=DEEP),
    pytest.param("persistent", {"heads": 4, "kv_heads": 2, "seq_k": 800, "causal": True, "q_offset": 600}, {"sms": 2},
                 (*PRODUCING, COPIES), marks=DEEP),  # through all loops, one of which is unrolled
    pytest.param("parts", {"heads": 1, "seq_q": 100, "seq_k": 600, "rotary_dim": 0}, {"groups": 2}, PRODUCING,
                 marks=DEEP),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "sizes", "options", "patterns"), ORDERED)
def test_what_orders_others_taken_away_is_found(kernel: str, sizes: Sizes, options: Any, patterns: Any) -> None:
    """A product that nobody waited for leaves NaN, in the emulator."""
    problem = problem_of(kernel, **sizes)
    plan, inputs = PLANS[kernel](problem, **options), drawn(problem)
    made, findings = output(plan, inputs)
    found, far = orders(plan, patterns), {name: x.clone() for name, x in inputs.items()}
    if kernel == "parts":  # where no parts hold them
        far["k"][..., 3, :] *= 2.0**-20
        assert not output(plan, far)[1]
    assert not findings and made.isfinite().all()
    phases = {*PHASES, *MORE_PHASES} if kernel == "persistent" else {*PHASES} if patterns is PRODUCING else set()
    assert len(found) > 2 and {what for _, what in found} > phases
    for (which, what), spans in found.items():
        runs = (output(plan, given, ptx_of=without(which, spans), seed=i) for i, given in enumerate((inputs, far)))
        noticed = (findings or (PRODUCTS in patterns and made.isnan().any()) for made, findings in runs)
        assert any(noticed), (which, what)


def test_a_combine_that_does_not_see_all_splits_is_wrong() -> None:
    problem = problem_of("decode", seq_k=300)
    plan, inputs = PLANS["decode"](problem, sms=4), drawn(problem)
    expected = exact(problem, inputs)

    def fewer(launch: Launch) -> Launch:
        *others, splits = launch.args
        return replace(launch, args=(*others, splits - 1)) if launch.kernel.name.startswith("combine") else launch

    made, _ = output(plan.with_launches(fewer), inputs)
    assert float((made - expected).abs().max()) > allowed(problem, inputs, expected)


# --- refusals and resources -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "sizes", "options", "message"),
    [
        ("decode", {"hdim": 84, "rotary_dim": 80}, {}, "hdim is 84; it must be a multiple of 8 up to 512 in decode"),
        ("decode", {"hdim": 520}, {}, "hdim is 520; it must be a multiple of 8 up to 512 in decode"),
        ("decode", {"seq_q": 9}, {}, "seq_q is 9; it must be at most 8 in decode"),
        ("decode", {"rotary_dim": 6}, {"half_split": True}, "rotary_dim is 6; it must be a multiple of 4 where half"),
        ("decode", {"dtype": "float16"}, {"target": "sm_75"}, "half precision needs compute capability 8.0, this GPU"),
        ("decode", {"dtype": "float16", "rotary_dim": 12}, {"half_split": True}, "rotary_dim is 12; it must be a mu"),
        ("decode", {"q_offset": -1}, {}, "q_offset is -1; it must be 0 or more"),
        ("wide", {"hdim": 1004, "rotary_dim": 0}, {}, "hdim is 1004; it must be a multiple of 8 up to 16384 in decode"),
        ("wide", {"dtype": "float16"}, {}, "dtype is float16; this version takes float32"),
        ("wide", {"seq_q": 9}, {}, "seq_q is 9; it must be at most 8 in decode"),
        ("wide", {}, {"target": "sm_89"}, "decode of wide heads needs compute capability 9.0, this GPU has sm_89"),
        ("chunk", {"hdim": 80}, {}, "hdim is 80; it must be a multiple of 32 up to 320 in chunks"),
        ("chunk", {"hdim": 352}, {}, "hdim is 352; it must be a multiple of 32 up to 320 in chunks"),
        ("chunk", {"dtype": "float16"}, {}, "dtype is float16; this version takes float32"),
        ("chunk", {"rotary_dim": 6}, {"half_split": True}, "rotary_dim is 6; it must be a multiple of 4 where half"),
        ("chunk", {}, {"target": "sm_80"}, "chunks need compute capability 8.6, this GPU has sm_80"),
        ("chunk", {"q_offset": -1}, {}, "q_offset is -1; it must be 0 or more"),
        ("mma", {"hdim": 72, "rotary_dim": 72}, {}, "hdim is 72; it must be a multiple of 16 up to 256"),
        ("mma", {"dtype": "float32"}, {}, "dtype is float32"),
        ("mma", {"rotary_dim": 12}, {"half_split": True}, "rotary_dim is 12; it must be a multiple of 8 where half"),
        ("mma", {}, {"target": "sm_75"}, "half precision needs compute capability 8.0, this GPU has sm_75"),
        ("parts", {"hdim": 272, "rotary_dim": 0}, {}, "hdim is 272; it must be a multiple of 16 up to 256"),
        ("parts", {"dtype": "float16"}, {}, "dtype is float16"),
        ("parts", {"rotary_dim": 6}, {"half_split": True}, "rotary_dim is 6; it must be a multiple of 4 where half"),
        ("parts", {}, {"target": "sm_89"}, "kernels on wgmma need compute capability 9.0, this GPU has sm_89"),
    ],
)
def test_what_no_kernel_takes_is_refused(kernel: str, sizes: Sizes, options: Any, message: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(message)):
        PLANS[kernel](problem_of(kernel, **sizes), **options)


MODEL = [
    shape_of(dtype, 128, rows, "rates", half_split, "sm_90")
    for dtype, rows, half_split in (
        ("float32", 1, False), ("float32", 4, True), ("float16", 1, True), ("float16", 4, True), ("float16", 16, True),
        ("bfloat16", 4, False),
    )
]  # fmt: skip


def built() -> Iterator[Any]:
    """A shape, and what builds its kernels."""
    yield from ((decode_kernel, shape) for shape in MODEL)
    for hdim, rows in product((64, 128, 320), (16, 32, 64)):
        problem = problem_of("chunk", heads=8, kv_heads=8, seq_q=rows, seq_k=8192, hdim=hdim)
        shape = chunk_call(request_of(problem, "sm_90")).shape
        yield pytest.param(chunk_kernel, shape, marks=() if rows == 32 else DEEP)
    embeddings = ("none", "rates", "positions", "tables", "placed_tables")
    for hdim, name in product((64, 96, 128, 192, 256), embeddings):
        halves = name not in ("none", "positions")
        prompt = prompt_plan.shape_of("float16", hdim, 4096, name, halves, "sm_90")
        yield pytest.param(prompt_kernel, prompt, marks=DEEP)
        wgmma = prompt_plan.wgmma_shape("float16", hdim, name, halves)
        yield pytest.param(wgmma_kernel, wgmma, marks=DEEP)
        yield pytest.param(wgmma_kernel, replace(wgmma, split=True), marks=DEEP)
        if hdim <= 192:
            request = request_of(problem_of("persistent", hdim=hdim, rotary_dim=hdim), "sm_90", halves)
            stays = replace(persistent_call(request).shape, embedding=name)
            yield pytest.param(persistent_kernel, stays, marks=() if (hdim, name) == (128, "rates") else DEEP)
        for rows in (16, 32, 64):
            split = prompt_plan.split_shape("float16", hdim, rows, name, halves, "sm_90")
            yield pytest.param(prompt_kernel, split, marks=() if (hdim, name) == (128, "rates") else DEEP)
    prompts32 = *product((64, 96, 128), (1, 2)), (192, 1)
    for (hdim, groups), name in product(prompts32, ("none", "rates", "placed_tables")):
        for build in (split_kernel, prompt32_kernel):
            yield pytest.param(build, Prompt32Shape(hdim, groups, embedding=name), marks=DEEP)


@pytest.mark.parametrize(("build", "shape"), [*built()])
def test_kernels_do_not_spill_and_as_many_blocks_fit_as_are_counted_on(build: Any, shape: Any) -> None:
    kernel = build(shape)
    used, blocks = resources(kernel, "sm_90"), getattr(shape, "blocks", 1)
    threads = kernel.max_threads or getattr(shape, "threads", 0)
    assert used.spill_bytes == used.stack_bytes == 0
    assert used.registers * threads * blocks <= 65_536
    assert build is split_kernel or (shape.layout.nbytes + 1024) * blocks <= 233_472
    if build in (wgmma_kernel, prompt32_kernel, persistent_kernel):
        assert "serialized" not in assemble(compile_ptx(kernel, "sm_90"), "sm_90")[1]


@pytest.mark.parametrize(
    ("heads", "rows", "seq_q", "seq_k", "split"),
    [(3, 85, 17, 700, True), (8, 256, 64, 2048, True), (128, 64, 64, 2048, False), (8, 16, 16, 64, False),
     (8, 2048, 2048, 2048, False)],
)  # fmt: skip
def test_chunks_are_for_few_tiles_of_rows_and_many_keys(
    heads: int, rows: int, seq_q: int, seq_k: int, split: bool
) -> None:
    sizes = {"heads": heads * rows // seq_q, "kv_heads": heads, "seq_q": seq_q, "seq_k": seq_k, "hdim": 128}
    assert (chosen(request_of(problem_of("chunk", **sizes), "sm_100")).name == "chunk") is split


@pytest.mark.parametrize("heads", [1, 8, 16, 64, 264, 1000])
@pytest.mark.parametrize("seq_k", [1, 63, 1500, 4096, 131_072])
def test_splits_hold_all_keys_and_stay_within_one_wave(heads: int, seq_k: int) -> None:
    for shape in MODEL:
        splits, keys = splits_of(shape, heads, seq_k, 132)
        assert (splits - 1) * keys < seq_k <= splits * keys
        assert splits == 1 or splits * heads <= 132 * shape.blocks


def test_a_model_needs_two_kernels_to_decode_however_long_its_cache_is() -> None:
    names, model = set(), {"dtype": "float16", "heads": 32, "kv_heads": 8}
    for seq_k, batch in product((1, 100, 4096, 131_072), (1, 16)):
        plan = PLANS["decode"](problem_of("decode", batch=batch, seq_k=seq_k, **model))
        names |= {launch.kernel.name for launch in plan.launches}
    assert len(names) == 2
