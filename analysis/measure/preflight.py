"""Before measuring on this machine: each line says what is fine, what will be missing, or what stops it.

The machine is asked before anything runs on its GPU or takes memory of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cuda.bindings import driver

from kernels import VERSIONS, Problem, Unsupported
from kernels.limits import TARGETS, capability
from kernels.runtime.cache import FOLDER

from ..record import files, records
from ..record.files import read_json
from . import machine
from .driver import LEAST_DRIVER, driver_cuda, lock_cuda
from .refused import Refused, toolkit
from .studies import MAIN, Study

OK, WARNING, STOPS = "ok", "warning", "stops"
GB = 1e9
DISK_BYTES = 100_000_000  # of a run of every study, before it is zipped, twice
PARAMETERS = Path("/proc/driver/nvidia/params")
CAP_SYS_ADMIN = 21
PERMISSION = (
    "the administrator gives it with NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia, or run as root"
)


@dataclass(frozen=True)
class Machine:
    """What a machine answers; None where it does not. Sizes are bytes."""

    name: str | None = None
    target: str = ""
    driver: str | None = None
    driver_cuda: tuple[int, int] | None = None
    torch_cuda: str | None = None
    torch_sees_it: bool = True
    memory: int | None = None
    free_memory: int | None = None
    processes: tuple[str, ...] | None = None
    ncu: str | None = None
    counters_allowed: bool | None = None
    sanitizer: str | None = None
    free_disk: Mapping[str, int] = field(default_factory=dict)


class Line(NamedTuple):
    topic: str
    state: str
    text: str

    def __str__(self) -> str:
        return f"[check] {self.state:8s}{self.topic}: {self.text}"


# ---------------------------------------------------------------- what the machine answers


def _ask(entry: Callable[..., Any], *arguments: Any) -> Any:
    """What the CUDA driver answers, or None; it needs no torch that can use it."""
    with contextlib.suppress(RuntimeError):  # there is no driver, or none that knows this
        code, *values = entry(*arguments)
        return values[0] if values and not int(code) else None
    return None


def _gpu() -> dict[str, Any]:
    """Of the first GPU: its name, target and memory, and what NVML says of it."""
    _ask(driver.cuInit, 0)
    if (device := _ask(driver.cuDeviceGet, 0)) is None:
        return {}
    raw = _ask(driver.cuDeviceGetUuid, device)
    card = f"GPU-{uuid.UUID(bytes=raw.bytes)}" if raw else "unknown"
    kinds = driver.CUdevice_attribute
    of_capability = (
        kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    )
    memory, running = (machine.ask(f"nvmlDeviceGet{x}", card=card) for x in ("MemoryInfo", "ComputeRunningProcesses"))
    return {
        "name": _ask(driver.cuDeviceGetName, 256, device).split(b"\0")[0].decode(),
        "target": "sm_" + "".join(str(_ask(driver.cuDeviceGetAttribute, kind, device)) for kind in of_capability),
        "memory": _ask(driver.cuDeviceTotalMem, device),
        "driver": machine.driver(card),
        "free_memory": memory and int(memory.free),
        "processes": None if running is None else tuple(_process(p.pid) for p in running if p.pid != os.getpid()),
    }


def _process(pid: int) -> str:
    return f"{(_text(Path(f'/proc/{pid}/comm')) or 'process').strip()} ({pid})"


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text()
    return None


def counters_allowed(parameters: str | None, status: str) -> bool | None:
    """Whether this process may read counters, by the driver's parameters and /proc/self/status; None: not said."""
    said = dict(line.split(": ", 1) for line in (parameters or "").splitlines() if ": " in line)
    if "RmProfilingAdminOnly" not in said:
        return None
    capabilities = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return said["RmProfilingAdminOnly"] == "0" or bool(int(capabilities, 16) >> CAP_SYS_ADMIN & 1)


def _tool(program: str) -> str | None:
    with contextlib.suppress(Refused):
        return toolkit(program)
    return None


def _free(path: Path) -> int:
    """Free bytes where a folder is, or would be."""
    while not os.path.exists(path):  # False as well where it may not be asked
        path = path.parent
    return shutil.disk_usage(path).free


def gather() -> Machine:
    """What this machine answers."""
    return Machine(
        **_gpu(),
        driver_cuda=driver_cuda(),
        torch_cuda=torch.version.cuda,
        torch_sees_it=torch.cuda.is_available(),
        ncu=_tool("ncu"),
        sanitizer=_tool("compute-sanitizer"),
        counters_allowed=counters_allowed(_text(PARAMETERS), _text(Path("/proc/self/status")) or ""),
        free_disk={str(path): _free(path) for path in (files.MEASURED, FOLDER) if path},
    )


# ---------------------------------------------------------------- what it means


def memory_of(problem: Problem) -> int:
    """About the bytes of GPU memory that a problem needs: its tensors in float64 too, and all scores once."""
    queries = problem.batch * problem.heads * problem.seq_q
    keys = problem.batch * problem.kv_heads * problem.seq_k
    return 12 * 2 * (queries + keys) * problem.hdim + 4 * queries * problem.seq_k


def _target(target: str, name: str) -> Line:
    least, found = (".".join(map(str, capability(each))) for each in (TARGETS[0], target))
    if capability(target) < capability(TARGETS[0]):
        return Line("GPU", STOPS, f"{name} has compute capability {found}; {least} or later is needed")
    try:
        core = VERSIONS["rope_v8"](MAIN, target).core
    except Unsupported as refusal:
        core = f"none: {refusal}"
    return Line("GPU", OK, f"{name}, compute capability {found}; the core of V8 is {core}")


def _driver(given: Machine) -> Line:
    needed = int((given.torch_cuda or "0").split(".")[0])
    wants = f"torch is of CUDA {given.torch_cuda or 'none'}"
    if given.driver_cuda is None:
        return Line("driver", STOPS, f"it does not say which CUDA it runs; {wants}")
    both = f"{given.driver or 'of unknown version'} runs CUDA up to {'.'.join(map(str, given.driver_cuda))}, {wants}"
    if given.driver_cuda[0] < needed:
        lock = lock_cuda(given.driver_cuda)
        other = f", or packages for CUDA {lock}: make gpu CUDA={lock}" if lock <= given.driver_cuda[0] else ""
        return Line("driver", STOPS, f"{both}: driver {LEAST_DRIVER[needed]} or later is needed{other}")
    if not given.torch_sees_it:
        return Line("driver", STOPS, f"{both}, but torch sees no GPU: is it a CPU build of torch?")
    return Line("driver", OK, both)


def _memory(given: Machine, studies: Sequence[Study]) -> Line:
    most = {study.name: max(map(memory_of, study.problems), default=0) for study in studies}
    free = given.free_memory if given.free_memory is not None else given.memory
    if free is None or given.memory is None:
        return Line("memory", WARNING, "it cannot be read; what does not fit is a row that says out of memory")
    needed = f"the largest problem needs about {max(most.values(), default=0) / GB:.1f} GB"
    text = f"{given.memory / GB:.1f} GB, {free / GB:.1f} GB free; {needed}"
    short = [name for name, nbytes in most.items() if nbytes > free]
    late = f". The largest of {', '.join(short)} will say out of memory" if short else ""
    return Line("memory", WARNING if short else OK, text + late)


def _processes(found: tuple[str, ...] | None) -> Line:
    unread = "they cannot be read; times are wrong if another program uses the GPU"
    text = (
        unread
        if found is None
        else f"{', '.join(found) or 'none'} on this GPU" + "; times will be disturbed" * bool(found)
    )
    return Line("other processes", OK if found == () else WARNING, text)


def _tools(given: Machine) -> Iterator[Line]:
    allowed = {True: "", False: " may not read them (ERR_NVGPUCTRPERM)", None: " shows its permission when it runs"}
    why = allowed[given.counters_allowed] and f"{allowed[given.counters_allowed]}: {PERMISSION}"
    state = WARNING if given.counters_allowed is False else OK
    for topic, program, path, line in (
        ("counters", "ncu", given.ncu, (state, f"{given.ncu}{why}")),
        ("sanitizers", "compute-sanitizer", given.sanitizer, (OK, str(given.sanitizer))),
    ):
        lacking = (WARNING, f"no {program} on PATH or under CUDA_HOME: this part is left out")
        yield Line(topic, *(line if path else lacking))


def _time(reference: Path, studies: Sequence[Study]) -> Line:
    """How long the latest complete runs of the studies took."""
    took = {row["study"]: row["seconds"] for row in records(reference, "runs") if row["complete"]}
    known = sum(took[study.name] for study in studies if study.name in took)
    unknown = ", ".join(study.name for study in studies if study.name not in took)
    text = f"these studies took {known / 60:.1f} min on the reference card, {read_json(reference / 'gpu.json')['name']}"
    return Line("time", OK, text + (f"; of {unknown} no time is recorded" if unknown else ""))


def judge(given: Machine, studies: Sequence[Study]) -> Iterator[Line]:
    """The lines on a machine for some studies."""
    if given.name is None:
        yield Line("GPU", STOPS, "no CUDA GPU is visible on this machine; measuring needs one")
        return
    yield _target(given.target, given.name)
    yield _driver(given)
    yield _memory(given, studies)
    yield _processes(given.processes)
    yield from _tools(given)
    for path, free in given.free_disk.items():
        text = f"{free / GB:.2f} GB free in {path}; what is measured takes up to {DISK_BYTES / GB:.2f} GB"
        yield Line("disk", OK if free > DISK_BYTES else STOPS, text)
    yield _time(files.DATA / "measured" / files.REFERENCE, studies)


def passes(studies: Sequence[Study]) -> bool:
    """Print the lines on this machine; whether nothing stops measuring here."""
    lines = list(judge(gather(), studies))
    for line in lines:
        print(line, file=sys.stderr if line.state == STOPS else sys.stdout, flush=True)
    return all(line.state != STOPS for line in lines)
