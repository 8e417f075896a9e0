"""Every version computes what it declares, wrong results included, and has the hazards it declares."""

import math
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kernels import VERSIONS, Plan, Problem, Unsupported, Version, version
from kernels.checking.check import CheckCase, faults, quick_cases, rows_written
from kernels.checking.reference import reference_of
from kernels.log.rope.tables import rope_tables
from kernels.log.sinusoidal.tables import sinusoidal_tables
from kernels.registry import OWN
from kernels.runtime import compile
from kernels.runtime.compile import CompileError, blocks_per_sm, compile_ptx, resources
from kernels.runtime.emulator import run
from kernels.runtime.gpu import formats_of
from kernels.version import VERSIONS as REGISTRY
from kernels.version import Buffer, register
from tests.sampling import named, sample, swept


def largest(chosen: Version) -> CheckCase:
    """Of the quick cases, the one with the most scores and dims: several tiles, more dims than threads."""
    return max(quick_cases(chosen), key=lambda case: case.problem.seq_k * case.problem.hdim)


# Ablations and controls, which nobody runs for their result, are for make test-deep.
BESIDE = [chosen for chosen in OWN if chosen.ablation or chosen.control_of]
MAIN = [chosen for chosen in OWN if chosen not in BESIDE]
LARGEST = [(chosen, largest(chosen)) for chosen in MAIN]
OTHERS = [(chosen, case) for chosen in MAIN for case in quick_cases(chosen) if (chosen, case) not in LARGEST]
# On the same kernels as others, or with tests of their own: seconds a compilation, as of a variant.
SECONDS = ("rope_prompt32", "fp16_phase7b", "fp16_phase7c")


def param(chosen: Version, *rest: CheckCase) -> Any:
    later = chosen in BESIDE or chosen.id in SECONDS or bool(chosen.variant_of)
    return pytest.param(chosen, *rest, marks=[pytest.mark.deep] * later)


PARAMS = [param(*case) for case in LARGEST]
ABLATIONS = [(chosen, case) for chosen in BESIDE for case in quick_cases(chosen)]
SMALLER = [*swept(OTHERS, 20, len(OTHERS)), *swept(ABLATIONS, 0, len(ABLATIONS))]
COMPILED = [param(chosen) for chosen in (*MAIN, *(beside for (beside,) in sample(zip(BESIDE), 12)))]


@pytest.mark.parametrize(("chosen", "case"), [*PARAMS, *SMALLER], ids=named)
def test_version_has_its_declared_status_hazards_and_values(chosen: Version, case: CheckCase) -> None:
    assert not faults(chosen, *case)


@pytest.mark.parametrize("chosen", COMPILED, ids=named)
def test_arguments_of_a_launch_are_as_wide_as_its_kernels_parameters(chosen: Version) -> None:
    for launch in chosen(quick_cases(chosen)[-1].problem).launches:
        entry = compile_ptx(launch.kernel).partition(".entry")[2].partition(")")[0]
        widths = [int(width) // 8 for width in re.findall(r"\.param \.[a-z](\d+)", entry)]
        assert [struct.calcsize(each) for each in formats_of(launch)] == widths


def test_first_blocks_are_compared_where_they_write_and_nowhere_else() -> None:
    """A block of rope_v3 writes four rows; the first two of 33 leave the rows behind them unwritten."""
    problem = Problem("rope", seq_q=130, hdim=24, rotary_dim=24)
    assert not faults(version("rope_v3"), problem, "sharp", blocks=2)
    out = run(version("rope_v3")(problem), reference_of(problem, "sharp").inputs, blocks=2).out[0, 0]
    assert np.isfinite(out[:8]).all() and np.isnan(out[8:]).all()
    assert rows_written(version("rope_v3")(problem), 2) == 8


def test_reduction_race_of_the_log_changes_results_by_warp_order() -> None:
    plan = version("attention_online_fixed")(Problem("attention", seq_q=64, hdim=64))
    case = reference_of(plan.problem, "sharp")
    statuses = {case.compare(torch.from_numpy(run(plan, case.inputs, seed=seed).out)).status for seed in range(4)}
    assert "wrong" in statuses


def test_separate_path_reads_behind_its_tables_exactly_where_heads_are_short() -> None:
    def kinds(batch: int, heads: int, seq: int) -> set[str]:
        plan = version("rope_separate")(Problem("rope", batch, heads, seq_q=seq, hdim=64, rotary_dim=32))
        return {hazard.kind for hazard in plan.hazards}

    assert "out_of_bounds" in kinds(1, 2, 32)
    assert "out_of_bounds" not in kinds(1, 1, 32) | kinds(1, 4, 64) | kinds(1, 4, 128)


WIDE = re.compile(r"ld\.global\.(nc\.)?v4\.[bfu]32|cp\.async\.cg\.shared\.global .*, 16\b")
DOUBLE = re.compile(r"\.f64\b")
# What accurate sines do with a large angle: what is left of it becomes a float by way of a double.
SLOW_PATH = re.compile(r"\.reg \.f64|cvt\.rn\.f64\.s64|mul\.f64 .*, 0d3BF921FB54442D19|cvt\.rn\.f32\.f64")


@pytest.mark.parametrize("chosen", COMPILED, ids=named)
def test_kernels_have_no_doubles_and_load_16_bytes_where_declared(chosen: Version) -> None:
    text = "".join(compile_ptx(launch.kernel) for launch in chosen(quick_cases(chosen)[-1].problem).launches)
    double = [line for line in text.splitlines() if DOUBLE.search(line)]
    if chosen.accurate_sines:
        assert double
        double = [line for line in double if not SLOW_PATH.search(line)]
    assert not double
    assert bool(WIDE.search(text)) != chosen.scalar_loads


@pytest.mark.parametrize("family, tables", [("rope", rope_tables), ("sinusoidal", sinusoidal_tables)])
def test_tables_of_the_log_are_computed_in_float32(family: str, tables: Callable[[Problem], dict[str, Buffer]]) -> None:
    """An angle is off by the roundings of exponent (times ln 10000), power, quotient and product, and by no less."""
    hdim, seq = 512, 64
    made = tables(Problem(family, seq_q=seq, hdim=hdim, rotary_dim=hdim if family == "rope" else 0))
    angle = np.arange(seq)[:, None] * 10_000.0 ** (-2 * (np.arange(hdim) // 2) / hdim)
    bound = (math.log(10_000) + 3) * 2.0**-24 * (1 + 2.0**-20) * angle + 2.0**-25
    for name, exact in (("sin", np.sin(angle)), ("cos", np.cos(angle))):
        table = made[name].init()
        assert table.dtype == np.float32 and (np.abs(table - exact) <= bound).all()
        assert (table != exact.astype(np.float32)).any()


@pytest.mark.parametrize("chosen", VERSIONS.values(), ids=lambda chosen: chosen.id)
def test_version_takes_no_problem_whose_embedding_it_does_not_apply(chosen: Version) -> None:
    for family in {"attention", "rope", "sinusoidal"} - {chosen.family}:
        with pytest.raises(Unsupported, match=f"family is {family}"):
            chosen(Problem(family, hdim=128, rotary_dim=64 if family == "rope" else 0))


def test_problem_refuses_bad_fields_and_fills_in_the_usual_ones() -> None:
    problem = Problem("attention", heads=4, seq_q=3, seq_k=10)
    assert (problem.kv_heads, problem.q_offset, problem.flops) == (4, 7, 4 * 4 * 3 * 10 * 512)
    for bad, message in [
        ({"family": "roope"}, "family is 'roope'; allowed: attention"),
        ({"family": "rope", "rotary_dim": 3}, "rotary_dim is 3"),
        ({"family": "rope", "hdim": 64, "rotary_dim": 66}, "between 0 and hdim, which is 64"),
        ({"family": "rope", "seq_q": 0}, "seq_q is 0"),
        ({"family": "rope", "heads": 4, "kv_heads": 3}, "multiple of kv_heads, which is 3"),
        ({"family": "rope", "dtype": "float8"}, "dtype is 'float8'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            Problem(**bad)


def test_version_id_is_taken_once() -> None:
    with pytest.raises(ValueError, match="'rope_v7' is registered twice"):

        @register(family="rope", title="", source="")
        def rope_v7(problem: Problem) -> Plan: ...

    with pytest.raises(ValueError, match="parent of 'rope_v99' is 'rope_v98', which is not registered"):

        @register(family="rope", title="", source="", parent="rope_v98")
        def rope_v99(problem: Problem) -> Plan: ...

    assert "rope_v99" not in REGISTRY
    with pytest.raises(KeyError, match="no version is called 'rope_v98'; known: attention_atomics"):
        version("rope_v98")


def test_blocks_per_sm_follow_threads_registers_and_shared_memory() -> None:
    """By hand: 256 threads are 8 warps; an SM of sm_75 holds 32 warps, of sm_89 48, of sm_90 64."""
    online = version("attention_online_fixed")(Problem("attention", hdim=512)).launches[0]
    blocks = {target: blocks_per_sm(online, target) for target in ("sm_75", "sm_89", "sm_90")}
    assert 1 <= blocks["sm_75"] <= 4 and 1 <= blocks["sm_89"] <= 6 and 1 <= blocks["sm_90"] <= 8
    heavy = version("rope_v7")(Problem("rope", seq_q=16, hdim=8192, rotary_dim=128)).launches[1]
    assert heavy.shared_bytes == 33_408
    assert blocks_per_sm(heavy, "sm_75") == 65_536 // 33_408
    assert blocks_per_sm(heavy, "sm_86") == 102_400 // (33_408 + 1024)


def test_resources_that_the_assembler_omits_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = version("attention_online")(Problem("attention", hdim=64)).launches[0].kernel
    log = "info : used 40 registers, used 1 barriers, 0 stack, 1024 bytes smem"
    monkeypatch.setattr(compile, "assemble", lambda ptx, target: (b"", log))
    used = resources.__wrapped__(kernel, "sm_90")
    assert (used.registers, used.spill_bytes, used.stack_bytes) == (40, None, None)
    monkeypatch.setattr(compile, "assemble", lambda ptx, target: (b"", ""))
    with pytest.raises(CompileError, match="does not say how many registers"):
        resources.__wrapped__(kernel, "sm_90")
