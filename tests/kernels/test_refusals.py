"""Refusals before compiling or launching: the fields of a refusal, and what each target lacks."""

import pickle

import pytest

from analysis.measure import on_gpu
from analysis.measure import run as measure
from analysis.record.files import RESOURCES, read_table
from kernels import Problem, Unsupported, version
from kernels.checking.check import quick_cases
from kernels.registry import OWN
from kernels.runtime.compile import TARGETS, capability, compile_ptx, least_capability, require_target
from kernels.runtime.probes import EMPTY
from kernels.version import Launch, SharedLayout, Version
from tests.sampling import swept

ASYNC = ("attention_async_double_buffer", Problem("attention", 1, 1, seq_q=8, hdim=32))


def refusal_of(name: str, problem: Problem) -> Unsupported:
    with pytest.raises(Unsupported) as caught:
        version(name)(problem)
    return caught.value


SMALL = Problem("attention", 1, 4, seq_q=64, hdim=512)
REFUSED = [
    ("attention_tensor_core_v1", SMALL, ("shared_memory", 166_784, 49_152)),
    ("rope_v7", Problem("rope", seq_q=16, hdim=8192, rotary_dim=8192), ("shared_memory", 49_536, 49_152)),
    ("attention_multi_query", Problem("attention", 1, 4, seq_q=64, hdim=128), ("hdim", 32, "4, 8, 16")),
    ("attention_online", Problem("attention", 4, 4, seq_q=4, seq_k=8), ("seq_q", 4, 8)),
    ("rope_v8", Problem("rope", dtype="float16", rotary_dim=128), ("dtype", "float16", "float32")),
    ("fp16_phase4", Problem("fp16", dtype="float16", hdim=64, causal=True), ("causal", 1, 0)),
    ("attention_online", Problem("attention", seq_q=8, hdim=30), ("hdim", 30, "a multiple of 4")),
]


@pytest.mark.parametrize(("name", "problem", "fields"), REFUSED)
def test_refusal_has_fields_that_its_words_name_also_in_another_process(name, problem, fields) -> None:
    refusal = refusal_of(name, problem)
    for each in (refusal, pickle.loads(pickle.dumps(refusal))):
        assert (each.kind, each.needed, each.allowed) == fields
        told = [f"{field:,}" if isinstance(field, int) else field for field in fields[1:]]
        assert fields[0] == "causal" or all(each in str(refusal) for each in told)


def test_status_of_a_check_is_that_of_the_kind_of_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_gpu.Card, "target", "sm_90")
    for (name, problem, _), status in ((REFUSED[3], "unsupported"), (REFUSED[0], "infeasible")):
        assert on_gpu.check((name, problem), "uniform")["status"] == status


# ---------------------------------------------------------------- instructions


@pytest.mark.parametrize(
    ("instruction", "since"),
    [
        ("cp.async.cg.shared.global [%r1], [%rd1], 16;", (8, 0)),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0}, {%r0}, {%r1}, {%f1};", (8, 0)),
        ("cvt.rna.tf32.f32 %r1, %f1;", (8, 0)),
        ("mbarrier.init.shared::cta.b64 [%r1], 1;", (8, 0)),
        ("cvt.rn.f16x2.e4m3x2 %r1, %rs1;", (8, 9)),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;", (9, 0)),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];", (9, 0)),
        ("mov.u32 %r1, %cluster_ctarank;", (9, 0)),
        ("ld.shared::cluster.b32 %r1, [%r2];", (9, 0)),
        # What compute capability 7.5 has.
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r1}, {%f1};", (0, 0)),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1, %r2, %r3}, [%r4];", (0, 0)),
        ("cvt.rn.f16.f32 %rs1, %f1;", (0, 0)),
        ("atom.relaxed.gpu.global.add.s32 %r1, [%rd1], 1;", (0, 0)),
    ],
)
def test_instruction_is_of_its_least_compute_capability(instruction: str, since: tuple[int, int]) -> None:
    assert least_capability(f"\tmov.u32 %r9, 0;\n\t{instruction}\n\tret;")[0] == since


@pytest.fixture(scope="module")
def assembled_for() -> dict[str, tuple[int, int]]:
    """The least compute capability that the assembler took all kernels of a version for."""
    rows = read_table(RESOURCES, "resources").assign(cc=lambda rows: rows["target"].map(capability))
    return rows.groupby(["version", "launch"])["cc"].min().groupby("version").max().to_dict()


# Cores of V8 take seconds each to compile for the oldest target; nobody runs ablations and controls on one.
LOG = [(v,) for v in OWN if not (v.beyond or v.ablation or v.control_of)]
BESIDE = [(v,) for v in OWN if v.beyond or v.ablation or v.control_of]


@pytest.mark.parametrize("version", [*swept(LOG, 5, 19), *swept(BESIDE, 0, 8)], ids=lambda version: version.id)
def test_refusal_of_a_target_agrees_with_the_assembler(version: Version, assembled_for) -> None:
    def takes(target: str) -> bool:
        try:
            launches = version(quick_cases(version)[0].problem, target).launches
        except Unsupported:
            return False
        return all(least_capability(compile_ptx(launch.kernel))[0] <= capability(target) for launch in launches)

    assert min(capability(target) for target in TARGETS if takes(target)) == assembled_for[version.id]


def test_kernels_that_a_target_lacks_instructions_for_are_not_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    assembled: list[str] = []
    monkeypatch.setattr(measure, "assembled", lambda ptx, target: assembled.append(target))
    for target in ("sm_75", "sm_86"):
        measure.compile_pair(ASYNC, target)
    assert assembled == ["sm_86"]
    (launch,) = version(ASYNC[0])(ASYNC[1]).launches
    with pytest.raises(Unsupported, match=r"uses cp\.async\S+, of compute capability 8\.0, .* has sm_75") as caught:
        require_target(launch, "sm_75")
    assert (caught.value.kind, caught.value.needed, caught.value.allowed) == ("capability", "8.0", "sm_75")


# ---------------------------------------------------------------- shared memory, grids


# CUDA C++ Programming Guide: the most shared memory of a block, in KB.
BLOCK_KILOBYTES = {64: "75", 163: "80 87", 99: "86 89 120 121", 227: "90 100 103 110"}
LIMITS = [(f"sm_{number}", size) for size, numbers in BLOCK_KILOBYTES.items() for number in numbers.split()]


@pytest.mark.parametrize(("target", "kilobytes"), LIMITS)
def test_block_that_asks_for_more_than_the_target_has_is_refused(target: str, kilobytes: int) -> None:
    most = kilobytes * 1024
    require_target(Launch(EMPTY, (1,), (1,), (), SharedLayout(all=most // 4)), target)
    with pytest.raises(Unsupported) as caught:
        require_target(Launch(EMPTY, (1,), (1,), (), SharedLayout(all=most // 4 + 1)), target)
    assert (caught.value.kind, caught.value.needed, caught.value.allowed) == ("shared_memory", most + 4, most)
    assert caught.value.status == "infeasible"


@pytest.mark.parametrize(
    ("most", "axis"), [((2**31 - 1,), "x"), ((1, 65_535), "y"), ((1, 1, 65_535), "z"), ((2**31 - 1, 65_535, 1), "x")]
)
def test_grid_has_at_most_what_a_gpu_takes(most: tuple[int, ...], axis: str) -> None:
    Launch(EMPTY, most, (1,), ())
    place = "xyz".index(axis)
    with pytest.raises(Unsupported, match=f"blocks along {axis}") as caught:
        Launch(EMPTY, tuple(size + (i == place) for i, size in enumerate(most)), (1,), ())
    assert (caught.value.kind, caught.value.needed, caught.value.allowed) == ("grid", most[place] + 1, most[place])
