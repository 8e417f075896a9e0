"""Long sweeps, sampled: every barrier taken away in turn, odd and random shapes, and the published shapes."""

import random
import re
from collections.abc import Iterator
from functools import partial
from itertools import product

import pytest

from analysis.studies import study
from kernels import VERSIONS, Plan, Problem, Version
from kernels.checking.check import CheckCase, case_of, faults, problems, quick_cases, supports
from kernels.checking.reference import reference_of
from kernels.rates import TABLES_OF
from kernels.registry import OWN
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import run
from kernels.version import Kernel
from tests.sampling import named, swept

LARGEST = 20_000  # elements of q
EXAMPLES = 4  # shapes a version
SEQS = [*range(1, 71), 128, 130]
HDIMS = range(8, 352, 4)
BEYOND_HDIMS = (36, 132)  # few, as these kernels take seconds to compile


def variants(chosen: Version, batch: int, heads: int, seq: int, hdim: int) -> list[Problem]:
    """The problems of that shape that `chosen` takes: all dims rotated or half, with a mask or without, every table."""
    fields: list[dict] = [{}]
    if chosen.family == "rope":
        fields = [{"rotary_dim": hdim}, {"rotary_dim": max(4, hdim // 8 * 4)}]
    elif chosen.family == "fp16":
        fields = [{"causal": causal} for causal in (False, True)]
    if chosen.beyond:
        tables = TABLES_OF.get(chosen.family, ("computed",))
        fields = [{**more, "table": table, "causal": causal} for more, table, causal in product(fields, tables, (0, 1))]
    shape, dtype = {"batch": batch, "heads": heads, "seq_q": seq, "hdim": hdim}, problems(chosen)[0].dtype
    candidates = [Problem(chosen.family, **shape, dtype=dtype, **more) for more in fields]
    return [problem for problem in candidates if supports(chosen, problem)]


# Of a block, of its cluster, or of the stores that an mbarrier counts.
BARRIER = re.compile(
    r"^\s*(?:bar\.sync\s+0;|(?P<cluster>barrier\.cluster\.wait)\S*;|\{ \.reg \.pred complete;.*?\})\s*$",
    re.MULTILINE | re.DOTALL,
)
ARRIVAL = re.compile(r"^\s*barrier\.cluster\.arrive\S*;\s*$", re.MULTILINE)


def without_barrier(kernel: Kernel, target: str = "sm_90", *, name: str, which: int) -> str:
    text = compile_ptx(kernel, target)
    if kernel.name != name:
        return text
    barriers = list(BARRIER.finditer(text))
    gone = [barriers[which]]
    if gone[0]["cluster"]:  # with the arrival that it waits for, which stands before it
        gone.insert(0, list(ARRIVAL.finditer(text))[sum(bool(each["cluster"]) for each in barriers[:which])])
    for match in reversed(gone):
        text = text[: match.start()] + text[match.end() :]
    return text


# Barriers that order nothing are followed by a step that touches nothing in use and ends with a barrier, or lie between
# steps that use values of the thread's own, or end a reduction whose result nothing shares at once.
IDLE_OF = {  # how many order nothing, in all other versions one
    0: "attention_atomics attention_atomics_float4",
    2: "attention_two_pass_float4 attention_online attention_register_tiling rope_v1a rope_v7 rope_v8",
    3: "attention_tensor_core_v1 rope_v4 fp16_minimal fp16_phase6_iter1",
    4: "attention_async_double_buffer rope_v5 rope_v6a rope_v6b fp16_phase6_iter2",
    5: "attention_tensor_core_v2 attention_multi_query",
}
IDLE = {name: count for count, names in IDLE_OF.items() for name in names.split()}


def races(plan: Plan, blocks: int | None, ptx_of=compile_ptx) -> Iterator[frozenset[str]]:
    """The pairs of instructions that race, over several warp orders: the order decides which of the two comes later."""
    inputs = reference_of(plan.problem, "sharp").inputs
    for options in ({"schedule": "in step"}, *({"seed": seed} for seed in range(4))):
        for finding in run(plan, inputs, ptx_of, blocks=blocks, **options).findings:
            if finding.kind == "race":
                yield frozenset((finding.instruction, finding.other))


# Versions that go over the dims in slices need more than one of them.
SLICED = {"rope_v6a": 264, "rope_v6b": 264}
# Tiles of 16 keys. Beyond the documents: three tiles of 64 keys on a cluster, or two of 512 and outputs that several
# threads join.
TILES = {
    "attention_multi_query": Problem("attention", seq_q=33, hdim=332),
    "rope_v8": Problem("rope", seq_q=5, seq_k=130, hdim=260, rotary_dim=128),
    "rope_v8_mma": Problem("rope", seq_q=5, seq_k=130, hdim=64, rotary_dim=32),
    "rope_v8_portable": Problem("rope", seq_q=5, seq_k=520, hdim=64, rotary_dim=32),
}
# A version with another limit, built otherwise, in C++ or on the same core has the barriers of what it is made of.
FLASH = (  # see test_flash
    "rope_prompt", "rope_prompt_split", "rope_prompt_persistent", "rope_prompt32",
    "rope_decode", "rope_wide_decode", "rope_chunk", *(f"fp16_phase7{step}" for step in "abcd"),
)  # fmt: skip
BARRIERS = [
    (chosen,)
    for chosen in OWN
    if not (chosen.ablation or chosen.variant_of or chosen.control_of or chosen.id in FLASH)
]


def two_tiles(chosen: Version) -> Problem:
    """A problem with a key more than a tile, or two tiles."""
    if chosen.id in TILES:
        return TILES[chosen.id]
    sizes = [(65, SLICED.get(chosen.id, 64)), (65, 36), (128, 64)]
    return next(problem for seq, hdim in sizes for problem in variants(chosen, 1, 1, seq, hdim)[::-1])


def of_version(case: tuple) -> str:
    return case[0].id


QUICK = VERSIONS["sinusoidal_v1"]  # two barriers, and little to compile
OTHERS = [case for case in BARRIERS if case != (QUICK,)]


@pytest.mark.parametrize("chosen", [QUICK, *swept(OTHERS, 0, 8, by=lambda case: case[0].family)], ids=named)
def test_missing_barrier_is_caught(chosen: Version) -> None:
    """Each barrier of the compiled kernels is taken out in turn; two key tiles make them matter."""
    case = case_of(chosen, two_tiles(chosen))
    plan = chosen(case.problem)
    known, idle = set(races(plan, case.blocks)), []
    for kernel in {launch.kernel for launch in plan.launches}:
        for which in range(len(BARRIER.findall(compile_ptx(kernel)))):
            mutant = partial(without_barrier, name=kernel.name, which=which)
            if not faults(chosen, *case, mutant) and all(pair in known for pair in races(plan, case.blocks, mutant)):
                idle.append(f"{kernel.name}: {which}")
    assert len(idle) == IDLE.get(chosen.id, 1), idle


def random_problems(chosen: Version) -> list[Problem]:
    """`EXAMPLES` problems that `chosen` takes, the same every time; half of the lengths are edges of tiles."""
    draw, first = random.Random(chosen.id), problems(chosen)[0]
    swept_dims = HDIMS if not chosen.beyond else BEYOND_HDIMS[-1:] if chosen.variant_of else BEYOND_HDIMS
    hdims = [hdim for hdim in swept_dims if variants(chosen, 1, 1, first.seq_q, hdim)] or [first.hdim]
    seqs = [seq for seq in SEQS if variants(chosen, 1, 1, seq, hdims[0])]
    drawn = []
    for example in range(EXAMPLES):
        batch, heads, hdim = draw.randint(1, 2), draw.randint(1, 3), draw.choice(hdims)
        small = [seq for seq in seqs if batch * heads * seq * hdim <= LARGEST] or seqs[:1]
        edges = [seq for seq in (32, 63, 64, 65, 128, 130) if seq in small]
        seq = draw.choice(edges if edges and example % 2 == 0 else small)
        drawn.append(draw.choice(variants(chosen, batch, heads, seq, hdim)))
    return drawn


MOST_FLOPS = 10e6  # of a published shape that is run here; data/counts.csv comes from the larger ones too


def sweeps() -> Iterator[tuple[list[tuple[Version, CheckCase]], int]]:
    """All cases of a sweep, and of how many its sample is: seconds of planning."""
    cases = [(chosen, CheckCase(problem, "sharp")) for chosen in OWN for problem in problems(chosen)]
    yield [case for case in cases if case[1] not in quick_cases(case[0])], 60  # those are in test_versions
    plain = [chosen for chosen in OWN if not (chosen.ablation or chosen.control_of)]
    yield [(chosen, CheckCase(problem, "sharp")) for chosen in plain for problem in random_problems(chosen)], 40
    pairs = [(VERSIONS[name], problem) for name, problem in study("log").pairs() if problem.flops <= MOST_FLOPS]
    yield [(v, CheckCase(problem, "uniform")) for v, problem in pairs if not v.is_peer and supports(v, problem)], 12


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        asked = "not deep" not in metafunc.config.option.markexpr
        cases = [param for some, count in (sweeps() if asked else ()) for param in swept(some, 0, count, by=of_version)]
        metafunc.parametrize(("chosen", "case"), cases, ids=named)


@pytest.mark.deep
def test_version_does_what_it_declares_on_all_problems(chosen: Version, case: CheckCase) -> None:
    assert not faults(chosen, *case)
