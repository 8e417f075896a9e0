"""The shapes that the V8 cores choose, over all problems that they take: what they share out is covered once."""

import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kernels import Problem
from kernels.constants import OPT_IN_SHARED_LIMIT, SHARED_LIMIT
from kernels.device.wgmma import ROWS
from kernels.flash.cluster import splits_of
from kernels.flash.cluster.mma import core as mma
from kernels.flash.cluster.portable import core as portable
from kernels.flash.cluster.shape import GROUP
from kernels.flash.cluster.wgmma import core as wgmma
from kernels.flash.cluster.wgmma.choose import takes
from kernels.flash.cluster.wgmma.shape import KEYS
from kernels.flash.decode.plan import MOST_QUERIES
from kernels.op.warm import Call
from tests.kernels.cluster.plans import plan_of

MAX_HDIM = 16_384
CLUSTERED = (mma, wgmma)
SPLIT_KEYS = 11  # the place of this argument, from behind


def draw(rng: random.Random, most: int = 4096, family: str | None = None, many_heads: bool = True) -> Problem:
    """A problem of up to so many queries and keys: half of the head dims spread evenly, half over their size."""
    size = 4 ** rng.uniform(1, 7) if rng.random() < 0.5 else rng.randint(4, MAX_HDIM)
    hdim = int(min(max(size // 4 * 4, 4), MAX_HDIM))
    seq_q, seq_k = (int(most ** rng.uniform(0, 1)) for _ in range(2))
    kv_heads = rng.choice((1, 2, 3, 4, 8)) if many_heads else 1
    family = family or rng.choice(("rope", "sinusoidal", "attention"))
    return Problem(
        family,
        batch=rng.choice((1, 1, 2, 8)) if many_heads else 1,
        heads=kv_heads * rng.choice((1, 1, 2, 5)),
        kv_heads=kv_heads,
        seq_q=seq_q,
        seq_k=seq_k,
        hdim=hdim,
        rotary_dim=2 * rng.randint(0, hdim // 2) if family == "rope" else 0,
        causal=rng.random() < 0.5,
        q_offset=rng.choice((0, max(seq_k - seq_q, 0), rng.randint(0, 5000))),
    )


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


def test_every_problem_has_a_shape_that_covers_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for core in (mma, wgmma, portable):
        monkeypatch.setattr(core, "kernel_of", lambda shape, *_: None)
    rng = random.Random(1)
    for _ in range(1000):
        problem = draw(rng)
        for core in (mma, wgmma, portable):
            if core is wgmma and not takes(problem):
                continue
            launch = next(launch for launch in plan_of(core, problem, None).launches if launch.shape)
            shape = launch.shape
            said = f"{core.__name__} {problem} {shape}"
            dims = np.bincount(output_dims(core, shape, problem.hdim), minlength=problem.hdim)[: problem.hdim]
            assert (dims == 1).all(), said
            assert shape.layout.nbytes <= (SHARED_LIMIT if core is portable else OPT_IN_SHARED_LIMIT), said

            sharers = problem.heads // problem.kv_heads
            heads_last = core is portable or (core is wgmma and shape.streams)
            tiles = launch.grid[0] // launch.cluster if heads_last else launch.grid[2]
            parts = splits_of(problem, launch)
            if parts:
                split_keys = launch.args[-SPLIT_KEYS]
                assert 0 <= parts * split_keys - problem.seq_k < split_keys and split_keys % KEYS == 0, said
                tiles //= parts
            assert 0 <= tiles * shape.queries - problem.seq_q < shape.queries, said
            assert np.prod(launch.grid) == max(parts, 1) * tiles * problem.batch * problem.heads * launch.cluster, said
            assert launch.grid[1] == sharers, said
            if core in CLUSTERED:
                assert launch.cluster == shape.cluster and launch.grid[0] % launch.cluster == 0, said
                assert shape.rows * shape.cluster >= shape.queries, said


def refused(core: ModuleType, **fields: int) -> tuple[ModuleType, dict[str, int], str]:
    """A shape that differs from one that works in the fields given, the last of which is to blame."""
    works = {
        mma: {"cluster": 2, "queries": 16, "keys": 32, "width": 64, "warps_n": 2, "warps_k": 1},
        wgmma: {"cluster": 2, "queries": 16, "width": 64, "warpgroups": 1},
        portable: {"queries": 4, "hdim": 40, "each": 8, "lanes": 8, "warps_n": 1, "threads": 64},
    }[core]
    core.Shape(**works)
    return core, {**works, **fields}, f"{list(fields)[-1]} is {list(fields.values())[-1]}; it must be "


REFUSED = {
    mma: {
        "queries": (24, -16),
        "cluster": (3, 0),
        "keys": (48, 128),
        "width": (48, 0),
        "warps_n": (3, 0),
        "warps_k": (0,),
    },
    wgmma: {"cluster": (17, 0), "queries": (12,), "width": (96, 320), "warpgroups": (3, 8), "blocks": (0,)},
    portable: {"hdim": (42,), "queries": (3,), "lanes": (1, 64), "warps_n": (4,), "threads": (96, 2048)},
}


@pytest.mark.parametrize(
    "core, fields, message",
    [
        *(
            refused(core, **{name: value})
            for core in REFUSED
            for name, values in REFUSED[core].items()
            for value in values
        ),
        refused(mma, queries=32, cluster=32),
        refused(mma, warps_k=9, blocks=4),
        (*refused(mma, warps_k=17)[:2], "threads is 1088; it must be 32 to 1024"),
        (*refused(portable, queries=32, each=1, lanes=32)[:2], "keys is 1; it must be a multiple of 4"),
    ],
)
def test_a_shape_that_its_kernel_cannot_serve_cannot_be_made(core: ModuleType, fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        core.Shape(**fields)


MODELS = ((32, 8, 128), (12, 12, 64), (8, 1, 256), (16, 16, 1024), (4, 4, 2048))


@pytest.mark.parametrize("heads, kv_heads, hdim", MODELS)
@pytest.mark.parametrize("batch", [1, 8])
def test_prompts_of_a_model_need_few_kernels(batch: int, heads: int, kv_heads: int, hdim: int) -> None:
    lengths = [*range(MOST_QUERIES + 1, 130), *range(130, 8193, 37)]
    prompts = [Problem("rope", batch, heads, kv_heads, n, n, hdim, hdim, causal=True) for n in lengths]
    assert len({kernel for prompt in prompts for kernel in Call(prompt).kernels("sm_90")}) <= 12
