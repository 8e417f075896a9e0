"""V8 by target: the core that a plan gets, and that the target takes every launch of it."""

import math
import random
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from kernels import VERSIONS, Problem, Unsupported, version
from kernels.checking.reference import INPUTS, reference_of
from kernels.device.wgmma import ROWS
from kernels.flash.cluster import splits_of
from kernels.flash.cluster.mma import core as mma
from kernels.flash.cluster.portable import core as portable
from kernels.flash.cluster.shape import GROUP
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.flash.cluster.wgmma.shape import KEYS
from kernels.limits import EMULATED_TARGET, capability, limits_of
from kernels.runtime.compile import assembled, compile_ptx, require_target
from kernels.runtime.emulator import run
from kernels.runtime.probes import EMPTY
from kernels.version import MOST_BLOCKS, Plan, Version
from tests.kernels.cluster.plans import CORES
from tests.sampling import swept

TARGETS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")
ANY_CORE = ("rope_v8", "rope_separate_v8", "rope_hybrid_v8", "attention_v8", "sinusoidal_v6", "alibi_v1", "learned_v1")
PROBLEMS = 300  # a target
MOST_HDIM, MOST_POSITIONS, MOST_ELEMENTS = 4096, 2**20, 2**32 - 1
MOST_HEADS = MOST_BLOCKS["y"]  # that share keys, and that have keys of their own
SPLIT_KEYS = 11  # the place of this argument, from behind


def size(rng: random.Random, most: int) -> int:
    return int(most ** rng.uniform(0, 1))


def draw_documented(rng: random.Random, family: str) -> Problem:
    """A problem whose tensors kernels can count."""
    while True:
        hdim = max(size(rng, 4 * MOST_HDIM) // 4, 1) * 4  # beyond the range, too
        batch, kv_heads, sharers = (size(rng, rng.choice((1, 16, MOST_HEADS))) for _ in range(3))
        seq_q, seq_k = size(rng, MOST_POSITIONS), size(rng, MOST_POSITIONS)
        if batch * kv_heads * hdim * max(sharers * seq_q, seq_k) <= MOST_ELEMENTS:
            return Problem(
                family, batch, kv_heads * sharers, kv_heads, seq_q, seq_k, hdim,
                rotary_dim=2 * rng.randint(0, hdim // 2) if family == "rope" else 0,
                table="float8" if family == "learned" else "computed",
                causal=rng.random() < 0.5,
                q_offset=rng.choice((0, max(seq_k - seq_q, 0), MOST_POSITIONS - seq_q)),
            )  # fmt: skip


EXTREMES = (
    Problem("rope", seq_q=MOST_POSITIONS, seq_k=1, hdim=4, rotary_dim=4, q_offset=0),
    Problem("rope", seq_q=MOST_POSITIONS, seq_k=MOST_POSITIONS, hdim=128, rotary_dim=128),
    Problem("rope", seq_q=MOST_POSITIONS - 1, seq_k=1, hdim=MOST_HDIM - 4, rotary_dim=2, q_offset=0),
    Problem("rope", seq_q=MOST_POSITIONS - 1, seq_k=100, hdim=MOST_HDIM - 4, rotary_dim=2, q_offset=0),
    Problem("rope", seq_q=MOST_POSITIONS, seq_k=1, hdim=3072, rotary_dim=2, q_offset=0),
    Problem("rope", seq_q=1, seq_k=MOST_POSITIONS - 1, hdim=MOST_HDIM, rotary_dim=MOST_HDIM),
    Problem("rope", batch=2, heads=MOST_HEADS, kv_heads=1, seq_q=2, seq_k=40, hdim=64, rotary_dim=64),
    Problem("rope", batch=2, heads=MOST_HEADS, seq_q=2, seq_k=40, hdim=64, rotary_dim=64),
    Problem("rope", batch=MOST_HEADS, heads=8, kv_heads=4, seq_q=2, seq_k=4, hdim=64, rotary_dim=64),
)


@pytest.fixture
def any_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans without their kernels, which are made anew for every shape."""
    for core in (mma, wgmma, portable):
        monkeypatch.setattr(core, "kernel_of", lambda shape, *_: EMPTY)


def output_dims(core: ModuleType, shape: Any, hdim: int) -> np.ndarray:
    """The dims of the output that each rank's warps, warpgroups or threads add up, panel after panel."""
    if core is portable:
        firsts = np.arange(0, shape.hdim, 4 * shape.columns)[:, None] + 4 * np.arange(shape.columns)
        return (firsts[..., None] + np.arange(4)).ravel()
    if core is mma:
        panels = np.arange(shape.panels)[:, None] * shape.warps_d + np.arange(shape.warps_d)
        dims = panels[panels < shape.width // GROUP][:, None] * GROUP + np.arange(GROUP)
    else:
        size = ROWS * shape.mmas_per_panel
        panels = np.arange(shape.panels)[:, None] * shape.warpgroups + np.arange(shape.warpgroups)
        dims = panels[panels < shape.width // size][:, None] * size + np.arange(size)
    ranks = GROUP * np.arange(shape.cluster)[:, None]
    held = (ranks + (dims // GROUP * GROUP * shape.cluster + dims % GROUP).ravel()).ravel()
    chunks = -(-hdim // held.size) if core is wgmma and shape.streams else 1
    return (held.size * np.arange(chunks)[:, None] + held).ravel()


def check_plan(plan: Plan, target: str) -> None:
    """The target takes every launch, and the blocks of the one that attends cover each row, key and dim once."""
    problem, limits = plan.problem, limits_of(target)
    launch = next(launch for launch in plan.launches if launch.shape)
    said = f"{problem} on {target}: {launch.shape}"
    for each in plan.launches:
        require_target(each, target)
    assert launch.cluster <= limits.cluster, said
    assert math.prod(launch.block) * getattr(launch.shape, "blocks", 1) <= 32 * limits.warps, said
    shape, parts = launch.shape, splits_of(problem, launch)
    tiles = -(-problem.seq_q // shape.queries) * max(parts, 1)
    assert math.prod(launch.grid) == tiles * problem.batch * problem.heads * launch.cluster, said
    assert launch.grid[1] == problem.heads // problem.kv_heads, said
    covered = np.bincount(output_dims(CORES[plan.core], shape, problem.hdim), minlength=problem.hdim)
    assert (covered[: problem.hdim] == 1).all(), said
    if parts:
        split_keys = launch.args[-SPLIT_KEYS]
        assert 0 <= parts * split_keys - problem.seq_k < split_keys and split_keys % KEYS == 0, said
    if plan.core != "portable":
        assert launch.cluster == shape.cluster and shape.rows * shape.cluster >= shape.queries, said
    allowed = {"portable"} if capability(target) < (9, 0) else {"mma", "portable"}
    if capability(target) == (9, 0):
        allowed = {"wgmma"} if problem.seq_k > 32 else {"mma"}
    assert problem.hdim > MOST_HDIM or plan.core in allowed, said
    if problem.hdim <= 3072 and problem.seq_q < 2**19 and capability(target) > (9, 0):
        assert plan.core == "mma", said


@pytest.mark.parametrize("target", TARGETS)
def test_documented_range_is_planned_on_every_target(target: str, any_kernel: None) -> None:
    rng = random.Random(target)
    for number in range(PROBLEMS):
        chosen = version(ANY_CORE[number % len(ANY_CORE)])
        check_plan(chosen(draw_documented(rng, chosen.family), target), target)
    for problem in EXTREMES:
        check_plan(version("rope_v8")(problem, target), target)


def test_head_dim_that_no_cluster_holds_goes_to_the_portable_core(any_kernel: None) -> None:
    wide = Problem("rope", seq_q=8, hdim=MOST_HDIM, rotary_dim=64)
    assert [version("rope_v8")(wide, target).core for target in ("sm_90", "sm_100", "sm_120")] == [
        "mma", "mma", "portable",
    ]  # fmt: skip
    with pytest.raises(Unsupported) as caught:
        version("rope_v8_mma")(wide, "sm_120")
    assert (caught.value.kind, caught.value.allowed) == ("shared_memory", 101_376) and caught.value.needed > 101_376
    assert version("rope_v8")(Problem("rope", seq_q=8, hdim=65_536, rotary_dim=64), "sm_90").core == "portable"


SHAPES: list[tuple[ModuleType, dict[str, int], dict[str, tuple[int, ...]]]] = [  # what works, and what does not in it
    (
        mma,
        {"cluster": 2, "queries": 16, "keys": 32, "width": 64, "warps_n": 2, "warps_k": 1},
        {"queries": (24, -16), "cluster": (3, 0), "keys": (48, 128), "width": (48, 0), "warps_n": (3, 0)},
    ),
    (
        wgmma,
        {"cluster": 2, "queries": 16, "width": 64, "warpgroups": 1},
        {"cluster": (17, 0), "queries": (12,), "width": (96, 320), "warpgroups": (3, 8), "blocks": (0,)},
    ),
    (
        portable,
        {"queries": 4, "hdim": 40, "each": 8, "lanes": 8, "warps_n": 1, "threads": 64},
        {"hdim": (42,), "queries": (3,), "lanes": (1, 64), "warps_n": (4,), "threads": (96, 2048)},
    ),
]


@pytest.mark.parametrize(("core", "works", "wrong"), SHAPES, ids=["mma", "wgmma", "portable"])
def test_shape_that_its_kernel_cannot_serve_cannot_be_made(core: ModuleType, works: Any, wrong: Any) -> None:
    core.Shape(**works)
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=f"{name} is {value}; it must be "):
                core.Shape(**works | {name: value})


def test_plan_is_for_the_emulated_target_unless_said() -> None:
    problem = Problem("rope", heads=4, seq_q=64, hdim=512, rotary_dim=128)
    for name in ("rope_v8", "rope_v7"):
        assert version(name)(problem).launches == version(name)(problem, EMULATED_TARGET).launches
    assert version("rope_v7")(problem, "sm_75").launches == version("rope_v7")(problem).launches
    assert version("rope_v8")(problem, "sm_75").launches != version("rope_v8")(problem).launches


@pytest.mark.parametrize("target", ["sm90", "90", "sm_9", "compute_90"])
def test_unknown_target_is_named(target: str) -> None:
    with pytest.raises(ValueError, match=f"target is '{target}'; allowed: sm_75"):
        version("rope_v8")(Problem("rope", rotary_dim=64), target)


def small_problem(chosen: Version) -> Problem:
    """Two tiles of queries, heads that share keys, a mask."""
    rotary_dim, table = 24 if chosen.family == "rope" else 0, "float8" if chosen.family == "learned" else "computed"
    return Problem(chosen.family, 2, 4, 2, 5, 7, 40, rotary_dim, table=table, causal=True)


@pytest.mark.parametrize("name", swept(zip(ANY_CORE), 0, 4))
def test_every_version_is_right_on_the_portable_core(name: str) -> None:
    """Of the others, the emulated target has the tests."""
    plan = version(name)(small_problem(VERSIONS[name]), "sm_75")
    assert plan.core == "portable"
    for kind in INPUTS:
        case = reference_of(plan.problem, kind)
        report = run(plan, case.inputs, lambda kernel: compile_ptx(kernel, "sm_75"))
        verdict = case.compare(torch.from_numpy(report.out))
        assert verdict.status == "ok" and not report.findings, (verdict, report.findings)


CODE = list(product(("sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120"), ANY_CORE))


@pytest.mark.parametrize("target, name", swept(CODE, 0, 6, by=lambda case: case[0]))
def test_every_target_takes_the_code_of_every_version(target: str, name: str) -> None:
    plan = version(name)(small_problem(VERSIONS[name]), target)
    assert plan.core == ("portable" if capability(target) < (9, 0) else "mma")
    for launch in plan.launches:
        require_target(launch, target)
        assembled(compile_ptx(launch.kernel, target), target)
