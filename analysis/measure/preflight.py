"""Before measuring on this machine: each line says what is fine, what will be missing, or what stops it.

The machine is asked before anything runs on its GPU or takes memory of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernels import VERSIONS, Problem, Unsupported
from kernels.limits import TARGETS, capability
from kernels.runtime.cache import FOLDER

from ..record import files, records
from ..record.files import read_json
from .driver import LEAST_DRIVER, lock_cuda
from .refused import Refused, toolkit
from .studies import Study

OK, WARNING, STOPS = "ok", "warning", "stops"
GB = 1e9
DISK_BYTES = 100_000_000  # of a run of every study, before it is zipped, twice
LOG_PROBLEM = Problem("rope", heads=4, seq_q=64, hdim=2048, rotary_dim=2048)  # what the V8 core is named for
CORES = {
    "wgmma": "warpgroups in thread-block clusters",
    "mma": "warps in thread-block clusters",
    "portable": "one without clusters",
}
BOUND = ("torch", "nvidia-nvjitlink", "nvidia-nvvm")  # packages that ask for a driver of their CUDA version
MAJOR, MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
PARAMETERS = Path("/proc/driver/nvidia/params")
CAP_SYS_ADMIN = 21


@dataclass(frozen=True)
class Machine:
    """What a machine answers; None where it does not. CUDA versions are (major, minor), sizes bytes."""

    name: str | None = None
    target: str = ""
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    needs_cuda: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    torch_sees_it: bool = True
    memory: int | None = None
    free_memory: int | None = None
    processes: tuple[str, ...] | None = None
    ncu: str | None = None
    counters_allowed: bool | None = None
    sanitizer: str | None = None
    free_disk: Mapping[str, int] = field(default_factory=dict)


def _version(number: int) -> tuple[int, int]:
    """CUDA's way of counting: 13020 is 13.2."""
    return number // 1000, number % 1000 // 10


def _cuda() -> dict[str, Any]:
    """What the CUDA driver says of itself and of the first GPU, whether or not torch can use it."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    number, device, nbytes = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    found: dict[str, Any] = {}
    if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
        found["driver_cuda"] = _version(number.value)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return found
    name, (major, minor) = ctypes.create_string_buffer(256), (ctypes.c_int(), ctypes.c_int())
    cuda.cuDeviceGetName(name, 256, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), MINOR, device)
    if cuda.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device) == 0:
        found["memory"] = nbytes.value
    return {
        **found,
        "name": name.value.decode(),
        "target": f"sm_{major.value}{minor.value}",
        "uuid": _uuid(cuda, device),
    }


def _uuid(cuda: Any, device: ctypes.c_int) -> str:
    raw = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGetUuid(raw, device)
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def _nvml(card: str) -> dict[str, Any]:
    """What NVML says: the driver's own version, free memory and the processes on the GPU, each where it answers."""
    found: dict[str, Any] = {}
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no NVML, or none that fits the driver
        return found
    with contextlib.suppress(pynvml.NVMLError):
        found["driver"] = pynvml.nvmlSystemGetDriverVersion()
    with contextlib.suppress(pynvml.NVMLError):
        handle = pynvml.nvmlDeviceGetHandleByUUID(card)
        found["free_memory"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).free)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        found["processes"] = tuple(_process(each.pid) for each in running if each.pid != os.getpid())
    return found


def _process(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"{Path(f'/proc/{pid}/comm').read_text().strip()} ({pid})"
    return str(pid)


def _needs_cuda() -> dict[str, tuple[int, int]]:
    """The CUDA versions that what is installed was built with."""
    found = {BOUND[0]: torch.version.cuda}
    for name in BOUND[1:]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {name: (int(v.split(".")[0]), int(v.split(".")[1])) for name, v in found.items() if v}


def counters_allowed(parameters: str | None, status: str) -> bool | None:
    """Whether this process may read counters, by the driver's parameters and /proc/self/status; None: not said."""
    if parameters is None:
        return None
    said = dict(line.split(": ", 1) for line in parameters.splitlines() if ": " in line)
    if "RmProfilingAdminOnly" not in said:
        return None
    capabilities = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return said["RmProfilingAdminOnly"] == "0" or bool(int(capabilities, 16) >> CAP_SYS_ADMIN & 1)


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text()
    return None


def _free(path: Path) -> int:
    """Free bytes where a folder is, or would be."""
    while not os.path.exists(path):  # False as well where it may not be asked
        path = path.parent
    return shutil.disk_usage(path).free


def gather() -> Machine:
    """What this machine answers."""
    found = _cuda()
    if card := found.pop("uuid", None):
        found |= _nvml(card)
    for name, program in (("ncu", "ncu"), ("sanitizer", "compute-sanitizer")):
        with contextlib.suppress(Refused):
            found[name] = toolkit(program)
    return Machine(
        **found,
        needs_cuda=_needs_cuda(),
        torch_sees_it=torch.cuda.is_available(),
        counters_allowed=counters_allowed(_text(PARAMETERS), _text(Path("/proc/self/status")) or ""),
        free_disk={str(path): _free(path) for path in (files.MEASURED, FOLDER) if path},
    )


# ---------------------------------------------------------------- what it means


@dataclass(frozen=True)
class Line:
    topic: str
    state: str
    text: str

    def __str__(self) -> str:
        return f"[check] {self.state:8s}{self.topic}: {self.text}"


def memory_of(problem: Problem) -> int:
    """About the bytes of GPU memory that a problem needs: its tensors in float64 too, and all scores once."""
    queries = problem.batch * problem.heads * problem.seq_q
    keys = problem.batch * problem.kv_heads * problem.seq_k
    return 12 * 2 * (queries + keys) * problem.hdim + 4 * queries * problem.seq_k


def _gpu(machine: Machine) -> Iterator[Line]:
    cc = capability(machine.target)
    least = capability(TARGETS[0])
    dotted, allowed = ".".join(map(str, cc)), ".".join(map(str, least))
    if cc < least:
        yield Line("GPU", STOPS, f"{machine.name} has compute capability {dotted}; {allowed} or later is needed")
        return
    try:
        core = CORES[VERSIONS["rope_v8"](LOG_PROBLEM, machine.target).core]
    except Unsupported as refusal:
        core = f"none: {refusal}"
    yield Line("GPU", OK, f"{machine.name}, compute capability {dotted}; V8 takes the core of {core}")


def _driver(machine: Machine) -> Line:
    what, needed = max(machine.needs_cuda.items(), key=lambda item: item[1], default=("", (0, 0)))
    wants = f"{what} is of CUDA {_dotted(needed)}"
    if machine.driver_cuda is None:
        return Line("driver", STOPS, f"it does not say which CUDA it runs; {wants}")
    both = f"{machine.driver or 'of unknown version'} runs CUDA up to {_dotted(machine.driver_cuda)}, {wants}"
    if machine.driver_cuda[0] < needed[0]:
        lock = lock_cuda(machine.driver_cuda)
        other = f", or packages for CUDA {lock}: make gpu CUDA={lock}" if lock <= machine.driver_cuda[0] else ""
        return Line("driver", STOPS, f"{both}: driver {LEAST_DRIVER[needed[0]]} or later is needed{other}")
    if not machine.torch_sees_it:
        return Line("driver", STOPS, f"{both}, but torch sees no GPU: is it a CPU build of torch?")
    return Line("driver", OK, both)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _memory(machine: Machine, studies: Sequence[Study]) -> Line:
    if machine.memory is None:
        return Line("memory", WARNING, "it cannot be read; what does not fit is a row that says out of memory")
    most = {study.name: max((memory_of(problem) for problem in study.problems), default=0) for study in studies}
    needed = max(most.values(), default=0)
    free = machine.memory if machine.free_memory is None else machine.free_memory
    text = (
        f"{machine.memory / GB:.1f} GB, {free / GB:.1f} GB free; the largest problem needs about {needed / GB:.1f} GB"
    )
    short = [name for name, nbytes in most.items() if nbytes > free]
    if short:
        return Line("memory", WARNING, f"{text}. The largest of {', '.join(short)} will say out of memory")
    return Line("memory", OK, text)


def _processes(machine: Machine) -> Line:
    if machine.processes is None:
        return Line("other processes", WARNING, "they cannot be read; times are wrong if another program uses the GPU")
    if machine.processes:
        return Line("other processes", WARNING, f"{', '.join(machine.processes)} on this GPU; times will be disturbed")
    return Line("other processes", OK, "none on this GPU")


def _tools(machine: Machine) -> Iterator[Line]:
    give = "the administrator gives it with NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia, or run as root"
    if machine.ncu is None:
        yield Line("counters", WARNING, "no ncu on PATH or under CUDA_HOME: this part is left out")
    elif machine.counters_allowed is False:
        yield Line("counters", WARNING, f"{machine.ncu} may not read them (ERR_NVGPUCTRPERM): {give}")
    elif machine.counters_allowed is None:
        yield Line("counters", OK, f"{machine.ncu}; its permission shows when it runs. Where it has none, {give}")
    else:
        yield Line("counters", OK, machine.ncu)
    if machine.sanitizer is None:
        yield Line("sanitizers", WARNING, "no compute-sanitizer on PATH or under CUDA_HOME: this part is left out")
    else:
        yield Line("sanitizers", OK, machine.sanitizer)


def _disk(machine: Machine) -> Iterator[Line]:
    for path, free in machine.free_disk.items():
        text = f"{free / GB:.2f} GB free in {path}; what is measured takes up to {DISK_BYTES / GB:.2f} GB"
        yield Line("disk", OK if free > DISK_BYTES else STOPS, text)


def expected_seconds(runs: Iterable[Mapping[str, Any]], studies: Iterable[str]) -> tuple[float, list[str]]:
    """How long it took to measure the studies last, and the studies that nobody measured.

    The seconds of a study are its own since runs name the card's UUID, and before those of a call for several studies.
    """
    rows = [row for row in runs if row["complete"]]
    latest = {row["study"]: row["run"] for row in sorted(rows, key=lambda row: row["run"])}
    names = list(studies)
    chosen = [row for row in rows if row["study"] in names and latest[row["study"]] == row["run"]]
    own = sum(row["seconds"] for row in chosen if row["uuid"])
    calls = {row["run"] for row in chosen if not row["uuid"]}
    shared = sum(max(row["seconds"] for row in rows if row["run"] == run) for run in calls)
    return own + shared, [name for name in names if name not in latest]


def _time(reference: str, runs: Iterable[Mapping[str, Any]], studies: Sequence[Study]) -> Line:
    seconds, unknown = expected_seconds(runs, [study.name for study in studies])
    took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    text = f"these studies took {took} on the reference card, {reference}"
    return Line("time", OK, text + (f"; of {', '.join(unknown)} no time is recorded" if unknown else ""))


def judge(machine: Machine, studies: Sequence[Study], reference: Path | None = None) -> list[Line]:
    """The lines on a machine for some studies. `reference` is the folder of the record that times are taken from."""
    if machine.name is None:
        return [Line("GPU", STOPS, "no CUDA GPU is visible on this machine; measuring needs one")]
    reference = reference or files.DATA / "measured" / files.REFERENCE
    return [
        *_gpu(machine),
        _driver(machine),
        _memory(machine, studies),
        _processes(machine),
        *_tools(machine),
        *_disk(machine),
        _time(read_json(reference / "gpu.json")["name"], records(reference, "runs"), studies),
    ]


def passes(studies: Sequence[Study]) -> bool:
    """Print the lines on this machine; whether nothing stops measuring here."""
    lines = judge(gather(), studies)
    for line in lines:
        print(line, file=sys.stderr if line.state == STOPS else sys.stdout, flush=True)
    return all(line.state != STOPS for line in lines)
