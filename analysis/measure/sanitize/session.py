"""What compute-sanitizer sees in every version: `python -m analysis sanitize` writes measured/<gpu>/sanitizers.csv.

    python -m analysis sanitize --logs FOLDER     run the four tools on the GPU at hand, keep their logs
    python -m analysis sanitize --parse FOLDER    write the table again from kept logs; needs no GPU
    python -m analysis sanitize --list            what would run; needs no GPU

Each tool watches one process that runs all versions on small problems. A kernel is launched under a name that holds
the case and the launch, so a report says itself what it is about. Every buffer is a driver allocation of its exact
size, and holds nothing unless the plan fills it: that is what memcheck and initcheck watch. Racecheck runs twice: on
whole grids, where it names the instructions that race, and on one block of each launch, where it names each byte.
First, a planted kernel reads behind a buffer, reads what nobody wrote and races: a tool that misses it proves nothing
by its silence. That holds for all but synccheck: a barrier that diverges may hang the GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import functools
import gzip
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cuda.bindings import driver

from kernels import VERSIONS, Plan, Problem, Unsupported, Version
from kernels.checking.reference import TABLES_OF, make_inputs
from kernels.runtime.compile import CompileError, assembled, compile_ptx, entry_name, require_target
from kernels.runtime.gpu import C_TYPES, DTYPES, GpuError, device_target, load_ptx, prepare_launch, require_gpu
from kernels.runtime.probes import EMPTY
from kernels.version import Hazard, Kernel, Launch

from ...records.files import MEASURED, ROOT, DataError, problem_columns, problem_of, read_records, write_table
from ...records.measured import today
from ..machine import environment, identity, now
from .logs import PLANTED, PLANTED_NAME, Log, Report, kernel_name, marker, read_log, read_marker

Row = dict[str, Any]

# ---------------------------------------------------------------- what runs

# (batch, heads, seq, hdim): a last tile that is not full, two tiles of keys, and heads shorter than the 64 positions
# of the separate paths. Versions that fit fewer dims get the first of FEWER_DIMS that they take.
SHAPES = [(1, 2, 33, 96), (1, 1, 65, 128), (1, 2, 32, 64)]
FEWER_DIMS = (64, 36, 32, 16)
FP16_SHAPES = [(1, 2, 64, 64), (1, 1, 128, 64)]


class SanitizeError(RuntimeError):
    """The sanitizers could not run, or their logs cannot be read."""


class Case(NamedTuple):
    """A version on a problem; its index in the list of cases is in the names of its kernels."""

    version: str
    problem: Problem
    source_hash: str

    def plan(self) -> Plan:
        return _plan(self.version, self.problem)


@functools.cache
def _plan(version: str, problem: Problem) -> Plan:
    return VERSIONS[version](problem)


def _first_supported(version: Version, candidates: Iterable[Problem]) -> Iterator[Problem]:
    for problem in candidates:
        with contextlib.suppress(Unsupported):
            version(problem)
            yield problem
            return


def problems(version: Version) -> list[Problem]:
    """The small problems that show the hazards of `version`. Raises: SanitizeError if it takes none of them."""
    found: dict[Problem, None] = {}
    if version.family == "fp16":
        for batch, heads, seq, hdim in FP16_SHAPES:
            for causal in (False, True):
                problem = Problem("fp16", batch, heads, seq_q=seq, hdim=hdim, dtype="float16", causal=causal)
                found.update(dict.fromkeys(_first_supported(version, [problem])))
    else:
        table = TABLES_OF.get(version.family, ("computed",))[0]
        for batch, heads, seq, most in SHAPES:
            candidates = (
                Problem(version.family, batch, heads, seq_q=seq, hdim=hdim, rotary_dim=rotary_dim, table=table)
                for hdim in (most, *(dims for dims in FEWER_DIMS if dims < most))
                for rotary_dim in ((hdim // 8 * 4, hdim) if version.family == "rope" else (0,))
            )
            found.update(dict.fromkeys(_first_supported(version, candidates)))
    if not found:
        raise SanitizeError(
            f"{version.id} takes none of the small problems: give analysis/measure/sanitize/session.py one that fits"
        )
    return list(found)


def cases(versions: str = "") -> list[Case]:
    """Every own version, or those named, on its problems, in the order of the log. Raises: SanitizeError."""
    named = versions.split(",") if versions else [version.id for version in VERSIONS.values() if not version.is_peer]
    for name in named:
        if name not in VERSIONS or VERSIONS[name].is_peer:
            raise SanitizeError(f"no version of the log is called {name!r}")
    return [Case(name, problem, today(name)) for name in named for problem in problems(VERSIONS[name])]


@dataclass(frozen=True)
class Mode:
    """One process under one tool. `planted` is what the tool must find in the planted kernel."""

    name: str
    tool: str
    options: tuple[str, ...] = ()
    planted: str = ""
    one_block: bool = False

    @property
    def exact(self) -> bool:
        """Whether the padding that a declared read out of bounds lands in is left out, for memcheck to see it."""
        return self.tool == "memcheck"


MODES = {
    mode.name: mode
    for mode in (
        Mode("memcheck", "memcheck", ("--padding 65536", "--report-api-errors no"), "out_of_bounds"),
        Mode("racecheck", "racecheck", ("--racecheck-report analysis",), "race"),
        Mode("racecheck_bytes", "racecheck", ("--racecheck-report hazard",), "race", one_block=True),
        Mode("initcheck", "initcheck", ("--initcheck-address-space all",), "uninitialised"),
        Mode("synccheck", "synccheck"),
    )
}
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
COMMON_OPTIONS = (
    "--destroy-on-device-error kernel",
    "--print-limit 0",
    "--show-backtrace device",
    "--target-processes application-only",
    "--launch-timeout 300",
)
FIRST_PORT, PORTS = 49_152, 20
TIMEOUT = 300.0
RESTARTS = 12
SHOWN = 40  # lines about undeclared findings


def options(mode: Mode, help_text: str) -> list[str]:
    """The command-line options of a mode that this compute-sanitizer knows; shared memory is newer in initcheck."""
    port = FIRST_PORT + PORTS * list(MODES).index(mode.name)
    wanted = [f"--tool {mode.tool}", *COMMON_OPTIONS, f"--port {port}", *mode.options]
    known = [option for option in wanted if re.search(rf"{option.split()[0]}\b", help_text)]
    return [word for option in known for word in option.split()]


# ---------------------------------------------------------------- the watched process


def named_ptx(index: int, launch: int, kernel: Kernel, target: str) -> str:
    """The PTX of a kernel under a name of its own for every case and launch."""
    ptx = compile_ptx(kernel, target)
    return ptx.replace(entry_name(ptx), kernel_name(index, launch, kernel.name))


def planted_ptx(target: str) -> str:
    """A kernel that reads x[1] and the first word of shared memory, then stores its thread in that word and in x[0]."""
    header = re.findall(r"^\.(?:version|target|address_size) .*$", compile_ptx(EMPTY, target), re.MULTILINE)
    body = f""".extern .shared .align 16 .b8 shared[];
.visible .entry {PLANTED_NAME}(.param .u64 p_x) {{
  .reg .b64 %x; .reg .b32 %r<5>;
  ld.param.u64 %x, [p_x];
  mov.u32 %r0, %tid.x; mov.u32 %r1, shared;
  ld.global.b32 %r2, [%x+4]; ld.shared.b32 %r3, [%r1];
  st.shared.b32 [%r1], %r0;
  add.u32 %r4, %r2, %r3; add.u32 %r4, %r4, %r0; st.global.b32 [%x], %r4; ret;
}}
"""
    return "\n".join([*header, body])


def _say(**content: Any) -> None:
    """A marker in the output that the tool's reports share, written in one piece."""
    os.write(1, marker(**content).encode())


def _ask(entry: Callable[..., Any], *arguments: Any) -> Any:
    code, *values = entry(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"the CUDA driver answered {code.name} to {entry.__name__}")
    return values[0] if values else None


@contextlib.contextmanager
def _allocated(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Addresses of fresh allocations of so many bytes, a driver allocation each."""
    pointers: dict[str, Any] = {}
    try:
        for name, size in sizes.items():
            pointers[name] = _ask(driver.cuMemAlloc, size)
        yield {name: int(pointer) for name, pointer in pointers.items()}
    finally:
        for pointer in pointers.values():
            driver.cuMemFree(pointer)


def _run_planted(mode: Mode) -> None:
    size = 4 if mode.exact else 8
    with _allocated({"x": size}) as addresses:
        _say(case=PLANTED, buffers={"x": [addresses["x"], size]})
        function = load_ptx(planted_ptx(device_target()))
        prepare_launch(function, (1,), (64,), [addresses["x"]], [ctypes.c_uint64], 16)()
        torch.cuda.synchronize()


def _grid(launch: Launch, one_block: bool) -> tuple[int, ...]:
    return (launch.cluster, *(1 for _ in launch.grid[1:])) if one_block else launch.grid


def _run_case(index: int, case: Case, mode: Mode) -> None:
    plan = case.plan()
    inputs = make_inputs(plan.problem, "uniform")
    sizes = {name: buffer.size * DTYPES[buffer.dtype].itemsize for name, buffer in plan.buffers.items()}
    padding = {name: 0 if mode.exact else buffer.padding for name, buffer in plan.buffers.items()}
    padding = {name: count * DTYPES[plan.buffers[name].dtype].itemsize for name, count in padding.items()}
    with _allocated({name: size + padding[name] for name, size in sizes.items()}) as addresses:
        _say(case=index, buffers={name: [addresses[name], sizes[name]] for name in sizes})
        for name, buffer in plan.buffers.items():
            if padding[name]:
                _ask(driver.cuMemsetD8, addresses[name] + sizes[name], 0xFF, padding[name])
            contents = buffer.init() if buffer.init else inputs.get(name)
            if contents is not None:
                host = torch.as_tensor(contents).to(DTYPES[buffer.dtype]).contiguous()
                _ask(driver.cuMemcpyHtoD, addresses[name], host.data_ptr(), sizes[name])
        for number, launch in enumerate(plan.launches):
            require_target(launch, device_target())
            values, types = [], []
            for argument, numba_type in zip(launch.args, launch.kernel.signature, strict=True):
                values.append(addresses[argument] if isinstance(argument, str) else argument)
                types.append(ctypes.c_uint64 if isinstance(argument, str) else C_TYPES[str(numba_type)])
            function = load_ptx(named_ptx(index, number, launch.kernel, device_target()))
            grid = _grid(launch, mode.one_block)
            prepare_launch(function, grid, launch.block, values, types, launch.shared_bytes, launch.cluster)()
            torch.cuda.synchronize()


def watched(mode_name: str, folder: str, first: str) -> int:
    """Body of the process under a tool: all cases from the one with index `first`, the planted kernel being -1."""
    mode, todo = MODES[mode_name], Session.load(Path(folder)).cases
    torch.zeros(1, device=require_gpu())  # makes torch's context current, for the driver's allocations
    for index in range(int(first), len(todo)):
        _say(case=index)
        try:
            if index == PLANTED:
                _run_planted(mode)
            else:
                _run_case(index, todo[index], mode)
        except Unsupported as refusal:
            _say(case=index, refused=str(refusal))
        except RuntimeError as error:  # the context may be lost: the next case gets a new process
            _say(case=index, failed=str(error).splitlines()[0])
            return 1
        _say(done=index)
    _say(finished=True)
    return 0


# ---------------------------------------------------------------- the session: its cases and its logs


@dataclass
class Session:
    """One run of all tools: what ran where, kept beside the logs."""

    run: str
    started_at: str
    gpu: dict[str, Any]
    sanitizer: str
    whole: bool
    cases: list[Case]
    finished_at: str | None = None
    seconds: float = 0.0

    def save(self, folder: Path) -> None:
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content["cases"] = [
            {"version": c.version, "source_hash": c.source_hash, **problem_columns(c.problem)} for c in self.cases
        ]
        (folder / "session.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Session:
        """Raises: SanitizeError when the folder holds no session."""
        try:
            content = json.loads((folder / "session.json").read_text(encoding="utf-8"))
            rows = content.pop("cases")
            return cls(**content, cases=[Case(row["version"], problem_of(row), row["source_hash"]) for row in rows])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SanitizeError(
                f"{folder / 'session.json'} does not describe a run of the sanitizers: {error}"
            ) from error


def find_sanitizer() -> str:
    """The path of compute-sanitizer. Raises: SanitizeError naming where it was sought."""
    folders = [os.path.join(root, "bin") for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    path = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if not path:
        raise SanitizeError(
            f"compute-sanitizer is neither on the PATH nor in {' or '.join(folders)}; "
            "it comes with the CUDA toolkit: set CUDA_HOME to where that is"
        )
    return path


def _output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


class Watch:
    """The process of one mode, and those that go on where it died. Its output is one log."""

    def __init__(self, mode: Mode, command: Sequence[str], folder: Path, count: int, seconds: float) -> None:
        self.mode, self.command, self.folder, self.count = mode, list(command), folder, count
        self.log = folder / f"{mode.name}.log"
        self.log.unlink(missing_ok=True)
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.starts = 0
        self._start(PLANTED)

    def _start(self, first: int) -> None:
        self.first = first
        self.starts += 1
        self.offset = self.log.stat().st_size if self.log.exists() else 0
        application = (
            sys.executable,
            "-m",
            "analysis.measure.sanitize.session",
            self.mode.name,
            str(self.folder),
            str(first),
        )
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                [*self.command, *application], stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True
            )

    def _last_begun(self) -> int | None:
        """The last case that the process at hand began, or None before the first; `count` when it went through."""
        last = None
        with open(self.log, encoding="utf-8", errors="replace") as file:
            file.seek(self.offset)
            for line in file:
                content = read_marker(line)
                if content and content.get("finished"):
                    return self.count
                if content and "case" in content:
                    last = content["case"]
        return last

    def finished(self) -> bool:
        """Whether all is done; starts another process if this one died on the way."""
        if self.process.poll() is None:
            if time.monotonic() < self.deadline:
                return False
            self.stop()
        with open(self.log, "ab") as out:
            out.write(("\n" + marker(ended=self.process.returncode)).encode())
        last = self._last_begun()
        in_time = time.monotonic() < self.deadline and self.starts <= RESTARTS
        if last is not None and last < self.count - 1 and in_time:
            self._start(last + 1)
            return False
        how = "done" if last == self.count else f"ended with exit code {self.process.returncode}, {self._last_words()},"
        self._compress()
        seconds = time.monotonic() - self.began
        print(f"[sanitize] {self.mode.name}: {how} after {seconds:.0f} s, {self.starts} processes", flush=True)
        return True

    def _last_words(self) -> str:
        """The last line that the watched process, not the tool, printed of its own."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            file.seek(max(self.offset, self.log.stat().st_size - 100_000))
            own = [line.strip() for line in file if line.strip() and not line.startswith(("=====", "@@"))]
        return repr(own[-1] if own else "saying nothing")

    def _compress(self) -> None:
        with open(self.log, "rb") as plain, gzip.open(f"{self.log}.gz", "wb", compresslevel=6) as packed:
            shutil.copyfileobj(plain, packed)
        self.log.unlink()

    def stop(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(10)


def _assemble(indices: Sequence[int], chosen: Sequence[Case], target: str) -> None:
    for index, case in zip(indices, chosen, strict=True):
        for number, launch in enumerate(case.plan().launches):
            with contextlib.suppress(Unsupported, CompileError):  # the watched process says so
                require_target(launch, target)
                assembled(named_ptx(index, number, launch.kernel, target), target)


def _assemble_all(todo: Sequence[Case], target: str) -> None:
    """Fill the cache of compiled kernels, so that the watched processes compile nothing."""
    groups: dict[str, tuple[list[int], list[Case]]] = {}
    for index, case in enumerate(todo):
        indices, chosen = groups.setdefault(case.version, ([], []))
        indices.append(index)
        chosen.append(case)
    workers = max(1, min(os.cpu_count() or 1, 16, len(groups)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_assemble, *zip(*groups.values(), strict=True), [target] * len(groups)))


def sanitize(folder: Path, versions: str = "", jobs: int = len(MODES), seconds: float = TIMEOUT) -> Session:
    """Run every mode on the GPU at hand; its logs go to `folder`. Raises: SanitizeError, GpuError."""
    binary, folder = find_sanitizer(), folder.resolve()
    help_text = _output(binary, "--help")
    if "--tool" not in help_text:
        raise SanitizeError(f"{binary} --help does not answer: {help_text.strip()[-300:]}")
    todo = cases(versions)
    started, began = now(), time.monotonic()
    gpu = {**identity(), **environment()}
    lines = [line for line in _output(binary, "--version").splitlines() if line.strip()]
    run = started.replace("-", "").replace(":", "")
    session = Session(run, started, gpu, lines[-1].strip() if lines else "", not versions, todo)
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder)
    print(f"[sanitize] {len(todo)} cases on {gpu['name']}, run {run}, {binary} {session.sanitizer}; logs in {folder}")
    _assemble_all(todo, device_target())
    print(f"[sanitize] compiled after {time.monotonic() - began:.0f} s", flush=True)
    waiting = list(MODES.values())
    watches: list[Watch] = []
    try:
        while waiting or watches:
            while waiting and len(watches) < jobs:
                mode = waiting.pop(0)
                command = [binary, *options(mode, help_text)]
                watches.append(Watch(mode, command, folder, len(todo), seconds))
            watches = [watch for watch in watches if not watch.finished()]
            time.sleep(0.2)
    finally:
        for watch in watches:
            watch.stop()
    session.finished_at, session.seconds = now(), round(time.monotonic() - began, 1)
    session.save(folder)
    return session


# ---------------------------------------------------------------- from reports to rows

SOMEWHERE = "shared"  # the place of what happened in shared memory where the tool gives no address
RESERVED_SHARED_BYTES = 1024  # the system's, at the start of a block's shared memory, from compute capability 8.0 on


def read_logs(folder: Path) -> dict[str, Log]:
    """The logs of all modes; a mode without one has an empty log. Raises: SanitizeError if none has."""
    logs = {}
    for name in MODES:
        plain, packed = folder / f"{name}.log", folder / f"{name}.log.gz"
        if plain.exists() or packed.exists():
            open_it: Any = open if plain.exists() else gzip.open
            with open_it(plain if plain.exists() else packed, "rt", encoding="utf-8", errors="replace") as file:
                logs[name] = read_log(file)
    if not logs:
        raise SanitizeError(f"{folder} holds no log of any tool, such as memcheck.log.gz")
    return {name: logs.get(name, Log()) for name in MODES}


def nearest_buffer(address: int, buffers: Mapping[str, Sequence[int]]) -> str:
    """The buffer that holds an address, or the nearest; of two as near, the one before it."""

    def distance(name: str) -> tuple[int, bool]:
        start, size = buffers[name]
        return max(start - address, address - (start + size - 1), 0), start > address

    return min(buffers, key=distance, default="nowhere")


def covers(hazard: Hazard, plan: Plan, finding: str, kernel: str, place: str) -> bool:
    """Whether a finding is what a plan declares; "shared" may be any array of shared memory."""
    same_place = place == hazard.place or (place == SOMEWHERE and hazard.place not in plan.buffers)
    return finding == hazard.kind and kernel == hazard.kernel and same_place


class Evidence:
    """The reports of a session, with names for their addresses."""

    def __init__(self, session: Session, logs: Mapping[str, Log]) -> None:
        self.session, self.logs = session, logs
        self.bases = {name: self._shared_base(log) for name, log in logs.items()}
        self.racing: dict[tuple[Any, ...], set[str]] = {}  # arrays that two instructions were seen to race on
        bytes_log = logs["racecheck_bytes"]
        for case, reports in bytes_log.reports.items():
            for report in reports:
                if case is not None and report.address is not None:
                    place = self._array("racecheck_bytes", report)
                    for key in self._keys(report, frozenset(report.instructions)):
                        self.racing.setdefault(key, set()).add(place)

    @staticmethod
    def _shared_base(log: Log) -> int:
        """The address that a tool gives to the first byte of dynamic shared memory: the planted kernel's word."""
        planted = [report.address for report in log.reports.get(PLANTED, ()) if report.shared]
        return min((address for address in planted if address is not None), default=RESERVED_SHARED_BYTES)

    def _array(self, mode: str, report: Report) -> str:
        """The array of shared memory at a report's address."""
        if report.case is None or report.case == PLANTED or report.launch is None or report.address is None:
            return SOMEWHERE
        layout = self.session.cases[report.case].plan().launches[report.launch].shared
        return layout.place(report.address - self.bases[mode])

    def _keys(self, report: Report, instructions: frozenset[int]) -> list[tuple[Any, ...]]:
        """What two racing instructions are looked up by: in their own launch, then in the version's other cases."""
        if report.case is None or report.case == PLANTED:
            return []
        version = self.session.cases[report.case].version
        return [(report.case, report.launch, instructions), (version, report.kernel, instructions)]

    def places(self, mode: str, report: Report) -> set[str]:
        """Buffers or arrays of shared memory; several where a race is reported by its instructions."""
        if report.instructions and report.address is None:
            first, *others = report.instructions
            found = set()
            for other in others:
                known = (
                    self.racing[key] for key in self._keys(report, frozenset((first, other))) if key in self.racing
                )
                found |= next(known, {SOMEWHERE})
            return found or {SOMEWHERE}
        if report.shared:
            return {self._array(mode, report)}
        if report.address is None or report.case is None:
            return {""}
        return {nearest_buffer(report.address, self.logs[mode].buffers.get(report.case, {}))}

    def found(self, index: int, tool: str) -> set[tuple[str, str, str]]:
        """(finding, kernel, place) of a tool's reports on a case; "not_checked" if its silence says nothing."""
        modes = [mode for mode in MODES.values() if mode.tool == tool]
        log, planted = self.logs[modes[0].name], modes[0].planted
        if index in log.refused:
            return {("unsupported", "", "")}
        found = {
            (report.finding, report.kernel, place)
            for mode in modes
            for report in self.logs[mode.name].reports.get(index, ())
            for place in self.places(mode.name, report)
        }
        heard = index in log.heard and (not planted or log.planted(planted))
        return found if found or heard else {("not_checked", "", "")}

    def rows(self) -> list[Row]:
        """A row for all that a tool found in a case, or one that says "none"; cases of changed code are left out."""
        rows = []
        for index, case in enumerate(self.session.cases):
            if case.source_hash != today(case.version):
                continue
            plan = case.plan()
            for tool in TOOLS:
                for finding, kernel, place in self.found(index, tool) or {("none", "", "")}:
                    declared = any(covers(hazard, plan, finding, kernel, place) for hazard in plan.hazards)
                    rows.append(
                        {
                            "run": self.session.run,
                            "tool": tool,
                            "version": case.version,
                            **problem_columns(case.problem),
                            "finding": finding,
                            "kernel": kernel or None,
                            "place": place or None,
                            "expected": declared or finding in ("none", "unsupported"),
                            "source_hash": case.source_hash,
                        }
                    )
        return rows


# ---------------------------------------------------------------- what the rows say

HazardKey = tuple[str, str, str]  # kind, kernel, place


def undeclared(rows: Iterable[Row]) -> list[str]:
    """Lines about what the tools found and the versions do not declare, as the rows say and as today's plans do."""
    lines = []
    for row in rows:
        expected = row["expected"]
        todays = row["source_hash"] == today(row["version"])
        if expected and todays and row["finding"] not in ("none", "unsupported"):
            plan = _plan(row["version"], problem_of(row))
            expected = any(
                covers(h, plan, row["finding"], row["kernel"] or "", row["place"] or "") for h in plan.hazards
            )
        if not expected:
            lines.append(f"{row['tool']}: {row['version']} on {problem_of(row)}: {describe(row)}")
    return lines


def unseen(rows: Iterable[Row], emulated: Callable[[str, Problem], set[HazardKey]]) -> list[str]:
    """Lines about declared hazards that no tool saw, nor the emulator, which is asked only about those.

    Versions whose code has changed since are left out.
    """
    found: dict[tuple[str, Problem], list[Row]] = {}
    for row in rows:
        if row["source_hash"] == today(row["version"]):
            found.setdefault((row["version"], problem_of(row)), []).append(row)
    lines = []
    for (name, problem), mine in found.items():
        plan = _plan(name, problem)
        for hazard in plan.hazards:
            seen = any(covers(hazard, plan, r["finding"], r["kernel"] or "", r["place"] or "") for r in mine)
            if not seen and (hazard.kind, hazard.kernel, hazard.place) not in emulated(name, problem):
                lines.append(f"{name} on {problem}: {hazard.kind} of {hazard.place} in {hazard.kernel}")
    return lines


def describe(row: Row) -> str:
    place, kernel = (f" {word} {row[what]}" if row[what] else "" for word, what in (("of", "place"), ("in", "kernel")))
    return f"{row['finding']}{place}{kernel}"


# ---------------------------------------------------------------- files and the command


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    problem = tuple(problem_columns(problem_of(row)).values())
    texts = (row["finding"], row["kernel"] or "", row["place"] or "")
    return list(VERSIONS).index(row["version"]), problem, TOOLS.index(row["tool"]), texts


def write(session: Session, rows: list[Row], folder: Path) -> Path:
    """Put a session's rows into sanitizers.csv, in place of those of the same versions, and the run into runs.csv."""
    path = folder / "sanitizers.csv"
    ran = {row["version"] for row in rows}
    kept = [row for row in read_records(path, "sanitizers") if row["version"] in VERSIONS and row["version"] not in ran]
    folder.mkdir(parents=True, exist_ok=True)
    write_table(path, "sanitizers", sorted([*kept, *rows], key=_order))
    machine = ("node", "driver", "cuda", "python", "numba", "numba_cuda", "torch", "sm_mhz_max", "power_limit_w")
    entry = {
        "run": session.run,
        "study": "sanitizers",
        "started_at": session.started_at,
        "finished_at": session.finished_at,
        "complete": session.whole and not any(row["finding"] == "not_checked" for row in rows),
        "seconds": session.seconds,
        "throttle": "unknown",
        **{name: session.gpu[name] for name in (*machine, "commit")},
    }
    others = [row for row in read_records(folder / "runs.csv", "runs") if row["run"] != session.run]
    write_table(folder / "runs.csv", "runs", [*others, entry])
    return path


def summarise(session: Session, logs: Mapping[str, Log], rows: list[Row]) -> None:
    """Print what was found, what is not declared, and what in the logs was not understood."""
    for tool in TOOLS:
        mine = [row for row in rows if row["tool"] == tool]
        counts = {
            finding: sum(row["finding"] == finding for row in mine) for finding in sorted({r["finding"] for r in mine})
        }
        print(f"[sanitize] {tool}: {', '.join(f'{count} {finding}' for finding, count in counts.items())}")
    for name, log in logs.items():
        if MODES[name].planted and not log.planted(MODES[name].planted):
            print(f"[sanitize] {name} missed the planted {MODES[name].planted}: its silence says nothing")
        for index, reason in log.failed.items():
            print(f"[sanitize] {name}: case {index}: {reason}")
        for head, count in log.unparsed.most_common(10):
            print(f"[sanitize] {name}: not understood, {count} times: {head}")
        outside = {report.finding for report in log.reports.get(None, ())}
        if outside:
            print(f"[sanitize] {name}: before the first case: {', '.join(sorted(outside))}")
    for case in session.cases:
        if case.source_hash != today(case.version):
            print(f"[sanitize] {case.version} has changed since these logs were made: its rows are left out")
    for line in unseen(rows, lambda name, problem: set()):
        print(f"[sanitize] declared, and seen by none of the tools: {line}")
    lines = undeclared(rows)
    for line in lines[:SHOWN]:
        print(f"[sanitize] NOT DECLARED: {line}")
    if len(lines) > SHOWN:
        print(f"[sanitize] and {len(lines) - SHOWN} more that are not declared")


def _list(versions: str) -> None:
    todo = cases(versions)
    for index, case in enumerate(todo):
        declared = ", ".join(f"{h.kind} of {h.place} in {h.kernel}" for h in case.plan().hazards) or "none"
        print(f"{index:4d} {case.version:40s} {case.problem!s:40s} {declared}")
    print(f"[sanitize] {len(todo)} cases of {len({case.version for case in todo})} versions")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m analysis sanitize", description=__doc__.splitlines()[0])
    parser.add_argument("--versions", default="", help="only these, separated by commas; other rows are kept")
    parser.add_argument("--logs", type=Path, help="folder for the tools' logs (default: a temporary one)")
    parser.add_argument("--parse", type=Path, metavar="FOLDER", help="run nothing: read the logs kept in FOLDER")
    parser.add_argument("--list", action="store_true", help="run nothing: list the cases and their declared hazards")
    parser.add_argument("--jobs", type=int, default=len(MODES), help="tools at a time on the GPU (default: all)")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT, help=f"seconds for each tool (default: {TIMEOUT:.0f})"
    )
    chosen = parser.parse_args(arguments)
    try:
        if chosen.list:
            _list(chosen.versions)
            return 0
        if chosen.parse:
            folder, session = chosen.parse, Session.load(chosen.parse)
        else:
            folder = chosen.logs or Path(tempfile.mkdtemp(prefix="sanitizers-"))
            session = sanitize(folder, chosen.versions, chosen.jobs, chosen.timeout)
        logs = read_logs(folder)
        rows = Evidence(session, logs).rows()
        summarise(session, logs, rows)
        if all(row["finding"] == "not_checked" for row in rows):
            raise SanitizeError(f"no tool has checked anything, and nothing is written; the logs in {folder} say why")
        path = write(session, rows, MEASURED / session.gpu["slug"])
    except (SanitizeError, DataError, GpuError) as error:
        print(f"sanitize: {error}", file=sys.stderr)
        return 1
    print(f"[sanitize] {len(rows)} rows in {path}; logs in {folder}")
    return 1 if undeclared(rows) else 0


if __name__ == "__main__":
    sys.exit(watched(*sys.argv[1:]))
