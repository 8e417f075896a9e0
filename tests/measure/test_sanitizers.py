"""Reports of compute-sanitizer become rows, its silence counts only where it is known to hear, and nothing is dropped.

The samples follow the documentation and logs of compute-sanitizer 2021 to 2025.
"""

from __future__ import annotations

import functools
import gzip
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.measure.refused import REFUSED
from analysis.measure.sanitize import cases, command, program, tools
from analysis.measure.sanitize.cases import MODES, TOOLS, Case, SanitizeError, Session
from analysis.measure.sanitize.logs import PLANTED, Log, Report, kernel_name, marker, read_log
from analysis.measure.sanitize.rows import Evidence, read_logs, undeclared, unseen, write
from analysis.records import files
from analysis.records.files import MEASURED, read_records, read_table
from kernels import VERSIONS, Problem
from kernels.checking.check import OWN
from kernels.checking.check import problems as odd_problems
from kernels.checking.reference import make_inputs
from kernels.runtime.compile import assembled, compile_ptx, entry_name
from kernels.runtime.emulator import Memory, execute, parse, run
from kernels.runtime.gpu import GpuError
from kernels.runtime.identity import source_hash

SEPARATE = Problem("rope", 1, 2, seq_q=32, hdim=64, rotary_dim=32)
PAIRS = [
    ("rope_separate", SEPARATE),
    ("attention_online_fixed", Problem("attention", 1, 1, seq_q=65, hdim=128)),
    ("attention_register_tiling", Problem("attention", 1, 1, seq_q=65, hdim=128)),
    ("attention_baseline", Problem("attention", 1, 2, seq_q=33, hdim=96)),
]
GPU = {
    "slug": "test-gpu", "name": "Test GPU", "node": "n", "driver": "1", "cuda": "13", "python": "3.12", "numba": "0",
    "numba_cuda": "0", "torch": "2", "sm_mhz_max": 1, "power_limit_w": 1, "commit": "c", "compute_capability": "9.0",
}  # fmt: skip


@pytest.fixture
def session() -> Session:
    todo = [Case(name, problem, source_hash(VERSIONS[name])) for name, problem in PAIRS]
    return Session("20260101T000000Z", "2026-01-01T00:00:00Z", GPU, "2025.3.0", True, todo)


BUFFERS = {
    PLANTED: {"x": [0x7F00_0000_0000, 4]},
    0: {"q": [0x7F10_0000_0000, 16384], "cos": [0x7F10_0010_0000, 4096], "sin": [0x7F10_0020_0000, 4096]},
    1: {"q": [0x7F20_0000_0000, 33280]},
    2: {"q": [0x7F30_0000_0000, 33280], "out": [0x7F30_0001_0000, 33280]},
    3: {"q": [0x7F40_0000_0000, 25344]},
}
HEADER = "========= COMPUTE-SANITIZER\n"
NO_ERRORS = "========= ERROR SUMMARY: 0 errors\n"


def stream(reports: dict[int, str], end: str = NO_ERRORS, cases: tuple[int, ...] = (PLANTED, 0, 1, 2, 3)) -> str:
    """A log in which all cases run through, with the given reports."""
    text = HEADER
    for case in cases:
        text += marker(case=case) + marker(case=case, buffers=BUFFERS[case]) + reports.get(case, "") + marker(done=case)
    return text + marker(finished=True) + end + "\n" + marker(ended=0)


MEMCHECK = stream(
    {
        PLANTED: """\
========= Invalid __global__ read of size 4 bytes
=========     at planted+0x30
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f0000000004 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 4 bytes
=========
""",
        0: """\
========= Invalid __global__ read of size 16 bytes
=========     at c0000_l0_rotate_tokens+0x120
=========     by thread (0,0,0) in block (32,0,0)
=========     Access to 0x7f1000101000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f1000100000 of size 4,096 bytes
=========
========= Invalid __global__ read of size 16 bytes
=========     at c0000_l1_rotate_tokens+0x160
=========     by thread (7,0,0) in block (63,0,0)
=========     Address 0x7f1000201f80 is out of bounds
""",
    },
    "========= ERROR SUMMARY: 3 errors\n",
)
RACECHECK = stream(
    {
        PLANTED: """\
========= Error: Race reported between Write access at planted+0x60
=========     and Write access at planted+0x60 [128 hazards]
=========
""",
        0: """\
========= Error: Race reported between Read access at c0000_l2_attention+0x860
=========     and Write access at c0000_l2_attention+0x9d0 [28672 hazards]
=========
""",
        1: """\
========= Error: Race reported between Read access at c0001_l0_attention+0x860
=========     and Write access at c0001_l0_attention+0x9d0 [57344 hazards]
=========     and Write access at c0001_l0_attention+0xb10 [4 hazards]
========= \n""",
    },
    "========= RACECHECK SUMMARY: 4 hazards displayed (4 errors, 0 warnings)\n",
)
RACECHECK_BYTES = stream(
    {
        PLANTED: """\
========= Error: Potential WAW hazard detected at __shared__ 0x400 in block (0,0,0) :
=========     Write Thread (0,0,0) at planted+0x60
=========     Write Thread (32,0,0) at planted+0x60
=========     Current Value : 0, Incoming Value : 32
=========
""",
        1: "".join(
            f"""\
========= Error: Potential WAR hazard detected at __shared__ {0x400 + 4 * 64 + byte:#x} in block (0,0,0) :
=========     Read Thread ({thread},0,0) at c0001_l0_attention+0x860
=========     Write Thread (0,0,0) at c0001_l0_attention+0x9d0
=========     Current Value : 0, Incoming Value : 181
=========
"""
            for thread in (32, 64)
            for byte in range(4)
        ),
    },
    "========= RACECHECK SUMMARY: 12 hazards displayed (12 errors, 0 warnings)\n",
)
INITCHECK = stream(
    {
        PLANTED: """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at planted+0x30
=========     by thread (31,0,0) in block (0,0,0)
=========     Address 0x7f0000000004
=========
""",
        2: """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at c0002_l0_attention+0x1070
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f30000101fc
=========
""",
    },
    "========= ERROR SUMMARY: 2 errors\n",
)
SAMPLES = {
    "memcheck": MEMCHECK,
    "racecheck": RACECHECK,
    "racecheck_bytes": RACECHECK_BYTES,
    "initcheck": INITCHECK,
    "synccheck": stream({}),
}


def logs(**other: str) -> dict[str, Log]:
    return {name: read_log({**SAMPLES, **other}[name].splitlines(keepends=True)) for name in MODES}


def rows(session: Session, **other: str) -> list[dict]:
    return Evidence(session, logs(**other)).rows()


def found(rows: list[dict], tool: str, index: int) -> list[tuple]:
    """(finding, kernel, place, expected) of a tool's rows about a pair."""
    name, problem = PAIRS[index]
    mine = [row for row in rows if row["tool"] == tool and (row["version"], row["hdim"]) == (name, problem.hdim)]
    return sorted((row["finding"], row["kernel"], row["place"], row["expected"]) for row in mine)


NOTHING = [("none", None, None, True)]
UNHEARD = [("not_checked", None, None, False)]


def test_reports_become_rows_with_kernel_and_place_and_silence_becomes_a_row_too(session) -> None:
    table = rows(session)
    assert found(table, "memcheck", 0) == [
        ("out_of_bounds", "rotate_tokens", "cos", True),
        ("out_of_bounds", "rotate_tokens", "sin", True),
    ]
    assert found(table, "racecheck", 1) == [
        ("race", "attention", "reduction", True),
        ("race", "attention", "shared", True),  # a pair of instructions that the one block did not show
    ]
    assert found(table, "initcheck", 2) == [("uninitialised", "attention", "out", True)]
    for tool, index in [("memcheck", 1), ("racecheck", 3), ("initcheck", 0), ("synccheck", 0), ("synccheck", 2)]:
        assert found(table, tool, index) == NOTHING
    assert len({(row["tool"], row["version"]) for row in table}) == len(TOOLS) * len(PAIRS)
    assert not undeclared(table)


def test_a_race_is_placed_by_another_case_of_the_version_where_its_own_block_shows_none(session) -> None:
    first = PAIRS[1]
    session.cases = [Case(*first, source_hash(VERSIONS[first[0]]))] * 2
    report = RACECHECK.replace("c0000_l2", "c0000_l0")
    table = rows(session, racecheck=report)
    assert ("race", "attention", "reduction", True) in found(table, "racecheck", 1)


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (
            "Invalid __shared__ write of size 4 bytes\n    at 0x00000780 in c0012_l3_attention(float*, int)\n"
            "    by thread (64,0,0) in block (2,0,0)\n    Address 0x1c0 is out of bounds",
            Report("out_of_bounds", 12, 3, "attention", True, 0x1C0, ()),
        ),
        (
            "Invalid __global__ write of size 16 bytes\nat c0012_l0_k+0x380 in f.cu:61\nby thread (65,0,0)\n"
            "Access to 0x7bd889c03041 is misaligned\nand is inside the nearest allocation at 0x7bd889c03000",
            Report("misaligned", 12, 0, "k", False, 0x7BD889C03041, ()),
        ),
        (
            "WARN:(Warp Level Programming) Potential RAW hazard detected at __shared__ 0x3 in block (0, 0, 0) :\n"
            "    Write Thread (31, 0, 0) at 0x00000148 in ./race.cu:3:c0001_l0_k(int*)\n"
            "    Read Thread (0, 0, 0) at 0x00000170 in ./race.cu:4:c0001_l0_k(int*)\n    Current Value : 0",
            Report("race", 1, 0, "k", True, 3, (0x148, 0x170)),
        ),
        (
            "Error: Race reported between Write access at 0x50 in c0001_l0_k(int*) and Read access at 0x90 in f.cu:4",
            Report("race", 1, 0, "k", True, None, (0x50, 0x90)),
        ),
        (
            "Error: Race reported between Write access at c0001_l0_k+0x580\n    in memory_errors.cu:25\n"
            "    and Read access at c0001_l0_k+0x890 in memory_errors.cu:31\n    [4080 hazards]",
            Report("race", 1, 0, "k", True, None, (0x580, 0x890)),
        ),
        (
            "Potential invalid __shared__ read of size 4 bytes\n    at c0001_l0_k+0x170\n"
            "    Address 0x1000400 is located in a block that might not have entered yet",
            Report("race", 1, 0, "k", True, 0x1000400, ()),
        ),
        (
            "Uninitialized __shared__ memory read of size 16 bytes\n    at c0001_l0_k+0x4a0\n    Address 0x80",
            Report("uninitialised", 1, 0, "k", True, 0x80, ()),
        ),
        (
            "Barrier error detected. Divergent thread(s) in block.\n    at [clone x] outline()+0x11f0\n"
            "    by thread (32,0,0) in block (0,0,0)\n        Device Frame: c0001_l0_k+0xe40 in test.cu:60",
            Report("divergent_barrier", 1, 0, "k", False, None, ()),
        ),
        (
            "Barrier error detected. Divergent thread(s) in warp\n    at c0001_l0_k+0xf0",
            Report("divergent_warp", 1, 0, "k", False, None, ()),
        ),
        (
            "Internal Sanitizer Error: The Sanitizer encountered an error while launching c0001_l0_k and didn't track "
            "the launch. Errors might go undetected. (Unable to allocate enough memory)",
            Report("not_checked", 1, 0, "k", False, None, ()),
        ),
        (
            'Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified failure" on cuCtxSynchronize.\n'
            "    Saved host backtrace up to driver entry point at error\n        Host Frame: main [0x8a94] in python",
            Report("unparsed", 7, None, "", False, None, ()),
        ),
        (
            "Quite another kind of error in c0001_l0_k\n    at somewhere",
            Report("unparsed", 1, 0, "k", False, None, ()),
        ),
    ],
    ids=lambda value: value.split("\n")[0][:40] if isinstance(value, str) else "",
)
def test_every_form_of_report_is_read(text: str, report: Report) -> None:
    lines = "".join(f"========= {line}\n" for line in text.split("\n"))
    log = read_log((HEADER + marker(case=7) + lines + NO_ERRORS).splitlines(keepends=True))
    assert log.reports == {report.case: {report}}
    assert bool(log.unparsed) == (report.finding in ("unparsed", "not_checked"))


def test_a_marker_in_the_middle_of_a_report_or_of_a_line_does_not_hurt_it(session) -> None:
    whole = read_log(MEMCHECK.splitlines(keepends=True)).reports
    for cut in ("by thread (0,0,0) in block (32", "=========     Access to", "rotate_tokens+0x160"):
        text = MEMCHECK.replace(cut, cut[:6] + marker(done=PLANTED) + cut[6:], 1)
        assert read_log(text.splitlines(keepends=True)).reports == whole


@pytest.mark.parametrize(
    "text",
    [
        SAMPLES["initcheck"].replace("========= ERROR SUMMARY: 2 errors\n", ""),
        SAMPLES["initcheck"].replace(
            "========= ERROR SUMMARY: 2 errors\n",
            "========= ERROR SUMMARY: 2 errors\n========= ERROR SUMMARY: 157 errors were not printed. Use --print\n",
        ),
        SAMPLES["initcheck"].replace("Uninitialized", "Unfamiliar", 1),
        stream({}),
        "",
    ],
    ids=["no summary", "not all printed", "planted kernel not seen", "nothing seen", "empty"],
)
def test_silence_of_a_tool_that_may_be_deaf_is_no_evidence(session, text: str) -> None:
    table = rows(session, initcheck=text)
    assert found(table, "initcheck", 0) == UNHEARD
    assert found(table, "memcheck", 1) == NOTHING
    assert len(undeclared(table)) >= len(PAIRS) - 1


def test_a_process_that_died_on_a_case_says_nothing_about_it_and_its_successor_goes_on(session) -> None:
    first = stream({}, cases=(PLANTED, 0)).replace(
        marker(finished=True), marker(case=1) + marker(case=1, failed="lost")
    )
    table = rows(session, synccheck=first + stream({}, cases=(2, 3)))
    assert [found(table, "synccheck", index) for index in range(4)] == [NOTHING, UNHEARD, NOTHING, NOTHING]


def test_what_the_gpu_cannot_run_is_no_fault(session) -> None:
    text = stream({}).replace(marker(done=3), marker(case=3, refused="clusters need 9.0") + marker(done=3))
    assert found(rows(session, synccheck=text), "synccheck", 3) == [("unsupported", None, None, True)]


def test_an_undeclared_finding_is_told_and_cannot_be_hidden_in_the_file(session) -> None:
    barrier = (
        "========= Barrier error detected. Divergent thread(s) in block.\n=========     at c0003_l0_attention+0x90\n"
    )
    table = rows(session, synccheck=stream({3: barrier}))
    line = f"synccheck: attention_baseline on {PAIRS[3][1]}: divergent_barrier in attention"
    assert undeclared(table) == [line]
    assert undeclared([{**row, "expected": True} for row in table]) == [line]


def test_a_declared_hazard_must_be_seen_by_a_tool_or_by_the_emulator(session) -> None:
    table = [row for row in rows(session) if row["tool"] != "initcheck"]
    asked = []

    def emulated(name: str, problem: Problem) -> set[tuple[str, str, str]]:
        asked.append(name)
        return set()

    assert unseen(table, emulated) == [f"attention_register_tiling on {PAIRS[2][1]}: uninitialised of out in attention"]
    assert asked == ["attention_register_tiling"]
    assert not unseen(table, lambda name, problem: {("uninitialised", "attention", "out")})


@functools.cache
def emulated(name: str, problem: Problem) -> set[tuple[str, str, str]]:
    report = run(VERSIONS[name](problem), make_inputs(problem, "uniform"), schedule="in step")
    return {(finding.kind, finding.kernel, finding.place) for finding in report.findings}


def test_no_finding_is_undeclared_and_every_declared_hazard_is_seen(session) -> None:
    assert undeclared(rows(session)) == []
    assert unseen(rows(session), emulated) == []


RECORDED = pytest.mark.parametrize("path", sorted(MEASURED.glob("*/sanitizers.csv")), ids=lambda path: path.parent.name)


@RECORDED
def test_no_recorded_finding_is_undeclared(path: Path) -> None:
    assert undeclared(read_records(path, "sanitizers")) == []


@pytest.mark.deep
@RECORDED
def test_every_declared_hazard_is_recorded_or_seen_by_the_emulator(path: Path) -> None:
    assert unseen(read_records(path, "sanitizers"), emulated) == []


@pytest.mark.parametrize("version", OWN, ids=lambda version: version.id)
def test_the_small_problems_show_every_hazard_that_a_version_declares(version) -> None:
    def declared(problems: list[Problem]) -> set[tuple[str, str, str]]:
        return {(h.kind, h.kernel, h.place) for problem in problems for h in version(problem).hazards}

    mine = cases.problems(version)
    most = cases.MORE_DIMS if version.id == "attention_multi_query" else 128
    assert 1 <= len(mine) <= 4
    assert all(problem.seq_q <= 128 and problem.hdim <= most for problem in mine)
    assert declared(odd_problems(version)) <= declared(mine)


def test_every_launch_has_a_name_of_its_own_and_still_assembles() -> None:
    names = set()
    for number, launch in enumerate(VERSIONS["rope_separate"](SEPARATE).launches):
        ptx = program.named_ptx(12, number, launch.kernel, "sm_90")
        names.add(entry_name(ptx))
        assert entry_name(compile_ptx(launch.kernel, "sm_90")) not in ptx
        assert kernel_name(12, number, launch.kernel.name).encode() in assembled(ptx, "sm_90")
    assert names == {"c0012_l0_rotate_tokens", "c0012_l1_rotate_tokens", "c0012_l2_attention"}


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_120"])
def test_the_planted_kernel_has_what_each_tool_must_find(target: str) -> None:
    ptx = program.planted_ptx(target)
    assert assembled(ptx, target)
    kinds = set()
    for size in (1, 2):
        memory = Memory({"x": np.zeros(size, np.uint32)}, unwritten={"x"})
        report = execute(parse(ptx), memory, (1,), (64,), ("x",), 16)
        kinds |= {finding.kind for finding in report.findings}
    assert kinds == {mode.planted for mode in MODES.values() if mode.planted}


HELP = """  --tool arg (=memcheck)
  --destroy-on-device-error arg (=context)
  --print-limit arg (=100)
  --port arg
  --report-api-errors arg
  --racecheck-report arg
"""


def test_only_options_that_this_compute_sanitizer_knows_are_given() -> None:
    words = tools.options(MODES["initcheck"], HELP)
    assert words[:2] == ["--tool", "initcheck"] and "--initcheck-address-space" not in words
    words = tools.options(MODES["initcheck"], HELP + "  --initcheck-address-space arg (=global)\n")
    assert words[-2:] == ["--initcheck-address-space", "all"]
    ports = {tools.options(mode, HELP)[tools.options(mode, HELP).index("--port") + 1] for mode in MODES.values()}
    assert len(ports) == len(MODES)
    assert "--padding" not in tools.options(MODES["memcheck"], HELP)


FAKE_TOOL = """
import json, sys
first = int(sys.argv[-1])
print("========= COMPUTE-SANITIZER", flush=True)
for case in range(first, 4):
    print("@@ " + json.dumps({"case": case}) + " @@", flush=True)
    if case == 1 and first < 1:
        print("========= half a li", end="", flush=True)
        sys.exit(3)
    print("@@ " + json.dumps({"done": case}) + " @@", flush=True)
print("@@ " + json.dumps({"finished": True}) + " @@", flush=True)
print("========= ERROR SUMMARY: 0 errors")
"""


def watch(folder: Path, script: str, seconds: float = 60.0) -> tools.Watch:
    (folder / "tool.py").write_text(script)
    command = [sys.executable, str(folder / "tool.py")]
    started = tools.Watch(MODES["synccheck"], command, folder, 4, seconds)
    while not started.finished():
        pass
    return started


def test_a_process_that_dies_is_followed_by_one_that_goes_on_behind_its_case(tmp_path, capsys) -> None:
    assert watch(tmp_path, FAKE_TOOL).starts == 2
    log = read_logs(tmp_path)["synccheck"]
    assert log.heard == {2, 3}
    assert "synccheck: done after" in capsys.readouterr().out


def test_a_tool_that_never_begins_is_not_started_again_and_one_that_hangs_is_ended(tmp_path, capsys) -> None:
    assert watch(tmp_path, "print('========= Error: unrecognised option')").starts == 1
    assert read_logs(tmp_path)["synccheck"].unparsed == {"Error: unrecognised option": 1}
    assert watch(tmp_path, "import time; time.sleep(60)", seconds=0.3).starts == 1
    assert "ended with exit code -15" in capsys.readouterr().out


def test_the_watched_process_runs_every_case_and_marks_it(session, tmp_path, monkeypatch) -> None:
    """With the driver replaced: buffers and grids are those of the plan, padding is left out for memcheck alone."""
    said, launched, allocations = [], [], []

    def allocate(sizes):
        allocations.append(dict(sizes))
        return {name: 0x1000 * number for number, name in enumerate(sizes, 1)}

    class Allocated:
        def __init__(self, sizes):
            self.addresses = allocate(sizes)

        def __enter__(self):
            return self.addresses

        def __exit__(self, *error):
            return None

    def prepare(function, grid, block, values, types, shared_bytes=0, cluster=1):
        assert len(values) == len(types)
        return lambda: launched.append((entry_name(function), grid, shared_bytes))

    monkeypatch.setattr(program, "_say", lambda **content: said.append(content))
    monkeypatch.setattr(program, "_allocated", Allocated)
    monkeypatch.setattr(program, "_ask", lambda *arguments: None)
    monkeypatch.setattr(program, "require_gpu", lambda: torch.device("cpu"))
    monkeypatch.setattr(program, "device_target", lambda: "sm_90")
    monkeypatch.setattr(program, "load_ptx", lambda ptx: ptx)
    monkeypatch.setattr(program, "prepare_launch", prepare)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    session.save(tmp_path)

    assert program.watched("memcheck", str(tmp_path), str(PLANTED)) == 0
    assert [content["done"] for content in said if "done" in content] == [PLANTED, 0, 1, 2, 3]
    assert said[-1] == {"finished": True}
    assert [name for name, _, _ in launched[:4]] == [
        "planted", "c0000_l0_rotate_tokens", "c0000_l1_rotate_tokens", "c0000_l2_attention",
    ]  # fmt: skip
    assert allocations[1]["cos"] == 32 * 32 * 4

    launched.clear()
    assert program.watched("racecheck_bytes", str(tmp_path), "0") == 0
    assert {size for _, grid, _ in launched for size in grid} == {1}
    assert allocations[5]["cos"] == (32 + 32) * 32 * 4

    def fail(*arguments):
        raise GpuError("the CUDA driver answered CUDA_ERROR_ILLEGAL_ADDRESS\nand more")

    monkeypatch.setattr(program, "prepare_launch", fail)
    assert program.watched("memcheck", str(tmp_path), "2") == 1
    assert said[-1] == {"case": 2, "failed": "the CUDA driver answered CUDA_ERROR_ILLEGAL_ADDRESS"}

    session.cases = [Case("rope_v8_mma", Problem("rope", heads=4, hdim=512, rotary_dim=128), "")]
    session.save(tmp_path)
    monkeypatch.setattr(program, "device_target", lambda: "sm_89")
    assert program.watched("memcheck", str(tmp_path), "0") == 0
    refused = "the core of warps needs clusters, of compute capability 9.0; the target is sm_89"
    assert {"case": 0, "refused": refused} in said


def keep(session: Session, folder: Path) -> None:
    session.save(folder)
    for name, text in SAMPLES.items():
        (folder / f"{name}.log.gz").write_bytes(gzip.compress(text.encode()))


def test_kept_logs_give_the_table_again_in_one_order(session, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path / "measured")
    keep(session, tmp_path)
    assert command.main(["--parse", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "memcheck: 3 none, 2 out_of_bounds" in out and "NOT DECLARED" not in out
    path = tmp_path / "measured" / "test-gpu" / "sanitizers.csv"
    before = path.read_bytes()
    frame = read_table(path, "sanitizers")
    assert list(frame["version"].drop_duplicates()) == [v for v in VERSIONS if v in {name for name, _ in PAIRS}]
    assert len(read_table(path.parent / "runs.csv", "runs")) == 1

    shuffled = rows(session)
    random.Random(0).shuffle(shuffled)
    write(session, shuffled, path.parent)
    assert path.read_bytes() == before
    write(session, [row for row in shuffled if row["version"] == "rope_separate"], path.parent)
    assert path.read_bytes() == before, "rows of other versions are kept"
    assert len(read_table(path.parent / "runs.csv", "runs")) == 1


def test_rows_of_code_that_has_changed_since_are_left_out(session, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path / "measured")
    session.cases[1] = session.cases[1]._replace(source_hash="changed")
    keep(session, tmp_path)
    assert command.main(["--parse", str(tmp_path)]) == 0
    assert "attention_online_fixed has changed since" in capsys.readouterr().out
    frame = read_table(tmp_path / "measured" / "test-gpu" / "sanitizers.csv", "sanitizers")
    assert "attention_online_fixed" not in set(frame["version"])


def test_what_is_not_understood_is_shown(session, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path / "measured")
    monkeypatch.setitem(SAMPLES, "synccheck", stream({1: "========= Something new in c0001_l0_attention\n"}))
    keep(session, tmp_path)
    assert command.main(["--parse", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "synccheck: not understood, 1 times: Something new in c0001_l0_attention" in out
    assert "NOT DECLARED: synccheck: attention_online_fixed" in out


def test_a_run_that_checked_nothing_leaves_the_table_alone(session, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(files, "MEASURED", tmp_path / "measured")
    keep(session, tmp_path)
    for name in MODES:
        (tmp_path / f"{name}.log.gz").write_bytes(gzip.compress(b"========= Error: Device not supported\n"))
    assert command.main(["--parse", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert "sanitize: no tool has checked anything" in printed.err
    assert "initcheck: not understood, 1 times: Error: Device not supported" in printed.out
    assert not (tmp_path / "measured").exists()


def test_messages_of_the_command(tmp_path, monkeypatch, capsys) -> None:
    def message(*arguments: str, code: int = 1) -> str:
        assert command.main(list(arguments)) == code
        return capsys.readouterr().err

    assert message("--list", "--versions", "rope_v99") == "sanitize: no version of the log is called 'rope_v99'\n"
    assert "session.json does not describe a run" in message("--parse", str(tmp_path))
    (tmp_path / "session.json").write_text(json.dumps({"run": "r"}))
    assert "session.json does not describe a run" in message("--parse", str(tmp_path))
    with pytest.raises(SanitizeError, match="holds no log of any tool"):
        read_logs(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    monkeypatch.setattr(tools.shutil, "which", lambda name, path=None: None)
    assert message("--logs", str(tmp_path), code=REFUSED).startswith(
        "sanitize: compute-sanitizer is neither on the PATH nor in /nowhere/bin or /usr/local/cuda/bin; "
    )
    assert command.main(["--list", "--versions", "rope_separate"]) == 0
    assert "3 cases of 1 versions" in capsys.readouterr().out
