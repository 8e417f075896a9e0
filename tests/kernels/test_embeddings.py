"""ALiBi, learned and stored sinusoidal embeddings: their definitions, their tables and what computes with them."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from numba import cuda, uint32
from ops_reference import expected

from kernels import Problem, Unsupported, version
from kernels.checking.check import BEYOND_SHAPES, faults
from kernels.checking.reference import INPUTS, attention, make_inputs, reference_of
from kernels.constants import FLOATS
from kernels.device.half import HALVES
from kernels.device.table import WORDS, load_float8, load_floats, load_halves
from kernels.device.vector import st4
from kernels.rates import alibi_slopes, exact_table, stored_table
from kernels.runtime.compile import compile_ptx
from kernels.runtime.emulator import run
from kernels.version import Buffer, Kernel, Launch, Plan
from tests.sampling import swept

STORED = ("float32", "float16", "float8")
EMBEDDINGS = [
    ("alibi_v1", "computed"),
    *(("learned_v1", table) for table in STORED),
    *(("sinusoidal_v6", table) for table in ("computed", *STORED)),
]
# Heads that are no power of two, and queries beyond the keys.
SHAPE = {"heads": 6, "seq_q": 17, "seq_k": 65, "hdim": 36, "q_offset": 60}


@pytest.mark.parametrize(("name", "table"), swept(EMBEDDINGS, 0, 4, by=lambda case: case[0]))
def test_every_embedding_is_right_and_reads_nothing_it_should_not(name: str, table: str) -> None:
    """On a quick case of its version, every embedding has one table."""
    chosen = version(name)
    assert not faults(chosen, Problem(chosen.family, table=table, **SHAPE), "sharp")


@pytest.mark.deep
@pytest.mark.parametrize("seq_k", [20, 70])  # on the core of warps, and of warpgroups
def test_alibi_of_heads_that_are_no_power_of_two(seq_k: int) -> None:
    """Keys lie on both sides of the queries, or the softmax would not see a distance that is off by the same."""
    shape = {"heads": 6, "seq_k": seq_k, "causal": False, "q_offset": seq_k - 2}
    problem = Problem("alibi", **{**BEYOND_SHAPES[2], **shape})
    assert not faults(version("alibi_v1"), problem, "sharp")


def test_slopes_are_those_of_the_paper() -> None:
    """Eight heads: 1/2, 1/4, ... 1/256. Six: those of four, then the first and third of eight."""
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(6).tolist() == [2.0**-i for i in (2, 4, 6, 8, 1, 3)]
    assert alibi_slopes(16)[:2].tolist() == [2**-0.5, 2**-1.0]
    assert alibi_slopes(1).tolist() == [2.0**-8]


def test_learned_row_does_not_depend_on_the_length_and_sinusoidal_rows_are_sines() -> None:
    short, long = (exact_table(Problem("learned", seq_q=seq, hdim=8, table="float32")) for seq in (5, 70))
    assert torch.equal(short, long[:5]) and 0.4 < long.std() < 0.6
    row = exact_table(Problem("sinusoidal", seq_q=4, hdim=4, table="float8"))[3].tolist()
    assert row == pytest.approx([math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)], abs=1e-15)


def test_rounded_tables_are_as_far_from_sines_as_their_last_place_says() -> None:
    """Values lie in [-1, 1]: the farthest are off by half of the last place of [0.5, 1), of 24, 11 or 4 bits."""
    for table, bits in zip(STORED, (24, 11, 4)):
        problem = Problem("sinusoidal", seq_q=64, hdim=64, table=table)
        error = float((stored_table(problem).double() - exact_table(problem)).abs().max())
        assert 0.9 * 2.0 ** -(bits + 1) < error <= 2.0 ** -(bits + 1)


def test_alibi_is_the_definition_with_keys_on_both_sides() -> None:
    problem = Problem("alibi", heads=6, seq_q=3, seq_k=5, hdim=4)
    q, k, v = (torch.from_numpy(values).double() for values in make_inputs(problem, "sharp").values())
    made = attention(problem, q, k, v).numpy()
    np.testing.assert_allclose(made, expected(q, k, v, family="alibi"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", INPUTS)
def test_reference_tells_embeddings_and_coarse_tables_apart(kind: str) -> None:
    shape = {"heads": 2, "seq_q": 33, "hdim": 64}
    plain = reference_of(Problem("attention", **shape), kind).expected
    sines = reference_of(Problem("sinusoidal", **shape), kind).expected
    for family, table in [("alibi", "computed"), *((f, t) for f in ("learned", "sinusoidal") for t in STORED)]:
        case = reference_of(Problem(family, table=table, **shape), kind)
        assert case.compare(plain).status == "wrong"
        if family == "sinusoidal":
            assert case.compare(sines).status == ("ok" if table == "float32" else "wrong")


def test_one_key_allows_two_roundings_of_the_output() -> None:
    case = reference_of(Problem("attention", heads=2, seq_q=1, hdim=64), "sharp")
    largest = case.expected.abs().max()
    assert case.allowed_abs_err == 2.0**-23 * float(largest)
    assert case.compare(case.expected * (1 + 2.0**-24)).status == "ok"
    assert case.compare(case.expected * (1 + 2.0**-22)).status == "wrong"
    half = reference_of(Problem("fp16", heads=2, seq_q=1, hdim=64, dtype="float16"), "sharp")
    assert half.allowed_abs_err == 0


def loaded(load: Any, pointer: Any, values: np.ndarray) -> tuple[np.ndarray, str]:
    """The result of `load` on `values`, 4 of them a thread, and the kernel's PTX."""

    def unpack(table, out):
        at = uint32(uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * uint32(4))
        st4(out, at, load(table, at))

    kernel = Kernel(unpack, (pointer, FLOATS))
    buffers = {"table": Buffer(values.shape, str(values.dtype), lambda: values), "out": Buffer(values.shape)}
    launch = Launch(kernel, (max(values.size // 1024, 1),), (min(values.size // 4, 256),), ("table", "out"))
    report = run(Plan(Problem("attention"), buffers, (launch,)), {})
    assert report.out is not None and not report.findings
    return report.out, compile_ptx(kernel)


CODES, BITS = np.arange(256, dtype=np.uint8), np.arange(2**16, dtype=np.uint16).view(np.float16)
LOADS = [
    (load_float8, WORDS, CODES, torch.from_numpy(CODES).view(torch.float8_e4m3fn).float().numpy(), r"u32"),
    (load_halves, HALVES, BITS, BITS.astype(np.float32), r"(nc\.)?v2\.[bfu]32"),
    (load_floats, FLOATS, np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32), r"v4\.f32"),
]


@pytest.mark.parametrize(("load", "pointer", "stored", "wanted", "kind"), LOADS, ids=["float8", "half", "float"])
def test_four_values_are_decoded_exactly_by_one_load(load, pointer, stored, wanted, kind) -> None:
    out, ptx = loaded(load, pointer, stored)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(out[numbers].view(np.uint32), wanted[numbers].view(np.uint32))
    (found,) = re.findall(r"ld\.global\.(\S*)", ptx)
    assert re.fullmatch(kind, found)


@pytest.mark.parametrize(
    ("name", "family", "table", "message"),
    [
        ("learned_v1", "learned", "computed", "table is computed; family learned takes float32, float16, float8"),
        ("torch_learned_compiled_sdpa", "learned", "computed", "table is computed; family learned takes float32"),
        ("alibi_v1", "alibi", "float16", "table is float16; family alibi takes computed"),
        ("torch_alibi_sdpa", "alibi", "float16", "table is float16; family alibi takes computed"),
        ("sinusoidal_v6", "rope", "float8", "family is rope; this version takes sinusoidal"),
    ],
)
def test_table_that_the_family_has_not_is_refused(name: str, family: str, table: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        version(name)(Problem(family, table=table, rotary_dim=2 if family == "rope" else 0))
