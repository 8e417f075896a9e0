"""Every instruction alone against NumPy or Python integers, and the collective ones against their definition."""

import numpy as np
import pytest
from instruction_cases import CASES, COUNT, THREADS, Case, kernel, kernel_text, mismatch

from kernels.runtime.emulator import LaunchReport, Memory, UnknownInstruction, execute, parse


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_instruction(case: Case) -> None:
    buffers = dict(zip("abc", case.operands)) | {"out": np.zeros(COUNT, case.output)}
    memory = Memory(buffers, unwritten={"out"})
    report = execute(parse(kernel_text(case)), memory, COUNT // THREADS, THREADS, tuple(buffers))
    wrong = mismatch(case, memory["out"])
    shown = [([x[i] for x in case.operands], memory["out"][i]) for i in wrong[:3]]
    assert not len(wrong), f"{len(wrong)} of {COUNT} wrong: {shown}"
    assert not report.findings


def kinds(report: LaunchReport) -> set[str]:
    return {finding.kind for finding in report.findings}


def fragments(a: np.ndarray, b: np.ndarray, c: np.ndarray, per_lane: int) -> tuple[list, list, list]:
    """Registers of each lane for a 16 x k by k x 8 product, from the fragment layouts of the PTX ISA."""
    lane = np.arange(32)
    group, member = lane // 4, lane % 4
    step = 4 * per_lane
    left = [
        [a[group + 8 * (i % 2), per_lane * member + part + step * (i // 2)] for part in range(per_lane)]
        for i in range(2 * a.shape[1] // step)
    ]
    right = [
        [b[per_lane * member + part + step * i, group] for part in range(per_lane)] for i in range(a.shape[1] // step)
    ]
    total = [c[group + 8 * (i // 2), 2 * member + i % 2] for i in range(4)]
    return left, right, total


@pytest.mark.parametrize("kind, depth", [("tf32", 8), ("f16", 16), ("bf16", 16)])
def test_mma(kind: str, depth: int) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-8, 8, shape).astype(np.float32) for shape in ((16, depth), (depth, 8), (16, 8)))
    left, right, total = fragments(a, b, c, 1 if kind == "tf32" else 2)

    def bits(parts: list[np.ndarray]) -> np.ndarray:
        if kind == "tf32":
            return parts[0].view(np.uint32)
        low, high = (
            p.astype(np.float16).view(np.uint16) if kind == "f16" else (p.view(np.uint32) >> 16) for p in parts
        )
        return low.astype(np.uint32) | high.astype(np.uint32) << 16

    registers = [bits(parts) for parts in left + right] + [x.view(np.uint32) for x in total]
    names = [f"%r{i}" for i in range(len(registers))]
    loads = "\n".join(f"ld.global.b32 {name}, [%w3+{128 * i}];" for i, name in enumerate(names))
    stores = "\n".join(f"st.global.f32 [%w4+{128 * i}], %f{i};" for i in range(4))
    split = [names[: len(left)], names[len(left) : -4], [f"%f{i + 4}" for i in range(4)]]
    moves = "\n".join(f"mov.b32 %f{i + 4}, {name};" for i, name in enumerate(names[-4:]))
    groups = ", ".join("{" + ", ".join(part) + "}" for part in split)
    body = f"""mul.wide.u32 %w2, %t, 4; add.s64 %w3, %w0, %w2; add.s64 %w4, %w1, %w2; {loads} {moves}
        mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 {{%f0, %f1, %f2, %f3}}, {groups}; {stores}"""
    memory = Memory({"x": np.concatenate(registers), "out": np.zeros((4, 32), np.float32)})
    assert not execute(parse(kernel(body, "x out")), memory, 1, 32, ("x", "out")).findings
    expected = fragments(a, b, a @ b + c, 1 if kind == "tf32" else 2)[2]
    np.testing.assert_array_equal(memory["out"], np.stack(expected))


@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix(trans: bool) -> None:
    count = 4
    matrices = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    names = ", ".join(f"%r{i}" for i in range(count))
    copy = (
        "mul.lo.u32 %r10, %t, 4; cvt.u64.u32 %w2, %r10; add.s64 %w3, %w0, %w2; "
        "mov.u32 %r11, buffer; add.u32 %r11, %r11, %r10;"
        + "".join(f"ld.global.b32 %r12, [%w3+{128 * i}]; st.shared.b32 [%r11+{128 * i}], %r12;" for i in range(count))
    )
    stores = "".join(f"st.global.b32 [%w4+{128 * i}], %r{i};" for i in range(count))
    body = f"""{copy} bar.sync 0; mov.u32 %r13, buffer; and.b32 %r14, %t, {8 * count - 1};
        mad.lo.u32 %r13, %r14, 16, %r13;
        ldmatrix.sync.aligned.m8n8.x{count}{".trans" if trans else ""}.shared.b16 {{{names}}}, [%r13];
        add.s64 %w4, %w1, %w2; {stores}"""
    memory = Memory({"x": matrices.view(np.uint32).ravel(), "out": np.zeros((count, 32), np.uint32)})
    assert not execute(parse(kernel(body, "x out", shared=512)), memory, 1, 32, ("x", "out")).findings
    each = matrices.swapaxes(1, 2) if trans else matrices
    np.testing.assert_array_equal(memory["out"], np.ascontiguousarray(each).view(np.uint32).reshape(count, 32))


ATOMICS = [
    ("add.u32", np.uint32, lambda old, x: old + x.sum(dtype=np.uint32)),
    ("min.s32", np.int32, lambda old, x: min(old, x.min())),
    ("max.u32", np.uint32, lambda old, x: max(old, x.max())),
    ("add.f32", np.float32, lambda old, x: old + x.sum()),
    ("add.u64", np.uint64, lambda old, x: old + x.sum(dtype=np.uint64)),
]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name, dtype, expected", ATOMICS, ids=[a[0] for a in ATOMICS])
def test_atomic(name: str, dtype: type, expected, space: str) -> None:
    width = np.dtype(dtype).itemsize
    bits, value = f"b{8 * width}", "%w8" if width == 8 else "%r8"
    add = "%f0" if name.endswith("f32") else value
    load = f"mul.wide.u32 %w2, %t, {width}; add.s64 %w3, %w0, %w2; ld.global.{bits} {value}, [%w3];"
    load += f"mov.b32 %f0, {value};" if add == "%f0" else ""
    body = f"{load} red.{space}.{name} [{'%w1' if space == 'global' else 'buffer'}], {add};"
    if space == "shared":
        body = f"""setp.ne.u32 %p0, %t, 0; @%p0 bra $go; ld.global.{bits} {value}, [%w1];
            st.shared.{bits} [buffer], {value}; $go: bar.sync 0; {body} bar.sync 0; @%p0 bra $end;
            ld.shared.{bits} {value}, [buffer]; st.global.{bits} [%w1], {value}; $end:"""
    x = np.random.default_rng(0).integers(-100 if np.dtype(dtype).kind == "i" else 0, 100, 64).astype(dtype)
    memory = Memory({"x": x, "out": np.array([5], dtype)})
    assert not execute(parse(kernel(body, "x out", shared=16)), memory, 1, 64, ("x", "out")).findings
    assert memory["out"][0] == expected(dtype(5), x)


def test_atomic_returns_old_values() -> None:
    body = """atom.global.add.u32 %r0, [%w0], 1; mul.wide.u32 %w3, %r0, 4; add.s64 %w4, %w1, %w3;
        st.global.u32 [%w4], %t;"""
    memory = Memory({"n": np.zeros(1, np.uint32), "out": np.zeros(96, np.uint32)})
    execute(parse(kernel(body, "n out")), memory, 1, 96, ("n", "out"))
    assert memory["n"][0] == 96
    assert sorted(memory["out"].tolist()) == list(range(96))


def test_vector_and_narrow_memory() -> None:
    body = """mul.wide.u32 %w2, %t, 16; add.s64 %w3, %w0, %w2; ld.global.nc.v4.f32 {%f0, %f1, %f2, %f3}, [%w3];
        mul.wide.u32 %w4, %t, 8; add.s64 %w5, %w1, %w4; st.global.v2.f32 [%w5], {%f3, %f1};
        ld.global.u8 %h0, [%w3+3]; ld.global.s8 %r0, [%w3+7]; cvt.u32.u16 %r1, %h0; add.s64 %w6, %w1, 512;
        add.s64 %w6, %w6, %w4; st.global.u32 [%w6], %r0; st.global.u8 [%w6+4], %r1;"""
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    memory = Memory({"x": x, "out": np.zeros((128, 2), np.float32)})
    assert not execute(parse(kernel(body, "x out")), memory, 1, 64, ("x", "out")).findings
    np.testing.assert_array_equal(memory["out"][:64], x[:, [3, 1]])
    raw, signed = (x.view(dtype).reshape(64, 16) for dtype in (np.uint8, np.int8))
    np.testing.assert_array_equal(memory["out"][64:].view(np.int32), np.stack([signed[:, 7], raw[:, 3]], axis=1))


def test_local_memory_is_of_a_thread() -> None:
    body = """.local .align 16 .b8 depot[32]; mov.u64 %w2, depot; st.local.u32 [%w2+8], %t;
        ld.local.u32 %r0, [depot+8]; mul.wide.u32 %w6, %t, 4; add.s64 %w7, %w0, %w6; st.global.u32 [%w7], %r0;"""
    memory = Memory({"out": np.zeros(64, np.uint32)})
    assert not execute(parse(kernel(body)), memory, 1, 64, ("out",)).findings
    np.testing.assert_array_equal(memory["out"], np.arange(64))


def test_special_registers_and_blocks() -> None:
    body = """mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x;
        mov.u32 %r4, %nctaid.x;
        mad.lo.u32 %r5, %r1, %r4, %r0; mad.lo.u32 %r6, %r2, %r3, %t; mad.lo.u32 %r7, %r5, 40, %r6;
        mul.wide.u32 %w1, %r7, 4; add.s64 %w2, %w0, %w1;
        mov.u32 %r8, %laneid; mov.u32 %r9, %warpid; mad.lo.u32 %r10, %r9, 100, %r8; st.global.u32 [%w2], %r10;"""
    memory = Memory({"out": np.zeros((6, 40), np.uint32)}, unwritten={"out"})
    report = execute(parse(kernel(body)), memory, (3, 2), (10, 4), ("out",), blocks=[0, 4])
    expected = np.where(np.arange(40) < 32, np.arange(40), 100 + np.arange(40) - 32)
    np.testing.assert_array_equal(memory["out"][[0, 4]], np.stack([expected] * 2))
    assert not memory["out"][[1, 2, 3, 5]].any() and report.counts["inst.st.global"] == 80


@pytest.mark.parametrize(
    "body",
    [
        "frob.f32 %f0, %f1;",
        "add.frob.f32 %f0, %f1, %f2;",
        "mov.u32 %r0, %clock;",
        "add.f32 %f0, %f1, %nothing;",
        "st.u32 [%w0], %r0;",
        "setmaxnreg.inc.sync.aligned.u32 240;",
        "wgmma.mma_async.sync.aligned.m64n12k8.f32.tf32.tf32 {%f0}, %w0, %w1, %p0, 1, 1;",
    ],
)
def test_unknown_instruction_names_itself(body: str) -> None:
    with pytest.raises(UnknownInstruction, match=body.split()[0].rstrip(";").replace(".", r"\.")):
        parse(kernel(body))
